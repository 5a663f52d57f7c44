"""What attention remembers between decoding steps.

A cache knows time (dim 1) and rows (dim 0) and nothing else: grouped attention keeps keys and values in it, a
latent attention keeps its latents. The positions of what is kept are the decoding state's, once for all layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]

STEP = 256  # the least room, in time steps, that a cache asks for at once


class Cache:
    """Keeps everything it was given. Room is taken ahead and doubles, so that adding a step costs no copy."""

    def __init__(self) -> None:
        self.rooms: Tensors = ()  # each (B, room, ...)
        self.start = self.end = 0  # what is remembered: [start, end) of each room
        self.slack = 0  # time steps that padding took up

    def __len__(self) -> int:
        return self.end - self.start

    def upcoming(self, n: int) -> int:
        """How many time steps the next `recall` of `n` new ones hands out."""
        return len(self) + n

    def recall(self, new: Tensors) -> Tensors:
        """Adds the new time steps; returns views of all there are, oldest first."""
        n = new[0].shape[1]
        self._forget(n)
        if not self.rooms or self.end + n > self.rooms[0].shape[1]:
            self._make_room(new, n)
        start, end = self.end, self.end + n
        for room, tensor in zip(self.rooms, new):
            room[:, start:end] = tensor
        start, self.end = self.start, end
        return tuple([room[:, start:end] for room in self.rooms])

    def recall_one(self, new: Tensors) -> Tensors:
        """The same for one time step of one row, without these two axes: (...) -> (S, ...)."""
        self._forget(1)
        if not self.rooms or self.end == self.rooms[0].shape[1]:
            self._make_room(tuple([tensor[None, None] for tensor in new]), 1)
        start, end = self.start, self.end
        self.end = end + 1
        for room, tensor in zip(self.rooms, new):
            room[0, end] = tensor
        return tuple([room[0, start : end + 1] for room in self.rooms])

    def _forget(self, n: int) -> None:
        """Lets go of what n new time steps leave no place for."""

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was; rows may repeat or be left out (beams, samples, finished rows)."""
        self.rooms = tuple(room.index_select(0, rows) for room in self.rooms)

    def _make_room(self, new: Tensors, n: int) -> None:
        kept = self.end - self.start
        size = max(STEP, 2 * kept, kept + n)
        rooms = tuple(t.new_empty(t.shape[0], size, *t.shape[2:]) for t in new)
        for room, old in zip(rooms, self.rooms):
            room[:, :kept] = old[:, self.start : self.end]
        self.rooms, self.start, self.end = rooms, 0, kept


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


def recall(cache: Cache | None, make: Callable[[], Tensors]) -> Tensors:
    """These are my new tensors: give me all there are. Without a cache (training) the new ones are all."""
    return make() if cache is None else cache.recall(make())


def new_cache(reach: int | None) -> Cache:
    """A cache for queries that see `reach` time steps back (None: all)."""
    return Cache() if reach is None else WindowCache(reach)


