"""The optimizer's memory goes back by name, or is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tfcli.errors import ConfigError
from tfcli.optimizer import SGD, Adafactor, Adam, AdamW, Lion, Muon, load_state_by_name, state_by_name

RECIPES = [AdamW(), Adam(), SGD(), SGD(momentum=0.0), Adafactor(), Lion(), Muon()]


class Model(nn.Module):
    """Three matrices of one shape, so that state on the wrong one would go unnoticed."""

    def __init__(self, order: str = "abc", tied: bool = True, width: int = 4) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, width), nn.Linear(width, 5, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        for name in order:
            setattr(self, name, nn.Linear(width, width))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.c(self.b(self.a(self.embedding(ids)))))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randint(5, (6,))).square().mean().backward()
        optimizer.step()


def saved(recipe, path: Path, **how) -> Model:
    """A model after three steps, its state and the optimizer's in a file."""
    torch.manual_seed(9)
    model = Model(**how)
    optimizer = recipe.build(model)
    train(model, optimizer, range(3))
    torch.save({"model": model.state_dict(), "optimizer": state_by_name(optimizer, model)}, path)
    return model


def resumed(recipe, path: Path, **how) -> tuple[Model, torch.optim.Optimizer]:
    state, model = torch.load(path, weights_only=True), Model(**how)
    model.load_state_dict(state["model"])
    optimizer = recipe.build(model)
    load_state_by_name(optimizer, model, state["optimizer"])
    return model, optimizer


@pytest.mark.parametrize("order", ["abc", "cab"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_a_resumed_run_is_bit_for_bit_the_straight_one_whatever_the_order_of_modules(recipe, order, tmp_path):
    saved(recipe, tmp_path / "state.pt")
    torch.manual_seed(9)
    straight = Model()
    train(straight, recipe.build(straight), range(6))
    model, optimizer = resumed(recipe, tmp_path / "state.pt", order=order)
    train(model, optimizer, range(3, 6))
    for name, p in straight.named_parameters():
        assert model.get_parameter(name).equal(p), name


def test_a_changed_decay_rule_moves_no_state(tmp_path, monkeypatch):
    saved(AdamW(), tmp_path / "state.pt")
    before = torch.load(tmp_path / "state.pt", weights_only=True)["optimizer"]["slots"]
    monkeypatch.setattr("tfcli.optimizer.groups.decays", lambda name, parameter: name == "b.bias")
    model, optimizer = resumed(AdamW(), tmp_path / "state.pt")
    after = state_by_name(optimizer, model)["slots"]
    assert {n for n in optimizer.param_groups[0]["names"]} == {"b.bias"}
    assert all(after[n][slot].equal(value) for n, slots in before.items() for slot, value in slots.items())


def test_the_groups_do_not_depend_on_the_hash_seed():
    here = Path(__file__)
    code = f"from {here.stem} import *; print([g['names'] for g in Muon().build(Model()).param_groups])"
    paths, seen = os.pathsep.join(map(str, (here.parent, here.parents[1]))), set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        seen.add(subprocess.check_output([sys.executable, "-c", code], env=env, text=True))
    assert len(seen) == 1 and "embedding.weight" in seen.pop()


def test_the_state_is_a_copy_once_loaded(tmp_path):
    saved(AdamW(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    model = Model()
    optimizer = AdamW().build(model)
    load_state_by_name(optimizer, model, state["optimizer"])
    before = state["optimizer"]["slots"]["a.weight"]["exp_avg"].clone()
    train(model, optimizer, range(3))
    assert state["optimizer"]["slots"]["a.weight"]["exp_avg"].equal(before)


def test_a_tied_weight_has_one_memory_and_flipping_the_tie_is_refused(tmp_path):
    model = saved(AdamW(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)["optimizer"]
    assert "embedding.weight" in state["slots"] and "head.weight" not in state["slots"]
    untied = Model(tied=False)
    with pytest.raises(ConfigError, match="resume: the checkpoint's optimizer has no state for head.weight;"):
        load_state_by_name(AdamW().build(untied), untied, state)
    state = state_by_name(AdamW().build(untied), untied)
    with pytest.raises(ConfigError, match="has state for what this model lacks: head.weight;"):
        load_state_by_name(AdamW().build(model), model, state)


def test_other_parameters_shapes_or_optimizers_are_refused_by_name_and_change_nothing(tmp_path):
    saved(AdamW(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)["optimizer"]
    for model, recipe, words in (
        (Model("abcd"), AdamW(), "no state for d.bias, d.weight;"),
        (Model("ab"), AdamW(), "lacks: c.bias, c.weight;"),
        (Model(width=8), AdamW(), r"exp_avg of embedding.weight has shape \(5, 4\), the parameter \(5, 8\)"),
        (
            Model(),
            Lion(),
            "trained embedding.weight with adamw, this run does with lion; resume with the same",
        ),
        (Model(), Muon(), "trained a.weight with adamw, this run does with muon"),
    ):
        optimizer = recipe.build(model)
        with pytest.raises(ConfigError, match=words):
            load_state_by_name(optimizer, model, state)
        assert not optimizer.state


def test_before_the_first_step_there_is_nothing_to_remember():
    model = Model()
    state = state_by_name(AdamW().build(model), model)
    assert all(slots == {} for slots in state["slots"].values())
    load_state_by_name(AdamW().build(model), model, state)
