"""Data sets of the Hugging Face hub, and whatever else `datasets` loads by name or folder."""

import hashlib
from collections.abc import Iterable, Iterator
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
class Hub(Source):
    """The rows of a split of a data set, one document each.

    name: as `datasets.load_dataset` takes it, or a folder, also one of `save_to_disk`. config: one of the
    data set's configurations. text_column: where the text is. validation_split: None holds out every
    1/validation_fraction-th row. max_documents: read no more of the split. streaming: read while training,
    without a download beforehand; then the first validation_documents are held out, at most a
    tenth (or those of validation_split), and rows are shuffled among shuffle_buffer.
    """

    validation_key: ClassVar[str] = "data.validation_split or data.streaming=false"
    name: str | None = None
    config: str | None = None
    split: str = "train"
    text_column: str = "text"
    validation_split: str | None = None
    validation_fraction: Part = 0.1
    validation_documents: Count = 100
    max_documents: Count | None = None
    streaming: bool = False
    shuffle_buffer: Count = 1000

    def __post_init__(self) -> None:
        if self.name is None:
            raise ConfigError(
                "data.name: missing; give a data set, as data.name=roneneldan/TinyStories, or a folder"
            )
        self._loaded: dict[str, Any] = {}

    @property
    def where(self) -> str:
        return f"data.name={self.name}"

    def documents(self, skip: int = 0) -> Iterator[Document]:
        return self._documents(self._rows(self.split), skip)

    def held_out(self) -> Iterator[Document] | None:
        return (
            None if self.validation_split is None else self._documents(self._rows(self.validation_split), 0)
        )

    def fingerprint(self) -> str:
        splits = [self.split] if self.validation_split is None else [self.split, self.validation_split]
        said = [self._rows(split)._fingerprint for split in splits]
        return hashlib.sha256(repr((said, self.text_column)).encode()).hexdigest()

    def sketch(self) -> str:
        said = repr((self.name, self.config, self.split, self.validation_split, self.text_column))
        folder = Path(self.name).expanduser()
        files = sorted(f for f in folder.rglob("[!.]*") if f.is_file()) if folder.is_dir() else []
        return hash_files(files, said, repr([f.stat().st_size for f in files]), limit=1 << 20)

    def _documents(self, rows: Any, skip: int) -> Iterator[Document]:
        rows = rows.skip(skip) if self.streaming and skip else islice(rows, skip, None)
        for index, row in enumerate(self._guarded(rows), skip):
            yield Document(normal(cell(row, self.text_column, f"{self.where} row {index}")))

    def _rows(self, split: str) -> Any:
        """A split with the text column only, loaded once."""
        if split not in self._loaded:
            rows = self._load(split)
            names = rows.column_names
            if names is not None and self.text_column not in names:
                near = suggest(self.text_column, names)
                raise ConfigError(
                    f"data.text_column={self.text_column}: {self.name} has {', '.join(names)}{near}"
                )
            self._loaded[split] = rows if names is None else rows.select_columns([self.text_column])
        return self._loaded[split]

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


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
