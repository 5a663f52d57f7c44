"""Sentences with a tag for every word, in columns (Tjong Kim Sang and De Meulder 2003, CoNLL)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tfcli.data import Kind, Tagged
from tfcli.data.files import Files
from tfcli.data.formats import lines, normal
from tfcli.errors import ConfigError

BETWEEN = "-DOCSTART-"  # a line between documents


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
        width, first = 0, 0
        for number, line in lines(file):
            cells = self._cells(line)
            if cells is None:
                continue
            if cells and held and len(cells) != width:
                raise ConfigError(f"{file}:{number}: {self._uneven(cells, width)}")
            if cells:
                first, width = first if held else number, len(cells)
                held.append(self._word(cells, f"{file}:{number}"))
            elif held:
                yield _sentence(held, f"{file}:{first}")
                held = []
        if held:
            yield _sentence(held, f"{file}:{first}")

    def _cells(self, line: str) -> list[str] | None:
        """The columns of a line, none if it is blank or between documents; None: it is a comment."""
        line = line.rstrip("\r\n")
        if self.comment is not None and line.startswith(self.comment):
            return None
        if not line.strip() or line.split(maxsplit=1)[0] == BETWEEN:
            return []
        return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]

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

    def _uneven(self, cells: list[str], width: int) -> str:
        said = f"has {len(cells)} columns, and the line before it {width}"
        comment = cells[0].startswith("#") and self.comment is None
        return said + ("; if lines with # are comments, set data.comment='# '" if comment else "")


def _sentence(words: list[tuple[str, str]], where: str) -> Tagged:
    return Tagged(*zip(*words), where=where)
