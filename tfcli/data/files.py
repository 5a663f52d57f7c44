"""What the sources of records share: records that are held out together, and the files they are read from."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from tfcli.data import Packing, Part, Record, Source
from tfcli.data.columns import Column, refuse_mixed
from tfcli.data.formats import TABLES, rows, suffixes
from tfcli.data.parts import is_blank, split
from tfcli.data.text import find, hash_files
from tfcli.errors import ConfigError
from tfcli.values import Count

PartName = Literal["train", "validation"]
PREFIXES: dict[PartName, str] = {"train": "", "validation": "validation_"}  # of the keys of a part


@dataclass(kw_only=True)
class Records(Source):
    """Records, a row each. Blank ones are left out.

    validation_fraction: every 1/validation_fraction-th is held out where no validation part is named; of
    neighbours that belong `together` all are or none is. max_documents: read no more of the training part,
    before any is held out.
    """

    packing: Packing = "none"
    validation_fraction: Part = 0.1
    max_documents: Count | None = None

    # settings that say where the records lie, not what they are
    places: ClassVar[frozenset[str]] = frozenset()
    blank_is: ClassVar[str] = "no text"

    def __post_init__(self) -> None:
        self.seen: dict[PartName, tuple[int, int]] = {}  # how many records are blank, and of how many

    def records(self, part: PartName) -> Iterator[Record]:
        """All records of a part, blank ones as well."""
        raise NotImplementedError

    @property
    def names_validation(self) -> bool:
        """Whether there is a validation part of its own."""
        raise NotImplementedError

    def together(self, record: Record) -> Any:
        """What is the same for records that belong together, when they follow one another."""
        return object()

    def is_blank(self, record: Record) -> bool:
        return is_blank(record)

    def documents(self, skip: int = 0) -> Iterator[Record]:
        found = self._kept("train") if self.names_validation else self._split(0)
        return islice(found, skip, None)

    def held_out(self) -> Iterator[Record]:
        return self._kept("validation") if self.names_validation else self._split(1)

    def everything(self) -> Iterator[Record]:
        named = self._kept("validation") if self.names_validation else ()
        return chain(islice(self._kept("train"), self.max_documents), named)

    def _split(self, part: int) -> Iterator[Record]:
        records = islice(self._kept("train"), self.max_documents)
        groups = (list(group) for _, group in groupby(records, self.together))
        parts = split(groups, self.validation_fraction, self._refuse_single)
        return chain.from_iterable(group for number, group in parts if number == part)

    def _refuse_single(self, group: list[Record], _: float) -> Iterator[tuple[int, Any]]:
        what = "a single record" if len(group) == 1 else f"{len(group)} records that belong together"
        raise ConfigError(
            f"{self.where}: holds {what}, of which nothing can be held out; give more, or name a validation "
            "part of its own"
        )

    def _kept(self, part: PartName) -> Iterator[Record]:
        blank = 0
        for n, record in enumerate(self.records(part), 1):
            odd = self.is_blank(record)
            blank += odd
            self.seen[part] = (blank, n)
            if not odd:
                yield record

    def notices(self) -> list[str]:
        blank, n = (sum(numbers) for numbers in zip((0, 0), *self.seen.values()))
        return (
            [f"{self.where}: {blank} of {n} records have {self.blank_is} and were left out"] if blank else []
        )

    def how(self) -> str:
        """Every setting that decides what the records are, wherever they lie."""
        left = {field.name for field in fields(Source)} | self.places
        return repr([(f.name, getattr(self, f.name)) for f in fields(self) if f.name not in left])


@dataclass(kw_only=True)
class Files(Records):
    """Records of files. path: a file or a pattern; validation_path: that of those that are held out."""

    path: str | None = None
    validation_path: str | None = None

    places: ClassVar[frozenset[str]] = frozenset({"path", "validation_path"})
    example: ClassVar[str]  # what a user may give as `path`

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files = self.located()

    def located(self) -> dict[PartName, list[Path]]:
        """The files of each part."""
        if self.path is None:
            raise ConfigError(f"data.path: missing; give a file or a pattern, as data.path={self.example}")
        return {
            "train": find_files(self.path, "data.path"),
            "validation": find_files(self.validation_path, "data.validation_path"),
        }

    @property
    def where(self) -> str:
        return f"data.path={self.path}"

    @property
    def names_validation(self) -> bool:
        return bool(self.files["validation"])

    def records(self, part: PartName) -> Iterator[Record]:
        return chain.from_iterable(map(self.records_of, self.files[part]))

    def records_of(self, file: Path) -> Iterator[Record]:
        """The records of one file."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        return hash_files([*self.files["train"], None, *self.files["validation"]], self.how())

    def n_bytes(self) -> int | None:
        return size_of([*self.files["train"], *self.files["validation"]])


@dataclass(kw_only=True)
class Table(Files):
    """Records of rows, with a header where columns go by name and without where they go by number.

    quotes: whether cells may stand in double quotes, and then hold separators and line ends; None: those of
    CSV may, those of TSV and of other files with tabs may not.
    """

    quotes: bool | None = None

    def table(self, file: Path, columns: dict[str, Column | None]) -> Iterator[tuple[str, Any]]:
        """The rows of a file, each with its place. columns: by the keys they are set with; None: not used."""
        refuse_mixed(columns)
        used = [column for column in columns.values() if column is not None]
        quotes = suffixes(file)[0] == ".csv" if self.quotes is None else self.quotes
        return rows(file, used, header=not isinstance(used[0], int), quotes=quotes)


def find_files(path: str | None, key: str) -> list[Path]:
    """The files that a path means, sorted; none for None. Raises ConfigError for a folder."""
    if path is None:
        return []
    if Path(path).expanduser().is_dir():
        raise ConfigError(f"{key}={path}: is a folder; give a file, or a pattern, as {path}/*")
    return find(path, key)


def size_of(files: list[Path]) -> int | None:
    """Bytes in files; None where some are compressed."""
    plain = all(suffixes(file)[1] == "" for file in files)
    return sum(file.stat().st_size for file in files) if plain else None


def has_names(file: Path) -> bool:
    """Whether the columns of such a file have names, as far as its kind says."""
    return suffixes(file)[0] in TABLES
