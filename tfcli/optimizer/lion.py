"""Lion: the sign of the momentum is the step, so there is one number to remember for each weight."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tfcli.optimizer.groups import group, trainable
from tfcli.optimizer.state import slot
from tfcli.values import NonNegative, Positive, Rate


@dataclass(frozen=True)
class Lion:
    """x = (1 - lr wd) x - lr sign(b1 m + (1-b1) g),  m = b2 m + (1-b2) g

    (Chen et al. 2023, arXiv 2302.06675). A step moves every weight by lr, so lr is 3 to 10 times
    smaller than AdamW's, and the decay as much larger.
    """

    lr: Positive = 4e-4
    weight_decay: NonNegative = 0.5
    beta1: Rate = 0.9
    beta2: Rate = 0.99

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """A `LionOptimizer` over the model's parameters."""
        betas = {"beta1": self.beta1, "beta2": self.beta2}
        return LionOptimizer(group("lion", trainable(model), self.lr, self.weight_decay, **betas))


class LionOptimizer(torch.optim.Optimizer):
    """The update that `Lion` describes, for all tensors of a group at once."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One update from the gradients that are there."""
        for settings in self.param_groups:
            x = [p for p in settings["params"] if p.grad is not None]
            if x:
                self._update(x, settings, settings["lr"])

    def _update(self, x: list[torch.Tensor], settings: dict[str, Any], lr: float) -> None:
        g = [p.grad for p in x]
        m = [slot(self.state[p], "momentum", p) for p in x]
        direction = torch._foreach_lerp(m, g, 1 - settings["beta1"])
        torch._foreach_sign_(direction)
        torch._foreach_mul_(x, 1 - lr * settings["weight_decay"])
        torch._foreach_add_(x, direction, alpha=-lr)
        torch._foreach_lerp_(m, g, 1 - settings["beta2"])
