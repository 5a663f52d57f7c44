"""Adafactor: a matrix's second moment kept as row and column means, and steps relative to the weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tfcli.optimizer.groups import group, trainable
from tfcli.optimizer.state import slot
from tfcli.values import NonNegative, Positive

_TINY = 1e-30  # eps1 of the paper, added to the squared gradient
_SMALL = 1e-3  # eps2: a tensor of zeros moves as if its weights were this large


@dataclass(frozen=True)
class Adafactor:
    """x = (1 - lr wd) x - lr max(1e-3, rms(x)) u / max(1, rms(u) / clip),  u = g / sqrt(v)

    v = r c / mean(r), with r and c the running means of g^2 + 1e-30 along rows and columns, in which step t
    has the share t^-0.8  (Shazeer & Stern 2018, arXiv 1804.04235, algorithms 4 and 5). `lr` times the
    schedule stands for the paper's min(0.01, 1/sqrt(t)), so the rate shown is the rate used; it is not in
    torch.optim.Adafactor, which also floors moments at 1e-7. `relative` false drops max(1e-3, rms(x)).
    """

    lr: Positive = 0.03
    weight_decay: NonNegative = 0.0
    beta2_power: Positive = 0.8
    clip: Positive = 1.0
    relative: bool = True

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """An `AdafactorOptimizer` over the model's parameters."""
        own = {"beta2_power": self.beta2_power, "clip": self.clip, "relative": self.relative}
        return AdafactorOptimizer(group("adafactor", trainable(model), self.lr, self.weight_decay, **own))


class AdafactorOptimizer(torch.optim.Optimizer):
    """The update that `Adafactor` describes; a tensor of more than two axes is a stack of matrices."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One update from the gradients that are there."""
        for settings in self.param_groups:
            for x in settings["params"]:
                if x.grad is not None:
                    self._update(x, self.state[x], settings)

    def _update(self, x: Tensor, state: dict[str, Tensor], settings: dict[str, Any]) -> None:
        step = slot(state, "step", torch.zeros(()))
        step += 1
        u = x.grad * _variance(x.grad, state, float(step) ** -settings["beta2_power"]).rsqrt_()
        size = (_rms(u) / settings["clip"]).clamp_(min=1.0)
        scale = _rms(x).clamp_(min=_SMALL) if settings["relative"] else 1.0
        x.mul_(1 - settings["lr"] * settings["weight_decay"])
        x.sub_(u.mul_(settings["lr"] * scale / size))


def _variance(g: Tensor, state: dict[str, Tensor], share: float) -> Tensor:
    """The second moment, a new tensor of g's shape, once g is taken into the running means."""
    square = g.square().add_(_TINY)
    if g.ndim < 2:
        return slot(state, "square", g).lerp_(square, share).clone()
    rows, columns = square.mean(-1, keepdim=True), square.mean(-2, keepdim=True)
    row = slot(state, "row", rows).lerp_(rows, share)  # (..., N, 1)
    column = slot(state, "column", columns).lerp_(columns, share)  # (..., 1, M)
    return row / row.mean(-2, keepdim=True) * column  # (..., N, M)


def _rms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x) / x.numel() ** 0.5
