"""Where decoding stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from tfcli.batch import PAD
from tfcli.model.attention import Memory, Pass
from tfcli.model.stack import Stack
from tfcli.model.visibility import arange


class State:
    """The caches, the positions of all that was read, and what an encoder read before.

    While no row was ever padded, rows stand at the same position and positions are a count. prefix: the
    tokens of the first step all see each other.
    """

    def __init__(self, stack: Stack, memory: Memory | None = None, prefix: bool = False) -> None:
        self.caches = stack.new_caches()
        self.slots = 0  # time steps read, padding included
        self.positions: Tensor | None = None  # (B, slots) once a row was padded
        self.single: Callable | Literal[False] | None = (
            None  # the short way for one token; None: not yet asked for
        )
        self.ids: Tensor | None = None  # (B, slots), kept where a longer text may have to be read anew
        self.prefix = prefix
        self.horizon: Tensor | None = None  # (B, 1), the last position of each row's prefix
        self.memory = memory
        self.memories = None if memory is None else stack.new_memories()
        self.sources = None if memory is None else torch.arange(len(memory.states))  # of each row: its source

    def advance(self, ids: Tensor, present: Tensor | None) -> Pass:
        """Reads (B, T) more: their positions, and those of all there is."""
        first = not self.slots
        this = self._advance(ids, present)
        if first and self.prefix:
            self.horizon = this.q_pos.amax(-1, keepdim=True)
            this = this._replace(horizon=self.horizon)
        return this._replace(memory=self.memory)

    def _advance(self, ids: Tensor, present: Tensor | None) -> Pass:
        n_new, start = ids.shape[1], self.slots
        self.slots += n_new
        if present is None and self.positions is None:
            return Pass(arange(start, n_new, ids.device), arange(0, self.slots, ids.device))
        old = self.positions
        if old is None:
            old = arange(0, start, ids.device).expand(ids.shape[0], -1)
        if present is None:
            present = torch.ones_like(ids, dtype=torch.bool)
        following = old.amax(-1, keepdim=True) + 1 if start else torch.zeros_like(ids[:, :1])
        new = torch.where(present, following + present.cumsum(-1) - 1, PAD)
        self.positions = torch.cat((old, new), dim=1)
        padding = int((~present).sum(-1).max())
        for cache in self.caches:
            cache.slack += padding
        return Pass(new, self.positions, padded=True)

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from where row rows[i] stood; rows may repeat (samples, beams) or be left out
        (finished).
        """
        for cache in self.caches:
            cache.reorder(rows)
        if self.positions is not None:
            self.positions = self.positions.index_select(0, rows)
        if self.ids is not None:
            self.ids = self.ids.index_select(0, rows)
        if self.horizon is not None and len(self.horizon) > 1:
            self.horizon = self.horizon.index_select(0, rows)
        if self.memory is not None:
            self._reorder_memory(rows)

    def _reorder_memory(self, rows: Tensor) -> None:
        sources = self.sources[rows.cpu()]
        if torch.equal(sources, self.sources):
            return  # beams changed places among those of one source: nothing to copy
        self.sources = sources
        states, positions = self.memory
        positions = None if positions is None else positions.index_select(0, rows)
        self.memory = Memory(states.index_select(0, rows), positions)
        for memory in self.memories:
            memory.reorder(rows)

    def whole(self, ids: Tensor) -> tuple[Tensor, Pass]:
        """All ids so far, the (B, T) new ones last, as a text to be read from its start."""
        self.ids = ids if self.ids is None else torch.cat((self.ids, ids), dim=1)
        positions = arange(0, self.slots, ids.device) if self.positions is None else self.positions
        padded = self.positions is not None
        return self.ids, Pass(positions, positions, padded, horizon=self.horizon, memory=self.memory)
