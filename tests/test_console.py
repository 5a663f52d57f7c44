"""What a run shows on the terminal."""

import io
import time

from tfcli import console
from tfcli.console import Progress, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class CountedLoss:
    """A loss that knows how often it was read, as reading one makes a GPU wait."""

    def __init__(self) -> None:
        self.reads = 0

    def __float__(self) -> float:
        self.reads += 1
        return 1.25


def test_a_table_is_aligned_and_its_numbers_can_be_read():
    text = table({"model": [("family", "decoder"), ("parameters", 1234567), ("tied", True), ("window", None)],
                  "run": [("learning rate", 0.0003)]})  # fmt: skip
    assert text.splitlines() == [
        "model",
        "  family         decoder",
        "  parameters     1,234,567",
        "  tied           yes",
        "  window         none",
        "run",
        "  learning rate  0.0003",
    ]
    assert table({}) == ""


def test_the_bar_shows_loss_rate_speed_and_the_time_left(monkeypatch):
    monkeypatch.setattr(console, "REDRAW_SECONDS", 0.0)
    terminal = Terminal()
    progress = Progress(10, step=4, file=terminal)
    for step in range(5, 11):
        progress.advance(step, loss=2.5, lr=1e-3, tokens=100)
    progress.close()
    last = terminal.getvalue().split("\r")[-1]
    assert "10/10" in last and "loss 2.500, lr 1.00e-03" in last and "tokens/s" in last
    assert "<" in terminal.getvalue()  # tqdm's [elapsed<left]


def test_a_loss_is_read_ten_times_a_second_at_most_and_a_step_costs_next_to_nothing():
    progress, loss = Progress(10**6, file=Terminal()), CountedLoss()
    began = time.perf_counter()
    for step in range(1, 20001):
        progress.advance(step, loss=loss, lr=1e-3, tokens=100)
    seconds = time.perf_counter() - began
    progress.close()
    assert loss.reads <= 1 + seconds / console.REDRAW_SECONDS
    assert seconds / 20000 < 50e-6


def test_a_file_gets_whole_lines_and_few():
    file = io.StringIO()
    progress = Progress(1000, file=file)
    for step in range(1, 1001):
        progress.advance(step, loss=2.5, lr=1e-3, tokens=100)
    progress.say("evaluated")
    progress.close()
    lines = file.getvalue().splitlines()
    assert len(lines) == 2 and lines[0].startswith("step 1000/1000: loss 2.500, lr 1.00e-03")
    assert lines[1] == "evaluated" and "\r" not in file.getvalue()


def test_what_is_said_stands_on_its_own_line_above_the_bar():
    terminal = Terminal()
    progress = Progress(10, file=terminal)
    progress.say("step 5: val_loss 1.9")
    progress.close()
    assert "step 5: val_loss 1.9\n" in terminal.getvalue()
