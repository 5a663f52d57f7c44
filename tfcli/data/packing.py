"""How documents become rows: one stream, several whole documents a row, or one document a row.

Shifted: a row of T inputs is T + 1 tokens, each the label of the one before it. Whatever the packing, every
token of a document but its first is a label exactly once, and of a stream every token but the very first.

Not shifted: a row of T inputs is T tokens, each of which may be a label. Rows share no token, and each token
is in one of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tfcli.data import Blocks, Example, Packing
from tfcli.data.tokens import Tokens

Written = Callable[[int], int]  # of a row's n tokens -> how many its target has at most


@dataclass(frozen=True)
class Stream:
    """Row i is the tokens i*T .. i*T + T - 1 + shift; the last row is shorter."""

    tokens: Tokens
    seq_len: int
    shift: int = 1  # how many tokens further a label is than its input, 0 or 1
    written: Written | None = None  # None: rows have no target of their own

    def __len__(self) -> int:
        return max(0, -(-(len(self.tokens.ids) - self.shift) // self.seq_len))

    def labels(self) -> np.ndarray:
        scored, (begins, ends) = counter(self.tokens), self._bounds()
        return scored(ends) - scored(begins + self.shift)

    def sizes(self) -> np.ndarray:
        begins, ends = self._bounds()
        return sized(ends - begins, self.shift, self.written)

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        begins = np.arange(len(self)) * self.seq_len
        return begins, np.minimum(begins + self.seq_len + self.shift, len(self.tokens.ids))

    def __getitem__(self, index: int) -> Example:
        at = slice(index * self.seq_len, (index + 1) * self.seq_len + self.shift)
        score = None if self.tokens.score is None else self.tokens.score[at]
        return Example(self.tokens.ids[at].astype(np.int64), score=score, place=(0, 0, index))


@dataclass(frozen=True)
class Packed:
    """Row i is the pieces rows[i] .. rows[i + 1]; piece j is ids[starts[j] : starts[j] + lengths[j]]."""

    tokens: Tokens
    starts: np.ndarray  # (pieces,)
    lengths: np.ndarray  # (pieces,)
    rows: np.ndarray  # (rows + 1,)
    shared: bool  # whether a row may hold several pieces, which are then told apart
    shift: int = 1  # how many tokens further a label is than its input, 0 or 1
    written: Written | None = None  # None: rows have no target of their own

    def __len__(self) -> int:
        return len(self.rows) - 1

    def labels(self) -> np.ndarray:
        scored = counter(self.tokens)
        return self._by_row(scored(self.starts + self.lengths) - scored(self.starts + self.shift))

    def sizes(self) -> np.ndarray:
        shifts = self.shift * np.diff(self.rows)  # of each row, one a piece
        return sized(self._by_row(self.lengths), shifts, self.written)

    def _by_row(self, of_pieces: np.ndarray) -> np.ndarray:
        return np.add.reduceat(of_pieces, self.rows[:-1]) if len(self) else of_pieces

    def __getitem__(self, index: int) -> Example:
        at = slice(self.rows[index], self.rows[index + 1])
        starts, lengths = self.starts[at], self.lengths[at]
        ends = np.cumsum(lengths)
        positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)  # (L,) 0 1 2 0 1 0 1 2 3 ...
        where = np.repeat(starts, lengths) + positions
        score = None if self.tokens.score is None else self.tokens.score[where]
        ids = self.tokens.ids[where].astype(np.int64)
        place = (0, 0, int(index))
        if not self.shared:
            return Example(ids, score=score, place=place)
        return Example(ids, np.repeat(np.arange(len(lengths)), lengths), positions, score, place=place)


def sized(lengths: np.ndarray, shifts: np.ndarray | int, written: Written | None) -> np.ndarray:
    """Rows of so many tokens (rows,), `shifts` of which are no inputs, as the sizes of source and target
    (rows, 2).
    """
    if written is None:
        return np.stack([lengths - shifts, np.zeros_like(lengths)], axis=1)
    known, where = np.unique(lengths, return_inverse=True)
    target = np.array([written(n) for n in known.tolist()], dtype=np.int64)
    return np.stack([lengths - shifts, target[where]], axis=1)


def counter(tokens: Tokens) -> Callable[[np.ndarray], np.ndarray]:
    """How many of the first n tokens may be labels, for an array of n."""
    if tokens.score is None:
        return lambda n: n
    total = np.concatenate([[0], np.cumsum(tokens.score)])
    return lambda n: total[n]


def pack(
    tokens: Tokens, packing: Packing, seq_len: int, shifted: bool = True, written: Written | None = None
) -> Blocks:
    """The rows of at most `seq_len` inputs that hold all of the tokens.

    shifted: whether labels are the next tokens, so that a row needs one token more than it has inputs.
    written: how many tokens are written of a row of n, at most; None: nothing beside what is read.
    """
    how = {"shift": int(shifted), "written": written}
    if packing == "stream":
        return Stream(tokens, seq_len, **how)
    starts, lengths = pieces(tokens.starts, seq_len, how["shift"])
    if packing == "none":
        return Packed(tokens, starts, lengths, np.arange(len(starts) + 1), shared=False, **how)
    rows = best_fit(lengths - how["shift"], seq_len)
    order = np.array([piece for row in rows for piece in row], dtype=np.int64)
    ends = np.cumsum([0, *map(len, rows)])
    return Packed(tokens, starts[order], lengths[order], ends, shared=True, **how)


def pieces(starts: np.ndarray, seq_len: int, shift: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Where each piece of a document begins and how long it is, (pieces,) each.

    A document of more than seq_len + shift tokens is several pieces. If labels are shifted, each begins with
    the last token of the one before, so that no label is lost, and a document of a single token has no label
    and is no piece.
    """
    inputs = np.diff(starts) - shift  # (documents,) inputs that have a label
    counts = np.maximum(0, -(-inputs // seq_len))
    before = np.cumsum(counts) - counts  # (documents,) pieces of earlier documents
    number = np.arange(counts.sum()) - np.repeat(before, counts)  # (pieces,) 0, 1, ... in its document
    lengths = np.minimum(seq_len, np.repeat(inputs, counts) - number * seq_len) + shift
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
