"""Pairs of texts, one to be read and one to be written: translations, summaries, questions with answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from tfcli.data import Document, Kind
from tfcli.data.columns import Column, text
from tfcli.data.files import PREFIXES, Files, PartName, Records, Table, find_files, has_names, size_of
from tfcli.data.formats import lines, normal, opened
from tfcli.data.tasks import Score
from tfcli.data.text import hash_files
from tfcli.errors import ConfigError


@dataclass(kw_only=True)
class PairSource(Records):
    """Source and target. A pair with a blank side is left out.

    reverse: the target is read and the source written. separator: what follows the side that is read, for a
    decoder, which has both in a row. score: whether a decoder is to predict that side as well.
    """

    gives: ClassVar[frozenset[Kind]] = frozenset({"text", "pair"})
    blank_is: ClassVar[str] = "a blank side"
    bos: bool = False
    score: Score = "answer"
    reverse: bool = False
    separator: str = ""

    @property
    def score_prompt(self) -> bool:
        return self.score == "all"

    def pair(self, source: str, target: str) -> Document:
        """A pair as a record."""
        read, written = (target, source) if self.reverse else (source, target)
        return Document(normal(written), normal(read) + self.separator)

    def is_blank(self, record: Document) -> bool:
        return not record.text.strip() or not record.prompt.removesuffix(self.separator).strip()

    def together(self, record: Document) -> Any:
        """Pairs with the same source: a sentence is not learned in one translation and asked in another."""
        return record.text if self.reverse else record.prompt


@dataclass(kw_only=True)
class Pairs(PairSource, Table):
    """Pairs of the rows of files, or of the lines of two files each.

    source_column, target_column: None is 0 and 1 in a plain text, whose lines are cut at tabs, and else
    "source" and "target". source_path, target_path: in place of path, files of which line i of one belongs to
    line i of the other; patterns mean files in the order of their names.
    """

    source_column: Column | None = None
    target_column: Column | None = None
    source_path: str | None = None
    target_path: str | None = None
    validation_source_path: str | None = None
    validation_target_path: str | None = None

    places: ClassVar[frozenset[str]] = Files.places | {
        f"{prefix}{side}_path" for prefix in PREFIXES.values() for side in ("source", "target")
    }
    example: ClassVar[str] = "pairs.tsv, or data.source_path=en.txt data.target_path=de.txt"

    def located(self) -> dict[PartName, list[Path]]:
        if self.path is None and self.source_path is None and self.target_path is None:
            return super().located()  # which says what is missing
        found = {part: self._find(prefix) for part, prefix in PREFIXES.items()}
        self.targets = {part: targets for part, (_, targets) in found.items()}
        return {part: files for part, (files, _) in found.items()}

    def _find(self, prefix: str) -> tuple[list[Path], list[Path | None]]:
        """The files of a part, and to each the one with the targets; None: it has both."""
        keys = [f"{prefix}{key}" for key in ("path", "source_path", "target_path")]
        path, source, target = (getattr(self, key) for key in keys)
        files = find_files(path, f"data.{keys[0]}")
        if source is None and target is None:
            return files, [None] * len(files)
        if path is not None or source is None or target is None:
            raise ConfigError(f"data.{keys[1]} and data.{keys[2]}: must both be given, and no data.{keys[0]}")
        sources, targets = find_files(source, f"data.{keys[1]}"), find_files(target, f"data.{keys[2]}")
        if len(sources) != len(targets):
            raise ConfigError(
                f"data.{keys[1]}={source}: means {len(sources)} files, and data.{keys[2]}={target} "
                f"{len(targets)}; they must be as many"
            )
        return sources, targets

    @property
    def where(self) -> str:
        return f"data.source_path={self.source_path}" if self.path is None else f"data.path={self.path}"

    def records(self, part: PartName) -> Iterator[Document]:
        for file, target in zip(self.files[part], self.targets[part]):
            yield from self.records_of(file) if target is None else self._aligned(file, target)

    def records_of(self, file: Path) -> Iterator[Document]:
        source, target = self._columns(file)
        found = self.table(file, {"data.source_column": source, "data.target_column": target})
        for where, row in found:
            read = text(row, source, where, "data.source_column")
            yield self.pair(read, text(row, target, where, "data.target_column"))

    def _columns(self, file: Path) -> tuple[Column, Column]:
        given = (self.source_column, self.target_column)
        numbers = any(isinstance(c, int) for c in given) or (given == (None, None) and not has_names(file))
        default = (0, 1) if numbers else ("source", "target")
        return tuple(d if column is None else column for column, d in zip(given, default))

    def _aligned(self, source: Path, target: Path) -> Iterator[Document]:
        counts = n_lines(source), n_lines(target)
        if counts[0] != counts[1]:  # known before a pair is read: max_documents must not hide it
            raise ConfigError(
                f"{source} has {counts[0]} lines and {target} {counts[1]}; they must be as many"
            )
        sides = [
            (line.removesuffix("\n").removesuffix("\r") for _, line in lines(f)) for f in (source, target)
        ]
        return (self.pair(*pair) for pair in zip(*sides, strict=True))

    def _all(self) -> Iterator[Path | None]:
        for part in PREFIXES:
            yield None
            yield from chain.from_iterable(zip(self.files[part], self.targets[part]))

    def fingerprint(self) -> str:
        return hash_files(list(self._all()), self.how())

    def n_bytes(self) -> int | None:
        return size_of([file for file in self._all() if file is not None])


def n_lines(path: Path) -> int:
    """How many lines a file has, one without an end included."""
    n, last = 0, b"\n"
    with opened(path) as file:
        while chunk := file.read(1 << 20):
            n, last = n + chunk.count(b"\n"), chunk[-1:]
    return n + (last != b"\n")
