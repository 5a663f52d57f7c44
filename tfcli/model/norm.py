"""Normalisations, computed in fp32: over the features of a token, or over the tokens of a batch.

Each is called with (x, present): which of the (B, T) tokens are there, None for all. Those over features have
no use for it.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfcli.model.linear import Single
from tfcli.values import Count, Fraction, Positive


class Norm(nn.Module):
    """(..., D) -> (..., D)"""

    over_tokens: ClassVar[bool] = False  # in training a token's result depends on the others of its batch

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def single(self) -> Single:
        """The same for one token in evaluation: (D,) -> (D,)."""
        return lambda x: self(x[None, None])[0, 0]


class LayerNorm(Norm):
    """(x - mean) / sqrt(var + eps) * gain + bias  (Ba et al. 2016)."""

    def __init__(self, d_model: Count, eps: Positive = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        return F.layer_norm(x.float(), self.gain.shape, self.gain, self.bias, self.eps)

    def single(self) -> Single:
        shape, gain, bias, eps = self.gain.shape, self.gain, self.bias, self.eps
        return lambda x: torch.layer_norm(x, shape, gain, bias, eps)


class RMSNorm(Norm):
    """x / sqrt(mean(x^2) + eps) * gain  (Zhang & Sennrich 2019).

    one_plus: the gain is 1 + w with w from 0, so that weight decay pulls it to 1 (Gemma).
    """

    def __init__(self, d_model: Count, eps: Positive = 1e-5, one_plus: bool = False) -> None:
        super().__init__()
        self.eps, self.one_plus = eps, one_plus
        self.gain = nn.Parameter(torch.zeros(d_model) if one_plus else torch.ones(d_model))

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        gain = 1 + self.gain if self.one_plus else self.gain
        return F.rms_norm(x.float(), gain.shape, gain, self.eps)

    def single(self) -> Single:
        """In two calls."""
        gain = (1 + self.gain if self.one_plus else self.gain).detach()
        zero, width, eps = torch.zeros_like(gain), len(gain), self.eps
        return lambda x: torch.addcmul(zero, x, gain, value=(torch.dot(x, x).item() / width + eps) ** -0.5)


class BatchNorm(Norm):
    """(x - E[x]) / sqrt(Var[x] + eps) * gain + bias, each feature over the tokens of a batch  (Ioffe &
    Szegedy 2015; in Transformers Shen et al. 2020, PowerNorm).

    In training the tokens are those that are there, of all rows and places; padding has no share, neither
    here nor in the running statistics, which evaluation uses:  r <- (1 - momentum) r + momentum s, with the
    unbiased variance. A batch of a single token has no variance: its result is the bias, and of the running
    statistics it moves the mean alone; a batch without a token moves nothing.
    """

    over_tokens = True

    def __init__(self, d_model: Count, eps: Positive = 1e-5, momentum: Fraction = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        x = x.float()
        mean, var = self.statistics(x, present) if self.training else (self.running_mean, self.running_var)
        return (x - mean) * (var + self.eps).rsqrt() * self.gain + self.bias

    def statistics(self, x: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of each feature, (D,), over the tokens of (B, T, D) that are there."""
        share = torch.ones_like(x[..., :1]) if present is None else present[..., None].to(x.dtype)
        n = share.sum()
        mean = (x * share).sum((0, 1)) / n.clamp(min=1)
        var = ((x - mean).square() * share).sum((0, 1)) / n.clamp(min=1)
        self.remember(mean.detach(), var.detach(), n)
        return mean, var

    @torch.no_grad()
    def remember(self, mean: Tensor, var: Tensor, n: Tensor) -> None:
        """The running statistics with those of n more tokens; what is not finite leaves no trace."""
        unbiased = var * n / (n - 1).clamp(min=1)
        for running, new, least in ((self.running_mean, mean, 1), (self.running_var, unbiased, 2)):
            moved = running.lerp(new, self.momentum)
            running.copy_(torch.where((n >= least) & new.isfinite(), moved, running))
