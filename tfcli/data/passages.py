"""Plain texts that each belong to a class, cut into passages of which the last ones are held out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tfcli.data import Labelled
from tfcli.data.files import PartName
from tfcli.data.formats import SampleBy, read
from tfcli.data.text import find
from tfcli.errors import ConfigError


class Classes(NamedTuple):
    """The files of each label, and how many others lie beside them."""

    files: dict[str, list[Path]]
    beside: int = 0


@dataclass(frozen=True)
class Passages:
    """The texts of files by document, paragraph or line, each cut into passages of about `size` characters.

    text_column: where the text of a file with rows is. size: None leaves them whole.
    """

    text_column: str
    sample_by: SampleBy
    size: int | None

    def __call__(self, label: str, files: Sequence[Path]) -> Iterator[Labelled]:
        """What the files of a label hold, without what is blank."""
        for file in files:
            for text in read(file, text_column=self.text_column, sample_by=self.sample_by):
                for passage in (text,) if self.size is None else cut(text, self.size):
                    if passage.strip():
                        yield Labelled(passage, label, where=str(file))

    def part(
        self, part: PartName, label: str, files: Sequence[Path], fraction: float, where: str
    ) -> Iterator[Labelled]:
        """What is learned from, or the end, which is held out and has at least one passage."""
        n = sum(1 for _ in self(label, files))
        if n < 2:
            what = "a single passage, of which nothing can be held out" if n else "no text"
            raise ConfigError(
                f"{where}: '{label}' has {what}; give more, set data.sample_by or data.passage_characters, "
                "or name a validation part of its own"
            )
        learned = n - max(1, int(n * fraction))
        found = self(label, files)
        return islice(found, learned) if part == "train" else islice(found, learned, None)


def cut(text: str, size: int) -> Iterator[str]:
    """A text in pieces of about `size` characters, all of about one length, between words where there are."""
    n, begin = max(1, round(len(text) / size)), 0
    for i in range(1, n + 1):
        end = len(text) if i == n else _between_words(text, len(text) * i // n, len(text) // n // 2)
        yield text[begin:end].strip()
        begin = end


def _between_words(text: str, at: int, reach: int) -> int:
    """The nearest place at or before `at` where white space begins a new word, at most `reach` before it."""
    return next((i for i in range(at, at - reach, -1) if text[i].isspace()), at)


def in_turn(streams: Sequence[Iterator[Labelled]]) -> Iterator[Labelled]:
    """One of each stream after the other, as long as they last: the first n hold some of every class."""
    left = list(streams)
    while left:
        for stream in list(left):
            record = next(stream, None)
            if record is None:
                left.remove(stream)
            else:
                yield record


def classes(path: str | None, paths: Any, key: str, keys: str) -> Classes | None:
    """What `paths`, or a folder of folders, say; None: neither of them is given, and `path` may name rows."""
    if paths is not None and path is not None:
        raise ConfigError(f"{key} and {keys}: both are given; leave one out")
    if paths is not None:
        return Classes(_named(paths, keys))
    return _folders(path, key) if path is not None and Path(path).expanduser().is_dir() else None


def _folders(path: str, key: str) -> Classes:
    inside = sorted(p for p in Path(path).expanduser().iterdir() if not p.name.startswith("."))
    found = {p.name: find(str(p), key) for p in inside if p.is_dir()}
    if not found:
        raise ConfigError(
            f"{key}={path}: has no folders, whose names would be labels; data.paths names files"
        )
    return Classes(found, len(inside) - len(found))


def _named(paths: Any, key: str) -> dict[str, list[Path]]:
    if not isinstance(paths, dict) or not paths:
        raise ConfigError(
            f"{key}={paths}: must be a path for each label, as {{poems: poems.txt, news: news}}"
        )
    wrong = next((label for label, path in paths.items() if not isinstance(path, str)), None)
    if wrong is not None:
        raise ConfigError(f"{key}.{wrong}={paths[wrong]}: must be a file, a folder or a pattern")
    return {str(label): find(path, f"{key}.{label}") for label, path in paths.items()}
