"""Tokenised documents, and the file they are kept in.

A file holds the ids of all documents, where each begins, which may be labels, and what is in it; its last
bytes say where these stand and what their checksum is, so a file that is cut off or damaged is known as
such.
"""

import json
import mmap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tfcli.data import Document, Labelled, Record, Source
from tfcli.tokenizer import Tokenizer

MAGIC = b"tfcliT01"  # the last two digits are the version of the format
LONG = 1 << 20  # characters; a longer document is encoded and written in pieces


@dataclass
class Totals:
    """What is in a part of the data."""

    documents: int = 0
    tokens: int = 0
    bytes: int = 0  # of its text in UTF-8
    blank: int = 0  # documents that were left out because they hold white space only
    unknown: int = 0  # <unk> among the tokens


@dataclass
class Tokens:
    """Documents of ids, one after the other: document i is ids[starts[i] : starts[i + 1]]."""

    ids: np.ndarray  # (N,) uint16 or uint32
    starts: np.ndarray  # (documents + 1,) int64
    score: np.ndarray | None  # (N,) bool, may it be a label; None: all
    totals: Totals
    notices: list[str]
    check: int  # of all the above


@dataclass(frozen=True)
class Encoder:
    """How a document becomes ids: [bos] prompt text [eos].

    Where one token is both BOS and EOS (GPT-2's <|endoftext|>) and both are put, a stream has it once between
    two documents: it begins with one, and each document ends with one. Alone, a document has one at each end.
    """

    tokenizer: Tokenizer
    bos: bool = True
    eos: bool = True
    score_prompt: bool = True
    stream: bool = False  # whether the documents are to follow one another in a row

    @classmethod
    def of(cls, source: Source, tokenizer: Tokenizer) -> "Encoder":
        """As the source is to be learned."""
        return cls(tokenizer, source.bos, source.eos, source.score_prompt, source.packing == "stream")

    @property
    def separates(self) -> bool:
        """Whether the EOS of a document is also the BOS of the next."""
        same = self.tokenizer.bos_id is not None and self.tokenizer.bos_id == self.tokenizer.eos_id
        return same and self.bos and self.eos and self.stream

    @property
    def dtype(self) -> type:
        """The smallest that holds every id of the vocabulary."""
        return np.uint16 if self.tokenizer.vocab_size <= 1 << 16 else np.uint32

    def __call__(self, documents: Sequence[Record]) -> Iterator[tuple[np.ndarray, int]]:
        """Each document's ids, and how many of the first are no labels."""
        ids, lengths, unscored = self.flat([as_document(d) for d in documents])
        yield from zip(np.split(ids, np.cumsum(lengths)[:-1]), unscored.tolist())

    def flat(
        self, documents: Sequence[Document], first: bool = True
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All ids (N,), and of each document how many it has, and how many of the first are no labels.

        first: nothing stands before them.
        """
        encode, bos, eos = self.tokenizer.encode_many, self.tokenizer.bos_id, self.tokenizer.eos_id
        head = [bos] if self.bos and bos is not None else []
        tail = [eos] if self.eos and eos is not None else []
        texts = encode(d.text for d in documents)
        prompts = encode(d.prompt for d in documents) if any(d.prompt for d in documents) else repeat([])
        rows, every = [], not self.separates
        for i, (document, prompt, text) in enumerate(zip(documents, prompts, texts)):
            begins = document.begins and (every or (first and i == 0))
            rows += (head if begins else [], prompt, text, tail if document.ends else [])
        lengths = np.array([len(row) for row in rows], dtype=np.int64).reshape(-1, 4)
        ids = np.fromiter(chain.from_iterable(rows), dtype=self.dtype, count=int(lengths.sum()))
        unscored = lengths[:, 0] + lengths[:, 1]
        return ids, lengths.sum(1), np.zeros_like(unscored) if self.score_prompt else unscored

    def gather(self, documents: Sequence[Record], first: bool = True) -> Tokens:
        """The tokens of some documents, in memory; first: nothing stands before them."""
        file = BytesIO()
        writer = Writer(file, self, first)
        writer.add([as_document(d) for d in documents])
        writer.finish()
        return parse(file.getvalue())

    def pieces(self, record: Record) -> Iterator[Document]:
        """A long document in pieces that give the same ids."""
        document = as_document(record)
        if len(document.text) <= LONG:
            yield document
            return
        begins, held = True, None
        for text in self.tokenizer.pieces(document.text, LONG):
            if held is not None:
                yield held
            held = Document(text, document.prompt if begins else "", begins, ends=False)
            begins = False
        yield held._replace(ends=True)


def as_document(record: Record) -> Document:
    """A record as the text that it is; of two texts the second stands in a line of its own."""
    if isinstance(record, Document):
        return record
    second = record.second if isinstance(record, Labelled) else None
    return Document(record.text if second is None else f"{record.text}\n{second}", record.prompt)


class Writer:
    """Takes documents, or pieces of them in order, and holds no more than their lengths."""

    def __init__(self, file: BinaryIO, encoder: Encoder, first: bool = True) -> None:
        self.file, self.encoder, self.first = file, encoder, first
        self.totals, self.check = Totals(), 0
        self.ends: list[np.ndarray] = [np.zeros(1, dtype=np.int64)]
        self.masks: list[bytes] = []

    def add(self, documents: Sequence[Document]) -> None:
        ids, lengths, unscored = self.encoder.flat(documents, self.first)
        whole = np.array([document.ends for document in documents], dtype=bool)
        ends = np.cumsum(lengths)
        self.ends.append(self.totals.tokens + ends[whole])
        if not self.encoder.score_prompt:
            index = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)  # 0, 1, ... in its document
            self.masks.append((index >= np.repeat(unscored, lengths)).tobytes())
        self.first = self.first and not documents
        self.totals.documents += int(whole.sum())
        self.totals.tokens += len(ids)
        self.totals.bytes += sum(document.size for document in documents)
        if self.encoder.tokenizer.unk_id is not None:
            self.totals.unknown += int((ids == self.encoder.tokenizer.unk_id).sum())
        self._put(ids.tobytes())

    def finish(self, notices: Sequence[str] = ()) -> None:
        self._put(b"\0" * (-self.file.tell() % 8))
        self._put(np.concatenate(self.ends).tobytes())
        self._put(b"".join(self.masks))
        said = asdict(self.totals) | {"notices": list(notices), "size": self.file.tell(), "check": self.check}
        said |= {"dtype": np.dtype(self.encoder.dtype).name, "scored": not self.encoder.score_prompt}
        footer = json.dumps(said).encode()
        self.file.write(footer + len(footer).to_bytes(8, "little") + MAGIC)

    def _put(self, data: bytes) -> None:
        self.check = zlib.crc32(data, self.check)
        self.file.write(data)


def parse(data: bytes | mmap.mmap) -> Tokens:
    """What a Writer wrote, without copying it; raises ValueError if it is not whole."""
    if len(data) < 16 or data[-8:] != MAGIC:
        raise ValueError("not a token file of this version")
    length = int.from_bytes(data[-16:-8], "little")
    said = json.loads(data[-16 - length : -16])
    size, check = said.pop("size"), said.pop("check")
    if size + length + 16 != len(data) or zlib.crc32(memoryview(data)[:size]) != check:
        raise ValueError("damaged")
    dtype, scored, notices = np.dtype(said.pop("dtype")), said.pop("scored"), said.pop("notices")
    totals = Totals(**said)
    at = -(-totals.tokens * dtype.itemsize // 8) * 8
    ids = np.frombuffer(data, dtype, totals.tokens)
    starts = np.frombuffer(data, np.int64, totals.documents + 1, at)
    score = np.frombuffer(data, np.bool_, totals.tokens, at + starts.nbytes) if scored else None
    return Tokens(ids, starts, score, totals, notices, check)


def load(path: Path) -> Tokens | None:
    """The tokens in a file, which is mapped into memory; None if there is no whole one."""
    try:
        with open(path, "rb") as file:
            return parse(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError, KeyError, TypeError):
        return None
