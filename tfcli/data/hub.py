"""Data sets of the Hugging Face hub, and whatever else `datasets` loads by name or folder."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from tfcli.data import Document, Part, Source
from tfcli.data.formats import cell, normal
from tfcli.data.text import hash_files
from tfcli.errors import ConfigError, suggest
from tfcli.values import Count


@dataclass(kw_only=True)
class Loaded(Source):
    """The rows of a split of a data set.

    name: as `datasets.load_dataset` takes it, or a folder, also one of `save_to_disk`. config: one of the
    data set's configurations. validation_split: None holds out every 1/validation_fraction-th row.
    """

    name: str | None = None
    config: str | None = None
    split: str = "train"
    validation_split: str | None = None

    def __post_init__(self) -> None:
        if self.name is None:
            raise ConfigError(
                "data.name: missing; give a data set, as data.name=roneneldan/TinyStories, or a folder"
            )
        self._loaded: dict[str, Any] = {}

    @property
    def where(self) -> str:
        return f"data.name={self.name}"

    def columns(self, known: Sequence[str]) -> dict[str, str]:
        """The columns that are needed, `a.b` for b within a, by their keys. known: those that there are."""
        raise NotImplementedError

    def how(self) -> str:
        """The settings that decide what a row becomes."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        splits = [self.split] if self.validation_split is None else [self.split, self.validation_split]
        said = [self.rows(split)._fingerprint for split in splits]
        return hashlib.sha256(repr((said, self.how())).encode()).hexdigest()

    def placed(self, split: str, skip: int = 0) -> Iterator[tuple[Any, str]]:
        """The rows of a split but for the first, each with what to call it in a message."""
        rows = self.rows(split)
        rows = rows.skip(skip) if self.streaming and skip else islice(rows, skip, None)
        return ((row, f"{self.where} row {i}") for i, row in enumerate(self._guarded(rows), skip))

    def rows(self, split: str) -> Any:
        """A split with the needed columns only, loaded once."""
        if split not in self._loaded:
            rows = self._load(split)
            names = rows.column_names
            self._loaded[split] = rows if names is None else rows.select_columns(self._needed(names))
        return self._loaded[split]

    def _needed(self, known: list[str]) -> list[str]:
        found: dict[str, None] = {}
        for key, column in self.columns(known).items():
            whole = column if column in known else column.partition(".")[0]
            if whole not in known:
                raise ConfigError(
                    f"{key}={column}: {self.name} has {', '.join(known)}{suggest(column, known)}"
                )
            found[whole] = None
        return list(found)

    def _load(self, split: str) -> Any:
        import datasets

        folder = Path(self.name).expanduser()
        try:
            if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
                saved = datasets.load_from_disk(str(folder))
                rows = saved[split] if isinstance(saved, dict) else saved
                return rows.to_iterable_dataset() if self.streaming else rows
            return datasets.load_dataset(self.name, self.config, split=split, streaming=self.streaming)
        except Exception as error:  # of many kinds, from the network to the parser
            raise ConfigError(f"{self.where}: split '{split}' cannot be loaded ({_line(error)})") from None

    def _guarded(self, rows: Iterable[dict]) -> Iterator[dict]:
        try:
            yield from rows
        except Exception as error:
            raise ConfigError(f"{self.where}: cannot be read ({_line(error)})") from None


@dataclass(kw_only=True)
class Hub(Loaded):
    """The rows of a split of a data set, one document each (see Loaded).

    text_column: where the text is. max_documents: read no more of the split. streaming: read while training,
    without a download beforehand; then the first validation_documents are held out, at most a tenth (or those
    of validation_split), and rows are shuffled among shuffle_buffer.
    """

    validation_key: ClassVar[str] = "data.validation_split or data.streaming=false"
    text_column: str = "text"
    validation_fraction: Part = 0.1
    validation_documents: Count = 100
    max_documents: Count | None = None
    streaming: bool = False
    shuffle_buffer: Count = 1000

    def columns(self, known: Sequence[str]) -> dict[str, str]:
        return {"data.text_column": self.text_column}

    def how(self) -> str:
        return self.text_column

    def documents(self, skip: int = 0) -> Iterator[Document]:
        return self._documents(self.split, skip)

    def held_out(self) -> Iterator[Document] | None:
        return None if self.validation_split is None else self._documents(self.validation_split)

    def sketch(self) -> str:
        said = repr((self.name, self.config, self.split, self.validation_split, self.text_column))
        folder = Path(self.name).expanduser()
        files = sorted(f for f in folder.rglob("[!.]*") if f.is_file()) if folder.is_dir() else []
        return hash_files(files, said, repr([f.stat().st_size for f in files]), limit=1 << 20)

    def _documents(self, split: str, skip: int = 0) -> Iterator[Document]:
        rows = self.placed(split, skip)
        return (Document(normal(cell(row, self.text_column, where))) for row, where in rows)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
