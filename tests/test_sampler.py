"""Samplers: what each piece leaves, and what is drawn from it."""

import math
import random
from collections import Counter

import pytest
import torch

from tfcli.errors import ConfigError
from tfcli.sampler import MinP, RepetitionPenalty, Sampler, Temperature, TopK, TopP, draw
from tfcli.values import check_arguments

PROBS = [0.5, 0.3, 0.15, 0.05]
LOGITS = torch.tensor([PROBS]).log()


def support(logits: torch.Tensor) -> list[int]:
    return [i for i, x in enumerate(logits[0].tolist()) if x > -math.inf]


def uniform(n: int, seed: int = 0) -> torch.Tensor:
    chance = random.Random(seed)
    return torch.tensor([chance.random() for _ in range(n)], dtype=torch.float64)


def frequencies(sampler: Sampler, n: int) -> list[float]:
    counts = Counter(sampler(LOGITS.expand(n, -1), chance=uniform(n)).tolist())
    return [counts[i] for i in range(len(PROBS))]


@pytest.mark.parametrize(
    "p, kept", [(0, 1), (0.5, 1), (0.5001, 2), (0.6, 2), (0.8, 2), (0.85, 3), (0.96, 4), (1, 4)]
)
def test_top_p_keeps_the_token_that_crosses_p(p: float, kept: int) -> None:
    assert support(TopP(p)(LOGITS)) == list(range(kept))
    shuffled = [2, 0, 3, 1]
    assert support(TopP(p)(LOGITS[:, shuffled])) == [i for i, rank in enumerate(shuffled) if rank < kept]


def test_top_p_finds_a_nucleus_wider_than_the_head_it_looks_at_first() -> None:
    flat = torch.zeros(2, 5000)
    flat[1, 7] = 20.0  # of two rows only one is flat
    left = TopP(0.5)(flat)
    assert (left > -math.inf).sum(-1).tolist() == [2500, 1]


@pytest.mark.parametrize("p", [0.4, 0.5001, 0.85, 1.0])
def test_frequencies_of_a_nucleus_are_its_probabilities_over_their_sum(p: float) -> None:
    n, sampler = 4000, Sampler(temperature=1.0, top_p=p)
    inside = support(TopP(p)(LOGITS))
    total = sum(PROBS[i] for i in inside)
    counts = frequencies(sampler, n)
    assert all(counts[i] == 0 for i in range(4) if i not in inside)
    chi_square = sum((counts[i] - n * PROBS[i] / total) ** 2 / (n * PROBS[i] / total) for i in inside)
    assert chi_square < 16.3  # 3 degrees of freedom at most: one chance in a thousand


@pytest.mark.parametrize("k, kept", [(1, 1), (3, 3), (4, 4), (5, 4), (100_000, 4)])
def test_top_k_keeps_k_and_all_where_k_is_the_vocabulary_or_more(k: int, kept: int) -> None:
    assert support(TopK(k)(LOGITS)) == list(range(kept))


def test_top_k_keeps_no_more_than_k_among_equals() -> None:
    assert len(support(TopK(2)(torch.zeros(1, 9)))) == 2


@pytest.mark.parametrize(
    "p, kept", [(0.05, 4), (0.1, 4), (0.11, 3), (0.3, 3), (0.31, 2), (0.6, 2), (0.61, 1), (1, 1)]
)
def test_min_p_keeps_what_is_at_least_p_times_as_likely_as_the_likeliest(p: float, kept: int) -> None:
    assert support(MinP(p)(LOGITS)) == list(range(kept))


@pytest.mark.parametrize("t", [0.5, 1.0, 2.0])
def test_temperature_divides_the_logits(t: float) -> None:
    logits = torch.randn(3, 7)
    torch.testing.assert_close(Temperature(t)(logits).softmax(-1), (logits / t).softmax(-1))


@pytest.mark.parametrize("t", [1e-8, 1e-30, 5e-324])
def test_a_tiny_temperature_is_greedy_and_makes_no_nan(t: float) -> None:
    logits = torch.randn(50, 7) * 100
    assert torch.equal(Sampler(temperature=t)(logits, chance=uniform(50)), logits.argmax(-1))


def test_the_repetition_penalty_makes_what_was_seen_less_likely_whatever_its_sign() -> None:
    logits = torch.tensor([[3.0, -3.0, 2.0, -2.0, 0.0]]).repeat(2, 1)
    seen = torch.tensor([[True, True, False, False, True], [False, False, True, False, False]])
    expected = torch.tensor([[2.0, -4.5, 2.0, -2.0, 0.0], [3.0, -3.0, 2 / 1.5, -2.0, 0.0]])
    torch.testing.assert_close(RepetitionPenalty(1.5)(logits, seen), expected)


def test_the_repetition_penalty_counts_for_greedy_choices_too() -> None:
    seen = torch.tensor([[True, False, False, False]])
    logits = torch.tensor([[3.0, 2.5, 1.0, 0.0]])
    assert Sampler(repetition_penalty=1.5)(logits, seen=seen).tolist() == [1]
    assert Sampler(repetition_penalty=1.1)(logits, seen=seen).tolist() == [0]


@pytest.mark.parametrize("filters", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_temperature_0_is_greedy_whatever_the_filters(filters: dict) -> None:
    assert Sampler(temperature=0.0, **filters)(LOGITS).tolist() == [0]


def test_a_filter_without_a_temperature_asks_for_draws_and_nothing_at_all_is_greedy() -> None:
    assert not Sampler().draws
    assert not Sampler(top_k=0, top_p=1.0, min_p=0.0).draws
    assert [Sampler(top_k=3).heat, Sampler(top_p=0.9).heat, Sampler(min_p=0.1).heat] == [1.0, 1.0, 1.0]


def test_filters_narrow_what_is_left_by_those_before_them() -> None:
    left = Sampler(temperature=1.0, top_k=2, top_p=0.6).narrow(LOGITS)
    assert support(left) == [0]  # of the two that top_k left, the first has 0.625
    assert support(Sampler(temperature=1.0, top_p=0.6).narrow(LOGITS)) == [0, 1]
    assert support(Sampler(temperature=0.5, top_p=0.6).narrow(LOGITS)) == [0]  # the temperature comes first


def test_a_draw_never_takes_what_has_no_probability() -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]]).expand(4, -1)
    edges = torch.tensor([0.0, 0.5 - 2**-54, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits, edges).tolist() == [1, 1, 3, 3]


def test_a_row_draws_the_same_alone_and_in_company() -> None:
    logits, chance = torch.randn(9, 40), uniform(9)
    sampler = Sampler(temperature=0.9, top_k=20, top_p=0.8, min_p=0.02)
    together = sampler(logits, chance=chance)
    alone = [sampler(logits[i : i + 1], chance=chance[i : i + 1]).item() for i in range(9)]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    "value",
    ["temperature=-1", "temperature=nan", "temperature='hot'", "top_k=-1", "top_k=1.5", "top_p=-0.1",
     "top_p=1.1", "min_p=2", "repetition_penalty=0", "beams=2"],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_its_key(value: str) -> None:
    key = value.partition("=")[0]
    with pytest.raises(ConfigError, match=f"sampler.{key}"):
        check_arguments(Sampler, eval(f"dict({value})", {"nan": math.nan}), "sampler")
