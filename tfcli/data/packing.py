"""How documents become rows: one stream, several whole documents a row, or one document a row.

A row of T inputs is T + 1 tokens, each the label of the one before it. Whatever the packing, every token of a
document but its first is a label exactly once, and of a stream every token but the very first.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tfcli.data import Blocks, Example, Packing
from tfcli.data.tokens import Tokens


@dataclass(frozen=True)
class Stream:
    """Row i is the tokens i*T .. i*T + T, where T + 1 are left; the last row is shorter."""

    tokens: Tokens
    seq_len: int

    def __len__(self) -> int:
        return max(0, -(-(len(self.tokens.ids) - 1) // self.seq_len))

    def labels(self) -> np.ndarray:
        scored = counter(self.tokens)
        ends = np.minimum((np.arange(len(self)) + 1) * self.seq_len + 1, len(self.tokens.ids))
        return scored(ends) - scored(np.arange(len(self)) * self.seq_len + 1)

    def __getitem__(self, index: int) -> Example:
        at = slice(index * self.seq_len, (index + 1) * self.seq_len + 1)
        score = None if self.tokens.score is None else self.tokens.score[at]
        return Example(self.tokens.ids[at].astype(np.int64), score=score)


@dataclass(frozen=True)
class Packed:
    """Row i is the pieces rows[i] .. rows[i + 1]; piece j is ids[starts[j] : starts[j] + lengths[j]]."""

    tokens: Tokens
    starts: np.ndarray  # (pieces,)
    lengths: np.ndarray  # (pieces,)
    rows: np.ndarray  # (rows + 1,)
    shared: bool  # whether a row may hold several pieces, which are then told apart

    def __len__(self) -> int:
        return len(self.rows) - 1

    def labels(self) -> np.ndarray:
        scored = counter(self.tokens)
        pieces = scored(self.starts + self.lengths) - scored(self.starts + 1)
        return np.add.reduceat(pieces, self.rows[:-1]) if len(self) else pieces

    def __getitem__(self, index: int) -> Example:
        at = slice(self.rows[index], self.rows[index + 1])
        starts, lengths = self.starts[at], self.lengths[at]
        ends = np.cumsum(lengths)
        positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)  # (L,) 0 1 2 0 1 0 1 2 3 ...
        where = np.repeat(starts, lengths) + positions
        score = None if self.tokens.score is None else self.tokens.score[where]
        ids = self.tokens.ids[where].astype(np.int64)
        if not self.shared:
            return Example(ids, score=score)
        return Example(ids, np.repeat(np.arange(len(lengths)), lengths), positions, score)


def counter(tokens: Tokens) -> Callable[[np.ndarray], np.ndarray]:
    """How many of the first n tokens may be labels, for an array of n."""
    if tokens.score is None:
        return lambda n: n
    total = np.concatenate([[0], np.cumsum(tokens.score)])
    return lambda n: total[n]


def pack(tokens: Tokens, packing: Packing, seq_len: int) -> Blocks:
    """The rows of at most `seq_len` inputs that hold all of the tokens."""
    if packing == "stream":
        return Stream(tokens, seq_len)
    starts, lengths = pieces(tokens.starts, seq_len)
    if packing == "none":
        return Packed(tokens, starts, lengths, np.arange(len(starts) + 1), shared=False)
    rows = best_fit(lengths - 1, seq_len)
    order = np.array([piece for row in rows for piece in row], dtype=np.int64)
    ends = np.cumsum([0, *map(len, rows)])
    return Packed(tokens, starts[order], lengths[order], ends, shared=True)


def pieces(starts: np.ndarray, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each piece of a document begins and how long it is, (pieces,) each.

    A document of more than seq_len + 1 tokens is several pieces; each begins with the last token of the one
    before, so that no label is lost. A document of a single token has no label and is no piece.
    """
    inputs = np.diff(starts) - 1  # (documents,) inputs that have a label
    counts = np.maximum(0, -(-inputs // seq_len))
    before = np.cumsum(counts) - counts  # (documents,) pieces of earlier documents
    number = np.arange(counts.sum()) - np.repeat(before, counts)  # (pieces,) 0, 1, ... in its document
    lengths = np.minimum(seq_len, np.repeat(inputs, counts) - number * seq_len) + 1
    return np.repeat(starts[:-1], counts) + number * seq_len, lengths


def best_fit(sizes: np.ndarray, room: int) -> list[list[int]]:
    """Indices of `sizes` in groups of at most `room`  (best fit decreasing, Johnson 1974).

    The largest come first, and each goes into the fullest group that has room for it.
    """
    with_room: list[list[list[int]]] = [[] for _ in range(room + 1)]  # groups by the room they have left
    groups: list[list[int]] = []
    open_rooms = 0  # bit r is set where a group with room r is
    for index in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[index])
        fitting = open_rooms >> size
        if fitting:
            left = size + (fitting & -fitting).bit_length() - 1  # the lowest set bit
            group = with_room[left].pop()
            if not with_room[left]:
                open_rooms &= ~(1 << left)
        else:
            left, group = room, []
            groups.append(group)
        group.append(index)
        with_room[left - size].append(group)
        open_rooms |= 1 << (left - size)
    return groups
