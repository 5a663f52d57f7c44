"""What holds for every objective of configs/."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from objective import made

from tfcli import build, choices
from tfcli.batch import Batch
from tfcli.cli import door
from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.loss import cross_entropy_sum
from tfcli.objective import Objective

NAMES = choices.choices("objective")
PLAIN = {"causal_lm", "seq2seq", "transformer2017", "marian", "classification", "tagging", "reading"}
RANDOM = [name for name in NAMES if name not in PLAIN]
TARGETS = {
    "pair": lambda n: np.arange(n) + 100,
    "label": lambda n: np.array([n % 3]),
    "tags": lambda n: np.arange(n) % 3,
    "answer": lambda n: np.array([0, n - 1]),
}


def bound(name: str, kind: str = "bpe") -> Objective:
    objective = build.make(door.compose("train", [f"objective={name}"]).objective, "objective")
    objective.bind(made.tokenizer(kind, ("<mask>", *made.SENTINELS)))
    return objective


def examples(objective: Objective, n: int = 6, kind: str = "bpe", length: int | None = None) -> list[Example]:
    rows = made.rows(made.tokenizer(kind), n, length)
    if objective.needs == "text":
        return rows
    return [row._replace(target=TARGETS[objective.needs](len(row.tokens))) for row in rows]


def same(a: Batch, b: Batch) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(Batch)]
    return all((x is None) == (y is None) and (x is None or torch.equal(x, y)) for x, y in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_places_give_the_same_batch(name: str) -> None:
    first, second = bound(name), bound(name)
    rows = examples(first)
    first(rows[3:])  # what was drawn before changes nothing
    np.random.seed(0), torch.manual_seed(0)
    assert same(first(rows), second(rows))


@pytest.mark.parametrize("name", RANDOM)
def test_another_epoch_seed_or_index_gives_another_batch(name: str) -> None:
    objective = bound(name)
    rows = examples(objective)
    for i in range(3):
        moved = [row._replace(place=tuple(p + (k == i) for k, p in enumerate(row.place))) for row in rows]
        assert not same(objective(rows), objective(moved))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_alone_and_in_company(name: str) -> None:
    objective = bound(name)
    rows = examples(objective)
    batch = objective(rows)
    for i, row in enumerate(rows):
        alone = objective([row])
        for field in ("inputs", "labels", "source", "horizon"):
            one, all_of = getattr(alone, field), getattr(batch, field)
            assert (one is None) == (all_of is None)
            if one is not None:
                assert torch.equal(one[0], all_of[i][: one.shape[1]] if one.dim() > 1 else all_of[i])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_fits_its_vocabulary_and_is_of_whole_numbers(name: str) -> None:
    objective = bound(name)
    batch = objective(examples(objective))
    tensors = [getattr(batch, f.name) for f in fields(Batch)]
    assert all(t.dtype == torch.long for t in tensors if t is not None)
    assert batch.inputs.min() >= 0 and int(batch.inputs.max()) < made.tokenizer("bpe").vocab_size
    assert batch.targets > 0 and (batch.source is not None) == (objective.family == "encoder_decoder")


@pytest.mark.parametrize("name", ["causal_lm", "masked_lm", "prefix_lm", "denoising", "tagging"])
def test_a_batch_without_a_target_teaches_nothing_and_is_finite(name: str) -> None:
    objective = bound(name)
    rows = [row._replace(score=np.zeros(len(row.tokens), bool)) for row in examples(objective, 3)]
    if name == "tagging":
        rows = [row._replace(target=np.full(len(row.tokens), -100)) for row in rows]
    batch = objective(rows)
    logits = torch.zeros(*batch.labels.shape, 5, requires_grad=True)
    loss = cross_entropy_sum(logits, batch.labels, objective.label_smoothing)
    loss.backward()
    assert batch.targets == 0 and loss.item() == 0 and not logits.grad.any()


@pytest.mark.parametrize("kind", made.RECIPES)
@pytest.mark.parametrize("name", ["masked_lm", "span_corruption", "denoising", "prefix_lm"])
def test_it_learns_from_the_tokens_of_every_tokenizer(name: str, kind: str) -> None:
    objective = bound(name, kind)
    assert objective(examples(objective, 4, kind, 120)).targets > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_that_was_made_for_it_has_what_it_needs(name: str) -> None:
    objective = build.make(door.compose("train", [f"objective={name}"]).objective, "objective")
    objective.bind(made.tokenizer("char", objective.special))
    assert objective.pad_id == 0 and 0 <= objective.label_smoothing < 1


@pytest.mark.parametrize("name", RANDOM)
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="objective.label_smoothing=1"):
        build.make(
            door.compose("train", [f"objective={name}", "objective.label_smoothing=1"]).objective, "objective"
        )
