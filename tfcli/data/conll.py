"""Sentences with a tag for every word, in columns (Tjong Kim Sang and De Meulder 2003, CoNLL)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from tfcli.data import Kind, Tagged
from tfcli.data.files import Files
from tfcli.data.formats import lines, normal
from tfcli.errors import ConfigError

BETWEEN = "-DOCSTART-"  # a line between documents


class Shape(NamedTuple):
    """What is the same of all lines of a sentence, but for the sign."""

    n: int
    tabs: bool
    sign: bool  # whether it begins as a comment might

    def __str__(self) -> str:
        return f"{self.n} column{'s' * (self.n > 1)} between {'tabs' if self.tabs else 'blanks'}"


@dataclass(kw_only=True)
class Conll(Files):
    """A word a line, and a blank line after every sentence.

    Columns stand between tabs, or in a line without one between blanks. word_column, tag_column: counted from
    0, or from -1 at the end. comment: what a line begins with that is no word; None: no line is a comment, as
    a word may well begin with #.
    """

    gives: ClassVar[frozenset[Kind]] = frozenset({"tags"})
    example: ClassVar[str] = "train.conll"
    word_column: int = 0
    tag_column: int = -1
    comment: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.comment == "":
            raise ConfigError("data.comment='': every line begins with that; give the sign, as '# ', or null")

    def records_of(self, file: Path) -> Iterator[Tagged]:
        held: list[tuple[str, str]] = []
        before, first = None, 0  # the shape of the line before, and the line in which the sentence begins
        for number, line in lines(file):
            if self.comment is not None and line.startswith(self.comment):
                continue
            cells = _cells(line)
            if cells:
                shape = Shape(len(cells), "\t" in line, line.startswith("#"))
                if before is not None:
                    self._check(before, shape, bool(held), f"{file}:{number}")
                before, first = shape, first if held else number
                held.append(self._word(cells, f"{file}:{number}"))
            elif held:
                yield _sentence(held, f"{file}:{first}")
                held = []
        if held:
            yield _sentence(held, f"{file}:{first}")

    def _check(self, before: Shape, shape: Shape, inside: bool, where: str) -> None:
        """Raises ConfigError where a file has two kinds of lines, or a sentence two numbers of columns."""
        if before.tabs == shape.tabs and (before.n == shape.n or not inside):
            return
        maybe = self.comment is None and (before.sign or shape.sign)
        hint = "; if lines with # are comments, set data.comment='# '" if maybe else ""
        raise ConfigError(f"{where}: has {shape}, and the line before it {before}{hint}")

    def _word(self, cells: list[str], where: str) -> tuple[str, str]:
        found = []
        for key in ("word_column", "tag_column"):
            column = getattr(self, key)
            if not -len(cells) <= column < len(cells):
                n = f"{len(cells)} column{'s' * (len(cells) > 1)}"
                raise ConfigError(f"{where}: data.{key}={column} is not in this line; it has {n}")
            if not cells[column].strip(" "):
                raise ConfigError(f"{where}: data.{key}={column} is blank in this line")
            found.append(normal(cells[column]))
        if self.word_column % len(cells) == self.tag_column % len(cells):
            raise ConfigError(
                f"{where}: has {len(cells)} columns, so that the word is the tag; a tag is missing"
            )
        return found[0], found[1].strip()


def _cells(line: str) -> list[str]:
    """The columns of a line; none if it is blank or between documents."""
    line = line.rstrip("\r\n")
    if not line.strip() or line.split(maxsplit=1)[0] == BETWEEN:
        return []
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def _sentence(words: list[tuple[str, str]], where: str) -> Tagged:
    return Tagged(*zip(*words), where=where)
