"""Who may see whom: predicates on positions, so that one rule serves training, padding, windows and
decoding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tfcli.batch import PAD
from tfcli.values import Count


@dataclass(frozen=True)
class Rule:
    """A predicate on (query position, key position), broadcast; True where the query may see the key."""

    @property
    def reach(self) -> int | None:
        """How many newest positions, its own included, a query can see: what a cache must keep. None: all."""
        return None

    def covers(self, n: int) -> bool:
        """Whether the newest of `n` consecutive positions sees all of them (then no mask is needed for
        it).
        """
        return self.reach is None or n <= self.reach

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Causal(Rule):
    """k <= q"""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return k <= q


@dataclass(frozen=True)
class Window(Rule):
    """|q - k| < size: the query itself and its size-1 neighbours on each side (Beltagy et al. 2020,
    Longformer).
    """

    size: Count

    @property
    def reach(self) -> int:
        return self.size

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).abs() < self.size


@dataclass(frozen=True)
class Strided(Rule):
    """|q - k| < stride, or stride divides q - k (Child et al. 2019, Sparse Transformer; both its patterns in
    one).
    """

    stride: Count

    def covers(self, n: int) -> bool:
        return n <= self.stride + 1

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        distance = (q - k).abs()
        return (distance < self.stride) | (distance % self.stride == 0)


def visible(
    rules: tuple[Rule, ...],
    q_pos: Tensor,
    k_pos: Tensor,
    q_docs: Tensor | None = None,
    k_docs: Tensor | None = None,
    horizon: Tensor | None = None,
) -> Tensor:
    """(B|1, T) and (B|1, S) positions, and documents if several are packed -> (B|1, T, S), True = visible.

    Nobody sees padding. With documents, nobody sees another document. With a horizon, (B, 1|T), the future
    begins behind it: up to there all see each other (a prefix).
    """
    q, k = q_pos[:, :, None], k_pos[:, None, :]
    seen = (k != PAD).expand(-1, q.shape[1], -1)
    for rule in rules:
        now = q if horizon is None or rule != Causal() else torch.maximum(q, horizon[:, :, None])
        seen = seen & rule(now, k)
    if q_docs is not None:
        seen = seen & (q_docs[:, :, None] == k_docs[:, None, :])
    return seen


def arange(start: int, n: int, device: torch.device) -> Tensor:
    """Positions start, start+1, ... that stand for every row: (1, n)."""
    return torch.arange(start, start + n, device=device)[None]
