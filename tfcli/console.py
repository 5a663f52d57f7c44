"""What a run shows on the terminal: a table before it starts, and a line that says how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from tqdm import tqdm

REDRAW_SECONDS = 0.1  # a terminal's bar at most this often
LINE_SECONDS = 10.0  # a file or pipe gets whole lines, and fewer of them


def table(groups: Mapping[str, Iterable[tuple[str, Any]]]) -> str:
    """Named groups of (name, value) rows as aligned plain text; whole numbers with their thousands apart."""
    groups = {title: list(rows) for title, rows in groups.items()}
    width = max((len(name) for rows in groups.values() for name, _ in rows), default=0)
    lines = []
    for title, rows in groups.items():
        lines += [title] + [f"  {name:<{width}}  {_shown(value)}" for name, value in rows]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None else str(value)


class Progress:
    """How far a run is, with loss, learning rate, tokens per second and the time left.

    `advance` is called at every step and must cost nothing, so a loss may be a tensor: it is read only when
    there is something to show, which on a terminal is ten times a second at most.
    """

    def __init__(self, n_steps: int, *, step: int = 0, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._is_terminal = self._file.isatty()
        self._seconds = REDRAW_SECONDS if self._is_terminal else LINE_SECONDS
        # tqdm's own thrift is off: `advance` already decides when it is asked
        how = {"unit": "step", "mininterval": 0, "dynamic_ncols": True, "disable": not self._is_terminal}
        self._bar = tqdm(total=n_steps, initial=step, file=self._file, **how)
        self._n_steps, self._first, self._step = n_steps, step, step
        self._began = self._said = time.perf_counter()
        self._tokens, self._rate = 0, 0.0

    def advance(self, step: int, *, loss: Any, lr: float, tokens: int) -> None:
        """A step is done: its loss (a number or a tensor of one), its rate and its number of tokens."""
        self._step = step
        self._tokens += tokens
        now = time.perf_counter()
        if now - self._said >= self._seconds or step == self._n_steps:
            self._show(now, float(loss), lr)

    def _show(self, now: float, loss: float, lr: float) -> None:
        rate = self._tokens / max(now - self._said, 1e-9)
        self._rate = rate if not self._rate else 0.7 * self._rate + 0.3 * rate
        self._tokens, self._said = 0, now
        numbers = f"loss {loss:.3f}, lr {lr:.2e}, {self._rate:,.0f} tokens/s"
        if self._is_terminal:
            self._bar.set_postfix_str(numbers, refresh=False)
            self._bar.update(self._step - self._bar.n)
        else:
            left = (now - self._began) / max(self._step - self._first, 1) * (self._n_steps - self._step)
            self.say(f"step {self._step}/{self._n_steps}: {numbers}, {tqdm.format_interval(left)} left")

    def say(self, text: str) -> None:
        """A line of its own, above the bar where there is one."""
        if self._is_terminal:
            self._bar.write(text, file=self._file)
        else:
            print(text, file=self._file, flush=True)

    def close(self) -> None:
        self._bar.close()
