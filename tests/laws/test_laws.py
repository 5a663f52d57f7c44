"""The laws, for every choice of every group: pairs of axes here, all combinations with -m slow."""

from __future__ import annotations

from itertools import product

import pytest
from laws import cases, laws

from tfcli.errors import ConfigError

AXES = cases.offered()
PAIRS = cases.all_pairs(AXES)

FORWARD = (
    laws.cached_equals_one_pass,
    laws.future_is_invisible,
    laws.documents_in_a_row_are_strangers,
    laws.padding_changes_nothing,
    laws.a_row_says_the_same_alone_and_in_company,
    laws.reordered_rows_go_on_as_what_they_became,
    laws.gradients_reach_every_parameter,
)


def built(case: cases.Case, *more: str):
    """The model of a case; a case that is refused in one sentence is as good as one that is built."""
    try:
        return cases.model_of(case, *more)
    except ConfigError as refusal:
        assert str(refusal) and "\n" not in str(refusal)
        pytest.skip(f"refused: {refusal}")


@pytest.mark.parametrize("case", PAIRS, ids=cases.name)
def test_every_two_choices_obey_the_laws_together(case: cases.Case) -> None:
    model = built(case)
    for law in FORWARD:
        law(model)
    laws.kernels_agree(model, built(case, *cases.eager(case)))


@pytest.mark.parametrize("case", list(cases.single(AXES)), ids=cases.name)
def test_every_choice_learns_one_batch_by_heart(case: cases.Case) -> None:
    laws.one_batch_is_learned_by_heart(built(case))


def test_every_pair_of_choices_is_among_the_cases() -> None:
    for a, b in product(AXES, AXES):
        if a < b:
            met = {(case[a], case[b]) for case in PAIRS}
            assert met == set(product(AXES[a], AXES[b]))


@pytest.mark.slow
@pytest.mark.parametrize("attention", AXES["attention"])
@pytest.mark.parametrize("position", AXES["position"])
def test_all_combinations_obey_the_laws(attention: str, position: str) -> None:
    rest = {axis: options for axis, options in AXES.items() if axis not in ("attention", "position")}
    for case in cases.every_one(rest):
        whole = {"attention": attention, "position": position, **case}
        try:
            model = cases.model_of(whole)
        except ConfigError as refusal:
            assert "\n" not in str(refusal)
            continue
        for law in (laws.cached_equals_one_pass, laws.future_is_invisible, laws.padding_changes_nothing):
            law(model)
