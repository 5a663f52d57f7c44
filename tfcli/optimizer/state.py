"""The optimizer's memory by parameter name, so that it never lands on another tensor of the same shape."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tfcli.errors import ConfigError
from tfcli.optimizer.groups import trainable

_INSTEAD = "or take the weights alone with init_from"


def slot(state: dict[str, Tensor], name: str, like: Tensor) -> Tensor:
    """A tensor that an optimizer remembers, of zeros at first."""
    if name not in state:
        state[name] = torch.zeros_like(like)
    return state[name]


def state_by_name(optimizer: Optimizer, model: nn.Module) -> dict[str, dict[str, Any]]:
    """{"kinds": {name: rule}, "slots": {name: {slot: tensor}}}: plain tensors and text, not copied.

    Learning rates and the like are no state: they come from the config.
    """
    entries = list(_entries(optimizer))
    assert {name for name, *_ in entries} == set(trainable(model)), "the optimizer is of another model"
    kinds = {name: group["kind"] for name, _, group in entries}
    slots = {name: optimizer.state.get(parameter, {}) for name, parameter, _ in entries}
    return {
        "kinds": kinds,
        "slots": {n: {k: t for k, t in s.items() if t is not None} for n, s in slots.items()},
    }


def load_state_by_name(optimizer: Optimizer, model: nn.Module, state: dict[str, dict[str, Any]]) -> None:
    """Put back what `state_by_name` gave, whatever the order of modules and groups.

    Raises ConfigError, naming parameters, where names, rules or shapes differ, and changes nothing then.
    """
    _refuse_other_names(set(trainable(model)), set(state["slots"]))
    for name, parameter, group in _entries(optimizer):
        _refuse_other_kind(name, state["kinds"][name], group["kind"])
        _refuse_other_shape(name, state["slots"][name], parameter)
    for name, parameter, group in _entries(optimizer):
        slots = state["slots"][name]
        optimizer.state[parameter] = {k: _placed(k, t, parameter, group) for k, t in slots.items()}


def _entries(optimizer: Optimizer) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"]):
            yield name, parameter, group


def _placed(slot: str, value: Tensor, parameter: Tensor, group: dict[str, Any]) -> Tensor:
    # torch keeps the step counter on the host unless the update is one fused kernel
    on_host = slot == "step" and not group.get("fused") and not group.get("capturable")
    return value.detach().clone().to("cpu" if on_host else parameter.device)


def _listed(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _refuse_other_names(ours: set[str], saved: set[str]) -> None:
    parts = [(ours - saved, "no state for"), (saved - ours, "state for what this model lacks:")]
    wrong = " and ".join(f"{text} {_listed(names)}" for names, text in parts if names)
    if wrong:
        raise ConfigError(
            f"resume: the checkpoint's optimizer has {wrong}; resume with its own model, {_INSTEAD}"
        )


def _refuse_other_kind(name: str, saved: str, ours: str) -> None:
    if saved != ours:
        raise ConfigError(
            f"resume: the checkpoint trained {name} with {saved}, this run does with {ours}; "
            f"resume with the same optimizer, {_INSTEAD}"
        )


def _refuse_other_shape(name: str, slots: dict[str, Tensor], parameter: Tensor) -> None:
    """Raises ConfigError unless each slot is a counter, has the parameter's shape, or is a mean of it."""
    for slot, value in slots.items():
        along = all(have in (1, want) for have, want in zip(value.shape, parameter.shape))
        if value.ndim and (value.ndim != parameter.ndim or not along):
            raise ConfigError(
                f"resume: the checkpoint's {slot} of {name} has shape {tuple(value.shape)}, the parameter "
                f"{tuple(parameter.shape)}; resume with its own model, {_INSTEAD}"
            )
