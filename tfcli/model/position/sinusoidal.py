"""Fixed waves of geometrically growing length."""

from typing import Literal

import torch
from torch import Tensor

from tfcli.errors import ConfigError
from tfcli.model.position import PositionScheme
from tfcli.values import Count, Positive


class Sinusoidal(PositionScheme):
    """x + PE, PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos of the same  (Vaswani et al. 2017).

    layout: `interleaved` as in the paper, or `concatenated`, all sines before all cosines (tensor2tensor,
    Marian).
    """

    enters = "input"

    def __init__(
        self,
        d_model: Count,
        base: Positive = 10000.0,
        layout: Literal["interleaved", "concatenated"] = "interleaved",
    ) -> None:
        super().__init__()
        if d_model % 2:
            raise ConfigError(f"size.d_model={d_model}: sinusoidal positions need an even width")
        self.interleaved = layout == "interleaved"
        self.frequencies = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        # float64 angles: in fp32 the error at position p is about p * 6e-8
        angles = positions[..., None].double() * self.frequencies.to(x.device)  # (B|1, T, D/2)
        waves = (angles.sin(), angles.cos())
        table = torch.stack(waves, dim=-1).flatten(-2) if self.interleaved else torch.cat(waves, dim=-1)
        return x + table.to(x.dtype)
