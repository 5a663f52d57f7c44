"""Each optimizer against the formula of its paper in numpy float64, and the laws of parameter groups."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from tfcli.build import make
from tfcli.cli.door import compose
from tfcli.errors import ConfigError
from tfcli.optimizer import decays, set_lr, trainable
from tfcli.optimizer.muon import orthogonal

CONFIGS = Path(__file__).parents[1] / "configs" / "optimizer"
CHOICES = sorted(p.stem for p in CONFIGS.glob("*.yaml"))
Array = np.ndarray


def recipe(choice: str, **changes):
    node = OmegaConf.to_container(compose("train", [f"optimizer={choice}"]).optimizer) | changes
    return make(OmegaConf.create({"optimizer": node}).optimizer, "optimizer")


class Model(nn.Module):
    """One parameter of each sort that a Transformer has; the head is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.norm = nn.LayerNorm(4)
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4, bias=False)
        self.experts = nn.ParameterDict({"weight": torch.randn(3, 4, 5), "bias": torch.randn(3, 5)})
        self.head_norm = nn.ParameterDict({"gain": torch.ones(2, 3)})
        self.positions = nn.ModuleList([nn.Embedding(9, 4)])


MATRICES = {"embedding.weight", "positions.0.weight", "up.weight", "down.weight", "experts.weight"}
VECTORS = {"norm.weight", "norm.bias", "up.bias", "experts.bias", "head_norm.gain"}


def run(choice: str, steps: int = 3, **changes) -> tuple[SimpleNamespace, dict[str, list[Array]]]:
    """The recipe, and each parameter's values before the first and after each step under random gradients."""
    model, chosen = Model().double(), recipe(choice, **changes)
    optimizer = chosen.build(model)
    named = trainable(model)
    values = {name: [p.detach().numpy().copy()] for name, p in named.items()}
    for gradients in each_step(named, steps):
        for name, p in named.items():
            p.grad = torch.from_numpy(gradients[name]).clone()
        optimizer.step()
        for name, p in named.items():
            values[name].append(p.detach().numpy().copy())
    return chosen, values


def each_step(named: dict[str, Tensor], steps: int) -> list[dict[str, Array]]:
    random = np.random.default_rng(0)
    return [{name: random.normal(size=p.shape) for name, p in named.items()} for _ in range(steps)]


def compare(values: dict[str, list[Array]], formula) -> None:
    """formula(name, x, g, step, memory) -> the new x, for every parameter and step."""
    memories = {name: {} for name in values}
    for step, gradients in enumerate(each_step(trainable(Model()), 3), 1):
        for name, kept in values.items():
            expected = formula(name, kept[step - 1], gradients[name], step, memories[name])
            np.testing.assert_allclose(
                kept[step], expected, rtol=1e-6, atol=1e-9, err_msg=f"{name}, step {step}"
            )


def adam(x: Array, g: Array, step: int, memory: dict, r, lr: float) -> Array:
    m = memory["m"] = r.beta1 * memory.get("m", 0) + (1 - r.beta1) * g
    v = memory["v"] = r.beta2 * memory.get("v", 0) + (1 - r.beta2) * g**2
    return x - lr * (m / (1 - r.beta1**step)) / (np.sqrt(v / (1 - r.beta2**step)) + r.eps)


def test_adamw_is_its_formula():
    r, values = run("adamw")
    decay = {name: r.weight_decay * (name in MATRICES) for name in values}
    compare(values, lambda name, x, g, t, memory: adam((1 - r.lr * decay[name]) * x, g, t, memory, r, r.lr))


def test_adam_is_its_formula_with_the_decay_in_the_gradient():
    r, values = run("adam", weight_decay=0.3)
    decay = {name: 0.3 * (name in MATRICES) for name in values}
    compare(values, lambda name, x, g, t, memory: adam(x, g + decay[name] * x, t, memory, r, r.lr))


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_its_formula(nesterov):
    r, values = run("sgd", weight_decay=0.3, nesterov=nesterov)

    def formula(name, x, g, t, memory):
        g = g + 0.3 * (name in MATRICES) * x
        m = memory["m"] = r.momentum * memory.get("m", 0) + g
        return x - r.lr * (g + r.momentum * m if nesterov else m)

    compare(values, formula)


def test_lion_is_its_formula():
    r, values = run("lion")

    def formula(name, x, g, t, memory):
        m = memory.get("m", np.zeros_like(x))
        update = np.sign(r.beta1 * m + (1 - r.beta1) * g) + r.weight_decay * (name in MATRICES) * x
        memory["m"] = r.beta2 * m + (1 - r.beta2) * g
        return x - r.lr * update

    compare(values, formula)


@pytest.mark.parametrize("relative", [True, False])
def test_adafactor_is_its_formula(relative):
    r, values = run("adafactor", weight_decay=0.3, relative=relative)

    def rms(x):
        return np.sqrt((x**2).mean())

    def factored(g2, beta, memory):
        row = memory["row"] = beta * memory.get("row", 0) + (1 - beta) * g2.sum(-1)
        column = memory["column"] = beta * memory.get("column", 0) + (1 - beta) * g2.sum(-2)
        return np.einsum("...i,...j->...ij", row, column) / row.sum(-1)[..., None, None]

    def formula(name, x, g, t, memory):
        beta, g2 = 1 - t**-0.8, g**2 + 1e-30
        if x.ndim == 1:
            v = memory["v"] = beta * memory.get("v", 0) + (1 - beta) * g2
        else:
            v = factored(g2, beta, memory)
        u = g / np.sqrt(v)
        u = u / max(1, rms(u) / r.clip)
        alpha = r.lr * (max(1e-3, rms(x)) if relative else 1)
        return x - r.lr * 0.3 * (name in MATRICES) * x - alpha * u

    compare(values, formula)


@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [False, True])
def test_muon_is_its_formula_for_hidden_matrices_and_adamw_for_the_rest(scale, nesterov):
    r, values = run("muon", scale=scale, nesterov=nesterov, adamw_lr=2e-3)

    def zeroth_power(m):
        """The same polynomial, on the singular values themselves."""
        u, s, vt = np.linalg.svd(m / np.linalg.norm(m), full_matrices=False)
        for _ in range(r.iterations):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        return u * s @ vt

    def formula(name, x, g, t, memory):
        decay = r.weight_decay * (name in MATRICES)
        if name not in {"up.weight", "down.weight", "experts.weight"}:
            return adam((1 - 2e-3 * decay) * x, g, t, memory, r, 2e-3)
        m = memory["m"] = r.momentum * memory.get("m", 0) + g  # Jordan's, without the factor 1 - mu
        m = g + r.momentum * m if nesterov else m
        step = np.stack([zeroth_power(one) for one in m]) if m.ndim == 3 else zeroth_power(m)
        a, b = m.shape[-2:]
        size = np.sqrt(max(1, a / b)) if scale == "original" else 0.2 * np.sqrt(max(a, b))
        return (1 - r.lr * decay) * x - r.lr * size * step

    compare(values, formula)


def test_muon_makes_singular_values_about_one():
    torch.manual_seed(0)
    for shape in ((96, 32), (2, 32, 128)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape), 5))
        assert values.min() > 0.6 and values.max() < 1.25
    assert orthogonal(torch.zeros(4, 6), 5).eq(0).all()


@pytest.mark.parametrize("choice", CHOICES)
def test_every_parameter_is_in_exactly_one_group(choice):
    model = Model()
    groups = recipe(choice).build(model).param_groups
    assert sorted(name for g in groups for name in g["names"]) == sorted(MATRICES | VECTORS)
    assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for p in model.parameters())
    named = dict(model.named_parameters())
    assert all(named[name] is p for g in groups for name, p in zip(g["names"], g["params"]))


@pytest.mark.parametrize("choice", CHOICES)
def test_with_zero_gradients_matrices_shrink_by_lr_times_decay_once_and_nothing_else_moves(choice):
    model = Model().double()
    optimizer = recipe(choice, lr=0.01, weight_decay=0.1).build(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        if name in VECTORS:
            torch.testing.assert_close(p.detach(), before[name], rtol=0, atol=0)
        elif choice not in ("adam", "transformer2017"):  # its decay goes through the moments
            torch.testing.assert_close(p.detach(), before[name] * (1 - 0.01 * 0.1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_parameter_without_a_gradient_stays_where_it_is(choice):
    model = Model()
    optimizer = recipe(choice).build(model)
    before = model.up.weight.detach().clone()
    model.down.weight.grad = torch.ones_like(model.down.weight)
    optimizer.step()
    assert model.up.weight.equal(before)


@pytest.mark.parametrize("choice", CHOICES)
def test_the_rate_of_every_group_follows_the_factor(choice):
    optimizer = recipe(choice).build(Model())
    assert set_lr(optimizer, 0.5) == 0.5 * recipe(choice).lr
    assert set_lr(optimizer, 0.25) == 0.25 * recipe(choice).lr
    assert all(g["lr"] == 0.25 * g["base_lr"] for g in optimizer.param_groups)


@pytest.mark.parametrize("choice", CHOICES)
def test_at_a_rate_of_zero_nothing_moves(choice):
    model, same = Model(), dict(Model().named_parameters())
    optimizer = recipe(choice).build(model)
    set_lr(optimizer, 0.0)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert all(p.equal(same[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("choice", CHOICES)
def test_it_walks_downhill(choice):
    model = Model()
    optimizer, losses = recipe(choice).build(model), []
    for _ in range(20):
        optimizer.zero_grad()
        losses.append(sum(p.square().sum() for p in model.parameters()))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]


def test_adamw_adam_and_sgd_use_the_fused_kernel_here():
    for choice in ("adamw", "adam", "sgd", "muon"):
        assert any(g.get("fused") for g in recipe(choice).build(Model()).param_groups)


def test_frozen_parameters_are_left_out_and_a_frozen_model_is_refused():
    model = Model()
    model.embedding.weight.requires_grad_(False)
    assert "embedding.weight" not in trainable(model)
    with pytest.raises(ConfigError, match="no trainable parameter"):
        recipe("adamw").build(model.requires_grad_(False))


def test_names_do_not_show_wrappers():
    wrapped = nn.Module()
    wrapped.module = nn.Module()
    wrapped.module._orig_mod = Model()
    assert set(trainable(wrapped)) == MATRICES | VECTORS


def test_what_decays_is_told_by_shape_and_name():
    assert decays("stack.layers.0.ffn.branch.up.weight", torch.zeros(2, 2))
    assert decays("stack.layers.0.norm_like.branch.up.weight", torch.zeros(2, 2))
    assert not decays("up.weight", torch.zeros(2)) and not decays("norm.gain", torch.zeros(2, 2))


def test_a_wrong_setting_is_refused_by_its_key():
    for value in (-1.0, 0.0, float("nan"), float("inf"), "abc"):
        with pytest.raises(ConfigError, match="optimizer.lr="):
            recipe("adamw", lr=value)
    with pytest.raises(ConfigError, match="optimizer.nesterov=true: needs optimizer.momentum above 0"):
        recipe("sgd", nesterov=True, momentum=0.0)
