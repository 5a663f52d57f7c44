"""Documents out of one file: plain text, JSON lines, CSV or Parquet, compressed or not.

Whatever the format, a document has no byte order mark and its lines end in \\n. A file that cannot be read to
its end is a ConfigError that names it and, where there are lines, the line.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tfcli.errors import ConfigError, suggest
from tfcli.tokenizer import valid

SampleBy = Literal["document", "paragraph", "line"]
SUFFIXES = (".txt", ".md", ".py", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
LONG = 1 << 20  # characters; where a file must not be held in memory, its documents are cut after as many


def normal(text: str) -> str:
    """The text without a byte order mark, with \\n for every line end, and only what UTF-8 can hold."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return valid(text)


def read(
    path: Path, *, text_column: str, sample_by: SampleBy = "document", whole: bool = True
) -> Iterator[str]:
    """The documents of a file; not `whole`: a plain text is never held in memory, but cut into documents."""
    kind = suffixes(path)[0]
    if kind in (".jsonl", ".json"):
        texts = _json(path, text_column)
    elif kind in (".csv", ".tsv"):
        texts = _csv(path, text_column, "\t" if kind == ".tsv" else ",")
    elif kind == ".parquet":
        texts = _parquet(path, text_column)
    else:
        texts = _plain(path, sample_by, whole)
    return map(normal, texts)


def suffixes(path: Path) -> tuple[str, str]:
    """The kind of a file and its compression, e.g. (".jsonl", ".gz") or (".txt", "")."""
    packed = path.suffix.lower() if path.suffix.lower() in OPENERS else ""
    return Path(path.name[: len(path.name) - len(packed)]).suffix.lower(), packed


def _zstd(path: Path) -> BinaryIO:
    try:
        from compression import zstd  # Python 3.14 and newer
    except ImportError:
        try:
            import zstandard as zstd
        except ImportError:
            raise ConfigError(f"{path}: reading .zst needs the package zstandard") from None
    return zstd.open(path, "rb")


OPENERS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": _zstd,
}  # fmt: skip


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed."""
    try:
        with OPENERS.get(suffixes(path)[1], _open)(path) as file:
            yield file
    except GeneratorExit:  # a reader that was left open: when Python ends, no name below stands for anything
        raise
    except ConfigError:
        raise
    except EOFError:
        raise ConfigError(f"{path}: the compressed data end too early") from None
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except Exception as error:
        if (
            not isinstance(error, (OSError, zlib.error, lzma.LZMAError))
            and type(error).__name__ != "ZstdError"
        ):
            raise
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None


def _open(path: Path) -> BinaryIO:
    return open(path, "rb")


def _decode(data: bytes, path: Path, line: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise ConfigError(f"{path}:{line}: not UTF-8 (byte 0x{data[error.start]:02x})") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends."""
    with opened(path) as file:
        for number, data in enumerate(file, 1):
            text = _decode(data, path, number)
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def _plain(path: Path, sample_by: SampleBy, whole: bool) -> Iterator[str]:
    if sample_by == "document" and whole:
        with opened(path) as file:
            yield _decode(file.read(), path, 1)
        return
    lines = (line for _, text in _lines(path) for line in normal(text).removesuffix("\n").split("\n"))
    if sample_by == "line":
        yield from lines
    else:
        yield from _grouped(lines, paragraphs=sample_by == "paragraph")


def _grouped(lines: Iterator[str], paragraphs: bool) -> Iterator[str]:
    """Lines joined up to the next blank one, or up to the length that may be held in memory."""
    held, length = [], 0
    for line in lines:
        if paragraphs and not line.strip():
            yield "\n".join(held)
            held, length = [], 0
            continue
        held.append(line)
        length += len(line) + 1
        if length > LONG:
            yield "\n".join(held)
            held, length = [], 0
    yield "\n".join(held)


def cell(row: Any, column: str, where: str) -> str:
    """The text of a row; null is an empty text."""
    if isinstance(row, str):
        return row
    if not isinstance(row, dict) or column not in row:
        known = ", ".join(map(str, row)) if isinstance(row, dict) else "none, it is not an object"
        near = suggest(column, row) if isinstance(row, dict) else ""
        raise ConfigError(f"{where}: data.text_column={column} is not in this row; it has {known}{near}")
    if row[column] is None:
        return ""
    if not isinstance(row[column], str):
        raise ConfigError(f"{where}: '{column}' holds {type(row[column]).__name__}, it must be text")
    return row[column]


def _json(path: Path, column: str) -> Iterator[str]:
    """One row a line; a .json file may also be one list of rows."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        if number == 1 and line.lstrip().startswith("[") and suffixes(path)[0] == ".json":
            yield from _json_list(path, column)
            return
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{where}: not JSON ({error})") from None
        yield cell(row, column, where)


def _json_list(path: Path, column: str) -> Iterator[str]:
    with opened(path) as file:
        text = _decode(file.read(), path, 1).removeprefix("\ufeff")
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from None
    for index, row in enumerate(rows):
        yield cell(row, column, f"{path}[{index}]")


def _csv(path: Path, column: str, delimiter: str) -> Iterator[str]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    rows = csv.reader((line for _, line in _lines(path)), delimiter=delimiter, strict=True)
    try:
        names = next(rows, [])
        for row in rows:
            if row:
                yield cell(dict(zip(names, row)), column, f"{path}:{rows.line_num}")
    except csv.Error as error:
        raise ConfigError(f"{path}:{rows.line_num}: not CSV ({error})") from None


def _parquet(path: Path, column: str) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    with opened(path) as file:
        try:
            table = pyarrow.parquet.ParquetFile(io.BytesIO(file.read()) if suffixes(path)[1] else path)
            if column not in table.schema_arrow.names:
                cell(dict.fromkeys(table.schema_arrow.names), column, str(path))
            for batch in table.iter_batches(batch_size=1024, columns=[column]):
                for value in batch.column(0).to_pylist():
                    yield cell({column: value}, column, str(path))
        except pyarrow.ArrowInvalid as error:
            raise ConfigError(f"{path}: not Parquet ({' '.join(str(error).split())[:200]})") from None
