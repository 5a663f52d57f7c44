"""Schedules against closed forms written down independently, and at their corners."""

import math
from dataclasses import fields
from itertools import product
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tfcli.build import make as make_node
from tfcli.errors import ConfigError
from tfcli.schedule import WSD, Constant, Cosine, InverseSqrt, Linear, Noam, Schedule

CONFIGS = Path(__file__).parents[1] / "configs" / "schedule"
CHOICES = sorted(p.stem for p in CONFIGS.glob("*.yaml"))
DECAYING = [Linear, Cosine, WSD]


def make(choice: str, **numbers) -> Schedule:
    node = OmegaConf.merge(OmegaConf.load(CONFIGS / f"{choice}.yaml"), numbers)
    shared = {"train": {"steps": 2000}, "size": {"d_model": 128}}
    return make_node(OmegaConf.create({**shared, "schedule": node}).schedule, "schedule")


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_takes_steps_warmup_and_floor(choice):
    names = {f.name for f in fields(make(choice))}
    assert {"steps", "warmup", "floor"} <= names


@pytest.mark.parametrize("choice", CHOICES)
def test_every_value_is_finite_and_the_first_is_not_zero(choice):
    kind = type(make(choice))
    for steps, warmup, floor in product([1, 2, 10], [0, 1, 2, 5, 10, 11, 1000], [0.0, 0.1, 1.0]):
        f = kind(steps, warmup, floor)
        assert f(1) > 0
        assert all(math.isfinite(f(step)) and f(step) >= 0 for step in range(steps + 30))


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("warmup", [0, 1, 4, 7])
def test_it_rises_in_equal_steps_to_its_peak_and_never_again(choice, warmup):
    f = make(choice, steps=20, warmup=warmup)
    peak = max(1, warmup)
    rates = [f(step) / f(peak) for step in range(1, 40)]
    assert rates[:peak] == pytest.approx([step / peak for step in range(1, peak + 1)], rel=1e-15)
    assert max(rates) == 1 and all(b <= a for a, b in zip(rates[peak - 1 :], rates[peak:], strict=False))


@pytest.mark.parametrize("kind", DECAYING)
@pytest.mark.parametrize("floor", [0.0, 0.1, 1 / 3])
def test_the_last_step_is_exactly_the_floor_and_what_is_beyond_it_too(kind, floor):
    f = kind(steps=10, warmup=4, floor=floor)
    assert f(4) == 1 and f(9) > floor
    assert [f(10), f(11), f(1000)] == [floor] * 3


@pytest.mark.parametrize("kind", DECAYING)
def test_a_warm_up_longer_than_the_run_is_cut_off_by_its_end(kind):
    f = kind(steps=5, warmup=10, floor=0.1)
    assert [f(s) for s in (1, 5, 6, 10, 11)] == [0.1, 0.5, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("kind", DECAYING)
def test_a_run_of_one_step_trains_at_the_full_rate(kind):
    assert kind(steps=1, floor=0.1)(1) == 1


@pytest.mark.parametrize("steps, warmup", [(10, 0), (10, 1), (10, 4), (1000, 100)])
def test_linear_and_cosine_are_their_closed_forms(steps, warmup):
    start, floor = max(warmup, 1), 0.1
    line, wave = Linear(steps, warmup, floor), Cosine(steps, warmup, floor)
    for s in range(start, steps + 1):
        angle = math.pi / 2 * (s - start) / (steps - start)
        assert line(s) == pytest.approx((floor * (s - start) + (steps - s)) / (steps - start), rel=1e-14)
        assert wave(s) == pytest.approx(math.cos(angle) ** 2 + floor * math.sin(angle) ** 2, rel=1e-14)


def test_noam_gives_the_rates_of_the_paper():
    f = Noam(steps=100_000, warmup=4000, d_model=512)
    known = {1: 1.746928e-7, 2000: 3.493856e-4, 4000: 6.987712e-4, 8000: 4.941058e-4}
    assert {s: f(s) for s in known} == pytest.approx(known, rel=1e-6)
    for s in (1, 17, 3999, 4000, 4001, 99_999):
        assert f(s) == pytest.approx(512**-0.5 * min(s**-0.5, s * 4000**-1.5), rel=1e-14)
    assert Noam(steps=9, warmup=4000, d_model=512, factor=2.0)(7) == pytest.approx(2 * f(7), rel=1e-15)
    assert f.absolute and not Constant(10).absolute


def test_noam_and_inverse_sqrt_stop_at_their_floor():
    assert InverseSqrt(10, warmup=4, floor=0.25)(10**6) == 0.25
    f = Noam(10, warmup=4, floor=0.25, d_model=64)
    assert f(10**6) == 0.25 * f(4)


def test_inverse_sqrt_halves_at_four_times_the_warm_up():
    f = InverseSqrt(steps=1000, warmup=100)
    assert [f(50), f(100), f(400), f(900), f(1600)] == pytest.approx([0.5, 1, 1 / 2, 1 / 3, 1 / 4], rel=1e-15)


def test_wsd_with_4_steps_up_2_stable_and_4_down():
    f = WSD(10, warmup=4, decay_steps=4)
    assert [f(s) for s in range(1, 11)] == [0.25, 0.5, 0.75, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    assert [WSD(10, warmup=4, decay=0.4)(s) for s in range(12)] == [f(s) for s in range(12)]


def test_wsd_decays_in_the_shape_that_is_asked_for():
    left = {
        "linear": [3 / 4, 1 / 2, 1 / 4, 0],
        "sqrt": [1 / 2, 1 - 0.5**0.5, 1 - 0.75**0.5, 0],
        "cosine": [math.cos(math.pi * p / 8) ** 2 for p in (1, 2, 3, 4)],
    }
    for shape, rest in left.items():
        f = WSD(20, warmup=2, floor=0.2, decay_steps=4, shape=shape)
        assert f(16) == 1
        assert [f(s) for s in (17, 18, 19, 20)] == pytest.approx([0.2 + 0.8 * r for r in rest], abs=1e-15)


def test_wsd_without_a_decay_ends_at_the_full_rate():
    for f in (WSD(10, warmup=2, decay=0.0), WSD(10, warmup=2, decay_steps=0)):
        assert f(10) == 1 and f(11) == 0


def test_wsd_decays_no_longer_than_the_warm_up_leaves():
    f = WSD(10, warmup=4, decay_steps=100)
    assert [f(4), f(7), f(10)] == [1, 0.5, 0]


def test_a_rate_below_its_range_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"schedule.floor=1.5: must be a number at least 0 and at most 1"):
        make("cosine", floor=1.5)
    with pytest.raises(ConfigError, match="schedule.shape='sqrrt': must be one of .* did you mean 'sqrt'"):
        make("wsd", shape="sqrrt")
