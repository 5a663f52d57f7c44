"""Normalisations over the features of a token, computed in fp32."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfcli.model.linear import Single
from tfcli.values import Count, Positive


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * gain + bias  (Ba et al. 2016)."""

    def __init__(self, d_model: Count, eps: Positive = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), self.gain.shape, self.gain, self.bias, self.eps)

    def single(self) -> Single:
        """The same for one token: (D,) -> (D,)."""
        shape, gain, bias, eps = self.gain.shape, self.gain, self.bias, self.eps
        return lambda x: torch.layer_norm(x, shape, gain, bias, eps)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * gain  (Zhang & Sennrich 2019).

    one_plus: the gain is 1 + w with w from 0, so that weight decay pulls it to 1 (Gemma).
    """

    def __init__(self, d_model: Count, eps: Positive = 1e-5, one_plus: bool = False) -> None:
        super().__init__()
        self.eps, self.one_plus = eps, one_plus
        self.gain = nn.Parameter(torch.zeros(d_model) if one_plus else torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        gain = 1 + self.gain if self.one_plus else self.gain
        return F.rms_norm(x.float(), gain.shape, gain, self.eps)

    def single(self) -> Single:
        """The same for one token, in two calls: (D,) -> (D,)."""
        gain = (1 + self.gain if self.one_plus else self.gain).detach()
        zero, width, eps = torch.zeros_like(gain), len(gain), self.eps
        return lambda x: torch.addcmul(zero, x, gain, value=(torch.dot(x, x).item() / width + eps) ** -0.5)
