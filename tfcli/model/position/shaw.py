"""Learned vectors for clipped distances, met by the queries themselves."""

import torch
from torch import Tensor

from tfcli.model.linear import Embedding
from tfcli.model.position import PositionScheme
from tfcli.values import Count


class Shaw(PositionScheme):
    """e = q (k + a^K[clip(j - i)]) / sqrt(E), and z = sum alpha (v + a^V[clip(j - i)])  (Shaw et al. 2018).

    One pair of tables a layer, shared by its heads; distances are clipped to [-clip, clip].
    """

    enters = "score"
    per_layer = True

    def __init__(self, head_dim: Count, clip: Count = 16, values: bool = True) -> None:
        super().__init__()
        self.clip = clip
        self.keys = Embedding(2 * clip + 1, head_dim)
        self.value_table = Embedding(2 * clip + 1, head_dim) if values else None

    def _rows(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Which row of a table each pair uses: (B|1, 1, T, S)."""
        offset = k_pos[:, None, None, :] - q_pos[:, None, :, None]
        return offset.clamp(-self.clip, self.clip) + self.clip

    def scores(self, q: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        products = q @ self.keys.weight.to(q.dtype).t()  # (B, H, T, 2 clip + 1)
        rows = self._rows(q_pos, k_pos).expand(*q.shape[:3], -1)
        return products.gather(-1, rows)

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        if self.value_table is None:
            return None
        rows = self._rows(q_pos, k_pos).expand_as(weights)
        per_row = torch.zeros(
            *weights.shape[:3], 2 * self.clip + 1, dtype=weights.dtype, device=weights.device
        )
        return per_row.scatter_add(-1, rows, weights) @ self.value_table.weight.to(weights.dtype)
