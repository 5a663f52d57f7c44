"""How a new model's parameters are filled: functions of the whole model, which fill every one of them.

Norm gains, biases and what a part sets itself when it is made stay as made.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from tfcli.values import Positive


class Init(Protocol):
    """Fills the tables and matrices of a model, in place; reproducible under torch's seed."""

    def __call__(self, model: nn.Module, n_layers: int) -> None: ...


def tables_and_matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The weights of embeddings and linear maps, each once, by name; biases of linear maps are set to 0."""
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for name, module in model.named_modules():
        if getattr(module, "bias", None) is not None and getattr(module, "weight", None) is not None:
            nn.init.zeros_(module.bias)
        if getattr(module, "weight", None) is not None:
            found.setdefault(id(module.weight), (f"{name}.weight", module.weight))
    return list(found.values())


def writes_to_residual(name: str) -> bool:
    """Whether a matrix is the last of its branch: attention's `out`, feed-forward's `down`."""
    return name.endswith(("out.weight", "down.weight"))


@dataclass(frozen=True)
class Normal:
    """N(0, std^2)  (GPT); depth_scaled: matrices that write to the residual stream N(0, std^2 / 2L)
    (GPT-2); cut: drawn again if further than so many standard deviations from 0 (ModernBERT).
    """

    std: Positive = 0.02
    depth_scaled: bool = False
    cut: Positive | None = None

    @torch.no_grad()
    def __call__(self, model: nn.Module, n_layers: int) -> None:
        for name, weight in tables_and_matrices(model):
            scaled = self.depth_scaled and writes_to_residual(name)
            std = self.std / math.sqrt(2 * n_layers) if scaled else self.std
            if self.cut is None:
                weight.normal_(0.0, std)
            else:
                nn.init.trunc_normal_(weight, 0.0, std, -self.cut * std, self.cut * std)


@dataclass(frozen=True)
class Xavier:
    """U(-a, a), a = sqrt(6 / (fan_in + fan_out)) for matrices (Glorot & Bengio 2010); tables N(0, 1/D)
    (2017).
    """

    @torch.no_grad()
    def __call__(self, model: nn.Module, n_layers: int) -> None:
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        for _, weight in tables_and_matrices(model):
            if id(weight) in tables:
                weight.normal_(0.0, weight.shape[-1] ** -0.5)
            else:
                nn.init.xavier_uniform_(weight)


@dataclass(frozen=True)
class FanIn:
    """N(0, 1 / fan_in) for matrices, N(0, 1) for tokens, N(0, 1/D) for distances; queries, whose products
    are not scaled, by 1 / sqrt(E) smaller  (Raffel et al. 2019, T5).
    """

    @torch.no_grad()
    def __call__(self, model: nn.Module, n_layers: int) -> None:
        d_model = model.embedding.table.weight.shape[1]
        for name, weight in tables_and_matrices(model):
            if "positions" in name:
                weight.normal_(0.0, d_model**-0.5)
            else:
                weight.normal_(0.0, 1.0 if "embedding" in name else weight.shape[1] ** -0.5)
            if name.endswith("qkv.weight"):
                attention = model.get_submodule(name.removesuffix(".qkv.weight"))
                weight[: attention.n_heads * attention.head_dim] *= attention.head_dim**-0.5
