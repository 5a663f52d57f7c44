"""A penalty that grows with distance, at a slope of its own for each head."""

import math

import torch
from torch import Tensor

from tfcli.model.position import PositionScheme
from tfcli.values import Count


def slopes(n_heads: int) -> list[float]:
    """2^(-8h/H) for h = 1..H; for H that is no power of two, those of the power below and every second of the
    next.
    """
    power = 2 ** math.floor(math.log2(n_heads))
    series = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return series + between[: n_heads - power]


class Alibi(PositionScheme):
    """-slope_h |q - k| on the scores  (Press et al. 2021, ALiBi); symmetric where keys on both sides are
    seen.
    """

    enters = "bias"

    def __init__(self, n_heads: Count) -> None:
        super().__init__()
        self.slopes = torch.tensor(slopes(n_heads))

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        distance = (q_pos[:, None, :, None] - k_pos[:, None, None, :]).abs()  # (B|1, 1, T, S)
        return -self.slopes.to(distance.device)[:, None, None] * distance
