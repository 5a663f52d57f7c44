"""Which class of Hugging Face's can hold a model of ours, or what stands in the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tfcli import choices
from tfcli.build import plain, without_rules
from tfcli.compose import compose, flat, override
from tfcli.errors import ConfigError
from tfcli.hub import Architecture, architecture, model_types
from tfcli.hub.fields import Asked, Settings

GROUPS = (
    "family",
    "placement",
    "attention",
    "cross_attention",
    "position",
    "norm",
    "ffn",
    "embedding",
    "head",
)
LAYERED = ("attention", "cross_attention", "position", "ffn")  # groups that may have a pattern of kinds
FREE = (
    "dropout",
    "recompute",
    "kernel",
    "pad_to_multiple",
    "vocab_size",
    "labels",
    "offset",
)  # change no score
SIZES = {"d_model": "embedding.d_model", "n_layers": "family.n_layers", "d_ff": "ffn.d_ff",
         "n_heads": "attention.n_heads", "n_kv_heads": "attention.n_kv_heads",
         "head_dim": "attention.head_dim"}  # fmt: skip

Facts = dict[str, list[dict[str, Any]]]  # of a group, for each layer where it may have a pattern, else once


class Held(NamedTuple):
    """A class that holds a model, what its config.json says of it, and what we would read from that."""

    architecture: Architecture
    kind: str
    said: dict[str, Any]
    read: Any


class Gap(NamedTuple):
    """One difference: the key below its group, our value and theirs."""

    group: str
    key: str
    ours: Any
    theirs: Any


class Miss(NamedTuple):
    """A class that does not hold a model: the differences, or why its config.json cannot say it."""

    kind: str
    gaps: list[Gap]
    choices: Mapping[str, str]
    why: str = ""


def holder(config: Any, also: Mapping[str, Any] | None = None, only: str | None = None) -> Held:
    """The class that holds a configuration; also: fields that its config.json will have beside; only: of this
    model_type.

    Raises ConfigError, naming what stands in the way, where there is none.
    """
    ours, mine, also = facts(config), sized(flat(plain(config))), dict(also or {})
    if "position.offset" in mine and also.get("pad_token_id") is not None:  # from where RoBERTa counts
        mine["position.offset"] = also["pad_token_id"] + 1
    misses: list[Miss] = []
    for arch, kind in candidates(config, only):
        found = tried(arch, kind, config, ours, mine, also)
        if isinstance(found, Held):
            return found
        misses.append(found)
    raise refusal(config, misses)


def candidates(config: Any, only: str | None = None) -> Iterator[tuple[Architecture, str]]:
    """Classes of the same family and head, those of the architecture that the preset named first."""
    chosen = config.choices.get("preset")
    known = [architecture(name) for name in model_types() if only in (None, name)]
    for arch in sorted(known, key=lambda arch: arch.settings.get("preset") != chosen):
        for kind, its in arch.kinds.items():
            settings = {**arch.settings, **its.settings}
            if all(target(settings, group) == config[group]._target_ for group in ("family", "head")):
                yield arch, kind


def target(settings: Settings, group: str) -> str:
    """The constructor of a group under the settings of a class, read as text: composing takes long."""
    text = (choices.config_dir() / "preset" / f"{settings['preset']}.yaml").read_text(encoding="utf-8")
    named = re.search(rf"override /{group}: (\w+)", text)
    usual = {"family": "decoder", "head": "tied"}[group]
    return choices.target(group, settings.get(group) or (named[1] if named else usual))


def tried(
    arch: Architecture, kind: str, config: Any, ours: Facts, mine: dict[str, Any], also: dict[str, Any]
) -> Held | Miss:
    """Whether what a class's config.json says of a model is this model when it is read again."""
    try:
        said = arch.write(kind, mine)
        if "pad_token_id" in said and also.get("pad_token_id", "") is None:
            return Miss(kind, [], {}, "needs a padding token, which the tokenizer has not")
        settings = arch.read(kind, Asked(said | also, "config.json")) | pooled(config)
    except ConfigError as error:
        return Miss(kind, [], {}, str(error).removeprefix("config.json: "))
    theirs = compose("train", [override(key, value) for key, value in settings.items()])
    gaps = differences(ours, facts(theirs))
    return Miss(kind, gaps, theirs.choices) if gaps else Held(arch, kind, said, theirs)


def pooled(config: Any) -> Settings:
    """What a modules.json beside config.json can say of a text's vector."""
    head = plain(config.head)
    if "normalise" not in head or head["activation"] is not None:
        return {}
    return {f"head.{key}": head[key] for key in ("pool", "activation", "normalise")}


# --- two models compared ------------------------------------------------------------------------------------


def facts(config: Any) -> Facts:
    """What the scores of a model depend on."""
    nodes = {group: plain(config.get(group)) for group in GROUPS}
    family = nodes["family"]
    if "share_embeddings" not in family:
        nodes["cross_attention"] = None
    elif nodes["cross_attention"] is None:
        nodes["cross_attention"] = without_rules(nodes["attention"])
    n_layers = max(value for key, value in family.items() if key.endswith("layers"))
    found: Facts = {}
    for group, node in nodes.items():
        kinds = by_layer(node, n_layers) if group in LAYERED and node else [node or {}]
        found[group] = [essential(kind) for kind in kinds]
    return found


def by_layer(node: dict[str, Any], n_layers: int) -> list[dict[str, Any]]:
    """The node of each layer."""
    pattern = node.get("pattern")
    return [node[pattern[i % len(pattern)]] if pattern else node for i in range(n_layers)]


def essential(node: dict[str, Any]) -> dict[str, Any]:
    """Values by key, defaults worked out, without what changes no score."""
    one = flat(node)
    if "n_heads" in one:
        one["head_dim"] = one.get("head_dim") or one["d_model"] // one["n_heads"]
        one["out_bias"] = one["bias"] if one.get("out_bias") is None else one["out_bias"]
        one["scale"] = one.get("scale") or one["head_dim"] ** -0.5
    for key, usual in (("short_factor", 1.0), ("long_factor", one.get("factor"))):
        if key in one:  # a number for each pair of features, or one for all of them
            each = one[key] or [usual]
            one[key] = each[0] if len({*each}) == 1 else each
    if one.get("_target_") == choices.target("head", "span"):
        one.pop("bias", None)  # of the scores: moves all alike, so none is as good as zeros
    return {k: v for k, v in one.items() if v is not None and k.rpartition(".")[2] not in FREE}


def differences(ours: Facts, theirs: Facts) -> list[Gap]:
    """Where two models differ, each key once."""
    found: dict[tuple[str, str], Gap] = {}
    normed = any("qk_norm" in layer for layer in ours["attention"])
    for group in GROUPS:
        for one, other in zip(ours[group], theirs[group]):
            whole = one.get("partial") == other.get("partial") == 1 and not normed
            for key in sorted({*one, *other}, key=lambda key: (key != "_target_", key)):
                relaid = key == "interleaved" and whole  # rows of queries and keys are laid as they are there
                if one.get(key) != other.get(key) and not relaid:
                    found.setdefault((group, key), Gap(group, key, one.get(key), other.get(key)))
    return list(found.values())


def sized(mine: dict[str, Any]) -> dict[str, Any]:
    """The sizes as the parts have them, whatever `size` says."""
    for size, key in SIZES.items():
        group, _, name = key.partition(".")
        pattern = mine.get(f"{group}.pattern")
        key = f"{group}.{pattern[0]}.{name}" if pattern else key
        if mine.get(key) is not None:
            mine[f"size.{size}"] = mine[key]
    mine["size.head_dim"] = mine.get("size.head_dim") or mine["size.d_model"] // mine["size.n_heads"]
    return mine


# --- what stands in the way ---------------------------------------------------------------------------------


def refusal(config: Any, misses: list[Miss]) -> ConfigError:
    """What to raise: the nearest class, and the first choice in which it differs; those that were typed come
    first.
    """
    unknown = "no class of Hugging Face that is known here holds it"
    if not misses:
        where = f"family={config.choices.family}"
        return ConfigError(f"head={config.choices.head}: {unknown}, as {where} has none with such a head")
    near = min(misses, key=lambda miss: (not miss.gaps, len({g.group for g in miss.gaps}), len(miss.gaps)))
    if not near.gaps:
        return ConfigError(f"{near.kind}: {near.why}; {unknown}")
    typed = [re.split(r"[.=]", word.lstrip("+~").partition("@")[0])[0] for word in config.overrides]
    gap = min(near.gaps, key=lambda gap: (gap.group not in typed, near.gaps.index(gap)))
    ours, theirs = (config.choices.get(gap.group), near.choices.get(gap.group))
    of_group = [g for g in near.gaps if g.group == gap.group]
    if ours != theirs and any(g.key.endswith("_target_") for g in of_group):
        ours, theirs = (f"{gap.group}={choice}" for choice in (ours, theirs))
    else:
        ours, theirs = (override(f"{gap.group}.{gap.key}", value) for value in (gap.ours, gap.theirs))
    return ConfigError(f"{ours}: {unknown}; the nearest, {near.kind}, has {theirs}")
