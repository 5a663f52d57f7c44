"""The laws, for every choice of every group: pairs of axes here, all combinations with -m slow."""

from __future__ import annotations

from itertools import product

import pytest
from laws import cases, laws
from torch import nn

from tfcli.errors import ConfigError

AXES = cases.offered()
PAIRS = cases.all_pairs(AXES)
UNDERSTANDING = cases.understanding()

SEEING = {
    "decoder": [laws.future_is_invisible, laws.documents_in_a_row_are_strangers],
    "encoder": [laws.both_sides_are_seen, laws.documents_in_a_row_are_strangers],
    "encoder_decoder": [
        laws.future_is_invisible,
        laws.the_source_is_seen_from_everywhere,
        laws.padding_of_a_source_changes_nothing,
    ],
}
DECODING = [
    laws.cached_equals_one_pass,
    laws.a_prefix_is_read_as_in_one_pass,
    laws.a_row_says_the_same_alone_and_in_company,
    laws.reordered_rows_go_on_as_what_they_became,
]
ALWAYS = [
    laws.padding_changes_nothing,
    laws.ragged_rows_say_what_each_says_alone,
    laws.gradients_reach_every_parameter,
]


def built(case: cases.Case, *more: str) -> nn.Module:
    """The model of a case; a case that is refused in one sentence is as good as one that is built."""
    try:
        return cases.model_of(case, *more)
    except ConfigError as refusal:
        assert str(refusal) and "\n" not in str(refusal)
        pytest.skip(f"refused: {refusal}")


def obeys(case: cases.Case) -> None:
    model = built(case)
    for law in (*SEEING[model.family], *(DECODING if laws.decodes(model) else ()), *ALWAYS):
        law(model)
    laws.kernels_agree(model, built(case, *cases.eager(case)))


@pytest.mark.parametrize("case", PAIRS, ids=cases.name)
def test_every_two_choices_obey_the_laws_together(case: cases.Case) -> None:
    obeys(case)


@pytest.mark.parametrize("case", cases.all_pairs(UNDERSTANDING)[::2], ids=cases.name)
def test_encoders_that_score_other_than_tokens_obey_the_laws(case: cases.Case) -> None:
    obeys(case)


@pytest.mark.parametrize("case", list(cases.single(AXES)), ids=cases.name)
def test_every_choice_learns_one_batch_by_heart(case: cases.Case) -> None:
    laws.one_batch_is_learned_by_heart(built(case))


@pytest.mark.parametrize("family", ["encoder", "encoder_decoder"])
@pytest.mark.parametrize("axis", ["position", "norm", "placement"])
def test_other_families_learn_one_batch_by_heart_too(family: str, axis: str) -> None:
    for choice in AXES[axis]:
        laws.one_batch_is_learned_by_heart(built({"family": family, axis: choice}))


@pytest.mark.parametrize("head", UNDERSTANDING["head"])
def test_every_head_learns_one_batch_by_heart(head: str) -> None:
    laws.one_batch_is_learned_by_heart(built({"family": "encoder", "head": head}))


def test_every_pair_of_choices_is_among_the_cases() -> None:
    for a, b in product(AXES, AXES):
        if a < b:
            met = {(case[a], case[b]) for case in PAIRS}
            assert met == set(product(AXES[a], AXES[b]))


@pytest.mark.slow
@pytest.mark.parametrize("family", AXES["family"])
@pytest.mark.parametrize("attention", AXES["attention"])
@pytest.mark.parametrize("position", AXES["position"])
def test_all_combinations_obey_the_laws(family: str, attention: str, position: str) -> None:
    fixed = {"family": family, "attention": attention, "position": position}
    rest = {axis: options for axis, options in AXES.items() if axis not in fixed}
    for case in cases.every_one(rest):
        try:
            model = cases.model_of({**fixed, **case})
        except ConfigError as refusal:
            assert "\n" not in str(refusal)
            continue
        laws.padding_changes_nothing(model)
        if laws.decodes(model):
            laws.cached_equals_one_pass(model)
            laws.future_is_invisible(model)
