"""Records as ids: pairs, labelled texts, tagged sentences, and questions about a text.

    pair      [bos] source [eos]  |  target [eos]
    label     [bos] text [eos]  or  [bos] text [eos] second [eos]  (RoBERTa: [eos] twice between two texts)
    tags      [bos] words ... [eos]
    answer    [bos] question [eos] a window of the context [eos]

bos and eos are the tokenizer's, [CLS] and [SEP] of some; one that it has not is left out.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer

Ids = list[int]
Span = tuple[int, int]  # from which to before which character


class Window(NamedTuple):
    """A question with a piece of its context."""

    tokens: np.ndarray  # (L,)
    segments: np.ndarray  # (L,) 1 from the context on
    spans: np.ndarray  # (L, 2) the characters of the context that a token stands for; (-1, -1) elsewhere


class Crowded(ConfigError):
    """A question leaves too little room for its context."""


def encode_source(tokenizer: Tokenizer, text: str, bos: bool = True, eos: bool = True) -> Ids:
    """What the encoder of an encoder-decoder reads."""
    head, tail = ends(tokenizer.reads, bos, eos)
    return [*head, *tokenizer.reads.encode(text), *tail]


def encode_text(
    tokenizer: Tokenizer, text: str, second: str | None, limit: int, bos: bool = True, eos: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and segments, (L,) each, of a text or two, cut to `limit` tokens, the longer one first."""
    of_second = None if second is None else tokenizer.encode(second)
    tokens, border = text_row(tokenizer, tokenizer.encode(text), of_second, limit, bos, eos)
    return np.array(tokens, dtype=np.int64), segments(len(tokens), border)


def encode_words(
    tokenizer: Tokenizer,
    words: Sequence[str],
    limit: int,
    where: str = "words",
    bos: bool = True,
    eos: bool = True,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """A sentence as rows of at most `limit` tokens, cut between words.

    Of each row its tokens, and for each token the index of the word that it begins or -1, (L,) each.
    """
    encoded = zip(words, tokenizer.encode_many(spelled(words)))
    ids = [or_unknown(word, its, tokenizer, where) for word, its in encoded]
    rows = word_rows(tokenizer, ids, limit, bos, eos)
    return [(np.array(tokens, dtype=np.int64), np.array(first, dtype=np.int64)) for tokens, first in rows]


def encode_question(
    tokenizer: Tokenizer,
    question: str,
    context: str,
    limit: int,
    stride: int | None = None,
    where: str = "question",
    bos: bool = True,
    eos: bool = True,
) -> list[Window]:
    """A question with each window of its context, of at most `limit` tokens; windows share `stride` of them.

    stride: None is a quarter of `limit`. where: what to call the question in what is raised, `Crowded`, if it
    leaves too little room for its context.
    """
    ids, spans = tokenizer.encode_offsets(context)
    spans, n = trimmed(context, spans), len(ids)
    head, pieces = windows(tokenizer, tokenizer.encode(question), n, limit, stride, where, bos, eos)
    tail = ends(tokenizer, bos, eos)[1]
    found = []
    for at in pieces:
        tokens = np.array([*head, *ids[at.start : at.stop], *tail], dtype=np.int64)
        places = np.full((len(tokens), 2), -1)
        places[len(head) : len(head) + len(at)] = spans[at.start : at.stop]
        found.append(Window(tokens, segments(len(tokens), len(head)), places))
    return found


def ends(tokenizer: Tokenizer, bos: bool = True, eos: bool = True) -> tuple[Ids, Ids]:
    """What stands before and after a text."""
    head = [tokenizer.bos_id] if bos and tokenizer.bos_id is not None else []
    tail = [tokenizer.eos_id] if eos and tokenizer.eos_id is not None else []
    return head, tail


def around(tokenizer: Tokenizer, n_texts: int = 1, bos: bool = True, eos: bool = True) -> int:
    """How many special tokens stand around so many texts of a row."""
    head, tail = ends(tokenizer, bos, eos)
    return len(head) + len(tail) + (n_texts - 1) * len(parting(tokenizer, eos))


def parting(tokenizer: Tokenizer, eos: bool = True) -> Ids:
    """What stands between two texts of a row."""
    return ends(tokenizer, False, eos)[1] * tokenizer.parted


def segments(length: int, border: int) -> np.ndarray:
    """0 before the border and 1 from there on, (length,)."""
    return (np.arange(length) >= border).astype(np.int64)


def text_row(
    tokenizer: Tokenizer, ids: Ids, second: Ids | None, limit: int, bos: bool = True, eos: bool = True
) -> tuple[Ids, int]:
    """The tokens of a text or two, at most `limit`, and where the second begins: at their end if there is
    none.
    """
    head, tail = ends(tokenizer, bos, eos)
    room = roomy(limit - around(tokenizer, 1 if second is None else 2, bos, eos), limit)
    n, m = shares(len(ids), len(second or ()), room)
    tokens = [*head, *ids[:n], *(tail if second is None else parting(tokenizer, eos))]
    return (tokens, len(tokens)) if second is None else ([*tokens, *second[:m], *tail], len(tokens))


def shares(n: int, m: int, room: int) -> tuple[int, int]:
    """How much of two lengths fits: the longer one gives way first, and equal ones together."""
    if n + m <= room:
        return n, m
    if 2 * min(n, m) <= room:
        return (n, room - n) if n < m else (room - m, m)
    return room - room // 2, room // 2


def spelled(words: Sequence[str]) -> list[str]:
    """Words as they stand in running text: each but the first after a blank."""
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)]


def or_unknown(word: str, ids: Ids, tokenizer: Tokenizer, where: str) -> Ids:
    """The ids of a word or text, or <unk> where it has none. Raises ConfigError if there is no such token."""
    if ids or tokenizer.unk_id is not None:
        return ids or [tokenizer.unk_id]
    shown = word if len(word) <= 40 else word[:40] + "..."
    raise ConfigError(f"{where}: {shown!r} gives no token, and the tokenizer has no <unk> to stand for it")


def word_rows(
    tokenizer: Tokenizer, words: Sequence[Ids], limit: int, bos: bool = True, eos: bool = True
) -> list[tuple[Ids, list[int]]]:
    """Rows of whole words; of a word that is longer than a row, its beginning."""
    head, tail = ends(tokenizer, bos, eos)
    room = roomy(limit - around(tokenizer, 1, bos, eos), limit)
    rows: list[tuple[Ids, list[int]]] = []
    left = 0
    for i, ids in enumerate(words):
        ids = ids[:room]
        if len(ids) > left:
            rows.append(([*head], [-1] * len(head)))
            left = room
        rows[-1][0].extend(ids)
        rows[-1][1].extend([i] + [-1] * (len(ids) - 1))
        left -= len(ids)
    return [(tokens + tail, first + [-1] * len(tail)) for tokens, first in rows]


def windows(
    tokenizer: Tokenizer,
    question: Ids,
    n: int,
    limit: int,
    stride: int | None,
    where: str,
    bos: bool = True,
    eos: bool = True,
) -> tuple[Ids, list[range]]:
    """What stands before each window, and the windows of a context of n tokens. Raises Crowded."""
    stride = limit // 4 if stride is None else stride
    if len(question) > limit // 2:
        raise Crowded(
            f"{where}: the question has {len(question)} tokens, more than half of train.seq_len={limit}; "
            "raise it, or leave the question out"
        )
    head, tail = ends(tokenizer, bos, eos)
    head = [*head, *question, *parting(tokenizer, eos)]
    room = limit - len(head) - len(tail)
    if room < min(n, stride + 1):
        raise Crowded(
            f"{where}: beside the question there is room for {max(0, room)} tokens of its text in "
            f"train.seq_len={limit}, and windows share {stride}; raise it"
        )
    begins = range(0, max(1, n - stride), max(1, room - stride)) if n > room else (0,)
    return head, [range(begin, min(begin + room, n)) for begin in begins]


def trimmed(text: str, spans: Sequence[Span]) -> np.ndarray:
    """Spans of a text without white space at their ends, (n, 2); those of white space only as they are."""
    found = np.array(spans, dtype=np.int64).reshape(-1, 2)
    for i, (begin, end) in enumerate(spans):
        piece = text[begin:end]
        if piece != piece.strip() and piece.strip():
            found[i] = end - len(piece.lstrip()), begin + len(piece.rstrip())
    return found


def covering(spans: np.ndarray, begin: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that stand for any of these characters; None: no token does."""
    inside = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > begin))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def roomy(room: int, limit: int) -> int:
    """The room for text in a row. Raises ConfigError if there is none."""
    if room < 1:
        raise ConfigError(f"train.seq_len={limit}: has no room for text beside special tokens")
    return room


def grouped(flat: Sequence[Ids], sizes: Sequence[int]) -> Iterator[list[Ids]]:
    """A flat list as lists of these sizes."""
    rest = iter(flat)
    return (list(islice(rest, size)) for size in sizes)


def flattened(lists: Sequence[Sequence[str]]) -> list[str]:
    return list(chain.from_iterable(lists))
