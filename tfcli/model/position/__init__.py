"""The contract of a position scheme: one hook through which it enters, and facts that say which."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

Hook = Literal["input", "rotation", "bias", "score"]


class Rotation(NamedTuple):
    """Turns pairs of features by angles that positions fixed: x cos + swap(x) sin  (Su et al. 2021, RoPE)."""

    cos: Tensor  # (B|1, T, 1, R), fp32
    sin: Tensor  # (B|1, T, 1, R), fp32, negative for the first of each pair
    interleaved: bool  # pairs are (2i, 2i+1), else (i, i + R/2)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, T, H, E) -> the same with its first R features turned; computed in fp32, returned as it
        came.
        """
        width = self.cos.shape[-1]
        if width < x.shape[-1]:
            return torch.cat((self(x[..., :width]), x[..., width:]), dim=-1)
        wide = x.float()
        return torch.addcmul(wide * self.cos, self.swapped(wide), self.sin).to(x.dtype)

    def turn_(self, x: Tensor) -> Tensor:
        """(H, E) features at one place, for which cos and sin are (R,), turned where they are."""
        width = self.cos.shape[0]
        part = x if width == x.shape[-1] else x[:, :width]
        return torch.addcmul(part * self.cos, self.swapped(part), self.sin, out=part)

    def swapped(self, x: Tensor) -> Tensor:
        """Each feature's partner in its place."""
        if self.interleaved:
            return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return x.roll(x.shape[-1] // 2, -1)


class PositionScheme(nn.Module):
    """How position enters. A scheme overrides one hook and names it in `enters`."""

    enters: ClassVar[Hook | None] = None
    per_layer: ClassVar[bool] = False  # every layer has one of its own, else layers share it
    context: int | None = None  # how many positions there are; None: it goes on
    stable_until: int | None = None  # in longer texts every position changes with the length; None: never

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, T, D) token vectors and (B|1, T) positions -> (B, T, D)."""
        return x

    def rotation(self, positions: Tensor, length: Tensor | int) -> Rotation | None:
        """The turn of features at (B|1, T) positions, in texts of `length` tokens: int, or (B|1, T|1)."""
        return None

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """(B|1, T), (B|1, S) -> (B|1, H, T, S), added to the scaled scores."""
        return None

    def scores(self, q: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B, H, T, E) queries -> (B, H, T, S), added to the scores before they are scaled."""
        raise NotImplementedError

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """(B, H, T, S) attention weights -> (B, H, T, E), added to what they gather; None: nothing."""
        return None


NOWHERE = PositionScheme()  # between two texts there is no distance, so nothing enters
