"""What attention remembers between decoding steps.

A cache knows time (dim 1) and rows (dim 0) and nothing else: grouped attention keeps keys and values in it,
side by
side in one tensor, a latent attention keeps its latents. The positions of what is kept are the decoding
state's, once for all layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

STEP = 256  # the least room, in time steps, that a cache asks for at once


class Cache:
    """Keeps everything it was given. Room is taken ahead and doubles, so that adding a step costs no copy."""

    def __init__(self) -> None:
        self.room: Tensor | None = None  # (B, time, ...)
        self.start = self.end = 0  # what is remembered: [start, end) of the room
        self.slack = 0  # time steps that padding took up

    def __len__(self) -> int:
        return self.end - self.start

    def upcoming(self, n: int) -> int:
        """How many time steps the next `recall` of `n` new ones hands out."""
        return len(self) + n

    def recall(self, new: Tensor) -> Tensor:
        """Adds new time steps, (B, n, ...); returns a view of all there are, oldest first: (B, S, ...)."""
        n = new.shape[1]
        self._forget(n)
        if self.room is None or self.end + n > self.room.shape[1]:
            self._make_room(new, n)
        self.room[:, self.end : self.end + n] = new
        self.end += n
        return self.room[:, self.start : self.end]

    def recall_one(self, new: Tensor) -> Tensor:
        """The same for one time step of one row, without these two axes: (...) -> (S, ...)."""
        self._forget(1)
        end = self.end
        if self.room is None or end == self.room.shape[1]:
            self._make_room(new[None, None], 1)
            end = self.end
        self.room[0, end] = new
        self.end = end + 1
        return self.room[0, self.start : end + 1]

    def given(self, make: Callable[[], Tensor]) -> Tensor:
        """All there is, with what `make` makes, unless that is there already."""
        return self.recall(make())

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was; rows may repeat or be left out (beams, samples, finished
        rows).
        """
        if self.room is None:
            return
        if len(rows) != len(self.room):
            self.room = self.room.index_select(0, rows)
            return
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[
            :, 0
        ]  # others stay as they are
        used = self.room[:, self.start : self.end]
        used[moved] = used[rows[moved]]

    def _forget(self, n: int) -> None:
        """Lets go of what n new time steps leave no place for."""

    def _make_room(self, new: Tensor, n: int) -> None:
        kept = self.end - self.start
        room = new.new_empty(new.shape[0], max(STEP, 2 * kept, kept + n), *new.shape[2:])
        if self.room is not None:
            room[:, :kept] = self.room[:, self.start : self.end]
        self.room, self.start, self.end = room, 0, kept


class WindowCache(Cache):
    """Keeps the newest `reach` time steps, and `slack` more, since padding may stand among them."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def __len__(self) -> int:
        return min(self.end - self.start, self.reach + self.slack)

    def upcoming(self, n: int) -> int:
        # the oldest of n new queries sees reach-1 steps before itself
        return min(self.end - self.start, self.reach - 1 + self.slack) + n

    def _forget(self, n: int) -> None:
        self.start = self.end - (self.upcoming(n) - n)


class Once(Cache):
    """Keeps what it was given first, which never grows: the keys and values of a memory."""

    def given(self, make: Callable[[], Tensor]) -> Tensor:
        if self.room is None:
            self.room = make()
            self.end = self.room.shape[1]
        return self.room


def recall(cache: Cache | None, make: Callable[[], Tensor]) -> Tensor:
    """This is how my new tensor is made: give me all there is. Without a cache (training) the new one is
    all.
    """
    return make() if cache is None else cache.given(make)


def new_cache(reach: int | None) -> Cache:
    """A cache for queries that see `reach` time steps back (None: all)."""
    return Cache() if reach is None else WindowCache(reach)
