"""How decoding reads: the prompts of a batch, then one column of ids after another, cached or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tfcli.batch import PAD, Batch


class Cached:
    """Reads only what is new."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.state = model, model.begin()

    def read(self, ids: Tensor, present: Tensor | None = None) -> Tensor:
        """(B, T) more ids, and where there are any (None: everywhere) -> (B, V) scores of what comes next."""
        return self.model.step(ids, self.state, present, last=True)[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows; they may repeat."""
        self.state.reorder(rows)


class Uncached:
    """Reads everything again, every time: the reference for `Cached`."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.ids: Tensor | None = None  # (B, T)
        self.positions: Tensor | None = None  # (B, T), None while nothing is padded

    def read(self, ids: Tensor, present: Tensor | None = None) -> Tensor:
        if self.ids is None:
            self.ids = ids
            self.positions = None if present is None else (present.cumsum(1) - 1).masked_fill(~present, PAD)
        else:
            self.ids = torch.cat((self.ids, ids), dim=1)
            if self.positions is not None:
                self.positions = torch.cat((self.positions, self.positions[:, -1:] + 1), dim=1)
        return self.model(Batch(self.ids, positions=self.positions))[:, -1]

    def keep(self, rows: Tensor) -> None:
        self.ids = self.ids[rows]
        self.positions = None if self.positions is None else self.positions[rows]


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
