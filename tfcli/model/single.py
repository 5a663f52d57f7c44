"""Decoding one token of one text, where calls cost more than sums: the shortest way through the same parts.

A brick's `single` gives its function of one token's vector, (D,) -> (D,), as a closure over its weights,
without the axes of rows and time. What a brick has no short way for goes through its `forward`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tfcli.model.attention import HIDDEN, Pass, View
from tfcli.model.position import PositionScheme, Rotation
from tfcli.model.visibility import Rule, arange

AHEAD = 64  # rotations are made for so many tokens at once

_NOTHING = torch.zeros((), device="cpu")  # named, or an import under torch.device("meta") would make it meta


class Glance(NamedTuple):
    """What one new token looks at: a View without the axes of rows and queries."""

    rotation: Rotation | None  # cos and sin are (R,)
    added: Tensor | None  # (H|1, 1, S), added to the scaled scores; None: all is visible
    scores: bool  # position enters by the score hook
    view: Callable[[], View]  # the whole view, for what has no short way


class Glances:
    """Makes the glance of a kind of layer at each place of a text."""

    def __init__(self, rules: tuple[Rule, ...], position: PositionScheme) -> None:
        self.rules, self.position = rules, position
        self.block, self.rotations = -1, []  # the rotations of places block * AHEAD, block * AHEAD + 1 ...

    def at(self, place: int, n_keys: int) -> Glance:
        """What the token at `place` looks at when it is handed the newest `n_keys` keys, its own among
        them.
        """

        def view() -> View:
            device = torch.device("cpu")
            return View.of(
                Pass(arange(place, 1, device), arange(0, place + 1, device)),
                n_keys,
                self.rules,
                self.position,
            )

        if self.position.enters == "bias" or not all(rule.covers(n_keys) for rule in self.rules):
            whole = view()
            added = whole.bias[0] if whole.bias is not None else torch.where(whole.mask[0], 0.0, HIDDEN)
        else:
            added = None
        enters = self.position.enters
        return Glance(self.rotation(place) if enters == "rotation" else None, added, enters == "score", view)

    def rotation(self, place: int) -> Rotation:
        """The turn at that place."""
        block, i = divmod(place, AHEAD)
        if block != self.block:
            many = self.position.rotation(arange(block * AHEAD, AHEAD, torch.device("cpu")), place)
            rows = zip(many.cos[0, :, 0].unbind(), many.sin[0, :, 0].unbind())
            self.block, self.rotations = block, [Rotation(cos, sin, many.interleaved) for cos, sin in rows]
        return self.rotations[i]


def attend_single(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float) -> Tensor:
    """One query: (H, E), (S, K, E), (S, K, F) -> (H F,)."""
    q = q.view(k.shape[1], -1, q.shape[-1])  # (K, H/K, E)
    keys = k.permute(1, 2, 0)  # (K, E, S)
    if added is None:
        scores = torch.baddbmm(_NOTHING, q, keys, beta=0, alpha=scale)  # (K, H/K, S)
    else:
        added = added.expand(q.shape[0] * q.shape[1], 1, -1).reshape(q.shape[0], q.shape[1], -1)
        scores = torch.baddbmm(added, q, keys, alpha=scale)
    return torch.bmm(scores.softmax(-1), v.transpose(0, 1)).view(-1)
