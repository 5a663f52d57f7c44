"""What a run records: metrics.jsonl and loss.png in its folder, TensorBoard and Weights & Biases if asked."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError

DRAWING_SHARE = 0.02  # of a run's time at most goes into redrawing loss.png


def to_json(row: Mapping[str, Any]) -> str:
    """One line of strict JSON; tensors of one element become numbers.

    Numbers that JSON lacks become "NaN", "Infinity" and "-Infinity", as in protobuf: Python's `float` and
    JavaScript's `Number` read these words back.
    """
    plain = {name: _plain(value) for name, value in row.items()}
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class JsonLines:
    """metrics.jsonl: one object a line and one line a step, in the file as soon as it is written.

    Opened at a step, it forgets what an earlier run wrote after that step, and a line that a crash cut off.
    So a resumed run leaves the file that a run never stopped would have left.
    """

    def __init__(self, path: Path, step: int = 0) -> None:
        kept = [row for row in read_rows(path) if row["step"] <= step]
        replacement = path.with_name(path.name + ".new")
        replacement.write_text("".join(to_json(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(replacement, path)
        self._file = path.open("r+b", buffering=0)  # what a full disk refused is not written later
        self._start = self._file.seek(0, os.SEEK_END)  # of the last line
        self._row: dict[str, Any] = {}

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Adds a line; what is written for the last step again joins its line.

        Raises OSError (a full disk, say); the file then ends with the line of the step before.
        """
        again = self._row.get("step") == step
        row = {**(self._row if again else {"step": step}), **values}
        left = to_json(row).encode() + b"\n"
        self._row = {}
        self._start = self._file.seek(self._start if again else 0, os.SEEK_SET if again else os.SEEK_END)
        self._file.truncate()
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self._start)
            raise
        self._row = row

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a metrics.jsonl, without what a crash left of a line; none where there is no file."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


class TensorBoard:
    """Event files in the run folder, for `tensorboard --logdir`."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder / "tensorboard", purge_step=step + 1 if step else None)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A Weights & Biases run; a resumed run goes on in it. Account and mode are wandb's own business."""

    def __init__(self, folder: Path, project: str, settings: Mapping[str, Any]) -> None:
        import wandb

        known = folder / "wandb-run-id"
        run_id = known.read_text().strip() if known.exists() else secrets.token_hex(4)
        known.write_text(run_id + "\n")
        where = {"project": project, "dir": str(folder), "name": folder.name}
        self._run = wandb.init(**where, id=run_id, resume="allow", config=dict(settings))

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class RunLog:
    """All that a run records, behind one `write`. Nothing is written before `begin`."""

    def __init__(
        self, folder: Path, *, tensorboard: bool = False, wandb: bool = False, project: str = "tfcli"
    ) -> None:
        for name, wanted in (("tensorboard", tensorboard), ("wandb", wandb)):
            if wanted and importlib.util.find_spec(name) is None:
                raise ConfigError(f"log.{name}=true: needs the package {name}: pip install 'tfcli[{name}]'")
        self.folder, self.project = Path(folder), project
        self._wanted = {"tensorboard": tensorboard, "wandb": wandb}
        self._sinks: list[JsonLines | TensorBoard | Wandb] = []
        self._next_drawing = 0.0

    def begin(self, step: int = 0, settings: Mapping[str, Any] | None = None) -> None:
        """Opens what is written to, for a run that goes on after `step`; `settings` are shown beside it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sinks.append(JsonLines(self.folder / "metrics.jsonl", step))
        if self._wanted["tensorboard"]:
            self._sinks.append(TensorBoard(self.folder, step))
        if self._wanted["wandb"]:
            self._sinks.append(Wandb(self.folder, self.project, settings or {}))

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Records the numbers of a step; tensors of one element are read here, and only here."""
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        for sink in self._sinks:
            sink.write(step, numbers)

    def draw(self, *, final: bool = False) -> str | None:
        """Draws loss.png, unless it was just drawn and more is to come. Returns what stood in the way.

        Raises OSError if it cannot be written.
        """
        began = time.monotonic()
        if not final and began < self._next_drawing:
            return None
        problem = draw_losses(read_rows(self.folder / "metrics.jsonl"), self.folder / "loss.png")
        self._next_drawing = time.monotonic() + (time.monotonic() - began) / DRAWING_SHARE
        return problem

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
        self._sinks.clear()


def draw_losses(rows: Iterable[Mapping[str, Any]], path: Path) -> str | None:
    """Training and validation loss over steps as a PNG. Returns None, or why there is no picture."""
    try:
        from matplotlib.figure import Figure  # without pyplot: no window system, no state between calls
    except ImportError:
        return f"no {path.name}: matplotlib is not installed"
    rows = list(rows)
    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per token)")
    for name, label, style in (
        ("loss", "train", {"color": "tab:blue", "linewidth": 1, "alpha": 0.8}),
        ("val_loss", "validation", {"color": "tab:orange", "linewidth": 1.8, "marker": "o", "markersize": 4}),
    ):
        points = [(row["step"], float(row[name])) for row in rows if row.get(name) is not None]
        if points:
            last = f"{label} (last {points[-1][1]:.3f})"
            axes.plot(*zip(*points), label=last, **style)
    if axes.lines:
        axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    unfinished = path.with_name(path.name + ".new")
    try:
        figure.savefig(unfinished, format="png")
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    return None
