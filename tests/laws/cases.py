"""The cases of the laws: every choice of every model group, read from configs/, every two of them
together.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

import torch
from torch import nn

from tfcli import build, choices
from tfcli.cli.door import compose

AXES = ("family", "attention", "position", "norm", "placement", "ffn", "embedding", "head")
NUMBERS = {"d_model": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 24, "context": 32}
TINY = [f"size.{key}={value}" for key, value in NUMBERS.items()]
# numbers small enough that a text of a dozen tokens reaches past them
SHARP = {
    "rule.size": 5,
    "local.rule.size": 5,
    "sliding.rule.size": 5,
    "rule.stride": 4,
    "n_buckets": 8,
    "max_distance": 10,
    "clip": 3,
    "original": 8,
}
VOCAB = 23

Case = dict[str, str]


def heads(*says: str) -> list[str]:
    """The heads that give such scores."""
    nodes = {head: composed((f"head={head}",)).head for head in choices.choices("head")}
    return [head for head, node in nodes.items() if build.constructor_of(node, "head").says in says]


def offered() -> dict[str, list[str]]:
    """Each axis with its choices, as they lie in configs/, for models that score tokens."""
    return {axis: choices.choices(axis) for axis in AXES} | {"head": heads("tokens")}


def understanding() -> dict[str, list[str]]:
    """The axes of an encoder that says something else of a text than its tokens."""
    return offered() | {"family": ["encoder"], "head": heads("class", "tags", "span", "vector")}


def all_pairs(axes: dict[str, list[str]]) -> list[Case]:
    """Few cases in which every two choices of different axes meet at least once; the same ones every time."""
    chance = random.Random(0)
    names = list(axes)
    open_pairs = {(a, x, b, y) for a, b in combinations(names, 2) for x in axes[a] for y in axes[b]}
    cases = []
    while open_pairs:
        a, x, b, y = min(open_pairs)
        best: tuple[int, Case] = (-1, {})
        for _ in range(12):
            case = {name: chance.choice(axes[name]) for name in names} | {a: x, b: y}
            gain = sum((p, case[p], q, case[q]) in open_pairs for p, q in combinations(names, 2))
            best = max(best, (gain, case), key=lambda pair: pair[0])
        case = best[1]
        open_pairs -= {(p, case[p], q, case[q]) for p, q in combinations(names, 2)}
        cases.append(case)
    return cases


def single(axes: dict[str, list[str]]) -> Iterator[Case]:
    """Every choice once, the other axes as they are by default."""
    for axis, options in axes.items():
        for option in options:
            yield {axis: option}


def every_one(axes: dict[str, list[str]]) -> Iterator[Case]:
    """All combinations."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values))


def name(case: Case) -> str:
    return ",".join(f"{value}" for value in case.values())


def eager(case: Case) -> list[str]:
    """The overrides that make a case compute attention by the written-out formula."""
    attention = config_of(case).attention
    kinds = sorted(set(attention.get("pattern", [])))
    return [f"attention.{kind}.kernel=eager" for kind in kinds] or ["attention.kernel=eager"]


@cache
def composed(overrides: tuple[str, ...]):
    return compose("train", overrides)


def config_of(case: Case, *more: str):
    """The tiny configuration of a case, with sharp numbers where its choices have such numbers."""
    overrides = [f"{axis}={choice}" for axis, choice in case.items()] + [*TINY, *more]
    config = copy.deepcopy(composed(tuple(overrides)))
    for group in ("attention", "position"):
        for key, value in SHARP.items():
            node, path = config[group], key.split(".")
            for part in path[:-1]:
                node = node.get(part) or {}
            if path[-1] in node:
                node[path[-1]] = value
    if config.position.get("partial", 1.0) < 0.5:
        config.position.partial = 0.5  # of a head's 4 features, or no pair would be turned
    return config


def model_of(case: Case, *more: str, seed: int = 0) -> nn.Module:
    """A tiny model in which every parameter is random and large enough to matter."""
    model = build.model(config_of(case, *more), VOCAB, fill=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn * 0.15 if parameter.ndim > 1 else 1 + 0.3 * drawn)
        for buffer in model.buffers():
            buffer.copy_(1 + 0.5 * torch.rand(buffer.shape, generator=generator))
    return model.eval()


def ids(rows: int, length: int, seed: int = 1) -> torch.Tensor:
    """Random ids: (rows, length)."""
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))
