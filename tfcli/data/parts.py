"""What is learned from and what is held out."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from tqdm import tqdm

from tfcli.data import Document, Kind, Labelled, Record, Source, Tagged
from tfcli.data.tokens import as_document
from tfcli.errors import ConfigError

PARTS = ("train", "validation")


class Parts:
    """Every document that is not blank with its part, 0 (train) or 1 (validation).

    Of a source that names no validation part, every 1/validation_fraction-th document is held out; of fewer
    documents the last, and of a single one its end, if it is a text. Only `max_documents` are read, before
    any is held out.
    """

    def __init__(self, source: Source, kind: Kind = "text") -> None:
        self.source, self.kind = source, kind
        self.blank = [0, 0]

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        documents = islice(self._kept(self.source.documents(), 0), self.source.max_documents)
        held_out = self.source.held_out()
        if held_out is None:
            return split(documents, self.source.validation_fraction, self._halves)
        return chain(((0, d) for d in documents), ((1, d) for d in self._kept(held_out, 1)))

    def _kept(self, documents: Iterable[Record], part: int) -> Iterator[Record]:
        for document in documents:
            if is_blank(document):
                self.blank[part] += 1
            else:
                yield document

    def _halves(self, record: Record, fraction: float) -> Iterator[tuple[int, Document]]:
        if self.kind == "text" and isinstance(record, Document):
            return halves(record, fraction)
        raise ConfigError(
            f"{self.source.where}: holds a single record, of which nothing can be held out; give more, or "
            "name a validation part of its own"
        )


def is_blank(record: Record) -> bool:
    """Whether a record holds nothing to learn; such are left out. A text is blank if it is white space."""
    if isinstance(record, Tagged):
        return not record.words
    text = f"{record.text}{record.second or ''}" if isinstance(record, Labelled) else record.text
    return not text or text.isspace()


def halves(document: Document, fraction: float) -> Iterator[tuple[int, Document]]:
    """The beginning of a text, and its end as the part that is held out, if it has two characters."""
    text = document.text
    cut = max(1, int(len(text) * (1 - fraction)))
    yield 0, document._replace(text=text[:cut])
    if text[cut:]:
        yield 1, Document(text[cut:])


def split(
    documents: Iterator[Record],
    fraction: float,
    single: Callable[[Record, float], Iterator[tuple[int, Document]]] = halves,
) -> Iterator[tuple[int, Record]]:
    """Each document with its part; both parts get one where there are two. single: what becomes of one."""
    first = list(islice(documents, math.ceil(1 / fraction)))
    if len(first) == 1:
        yield from single(first[0], fraction)
    elif len(first) < math.ceil(1 / fraction):
        yield from ((int(i == len(first) - 1), document) for i, document in enumerate(first))
    else:
        for i, document in enumerate(chain(first, documents)):
            yield math.floor((i + 1) * fraction) - math.floor(i * fraction), document


def held_for_streaming(source: Source) -> tuple[list[Record], int]:
    """The validation part of a stream, and how many of its first documents training must skip for it.

    Never more than a tenth of the documents, which are counted as far as that needs.
    """
    n, named = source.validation_documents, source.held_out()
    if named is not None:
        return list(islice((d for d in named if not is_blank(d)), n)), 0
    held, ends, found = [], [], 0
    for read, document in enumerate(source.documents(), 1):
        if is_blank(document):
            continue
        found += 1
        if len(held) < n:
            held.append(document)
            ends.append(read)
        if found == 10 * n:
            break
    if found < 2:
        why = f"is a single document, of which streaming holds nothing out; set {source.validation_key}"
        raise ConfigError(f"{source.where}: {why if found else 'there is no text in it'}")
    share = min(n, max(1, found // 10))
    return held[:share], ends[share - 1]


def training_texts(source: Source) -> Iterator[str]:
    """The text of the training part, up to the `tokenizer_characters` that a tokenizer learns from."""
    left = source.tokenizer_characters
    with progress("train tokenizer", source.n_bytes()) as bar:
        for document in map(as_document, _training(source)):
            text = (document.prompt + document.text)[:left]
            left -= len(text)
            yield text
            bar.update(len(text))
            if not left:
                return
    if left == source.tokenizer_characters:
        raise ConfigError(f"{source.where}: there is no text in it")


def _training(source: Source) -> Iterator[Record]:
    if not source.streaming:
        return (document for part, document in Parts(source) if part == 0)
    documents = source.documents(held_for_streaming(source)[1])
    return islice((d for d in documents if not is_blank(d)), source.max_documents)


def in_batches(records: Iterable[tuple[int, Record]], size: int) -> Iterator[list[tuple[int, Record]]]:
    """Records with their parts in lists of about `size` characters, so that all cores have work."""
    batch, n_characters = [], 0
    for record in records:
        batch.append(record)
        n_characters += len(record[1].text) + 64
        if n_characters > size:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def progress(what: str, n_bytes: int | None) -> tqdm:
    """A bar on standard error, if that is a terminal, for what takes longer than a second."""
    return tqdm(desc=what, total=n_bytes, unit="B", unit_scale=True, delay=1, leave=False, disable=None)
