"""Documents that are read, encoded and packed while training, for data larger than memory."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfcli.data import Document, Example, Source
from tfcli.data.packing import pack
from tfcli.data.parts import is_blank
from tfcli.data.tokens import Encoder, Tokens
from tfcli.errors import ConfigError

DOCUMENTS, CHARACTERS = 256, 1 << 20  # what is read and encoded together, at most
COUNTERS = ("drawn", "passes", "read", "taken", "ended", "seed")
KEPT = ("tokens", "documents", "positions", "score")  # fields of an example that are kept in a state


class Streamed:
    """One pass over the source after the other; examples are drawn from a buffer at random.

    Each example comes once a pass, as the buffer is emptied before the next pass begins. The state holds the
    buffer and how many documents were read: going on reads those again, but does not encode them. Every rank
    reads all, and takes every world-th example.
    """

    examples_per_epoch: int | None = None
    batches_per_epoch: float | None = None

    def __init__(
        self,
        source: Source,
        encoder: Encoder,
        *,
        seq_len: int,
        skip: int,
        seed: int,
        shifted: bool = True,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.source, self.encoder, self.seq_len, self.skip = source, encoder, seq_len, skip
        self.seed, self.shifted, self.rank, self.world = seed, shifted, rank, world
        self.key = _key(source, encoder, seq_len, skip, shifted)
        self.drawn = self.passes = 0
        self._page: tuple[int, np.ndarray] = (-1, np.empty(0))
        self._begin()

    def _begin(self) -> None:
        self.read = self.taken = 0  # documents of this pass: all, and those not blank
        self.rest: Example | None = None  # what was encoded and is not yet a whole block
        self.buffer: list[Example] = []
        self.ended = False
        self._documents: Iterator[Document] | None = None

    @property
    def epoch(self) -> float:
        return float(self.passes)

    def draw(self, n: int) -> list[Example]:
        return [self._next() for _ in range(n * self.world)][self.rank :: self.world]

    def peek(self) -> None:
        """Reads what the first examples are made of; raises ConfigError if that is nothing."""
        self._fill()

    def _next(self) -> Example:
        self._fill()
        slot = int(self._random(self.drawn) * len(self.buffer))
        place = (self.seed, 1 + self.passes, self.drawn)
        self.drawn += 1
        self.buffer[slot], self.buffer[-1] = self.buffer[-1], self.buffer[slot]
        return self.buffer.pop()._replace(place=place)

    def _random(self, index: int) -> float:
        """A number in [0, 1) that depends on the seed and the index only."""
        page, place = divmod(index, 1024)
        if self._page[0] != page:
            self._page = (page, np.random.default_rng([self.seed, page]).random(1024))
        return self._page[1][place]

    def _fill(self) -> None:
        """Reads until the buffer is full; at the end of a pass it must be empty before the next begins."""
        if self.ended and not self.buffer:
            self.passes += 1
            self._begin()
        while not self.ended and len(self.buffer) < self.source.shuffle_buffer:
            documents = self._read()
            self.ended = not documents
            self.buffer += self._examples(documents)
        if not self.buffer:
            raise ConfigError(
                f"{self.source.where}: nothing is left to train on after the documents that are held out; "
                "lower data.validation_documents"
            )

    def _read(self) -> list[Document]:
        """The next documents; none at the end of the pass."""
        if self._documents is None:
            self._documents = self.source.documents(self.skip + self.read)
        documents, size, limit = [], 0, self.source.max_documents
        while len(documents) < DOCUMENTS and size < CHARACTERS and (limit is None or self.taken < limit):
            document = next(self._documents, None)
            if document is None:
                break
            self.read += 1
            if not is_blank(document):
                self.taken += 1
                documents.append(document)
                size += len(document.text)
        return documents

    def _examples(self, documents: list[Document]) -> list[Example]:
        tokens = self.encoder.gather(documents, first=self.rest is None)  # of a stream
        if self.source.packing == "stream":
            return self._blocks(tokens)
        rows = pack(tokens, self.source.packing, self.seq_len, self.shifted)
        return [rows[i] for i in range(len(rows))]

    def _blocks(self, tokens: Tokens) -> list[Example]:
        """What was left over and the new tokens as whole blocks, and at the end of the pass a short one."""
        stream = Example(tokens.ids.astype(np.int64), score=tokens.score)
        if self.rest is not None:
            both = (self.rest, stream)
            score = None if stream.score is None else np.concatenate([e.score for e in both])
            stream = Example(np.concatenate([e.tokens for e in both]), score=score)
        shift = int(self.shifted)
        labels = max(0, len(stream.tokens) - shift)
        ends = range(self.seq_len, labels + 1, self.seq_len)
        ends = [*ends, labels] if self.ended and labels % self.seq_len else [*ends]
        begins = [0, *ends][: len(ends)]
        self.rest = _cut(stream, ends[-1] if ends else 0, None)
        return [_cut(stream, begin, end + shift) for begin, end in zip(begins, ends)]

    def state_dict(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in COUNTERS}
        return state | {
            "key": self.key,
            "rows": _flat(self.buffer),
            "rest": _flat([self.rest] if self.rest else []),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another feed of the same source stood."""
        if state["key"] != self.key:
            raise ConfigError(
                f"{self.source.where}: the run read other data, or had another tokenizer, objective, "
                "train.seq_len, data.packing, bos, eos, max_documents or validation_documents; keep them, or "
                "start anew with init_from"
            )
        for name in COUNTERS:
            setattr(self, name, state[name])
        self._page = (-1, np.empty(0))
        self.buffer = _unflat(state["rows"])
        self.rest = next(iter(_unflat(state["rest"])), None)
        self._documents = None


def _key(source: Source, encoder: Encoder, seq_len: int, skip: int, shifted: bool) -> str:
    """What changes with whatever decides on the examples, but for their order."""
    settings = (source.packing, source.bos, source.eos, source.score_prompt, source.max_documents, skip)
    settings += () if shifted else ("not shifted",)
    said = (encoder.tokenizer.hash, seq_len, source.sketch(), *settings)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


def _cut(example: Example, begin: int, end: int | None) -> Example:
    score = None if example.score is None else example.score[begin:end]
    return Example(example.tokens[begin:end], score=score)


def _flat(examples: list[Example]) -> dict[str, Any]:
    """Examples as one tensor a field, as a checkpoint can hold them."""
    import torch

    state = {"lengths": torch.tensor([len(e.tokens) for e in examples], dtype=torch.long)}
    for name in KEPT if examples else ():
        if getattr(examples[0], name) is not None:
            state[name] = torch.from_numpy(np.concatenate([getattr(e, name) for e in examples]))
    return state


def _unflat(state: dict[str, Any]) -> list[Example]:
    ends = np.cumsum(state["lengths"].numpy())
    if not len(ends):
        return []
    fields = {n: np.split(state[n].numpy(), ends[:-1]) for n in KEPT if n in state}
    return [Example(**dict(zip(fields, row))) for row in zip(*fields.values())]
