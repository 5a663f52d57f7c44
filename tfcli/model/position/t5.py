"""A learned bias for each head and each bucket of distances; one table for a whole stack."""

import math

import torch
from torch import Tensor

from tfcli.errors import ConfigError
from tfcli.model.linear import Embedding
from tfcli.model.position import PositionScheme
from tfcli.values import Count


def bucket(offset: Tensor, n_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """key - query -> bucket: near distances one each, far ones in logarithmic steps, all beyond in the last.

    Bidirectional: the upper half of the buckets is for keys that come after the query. (Raffel et al. 2019,
    T5)
    """
    start = torch.zeros_like(offset)
    if bidirectional:
        n_buckets //= 2
        start = (offset > 0).long() * n_buckets
        distance = offset.abs()
    else:
        distance = (-offset).clamp(min=0)
    exact = n_buckets // 2
    # fp32 and truncated: in bf16 distances at the borders would change their bucket
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (n_buckets - exact)).long()).clamp(max=n_buckets - 1)
    return start + torch.where(distance < exact, distance, far)


class T5Bias(PositionScheme):
    """B[h, bucket(k - q)] on the scores, no other position  (Raffel et al. 2019, T5)."""

    enters = "bias"

    def __init__(
        self, n_heads: Count, n_buckets: Count = 32, max_distance: Count = 128, bidirectional: bool = False
    ) -> None:
        super().__init__()
        halves = 2 if bidirectional else 1
        if n_buckets < 2 * halves or max_distance <= n_buckets // halves // 2:
            raise ConfigError(
                f"t5 buckets: n_buckets={n_buckets} must be at least {2 * halves} and "
                f"max_distance={max_distance} "
                f"above {n_buckets // halves // 2}"
            )
        self.n_buckets, self.max_distance, self.bidirectional = n_buckets, max_distance, bidirectional
        self.table = Embedding(n_buckets, n_heads)

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        offset = k_pos[:, None, :] - q_pos[:, :, None]  # (B|1, T, S)
        buckets = bucket(offset, self.n_buckets, self.max_distance, self.bidirectional)
        return self.table(buckets).permute(0, 3, 1, 2)  # (B|1, T, S, H) -> (B|1, H, T, S)
