"""How per-layer bricks come to be: every call makes a new one."""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from tfcli.model.placement import MakeNorm

Make = Callable[..., nn.Module]


class PerLayer(NamedTuple):
    """Kinds of brick repeated over the layers: (local, local, full) -> local local full local local full
    ...
    """

    kinds: tuple[Make, ...]
    pattern: tuple[int, ...] = (0,)  # layer i is of kind pattern[i mod len(pattern)]

    def kind(self, layer: int) -> int:
        """Which of the kinds layer `layer` is of."""
        return self.pattern[layer % len(self.pattern)]

    def make(self, layer: int, *neighbours: object) -> nn.Module:
        """A new brick for that layer; a position scheme is told the attention it serves, and whether keys on
        both sides are seen.
        """
        return self.kinds[self.kind(layer)](*neighbours)


class Parts(NamedTuple):
    """The bricks of a stack."""

    attention: PerLayer
    position: PerLayer
    ffn: PerLayer
    norm: MakeNorm
    placement: Callable[..., nn.Module]  # of a branch, a maker of norms, and whether it is the first
    cross_attention: PerLayer | None = None  # None: layers look at no memory
