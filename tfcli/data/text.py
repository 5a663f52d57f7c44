"""Text files of the user's own: a file, a folder or a pattern."""

import glob
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

from tfcli.data import Document, Part, Source
from tfcli.data.formats import SUFFIXES, SampleBy, read, suffixes
from tfcli.errors import ConfigError
from tfcli.values import Count


@dataclass(kw_only=True)
class Text(Source):
    """Files of text, in the order of their names.

    path: a file, a folder (its files that can be read, and its folders') or a pattern. sample_by: what is
    one document of a plain text file. text_column: where the text of a JSON, CSV or Parquet row is.
    validation_path: None holds out every 1/validation_fraction-th document, or the end of the only one.
    max_documents: read no more of path. streaming: read while training, so that little is held in memory;
    then the first validation_documents are held out, at most a tenth (or those of validation_path), rows are
    shuffled among shuffle_buffer, and a plain text counts as documents of a million characters.
    """

    validation_key: ClassVar[str] = "data.validation_path, data.sample_by=line or data.streaming=false"
    path: str | None = None
    text_column: str = "text"
    sample_by: SampleBy = "document"
    validation_path: str | None = None
    validation_fraction: Part = 0.1
    validation_documents: Count = 100
    max_documents: Count | None = None
    streaming: bool = False
    shuffle_buffer: Count = 1000

    def __post_init__(self) -> None:
        if self.path is None:
            raise ConfigError(
                "data.path: missing; give a file, a folder or a pattern, as data.path=corpus.txt"
            )
        self.files = find(self.path, "data.path")
        self.validation_files = (
            find(self.validation_path, "data.validation_path") if self.validation_path else []
        )

    @property
    def where(self) -> str:
        return f"data.path={self.path}"

    def documents(self, skip: int = 0) -> Iterator[Document]:
        return islice(self._read(self.files), skip, None)

    def held_out(self) -> Iterator[Document] | None:
        return self._read(self.validation_files) if self.validation_files else None

    def _read(self, files: list[Path]) -> Iterator[Document]:
        whole = not self.streaming
        texts = (read(f, text_column=self.text_column, sample_by=self.sample_by, whole=whole) for f in files)
        return map(Document, chain.from_iterable(texts))

    def fingerprint(self) -> str:
        return hash_files([*self.files, None, *self.validation_files], self.text_column, self.sample_by)

    def sketch(self) -> str:
        files = [*self.files, None, *self.validation_files]
        sizes = [0 if file is None else file.stat().st_size for file in files]
        return hash_files(files, self.text_column, self.sample_by, repr(sizes), limit=1 << 20)

    def n_bytes(self) -> int | None:
        files = [*self.files, *self.validation_files]
        plain = all(suffixes(file)[1] == "" for file in files)
        return sum(file.stat().st_size for file in files) if plain else None


def find(path: str, key: str) -> list[Path]:
    """The files that a path means, sorted; ConfigError, naming the key, if there are none."""
    where = Path(path).expanduser()
    if where.is_file():
        return [where]
    if where.is_dir():
        found = (f for f in where.rglob("*") if f.is_file() and suffixes(f)[0] in SUFFIXES)
        files = sorted(f for f in found if not any(p.startswith(".") for p in f.relative_to(where).parts))
        if not files:
            raise ConfigError(f"{key}={path}: no {', '.join(SUFFIXES)} file in this folder")
        return files
    if where.exists():
        raise ConfigError(f"{key}={path}: is neither a file nor a folder")
    files = sorted(f for f in map(Path, glob.glob(str(where), recursive=True)) if f.is_file())
    if not files:
        raise ConfigError(f"{key}={path}: no such file or folder")
    return files


def hash_files(files: list[Path | None], *settings: str, limit: int | None = None) -> str:
    """sha256 of what is in the files, or in their first bytes, and of how it is read, wherever they are."""
    total = hashlib.sha256(repr(settings).encode())
    for file in files:
        total.update(b"|" if file is None else suffixes(file)[0].encode())
        if file is not None:
            total.update(_digest(file, limit))
    return total.hexdigest()


def _digest(file: Path, limit: int | None) -> bytes:
    digest = hashlib.sha256()
    try:
        with open(file, "rb") as data:
            while chunk := data.read(1 << 20):
                digest.update(chunk)
                if limit is not None and data.tell() >= limit:
                    break
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    return digest.digest()
