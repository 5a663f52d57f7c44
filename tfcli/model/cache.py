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
        if not self.rooms or self.end + n > self.rooms[0].shape[1]:
            self._make_room(new, n)
        for room, tensor in zip(self.rooms, new):
            room[:, self.end : self.end + n] = tensor
        self.end += n
        return tuple(room[:, self.start : self.end] for room in self.rooms)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was; rows may repeat or be left out (beams, samples, finished rows)."""
        self.rooms = tuple(room.index_select(0, rows) for room in self.rooms)

    def _make_room(self, new: Tensors, n: int) -> None:
        kept = len(self)
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

    def _kept(self, n: int) -> int:
        # the oldest of n new queries sees reach-1 steps before itself
        return min(len(self), self.reach - 1 + self.slack)

    def upcoming(self, n: int) -> int:
        return self._kept(n) + n

    def recall(self, new: Tensors) -> Tensors:
        self.start = self.end - self._kept(new[0].shape[1])
        tensors = super().recall(new)
        self.start = max(self.start, self.end - self.reach - self.slack)
        return tensors


def recall(cache: Cache | None, make: Callable[[], Tensors]) -> Tensors:
    """These are my new tensors: give me all there are. Without a cache (training) the new ones are all."""
    return make() if cache is None else cache.recall(make())


def new_cache(reach: int | None) -> Cache:
    """A cache for queries that see `reach` time steps back (None: all)."""
    return Cache() if reach is None else WindowCache(reach)


