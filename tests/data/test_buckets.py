from collections import Counter
from io import BytesIO

import numpy as np
import pytest
import torch

from tfcli.data import Example
from tfcli.data.buckets import Bucketed
from tfcli.errors import ConfigError


class Lengths:
    """Example i has the token i as often as its source is long, and a target of zeros."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.n = sizes

    def __len__(self) -> int:
        return len(self.n)

    def __getitem__(self, index: int) -> Example:
        source, target = self.n[index]
        return Example(np.full(source, index), target=np.zeros(target), place=(0, 0, index))

    def sizes(self) -> np.ndarray:
        return np.array(self.n)

    def labels(self) -> np.ndarray:
        return self.sizes()[:, 1]


def some(n: int, longest: int = 60) -> Lengths:
    draw = np.random.default_rng(3)
    return Lengths([(int(s), int(t)) for s, t in draw.integers(1, longest, (n, 2))])


def feed(n: int = 203, batch_size: int = 8, seed: int = 1, **settings) -> Bucketed:
    return Bucketed(some(n), batch_size=batch_size, seed=seed, **settings)


def drawn(feed: Bucketed, batches: int) -> list[list[int]]:
    """Which examples come in each of the next batches."""
    n = feed.batch_size // feed.world
    return [[int(example.tokens[0]) for example in feed.draw(n)] for _ in range(batches)]


def epoch_of(feed: Bucketed) -> list[list[int]]:
    begun, found = int(feed.epoch), []
    while feed.epoch < begun + 1:
        found += drawn(feed, 1)
    return found


BUDGETS = [None, 60 * 2, 500, 10**6]


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_example_comes_once_an_epoch_in_other_batches_each_time(budget: int | None) -> None:
    it = feed(batch_tokens=budget)
    epochs = [epoch_of(it) for _ in range(3)]
    for epoch in epochs:
        assert sorted(i for batch in epoch for i in batch) == list(range(203))
    assert epochs[0] != epochs[1] != epochs[2]
    assert it.epoch == 3.0 and it.examples_per_epoch == 203
    assert it.batches_per_epoch == len(epochs[0])


def test_a_batch_has_as_many_rows_as_asked_but_the_last_of_an_epoch() -> None:
    assert Counter(map(len, epoch_of(feed()))) == {8: 25, 3: 1}


@pytest.mark.parametrize("budget", [120, 200, 1000])
def test_no_batch_has_more_tokens_than_the_budget_and_padding_counts(budget: int) -> None:
    it = feed(batch_tokens=budget)
    batches = epoch_of(it)
    assert len({len(batch) for batch in batches}) > 1
    for batch in batches:
        assert 0 < len(batch) * it.sizes[batch].max(0).sum() <= budget
    mean = np.mean([len(batch) * it.sizes[batch].max(0).sum() for batch in batches])
    assert mean > 0.6 * budget


def test_a_row_that_no_batch_has_room_for_is_refused_with_both_numbers() -> None:
    lengths = Lengths([(3, 4), (10, 1), (7, 6)])
    with pytest.raises(ConfigError, match="train.batch_tokens=12: the longest row has 13 tokens"):
        Bucketed(lengths, batch_size=1, batch_tokens=12, seed=0)
    it = Bucketed(lengths, batch_size=1, batch_tokens=13, seed=0)
    assert sorted(map(sorted, epoch_of(it))) == [[0], [1], [2]]


def test_examples_of_a_batch_are_about_equally_long(monkeypatch: pytest.MonkeyPatch) -> None:
    it = feed(2000)
    spread = [np.ptp(it.sizes[batch, 0]) for batch in epoch_of(it)]
    assert np.mean(spread) < 2
    monkeypatch.setattr("tfcli.data.buckets.POOL", 1)  # nothing to sort but what is in a batch anyway
    assert np.mean([np.ptp(it.sizes[batch, 0]) for batch in epoch_of(feed(2000))]) > 30


def test_batches_come_in_no_order_of_length() -> None:
    it = feed(2000)
    mean = [it.sizes[batch, 0].mean() for batch in epoch_of(it)]
    assert abs(np.corrcoef(mean[:-1], mean[1:])[0, 1]) < 0.3


@pytest.mark.parametrize("budget", [None, 500])
def test_padding_is_what_is_drawn_beyond_the_tokens(budget: int | None) -> None:
    it = feed(2000, batch_tokens=budget)
    batches = epoch_of(it)
    room = sum(len(batch) * it.sizes[batch].max(0).sum() for batch in batches)
    assert it.padding == pytest.approx(1 - it.sizes.sum() / room)
    assert it.padding < 0.27 < 0.38 < it.padding_unsorted
    same = Bucketed(Lengths([(5, 2)] * 30), batch_size=7, seed=0)
    assert same.padding == same.padding_unsorted == 0


def test_the_plan_depends_on_the_seed_and_the_epoch_only() -> None:
    first = drawn(feed(), 60)
    assert drawn(feed(), 60) == first
    assert drawn(feed(seed=2), 60) != first


@pytest.mark.parametrize("budget", [None, 500])
@pytest.mark.parametrize("stops", [[1], [25, 1], [26], [27], [3, 3, 30]])
def test_a_feed_goes_on_where_it_stopped(stops: list[int], budget: int | None) -> None:
    straight = drawn(feed(batch_tokens=budget), 90)
    it, found = feed(batch_tokens=budget), []
    for n in stops:
        found += drawn(it, n)
        file = BytesIO()
        torch.save(it.state_dict(), file)
        file.seek(0)
        it = feed(seed=99, batch_tokens=budget)
        it.load_state_dict(torch.load(file, weights_only=True))
    assert found + drawn(it, 90 - len(found)) == straight


def test_going_on_with_other_batches_is_refused() -> None:
    state = feed(key="a").state_dict()
    others = [{"key": "b"}, {"key": "a", "n": 204}, {"key": "a", "batch_size": 9},
              {"key": "a", "batch_tokens": 500}]  # fmt: skip
    for other in others:
        with pytest.raises(ConfigError, match="the run learned from 203 rows in other batches"):
            feed(**other).load_state_dict(state)
    feed(key="a").load_state_dict(state)


def test_ranks_share_out_what_one_would_draw() -> None:
    one = feed()
    ranks = [feed(rank=rank, world=2) for rank in range(2)]
    for _ in range(60):
        (together,) = drawn(one, 1)
        assert [together[0::2], together[1::2]] == [drawn(rank, 1)[0] for rank in ranks]
    assert {rank.epoch for rank in ranks} == {one.epoch}


def test_the_place_of_a_row_is_its_seed_epoch_and_index_however_batches_are_made() -> None:
    places = []
    for settings in ({}, {"batch_size": 16}, {"batch_tokens": 500}):
        it = feed(**settings)
        rows = [
            row for _ in range(2) for batch in [it.batches] for _ in batch for row in it.draw(it.batch_size)
        ]
        assert all(row.place[2] == row.tokens[0] for row in rows)
        places.append(sorted(row.place for row in rows))
    assert places[0] == [(1, epoch, i) for epoch in (1, 2) for i in range(203)]
    assert places[1] == places[2] == places[0]
