"""How the next token is chosen from the logits: small pieces, and the one sampler that composes them.

Every piece maps logits (B, V) to logits (B, V), row by row; what it rules out becomes -inf. Chance comes from
outside, one number in [0, 1) per row, so that a row's choice never depends on its company.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tfcli.values import Fraction, Index, NonNegative, Positive

NEVER = -torch.inf  # the logit of a token that cannot be chosen
ROUNDING = 1e-6  # what is p on paper has reached p
HEAD = 256  # a nucleus is looked for among this many tokens before more are sorted


@dataclass(frozen=True)
class Temperature:
    """(l - max l) / t, the same distribution as l / t without overflow at a tiny t."""

    t: float

    def __call__(self, logits: Tensor) -> Tensor:
        return (logits - logits.amax(-1, keepdim=True)) / max(self.t, 1e-30)


@dataclass(frozen=True)
class TopK:
    """The k largest; all of them where k is the vocabulary or more (Fan et al. 2018, arXiv 1805.04833)."""

    k: int

    def __call__(self, logits: Tensor) -> Tensor:
        if self.k >= logits.shape[-1]:
            return logits
        largest, ids = logits.topk(self.k, -1)
        return torch.full_like(logits, NEVER).scatter(-1, ids, largest)


@dataclass(frozen=True)
class TopP:
    """The fewest likeliest tokens whose probabilities sum to p (Holtzman et al. 2019, arXiv 1904.09751).

    The token that crosses p is kept, so at p = 0 one remains; p = 1 keeps all.
    """

    p: float

    def __call__(self, logits: Tensor) -> Tensor:
        if self.p >= 1:
            return logits
        probs = logits.softmax(-1, dtype=torch.float64)
        size, vocab_size = HEAD, probs.shape[-1]
        ordered, ids = probs.topk(min(size, vocab_size), -1)  # (B, V) -> (B, size)
        while size < vocab_size and bool((ordered.sum(-1) < self.p).any()):  # too flat to end so early
            size *= 16
            ordered, ids = probs.topk(min(size, vocab_size), -1)
        inside = ordered.cumsum(-1) - ordered < self.p - ROUNDING  # the sum before it has not reached p
        inside[..., 0] = True
        kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, inside)
        return logits.masked_fill(~kept, NEVER)


@dataclass(frozen=True)
class MinP:
    """Tokens at least p times as likely as the likeliest (Nguyen et al. 2024, arXiv 2407.01082)."""

    p: float

    def __call__(self, logits: Tensor) -> Tensor:
        least = logits.amax(-1, keepdim=True) + math.log(self.p) - ROUNDING
        return logits.masked_fill(logits < least, NEVER)


@dataclass(frozen=True)
class RepetitionPenalty:
    """l / p where l > 0, l * p where l < 0, of tokens seen before (Keskar et al. 2019, arXiv 1909.05858)."""

    p: float

    def __call__(self, logits: Tensor, seen: Tensor) -> Tensor:
        """`seen` (B, V): which tokens the row holds, prompt included; how often makes no difference."""
        return torch.where(seen, torch.where(logits > 0, logits / self.p, logits * self.p), logits)


def draw(logits: Tensor, chance: Tensor) -> Tensor:
    """(B, V) logits and (B,) numbers in [0, 1) -> (B,) ids: the inverse of the cumulative distribution."""
    mass = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
    return torch.searchsorted(mass, chance[:, None] * mass[:, -1:], right=True)[:, 0]  # never one of mass 0


@dataclass(frozen=True)
class Sampler:
    """argmax(l), or a draw from softmax(filters(penalty(l) / temperature)); top-k, then top-p, then min-p."""

    temperature: NonNegative | None = None  # None: 1 where a filter is set, else 0; 0 is greedy
    top_k: Index | None = None  # None or 0: off
    top_p: Fraction | None = None  # None or 1: off
    min_p: Fraction | None = None  # None or 0: off
    repetition_penalty: Positive | None = None  # None or 1: off

    @cached_property
    def filters(self) -> tuple[Callable[[Tensor], Tensor], ...]:
        """What narrows the choice, in order."""
        top_k = (TopK(self.top_k),) if self.top_k else ()
        top_p = (TopP(self.top_p),) if self.top_p is not None and self.top_p < 1 else ()
        min_p = (MinP(self.min_p),) if self.min_p else ()
        return top_k + top_p + min_p

    @cached_property
    def heat(self) -> float:
        """The temperature in force."""
        return float(bool(self.filters)) if self.temperature is None else self.temperature

    @cached_property
    def draws(self) -> bool:
        """Whether chance has a say; without it every choice is the likeliest token."""
        return self.heat > 0

    @cached_property
    def penalises(self) -> bool:
        """Whether what a row already holds has a say."""
        return self.repetition_penalty not in (None, 1)

    def __call__(self, logits: Tensor, *, chance: Tensor | None = None, seen: Tensor | None = None) -> Tensor:
        """(B, V) -> (B,) ids. `chance` (B,) where `draws`, `seen` (B, V) where `penalises`."""
        if self.penalises:
            logits = RepetitionPenalty(self.repetition_penalty)(logits, seen)
        return draw(self.narrow(logits.float()), chance) if self.draws else logits.argmax(-1)

    def narrow(self, logits: Tensor) -> Tensor:
        """The logits that a draw is made from."""
        for piece in (Temperature(self.heat), *self.filters):
            logits = piece(logits)
        return logits
