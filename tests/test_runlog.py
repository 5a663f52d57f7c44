"""What a run records in its folder and elsewhere."""

import importlib.util
import json
import math
import sys
import time
import types
import warnings

import pytest
import torch

from tfcli import runlog
from tfcli.errors import ConfigError
from tfcli.runlog import JsonLines, RunLog, draw_losses, read_rows, to_json


def strict(text: str) -> dict:
    """JSON as the standard has it, without Python's NaN and Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def lines_of(path) -> list[dict]:
    return [strict(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_line_is_strict_json_even_when_a_loss_is_not_a_number():
    row = {"step": 3, "loss": math.nan, "val_perplexity": math.inf, "a": -math.inf, "text": "日本"}
    assert strict(to_json(row)) == {
        "step": 3, "loss": "NaN", "val_perplexity": "Infinity", "a": "-Infinity", "text": "日本"
    }  # fmt: skip
    assert math.isnan(float(strict(to_json(row))["loss"])) and float(strict(to_json(row))["a"]) == -math.inf


def test_tensors_are_written_as_numbers():
    assert to_json({"loss": torch.tensor(1.5), "tokens": torch.tensor(7)}) == '{"loss": 1.5, "tokens": 7}'


def test_a_line_is_in_the_file_as_soon_as_it_is_written(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    lines.write(1, {"loss": 2.0})
    assert lines_of(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 2.0}]
    lines.write(2, {"loss": 1.0})
    assert len(lines_of(tmp_path / "metrics.jsonl")) == 2
    lines.close()


def test_a_step_has_one_line_also_when_it_is_logged_and_evaluated_apart(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        lines.write(step, {"loss": 10.0 / step})
        if step == 2:
            lines.write(step, {"val_loss": 4.0})
            lines.write(step, {"val_perplexity": math.exp(4)})
    lines.close()
    rows = lines_of(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[1] == {"step": 2, "loss": 5.0, "val_loss": 4.0, "val_perplexity": math.exp(4)}


def test_a_resumed_run_leaves_the_file_of_a_run_never_stopped(tmp_path):
    def write(path, steps, resumed):
        lines = JsonLines(path, resumed)
        for step in steps:
            lines.write(step, {"loss": 1 / step, "note": math.nan})
        lines.close()

    straight, stopped = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(straight, range(1, 31), 0)
    write(stopped, range(1, 18), 0)
    stopped.write_bytes(stopped.read_bytes()[:-9])  # killed while writing
    write(stopped, range(11, 31), 10)
    assert stopped.read_bytes() == straight.read_bytes()


def test_a_new_run_in_a_used_folder_starts_an_empty_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5, "loss": 1}\nno json\n[1]\n{"loss": 2}\n')
    assert [row["step"] for row in read_rows(path)] == [5]
    JsonLines(path, 0).close()
    assert path.read_bytes() == b"" and read_rows(tmp_path / "none.jsonl") == []


def test_a_run_log_writes_nothing_before_it_begins(tmp_path):
    log = RunLog(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    log.begin()
    log.write(1, {"loss": torch.tensor(3.0)})
    log.close()
    assert lines_of(tmp_path / "run" / "metrics.jsonl") == [{"step": 1, "loss": 3.0}]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_refused_with_the_extra_that_brings_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf"log\.{name}=true.*pip install 'tfcli\[{name}\]'"):
        RunLog(tmp_path / "run", **{name: True})
    assert not (tmp_path / "run").exists()
    RunLog(tmp_path / "run")  # off by default, and then nobody asks for it


def test_tensorboard_gets_the_same_numbers_and_forgets_what_a_resumed_run_repeats(tmp_path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():  # tensorboard's own imports warn
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        for begin, end in ((0, 6), (3, 8)):
            log = RunLog(tmp_path, tensorboard=True)
            log.begin(begin)
            for step in range(begin + 1, end + 1):
                log.write(step, {"loss": torch.tensor(float(step)), "kind": "words are not plotted"})
            log.close()
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(s, float(s)) for s in range(1, 9)]


def test_wandb_gets_the_numbers_the_settings_and_on_resuming_the_same_run(tmp_path, monkeypatch):
    runs = []

    class Run:
        def __init__(self, **settings):
            self.settings, self.rows, self.finished = settings, [], False
            runs.append(self)

        def log(self, values, step):
            self.rows.append((step, values))

        def finish(self):
            self.finished = True

    fake = types.ModuleType("wandb")
    fake.init = Run
    fake.__spec__ = importlib.util.spec_from_loader("wandb", loader=None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for step in (0, 5):
        log = RunLog(tmp_path / "run", wandb=True, project="mine")
        log.begin(step, {"seed": 1})
        log.write(step + 1, {"loss": torch.tensor(2.0)})
        log.close()
    assert runs[0].settings["id"] == runs[1].settings["id"] != ""
    assert runs[0].settings["project"] == "mine" and runs[0].settings["config"] == {"seed": 1}
    assert runs[1].rows == [(6, {"loss": 2.0})] and all(run.finished for run in runs)


def png_size(path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_the_picture_shows_both_losses_and_bears_what_is_no_number(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"step": s, "loss": 4 / s} for s in range(1, 50)] + [{"step": 50, "loss": "NaN", "val_loss": 0.5}]
    assert draw_losses(rows, tmp_path / "loss.png") is None
    width, height = png_size(tmp_path / "loss.png")
    assert width > 600 and height > 300
    assert draw_losses([], tmp_path / "empty.png") is None and png_size(tmp_path / "empty.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.png", "loss.png"]


def test_without_matplotlib_there_is_no_picture_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "matplotlib is not installed" in draw_losses([], tmp_path / "loss.png")
    assert not (tmp_path / "loss.png").exists()


def test_drawing_takes_a_small_share_of_the_time_and_the_last_picture_is_never_skipped(tmp_path, monkeypatch):
    drawn = []

    def slow(rows, path):
        drawn.append(len(rows))
        time.sleep(0.01)

    monkeypatch.setattr(runlog, "draw_losses", slow)
    log = RunLog(tmp_path)
    log.begin()
    for step in range(1, 20):
        log.write(step, {"loss": 1.0})
        log.draw()
    assert drawn == [1]
    log.draw(final=True)
    log.close()
    assert drawn == [1, 19]
