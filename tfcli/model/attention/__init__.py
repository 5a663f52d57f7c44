"""The contract of an attention, and what its queries look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from tfcli.batch import PAD
from tfcli.model.cache import Cache, new_cache
from tfcli.model.linear import Single
from tfcli.model.position import NOWHERE, Hook, PositionScheme, Rotation
from tfcli.model.visibility import Causal, Rule, visible

HIDDEN = -1e30  # added to a hidden key's score: exactly 0 after softmax, and finite in fp32 and bf16


class Memory(NamedTuple):
    """What an encoder made of its source, for a decoder to look at."""

    states: Tensor  # (B, S, D)
    positions: Tensor | None  # (B, S), PAD where nothing is; None: nothing is padded


class Pass(NamedTuple):
    """What is the same for all layers in one pass through a stack."""

    q_pos: Tensor  # (B|1, T)
    k_pos: Tensor  # (B|1, S), those of the queries last
    padded: bool = False  # some position is PAD
    documents: Tensor | None = None  # (B, T), in training, where the queries are all the keys
    horizon: Tensor | None = None  # (B, 1|T), the last position of a prefix whose tokens see each other
    memory: Memory | None = None  # what a decoder looks at beside its own text

    @property
    def length(self) -> Tensor | int:
        """How long each token's text is, new ones included: (B, T) in packed rows, (B, 1) in padded ones."""
        if self.documents is not None:
            same = self.documents[:, :, None] == self.documents[:, None, :]  # (B, T, T)
            return torch.where(same, self.k_pos[:, None, :], PAD).amax(-1) + 1
        return self.k_pos.amax(-1, keepdim=True) + 1 if self.padded else self.k_pos.shape[-1]

    @property
    def present(self) -> Tensor | None:
        """Which of the queries are tokens, (B, T); None: all."""
        return self.q_pos != PAD if self.padded else None


@dataclass(frozen=True)
class View:
    """What the queries of one kind of layer look at in one pass; made once, shared by all layers of that
    kind.
    """

    q_pos: Tensor  # (B|1, T)
    k_pos: Tensor  # (B|1, S)
    causal: bool  # the kernel's own triangle says it all
    mask: Tensor | None  # (B|1, 1, T|1, S), True = visible; None: all is visible, or `causal`
    bias: Tensor | None  # (B|1, H, T, S), added to the scaled scores, HIDDEN where the mask is False
    rotation: Rotation | None  # of queries and of new keys
    position: PositionScheme  # for its score hook
    memory: Tensor | None = None  # (B, S, D), where keys come from; None: from the queries' own text

    @classmethod
    def of(cls, this: Pass, n_keys: int, rules: tuple[Rule, ...], position: PositionScheme) -> View:
        """The view of layers that are handed the newest `n_keys` keys, under those rules and that scheme."""
        q_pos, k_pos = this.q_pos, this.k_pos[:, -n_keys:]
        bias = position.bias(q_pos, k_pos)
        plain = not this.padded and this.documents is None and all(rule.covers(n_keys) for rule in rules)
        plain = plain and this.horizon is None
        square = q_pos.shape[1] == this.k_pos.shape[1]  # the queries are all the keys
        triangle = plain and square and Causal() in rules and q_pos.shape[1] > 1
        mask = None
        if not plain or (triangle and bias is not None) or not (square or q_pos.shape[1] == 1):
            mask = visible(rules, q_pos, k_pos, this.documents, this.documents, this.horizon)[:, None]
            if bias is not None:
                bias = bias.masked_fill(~mask, HIDDEN)
        turn = position.rotation(q_pos, this.length if position.stable_until is not None else 0)
        return cls(q_pos, k_pos, triangle and mask is None, mask, bias, turn, position)

    @classmethod
    def across(cls, this: Pass) -> View:
        """The view of a pass's memory: all of it that is no padding, from everywhere, without positions."""
        states, positions = this.memory
        if positions is None:
            positions, mask = torch.arange(states.shape[1], device=states.device)[None], None
        else:
            mask = (positions != PAD)[:, None, None]  # (B, 1, 1, S)
        return cls(this.q_pos, positions, False, mask, None, None, NOWHERE, states)


class Attention(nn.Module):
    """(B, T, D) -> (B, T, D): each token gathers from those it sees."""

    takes: ClassVar[frozenset[Hook]] = frozenset()  # the hooks through which position may enter
    reads_memory: ClassVar[bool] = False  # whether keys may come from a view's memory
    rule: Rule | None = None  # a rule of its own, beside those of the stack
    n_heads: int
    head_dim: int  # how many features of a query or key a rotation may turn

    @property
    def facts(self) -> dict[str, int]:
        """What a position scheme that serves it may need to know."""
        return {"n_heads": self.n_heads, "head_dim": self.head_dim}

    def forward(self, x: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        raise NotImplementedError

    def single(self) -> Single:
        """The same for one token of one text, (D,), its glance (see `model.single`) and its cache, in
        evaluation.
        """
        return lambda x, glance, cache: self(x[None, None], glance.view(), cache)[0, 0]

    def new_cache(self) -> Cache:
        """An empty cache for decoding."""
        return new_cache(self.rule.reach if self.rule else None)
