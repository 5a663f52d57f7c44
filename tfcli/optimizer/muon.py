"""Muon: the momentum of a matrix, made orthogonal, is the step; what is no hidden matrix goes to AdamW."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tfcli.optimizer.groups import group, hidden_matrices, trainable
from tfcli.optimizer.native import Groups, fused
from tfcli.optimizer.state import slot
from tfcli.precision import cpu_has_bf16
from tfcli.values import Count, NonNegative, Positive, Rate


@dataclass(frozen=True)
class Muon:
    """m = mu m + (1-mu) g,  x = (1 - lr wd) x - lr s O((1-mu) g + mu m), without Nesterov O(m)

    O makes orthogonal (Jordan 2024, kellerjordan.github.io/posts/muon). s for an (A, B) matrix is
    sqrt(max(1, A/B)) with scale `original`, for an lr of about 0.02; `match_rms_adamw`, 0.2 sqrt(max(A, B)),
    gives steps of AdamW's size, for AdamW's lr and decay (Liu et al. 2025, arXiv 2502.16982). Embeddings,
    position tables, the head, gains and biases go to AdamW with `adamw_lr`. A fused projection is one matrix,
    a stack of experts is many. (Jordan's m = mu m + g differs by a factor, which O takes out.)
    """

    lr: Positive = 5e-3
    weight_decay: NonNegative = 0.1
    momentum: Rate = 0.95
    nesterov: bool = True
    iterations: Count = 5
    scale: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    adamw_lr: Positive = 5e-3
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    eps: Positive = 1e-8

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """A `MuonOptimizer` over the model's parameters."""
        named, hidden = trainable(model), hidden_matrices(model)
        own = {"momentum": self.momentum, "nesterov": self.nesterov, "iterations": self.iterations}
        matrices = {name: p for name, p in named.items() if name in hidden}
        ours = group("muon", matrices, self.lr, self.weight_decay, scale=self.scale, **own)
        rest = {name: p for name, p in named.items() if name not in hidden}

        def groups() -> Groups:
            return group("adamw", rest, self.adamw_lr, self.weight_decay)

        adamw = (
            fused(torch.optim.AdamW, groups, betas=(self.beta1, self.beta2), eps=self.eps) if rest else None
        )
        return MuonOptimizer(ours, adamw)


class MuonOptimizer(torch.optim.Optimizer):
    """One optimizer to its user: groups of kind "muon" are updated here, the others by the AdamW within."""

    def __init__(self, groups: Groups, adamw: torch.optim.AdamW | None) -> None:
        super().__init__(groups + (adamw.param_groups if adamw else []), {})
        self.adamw = adamw

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One update from the gradients that are there."""
        for settings in self.param_groups:
            x = [p for p in settings["params"] if p.grad is not None]
            if settings["kind"] == "muon" and x:
                self._update(x, settings, settings["lr"])
        if self.adamw:  # works on this optimizer's own groups and state, also where a load has replaced them
            self.adamw.param_groups = [g for g in self.param_groups if g["kind"] == "adamw"]
            self.adamw.state = self.state
            self.adamw.step()

    def _update(self, x: list[Tensor], settings: dict[str, Any], lr: float) -> None:
        g, mu = [p.grad for p in x], settings["momentum"]
        m = [slot(self.state[p], "momentum", p) for p in x]
        torch._foreach_lerp_(m, g, 1 - mu)
        ahead = torch._foreach_lerp(g, m, mu) if settings["nesterov"] else m
        torch._foreach_mul_(x, 1 - lr * settings["weight_decay"])
        for matrix, direction in zip(x, ahead):
            size = lr * _matched(*matrix.shape[-2:], settings["scale"])
            matrix.sub_(orthogonal(direction, settings["iterations"]), alpha=size)


def orthogonal(m: Tensor, iterations: int) -> Tensor:
    """About U V^T of each matrix m = U S V^T, with singular values from 0.7 to 1.2 where S is not tiny.

    Newton-Schulz, x = a x + (b A + c A^2) x with A = x x^T, from x = m / |m|. The quintic is steep at 0, so
    few iterations do, at the price that it never settles at exactly 1.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = m.shape[-2] > m.shape[-1]
    x = m.mT if tall else m  # A is as large as the smaller side
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-20)
    # a direction need not be exact, and 16 bits are several times faster
    fast = m.dtype is torch.float32 and (m.is_cuda or (m.is_cpu and cpu_has_bf16()))
    x = x.bfloat16() if fast else x
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(m.dtype)


def _matched(a: int, b: int, scale: str) -> float:
    """The factor that makes steps of matrices of different shapes comparable."""
    return max(1.0, a / b) ** 0.5 if scale == "original" else 0.2 * max(a, b) ** 0.5
