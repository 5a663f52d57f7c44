"""All records of a source as rows, encoded once."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tfcli.batch import IGNORE
from tfcli.data import Document, Kind, Labelled, Question, Record, Source, Tagged
from tfcli.data.parts import PARTS, Parts, in_batches, progress
from tfcli.data.records import (
    Crowded,
    around,
    covering,
    ends,
    flattened,
    grouped,
    or_unknown,
    spelled,
    text_row,
    trimmed,
    windows,
    word_rows,
)
from tfcli.data.rows import Names, Part, Row, Rows
from tfcli.data.tokens import Totals
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer

BATCH = 1 << 20  # characters that are encoded together, so that all cores have work
SAID = {  # what is odd about n of all records of a part
    "long": "{n} of {all} {part} pairs have a side longer than train.seq_len={limit} and were left out",
    "empty": "{n} of {all} {part} records have a side without a token and were left out",
    "question": "{n} of {all} {part} questions leave their text too little room in train.seq_len={limit} and "
    "were left out",
    "cut": "{n} of {all} {part} records are longer than train.seq_len={limit} and were cut",
    "word": "{n} words of the {part} part are longer than train.seq_len={limit} and were cut",
}


class Reader:
    """Makes rows of records of one kind; what it leaves out or cuts it counts in the part."""

    def __init__(self, source: Source, tokenizer: Tokenizer, limit: int, names: Names) -> None:
        self.source, self.tokenizer, self.limit, self.names = source, tokenizer, limit, names
        self.kinds: dict[str, Callable] = {
            "pair": self.pairs,
            "label": self.labelled,
            "tags": self.tagged,
            "answer": self.questions,
        }

    def pairs(self, records: Sequence[Document], part: Part, _: int) -> Iterator[Row]:
        head, tail = ends(self.tokenizer, self.source.bos, self.source.eos)
        sources = self.tokenizer.reads.encode_many(r.prompt for r in records)
        for source, target in zip(sources, self.tokenizer.encode_many(r.text for r in records)):
            source, target = [*head, *source, *tail], [*target, *tail]
            if not source or not target:
                part.odd["empty"] += 1
            elif max(len(source), len(target)) > self.limit:
                part.odd["long"] += 1
            else:
                yield Row(source, target)

    def labelled(self, records: Sequence[Labelled], part: Part, number: int) -> Iterator[Row]:
        encode = self.tokenizer.encode_many
        texts, seconds = encode(r.text for r in records), encode(r.second or "" for r in records)
        for record, text, second in zip(records, texts, seconds):
            second = None if record.second is None else second
            tokens, border = text_row(self.tokenizer, text, second, self.limit)
            special = around(self.tokenizer, 1 if second is None else 2)
            part.odd["cut"] += len(text) + len(second or ()) + special > len(tokens)
            if tokens:
                yield Row(tokens, [self.names(record.label, number, record.where)], border)
            else:
                part.odd["empty"] += 1

    def tagged(self, records: Sequence[Tagged], part: Part, number: int) -> Iterator[Row]:
        flat = self.tokenizer.encode_many(flattened([spelled(r.words) for r in records]))
        room = self.limit - around(self.tokenizer)
        for record, words in zip(records, grouped(flat, [len(r.words) for r in records])):
            where, encoded = record.where or self.source.where, zip(record.words, words)
            words = [or_unknown(word, ids, self.tokenizer, where) for word, ids in encoded]
            tags = [self.names(tag, number, record.where) for tag in record.tags]
            part.odd["word"] += sum(len(ids) > room for ids in words)
            for tokens, first in word_rows(self.tokenizer, words, self.limit):
                yield Row(tokens, [IGNORE if i < 0 else tags[i] for i in first])

    def questions(self, records: Sequence[Question], part: Part, _: int) -> Iterator[Row]:
        contexts = list(dict.fromkeys(r.context for r in records))  # many have several questions
        found = zip(contexts, self.tokenizer.encode_many_offsets(contexts))
        known = {context: (ids, trimmed(context, spans)) for context, (ids, spans) in found}
        tail = ends(self.tokenizer)[1]
        for record, question in zip(records, self.tokenizer.encode_many(r.question for r in records)):
            ids, spans = known[record.context]
            where = f"{record.where or self.source.where}: question {record.id}".rstrip()
            try:
                head, pieces = windows(self.tokenizer, question, len(ids), self.limit, None, where)
            except Crowded:
                part.odd["question"] += 1
                continue
            answers = _answers(record, spans, where)
            for at in pieces:
                tokens = [*head, *ids[at.start : at.stop], *tail]
                yield Row(tokens, _within(answers, at, len(head)), len(head))


def _answers(record: Question, spans: np.ndarray, where: str) -> list[tuple[int, int]]:
    """The first and the last token of each answer."""
    found = []
    for answer in record.answers:
        tokens = covering(spans, answer.start, answer.start + len(answer.text))
        if tokens is None:
            raise ConfigError(f"{where}: its answer '{answer.text}' has no token of its own in the text")
        found.append(tokens)
    return found


def _within(answers: list[tuple[int, int]], at: range, offset: int) -> list[int]:
    """Where in its row the first answer is that a window holds whole; (0, 0) if it holds none."""
    for first, last in answers:
        if at.start <= first and last < at.stop:
            return [first - at.start + offset, last - at.start + offset]
    return [0, 0]


class Read(NamedTuple):
    """All rows of a source."""

    parts: list[Rows]
    totals: list[Totals]
    labels: tuple[str, ...] | None
    notices: list[str]


def read(
    source: Source, tokenizer: Tokenizer, kind: Kind, limit: int, labels: Sequence[str] | None = None
) -> Read:
    """Reads and encodes all records of a source as rows of at most `limit` tokens."""
    names, made = Names(labels, "O" if kind == "tags" else None), [Part() for _ in PARTS]
    reader, parts = Reader(source, tokenizer, limit, names).kinds[kind], Parts(source, kind)
    with progress("encode", source.n_bytes()) as bar:
        for batch in in_batches(parts, BATCH):
            for number, part in enumerate(made):
                _add(part, [record for where, record in batch if where == number], reader, number)
            bar.update(sum(record.size for _, record in batch))
    named = names if kind in ("label", "tags") else None
    if named is not None:
        named.check(source.where)
    rows = [part.finished(kind, named) for part in made]
    for part, found, blank in zip(made, rows, parts.blank):
        part.totals.blank, part.totals.tokens = blank, sum(map(len, found.ids()))
        if tokenizer.unk_id is not None:
            part.totals.unknown = sum(int((ids == tokenizer.unk_id).sum()) for ids in found.ids())
    notices = [*source.notices(), *_odd(made, limit)]
    return Read(rows, [part.totals for part in made], None if named is None else named.known, notices)


def _add(part: Part, records: Sequence[Record], reader: Callable, number: int) -> None:
    part.totals.documents += len(records)
    part.totals.bytes += sum(record.size for record in records)
    for row in reader(records, part, number):
        part.add(row)


def _odd(parts: list[Part], limit: int) -> Iterator[str]:
    for part, name in zip(parts, ("training", "validation")):
        for kind, n in part.odd.items():
            if n:
                said = SAID[kind].format(n=n, all=part.totals.documents, part=name, limit=limit)
                yield f"data: {said}"
