"""Whether family, objective, head and data fit each other; if not, why, and what would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from tfcli import build, choices
from tfcli.data import Source
from tfcli.errors import ConfigError
from tfcli.objective import Objective

SAYS = {"tokens": "tokens", "class": "a class", "tags": "tags", "span": "a span", "vector": "no label"}
GIVES = {"text": "text", "pair": "pairs", "label": "labelled texts", "tags": "tagged words",
         "answer": "questions with answers"}  # fmt: skip


def refuse_misfits(
    chosen: Mapping[str, str], settings: Any, objective: Objective, model: nn.Module, source: Source
) -> None:
    """Raises ConfigError where one of them is not for another. chosen: the choice of each group; settings:
    those of `train`.
    """
    name = f"objective={chosen['objective']}"
    if objective.family != model.family:
        others = offering("objective", "family", model.family)
        raise ConfigError(f"{name}: is not for family={chosen['family']}; choose {others}, or another family")
    if objective.says != model.head.says:
        raise ConfigError(
            f"{name}: learns from scores of {SAYS[objective.says]}, and head={chosen['head']} gives those of "
            f"{SAYS[model.head.says]}; choose {offering('head', 'says', objective.says)}"
        )
    if objective.needs not in source.gives:
        given = " or ".join(GIVES[kind] for kind in sorted(source.gives))
        raise ConfigError(
            f"{name}: needs {GIVES[objective.needs]}, and data={chosen['data']} gives {given}; choose "
            f"{offering('data', 'gives', objective.needs)}"
        )
    if objective.needs != "text" and source.packing != "none":
        raise ConfigError(f"data.packing={source.packing}: {name} has a record a row; set it to none")
    if objective.needs == "pair" and source.score_prompt:
        raise ConfigError(f"data.score=all: {name} learns the side that is written; set it to answer")
    if source.streaming and objective.needs != "text":
        raise ConfigError(f"data.streaming=true: {name} needs all records at once; set it to false")
    if source.packing == "documents" and objective.needs == "text" and not objective.packs:
        raise ConfigError(f"data.packing=documents: {name} takes a row as one text; choose stream or none")
    if settings.loss_chunk is not None and objective.says != "tokens":
        raise ConfigError(f"train.loss_chunk={settings.loss_chunk}: is for scores of tokens; set it to null")
    if settings.sample_every is not None and model.family == "encoder":
        raise ConfigError(
            f"train.sample_every={settings.sample_every}: an encoder writes nothing; set it to null"
        )


def offering(group: str, fact: str, value: str) -> str:
    """The choices of a group whose constructors have that fact, as they are typed."""
    found = []
    for choice in choices.choices(group):
        constructor = build.constructor_of({"_target_": choices.target(group, choice)}, group)
        has = getattr(constructor, fact)
        if value == has or (isinstance(has, frozenset) and value in has):
            found.append(f"{group}={choice}")
    return " or ".join(found)


def leaks(model: nn.Module) -> list[str]:
    """What to say of a causal model one of whose norms looks at other tokens."""
    if model.family == "encoder" or not any(norm.over_tokens for norm in model.stack.layers[0].ffn.norms):
        return []
    return [
        "norm: in training its statistics are those of the whole batch, so a token is told a little of those "
        "behind it, which it is to predict; evaluation uses running statistics, and is told nothing"
    ]
