"""Completions on standard output, as text to read or as JSON lines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfcli.generate import Completion

BETWEEN = "-" * 20 + "\n"  # stands between completions


class AsText:
    """Prompt and text as one, a line between completions; shown piece by piece where pieces come."""

    def __init__(self, prompts: Sequence[str], n_samples: int) -> None:
        self._prompts, self._n_samples = prompts, n_samples
        self._begun = -1

    def piece(self, number: int, text: str) -> None:
        """The next piece of completion `number`; each is shown from begin to end before the next."""
        if number != self._begun:
            self._begun = number
            text = (BETWEEN if number else "") + self._prompts[number // self._n_samples] + text
        print(text, end="", flush=True)

    def done(self, number: int, completion: Completion) -> None:
        if number != self._begun:
            self.piece(number, completion.text)
        print(flush=True)


class AsJson:
    """One object a line."""

    piece = None  # an object is shown whole

    def done(self, number: int, completion: Completion) -> None:
        fields = {name: value for name, value in vars(completion).items() if value is not None}
        print(json.dumps(fields, ensure_ascii=False), flush=True)


def show_anything() -> None:
    """Lets standard output take characters that its encoding lacks, as \\u escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def with_bar(completions: Iterator[Completion], total: int) -> Iterator[Completion]:
    """The same, with a progress bar for whoever waits at a terminal and sees nothing else."""
    if total == 1 or sys.stdout.isatty() or not sys.stderr.isatty():
        return completions
    from tqdm import tqdm

    return iter(tqdm(completions, total=total, unit="completion", dynamic_ncols=True))
