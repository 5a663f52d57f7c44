"""AdamW, Adam and SGD as torch has them, in one fused kernel where torch has it for the device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn, optim

from tfcli.errors import ConfigError
from tfcli.optimizer.groups import group, trainable
from tfcli.values import NonNegative, Positive, Rate

Groups = list[dict[str, Any]]


def fused(
    make: Callable[..., optim.Optimizer], groups: Callable[[], Groups], **settings: Any
) -> optim.Optimizer:
    """The optimizer with its fused kernel, or without where torch lacks it for these parameters."""
    try:
        return make(groups(), fused=True, **settings)
    except RuntimeError:
        return make(groups(), **settings)  # made anew: the refused attempt has marked its groups as fused


@dataclass(frozen=True)
class AdamW:
    """m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,  x = (1 - lr wd) x - lr m^ / (sqrt(v^) + eps)

    m^ = m / (1 - b1^t) and v^ = v / (1 - b2^t)  (Loshchilov & Hutter 2017, arXiv 1711.05101).
    """

    lr: Positive = 1e-3
    weight_decay: NonNegative = 0.1
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    eps: Positive = 1e-8

    def build(self, model: nn.Module) -> optim.Optimizer:
        """Torch's AdamW over the model's parameters."""

        def groups() -> Groups:
            return group("adamw", trainable(model), self.lr, self.weight_decay)

        return fused(optim.AdamW, groups, betas=(self.beta1, self.beta2), eps=self.eps)


@dataclass(frozen=True)
class Adam:
    """x = x - lr m^ / (sqrt(v^) + eps), with the moments of g + wd x  (Kingma & Ba 2014, arXiv 1412.6980)

    The decay is part of the gradient and goes through the moments, so it is not the decay of AdamW.
    """

    lr: Positive = 1e-3
    weight_decay: NonNegative = 0.0
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    eps: Positive = 1e-8

    def build(self, model: nn.Module) -> optim.Optimizer:
        """Torch's Adam over the model's parameters."""

        def groups() -> Groups:
            return group("adam", trainable(model), self.lr, self.weight_decay)

        return fused(optim.Adam, groups, betas=(self.beta1, self.beta2), eps=self.eps)


@dataclass(frozen=True)
class SGD:
    """m = mu m + g,  x = x - lr m, or with Nesterov's look ahead  x = x - lr (g + mu m); wd x is part of g

    Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning".
    """

    lr: Positive = 0.1
    weight_decay: NonNegative = 0.0
    momentum: Rate = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise ConfigError("optimizer.nesterov=true: needs optimizer.momentum above 0")

    def build(self, model: nn.Module) -> optim.Optimizer:
        """Torch's SGD over the model's parameters."""

        def groups() -> Groups:
            return group("sgd", trainable(model), self.lr, self.weight_decay)

        return fused(optim.SGD, groups, momentum=self.momentum, nesterov=self.nesterov)
