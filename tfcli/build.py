"""From a configuration to things: the only place that turns `_target_` into a constructor's call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from hydra.utils import get_object
from torch import nn

from tfcli.errors import ConfigError, suggest
from tfcli.model.parts import Parts, PerLayer
from tfcli.values import Count, Rate, check, check_arguments, parameters


class Size(NamedTuple):
    """The numbers of a model."""

    d_model: Count
    n_layers: Count
    n_heads: Count
    n_kv_heads: Count
    d_ff: Count
    context: Count
    head_dim: Count | None = None
    dropout: Rate = 0.0


def plain(node: Any) -> Any:
    """A configuration node as dicts, lists and scalars, interpolations resolved."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).partition("\n")[0]) from None


def make(node: Any, key: str, offer: dict[str, Any] | None = None, **extra: Any) -> Any:
    """What the node's `_target_` constructs from the node's values, nested nodes first.

    `extra` are further keyword arguments; of those in `offer` the constructor gets what it takes and the
    node does not set. Raises ConfigError, naming `key`, for a value that its annotation refuses.
    """
    node = plain(node)
    constructor = constructor_of(node, key)
    arguments = {
        name: make(value, f"{key}.{name}") if isinstance(value, dict) and "_target_" in value else value
        for name, value in node.items()
        if name != "_target_"
    }
    taken = parameters(constructor)
    offered = {
        name: value for name, value in (offer or {}).items() if name in taken and name not in arguments
    }
    return constructor(**check_arguments(constructor, {**arguments, **offered, **extra}, key))


def constructor_of(node: Any, key: str) -> Any:
    """What a node's `_target_` names. Raises ConfigError where it names nothing."""
    node = plain(node)
    if not isinstance(node, dict) or "_target_" not in node:
        raise ConfigError(f"{key}: has no _target_; choose one of its group")
    try:
        return get_object(node["_target_"])
    except Exception as error:
        raise ConfigError(
            f"{key}._target_={node['_target_']}: cannot be found ({error})".splitlines()[0]
        ) from None


def settings(kind: type, node: Any, key: str) -> Any:
    """A settings class filled from a node without `_target_`; every value checked."""
    return kind(**check_arguments(kind, plain(node), key))


def per_layer(node: Any, key: str, facts: Callable[..., dict[str, Any]] = dict) -> PerLayer:
    """Makers for each kind of layer: the node itself, or `pattern: [local, full]` and a node for each name in
    it.

    `facts` says, from a brick's neighbours, what is offered to its constructor.
    """
    node = plain(node)

    def maker(one: Any, path: str) -> Callable[..., nn.Module]:
        return lambda *neighbours: make(one, path, offer=facts(*neighbours))

    if "pattern" not in node:
        return PerLayer((maker(node, key),))
    pattern = check(list[str], node["pattern"], f"{key}.pattern")
    names = [name for name in node if name != "pattern"]
    unknown = [name for name in pattern if name not in names]
    if unknown or not pattern:
        wrong = unknown[0] if unknown else "[]"
        raise ConfigError(f"{key}.pattern: {wrong}: must name {', '.join(names)}" + suggest(wrong, names))
    return PerLayer(
        tuple(maker(node[name], f"{key}.{name}") for name in names),
        tuple(names.index(name) for name in pattern),
    )


def model(config: Any, vocab_size: int, fill: bool = True) -> nn.Module:
    """The model that the groups describe; `fill` it by `init` under torch's seed, or leave that to a
    checkpoint.
    """
    settings(Size, config.size, "size")
    vocab_size = rows(config, vocab_size)

    def make_norm(d_model: int | None = None) -> nn.Module:
        return make(config.norm, "norm", **({} if d_model is None else {"d_model": d_model}))

    def place(branch: nn.Module, make_norm: Callable[[], nn.Module], first: bool = False) -> nn.Module:
        made = {"branch": branch, "make_norm": make_norm}
        return make(config.placement, "placement", offer={"first": first}, **made)

    def where(attention: nn.Module, bidirectional: bool) -> dict[str, Any]:
        return attention.facts | {"bidirectional": bidirectional}

    def make_embedding() -> nn.Module:
        return make(config.embedding, "embedding", vocab_size=vocab_size, make_norm=make_norm)

    def beside() -> dict[str, Any]:
        return {"make_norm": make_norm}

    parts = Parts(
        attention=per_layer(config.attention, "attention", facts=beside),
        position=per_layer(config.position, "position", facts=where),
        ffn=per_layer(config.ffn, "ffn"),
        norm=make_norm,
        placement=place,
        cross_attention=cross_attention(config, facts=beside),
    )
    embedding = make_embedding()
    offer = {"table": embedding.table, "vocab_size": vocab_size, "make_norm": make_norm}
    head = make(config.head, "head", offer=offer)
    taken = {"embedding": embedding, "parts": parts, "head": head}
    if "source_embedding" in parameters(constructor_of(config.family, "family")):
        taken["source_embedding"] = make_embedding()
    elif config.get("cross_attention") is not None:
        raise ConfigError("cross_attention: only family=encoder_decoder has one; leave it out")
    built = make(config.family, "family", **taken)
    init = make(config.init, "init")
    if fill:
        init(built, len(built.stack.layers))
    return built


def rows(config: Any, vocab_size: int) -> int:
    """How many tokens a model knows: as many as the tokenizer, or those of embedding.vocab_size, if more."""
    size = check(Count | None, plain(config.embedding).get("vocab_size"), "embedding.vocab_size")
    if size is not None and size < vocab_size:
        raise ConfigError(
            f"embedding.vocab_size={size}: must be at least the {vocab_size} tokens of the tokenizer, or null"
        )
    return size or vocab_size


def cross_attention(config: Any, facts: Callable[..., dict[str, Any]]) -> PerLayer:
    """Makers of the attention to a memory: as the group says, or as a layer's own, without its rule."""
    node = plain(config.get("cross_attention"))
    if node is None:
        return per_layer(without_rules(plain(config.attention)), "attention", facts)
    if without_rules(node) != node:
        raise ConfigError(
            "cross_attention.rule: a source is seen whole; choose one without a window, as in "
            "attention@cross_attention=mha"
        )
    return per_layer(node, "cross_attention", facts)


def without_rules(node: dict[str, Any]) -> dict[str, Any]:
    """The node of an attention, of each kind if there are several, without a rule: a memory is seen whole."""
    return {
        name: without_rules(value) if isinstance(value, dict) else value
        for name, value in node.items()
        if name != "rule"
    }


def targets(node: Any) -> Iterator[str]:
    """Every `_target_` below a plain node."""
    if isinstance(node, dict):
        yield from (str(value) for name, value in node.items() if name == "_target_")
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from targets(value)


def rehearse(config: Any) -> nn.Module:
    """The model on torch's meta device, without numbers: whether the parts fit, before any data is
    touched.
    """
    for target in targets(plain(config)):  # imported first: what a module makes at import is no rehearsal
        with suppress(Exception):  # `make` says it, with the key
            get_object(target)
    with torch.device("meta"):
        return model(config, vocab_size=plain(config.embedding).get("vocab_size") or 8, fill=False)
