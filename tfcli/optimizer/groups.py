"""Which parameters are trained how: each trainable one in exactly one group, told apart by name and shape."""

from typing import Any

from torch import Tensor, nn

from tfcli.errors import ConfigError

_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_OUTSIDE = {"embedding", "position", "positions", "head"}


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters by name: a tied one once, by its first name, and without names of wrappers."""
    found = {_plain(name): p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise ConfigError("the model has no trainable parameter, so there is nothing to optimize")
    return found


def _plain(name: str) -> str:
    """The name as it is without DDP, torch.compile, FSDP or activation checkpointing around the module."""
    name = name.removeprefix("module.")
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: to matrices and tables (nanoGPT's rule), not to gains and biases.

    What belongs to a norm or is called a bias does not decay whatever its shape: the biases of stacked
    experts have two axes.
    """
    words = name.lower().split(".")[-2:]
    return parameter.ndim >= 2 and not any("norm" in word or "bias" in word for word in words)


def hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the matrices that map activations to activations: no embedding, position table or head."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}

    def is_hidden(name: str, parameter: Tensor) -> bool:
        outside = _OUTSIDE.intersection(name.lower().split(".")) or id(parameter) in tables
        return decays(name, parameter) and not outside

    return {name for name, p in trainable(model).items() if is_hidden(name, p)}


def group(
    kind: str, named: dict[str, Tensor], lr: float, weight_decay: float, **settings: Any
) -> list[dict[str, Any]]:
    """The parameters as a group that decays and one that does not, in the order given, without empty ones.

    Beside what torch wants, a group has `names`, its `kind` (which rule updates it) and `base_lr`.
    """
    common = {"kind": kind, "lr": lr, "base_lr": lr, **settings}
    groups = []
    for decay, rate in ((True, weight_decay), (False, 0.0)):
        chosen = {name: p for name, p in named.items() if decays(name, p) is decay}
        if chosen:
            own = {"params": list(chosen.values()), "names": list(chosen), "weight_decay": rate}
            groups.append({**own, **common})
    return groups
