"""Documents and rows out of one file: plain text, JSON lines, CSV or Parquet, compressed or not.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tfcli.data.columns import Column, value
from tfcli.errors import ConfigError
from tfcli.tokenizer import valid

SampleBy = Literal["document", "paragraph", "line"]
SUFFIXES = (".txt", ".md", ".py", ".jsonl", ".json", ".csv", ".tsv", ".parquet")
TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")  # the kinds that have rows; all else is plain text
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
    if suffixes(path)[0] in TABLES:
        texts = (cell(row, text_column, where) for where, row in rows(path, [text_column]))
    else:
        texts = _plain(path, sample_by, whole)
    return map(normal, texts)


def rows(
    path: Path, columns: Sequence[Column] | None = None, *, header: bool = True, quotes: bool = True
) -> Iterator[tuple[str, Any]]:
    """The rows of a file, each with where it stands, as file:line; text is as it stands there (see `normal`).

    One of JSON is what it is, one of Parquet a dict by column. One of CSV is a dict by the names of the first
    line, or a list where there is no `header`; every other file is CSV with tabs. columns: which are looked
    at; None: all. quotes: whether cells of CSV may be quoted, and then hold line ends.
    """
    kind = suffixes(path)[0]
    if kind in (".jsonl", ".json"):
        return _json(path)
    if kind == ".parquet":
        return _parquet(path, columns)
    found = (_csv if quotes else _cells)(path, "," if kind == ".csv" else "\t")
    return _named(found) if header else found


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


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends."""
    with opened(path) as file:
        for number, data in enumerate(file, 1):
            text = _decode(data, path, number)
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def whole_text(path: Path) -> str:
    """All that is in a file."""
    with opened(path) as file:
        return _decode(file.read(), path, 1).removeprefix("\ufeff")


def _plain(path: Path, sample_by: SampleBy, whole: bool) -> Iterator[str]:
    if sample_by == "document" and whole:
        yield whole_text(path)
        return
    found = (line for _, text in lines(path) for line in normal(text).removesuffix("\n").split("\n"))
    if sample_by == "line":
        yield from found
    else:
        yield from _grouped(found, paragraphs=sample_by == "paragraph")


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
    found = value(row, column, where, "data.text_column")
    if found is not None and not isinstance(found, str):
        raise ConfigError(f"{where}: '{column}' holds {type(found).__name__}, it must be text")
    return found or ""


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    """One row a line; a .json file may also be one list of rows."""
    for number, line in lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        if number == 1 and line.lstrip().startswith("[") and suffixes(path)[0] == ".json":
            yield from ((f"{path}[{i}]", row) for i, row in enumerate(whole_json(path)))
            return
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{where}: not JSON ({error})") from None
        yield where, row


def whole_json(path: Path) -> Any:
    """What a file holds as one piece of JSON."""
    try:
        return json.loads(whole_text(path))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from None


def _csv(path: Path, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    found = csv.reader((line for _, line in lines(path)), delimiter=delimiter, strict=True)
    try:
        yield from ((f"{path}:{found.line_num}", row) for row in found if row)
    except csv.Error as error:
        raise ConfigError(f"{path}:{found.line_num}: not CSV ({error})") from None


def _cells(path: Path, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Lines cut at every delimiter."""
    for number, line in lines(path):
        line = line.removesuffix("\n").removesuffix("\r")
        if line:
            yield f"{path}:{number}", line.split(delimiter)


def _named(found: Iterator[tuple[str, list[str]]]) -> Iterator[tuple[str, dict[str, str]]]:
    names = next(found, ("", []))[1]
    for where, row in found:
        if any(row[len(names) :]):  # else a text would end at its first delimiter
            raise ConfigError(f"{where}: has {len(row)} cells, and the first line names {len(names)} columns")
        yield where, dict(zip(names, row))


def _parquet(path: Path, columns: Sequence[Column] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    with opened(path) as file:
        try:
            table = pyarrow.parquet.ParquetFile(io.BytesIO(file.read()) if suffixes(path)[1] else path)
            needed, known = _tops(columns, table.schema_arrow.names), set(table.schema_arrow.names)
            only = (
                sorted(needed) if needed <= known else None
            )  # what is missing is said with all that is there
            found = (row for b in table.iter_batches(batch_size=1024, columns=only) for row in b.to_pylist())
            yield from ((f"{path}[{i}]", row) for i, row in enumerate(found))
        except pyarrow.ArrowInvalid as error:
            raise ConfigError(f"{path}: not Parquet ({' '.join(str(error).split())[:200]})") from None


def _tops(columns: Sequence[Column] | None, known: Sequence[str]) -> set[Any]:
    """The columns that must be read: of `a.b`, a part of a, that is a."""
    wanted = known if columns is None else columns
    return {c if c in known or isinstance(c, int) else c.partition(".")[0] for c in wanted}
