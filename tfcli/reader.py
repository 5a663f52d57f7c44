"""How decoding reads: sources, prompts, then one column of ids after another, with a cache or without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tfcli.batch import PAD, Batch, pad


class Given(NamedTuple):
    """What there is before the first token is read."""

    source: Tensor | None = None  # (B, S), what an encoder-decoder's encoder reads, once; None: a decoder
    positions: Tensor | None = None  # (B, S), PAD where nothing is; None: nothing is padded
    prefix: bool = False  # the tokens of the first read see each other

    @classmethod
    def sources(cls, rows: Sequence[list[int]], device: torch.device | str = "cpu") -> Given:
        """Sources of unequal length, padded on the right."""
        length = max(1, *map(len, rows))
        there = torch.arange(length) < torch.tensor([len(row) for row in rows])[:, None]
        positions = torch.arange(length).where(there, PAD).to(device)
        source = pad([torch.tensor(row, dtype=torch.long) for row in rows], 0, length)
        return cls(source.to(device), None if bool(there.all()) else positions)


NOTHING = Given()


class Cached:
    """Reads only what is new, and a source once."""

    def __init__(self, model: nn.Module, given: Given = NOTHING) -> None:
        self.model = model
        if given.source is not None:
            self.state: Any = model.begin(given.source, given.positions)
        else:
            self.state = model.begin(prefix=True) if given.prefix else model.begin()

    def read(self, ids: Tensor, present: Tensor | None = None) -> Tensor:
        """(B, T) more ids, and where there are any (None: everywhere) -> (B, V) scores of what comes next."""
        return self.model.step(ids, self.state, present, last=True)[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows; they may repeat."""
        self.state.reorder(rows)


class Uncached:
    """Reads everything again, every time: the reference for `Cached`."""

    def __init__(self, model: nn.Module, given: Given = NOTHING) -> None:
        self.model, self.given = model, given
        self.ids: Tensor | None = None  # (B, T)
        self.positions: Tensor | None = None  # (B, T), None while nothing is padded
        self.horizon: Tensor | None = None  # (B, 1), where a prefix ends

    def read(self, ids: Tensor, present: Tensor | None = None) -> Tensor:
        if self.ids is None:
            self.ids = ids
            self.positions = None if present is None else (present.cumsum(1) - 1).masked_fill(~present, PAD)
            if self.given.prefix:
                n_read = torch.ones_like(ids) if present is None else present
                self.horizon = n_read.sum(1, keepdim=True) - 1
        else:
            self.ids = torch.cat((self.ids, ids), dim=1)
            if self.positions is not None:
                self.positions = torch.cat((self.positions, self.positions[:, -1:] + 1), dim=1)
        batch = Batch(self.ids, positions=self.positions, horizon=self.horizon)
        batch.source, batch.source_positions = self.given.source, self.given.positions
        return self.model(batch)[:, -1]

    def keep(self, rows: Tensor) -> None:
        self.ids, self.positions = self.ids[rows], at(rows, self.positions)
        self.horizon = at(rows, self.horizon)
        self.given = Given(at(rows, self.given.source), at(rows, self.given.positions), self.given.prefix)


def at(rows: Tensor, tensor: Tensor | None) -> Tensor | None:
    """Those rows of a tensor, if there is one."""
    return None if tensor is None else tensor[rows]


def pad_left(prompts: list[list[int]]) -> tuple[Tensor, Tensor | None]:
    """(B, T) ids, and where they are (None: everywhere), so that all prompts end together."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    lengths = torch.tensor([len(p) for p in prompts])
    present = torch.arange(longest) >= longest - lengths[:, None]
    return ids, None if bool(present.all()) else present


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout for a while, each of its modules as before after it."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
