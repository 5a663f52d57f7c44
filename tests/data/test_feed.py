from collections import Counter
from io import BytesIO

import numpy as np
import pytest
import torch

from tfcli.data import Example
from tfcli.data.feed import Shuffled
from tfcli.errors import ConfigError


class Numbers:
    """Example i is the token i."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Example:
        return Example(np.array([index]))


def drawn(feed: Shuffled, *sizes: int) -> list[int]:
    return [int(example.tokens[0]) for n in sizes for example in feed.draw(n)]


def test_every_example_comes_once_an_epoch_in_another_order_each_time() -> None:
    feed = Shuffled(Numbers(10), seed=1)
    epochs = [drawn(feed, 10) for _ in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and list(range(10)) not in epochs
    assert feed.epoch == 3.0 and feed.examples_per_epoch == 10


def test_the_order_depends_on_the_seed_only_and_batches_run_on_across_epochs() -> None:
    straight = drawn(Shuffled(Numbers(10), seed=1), 30)
    assert drawn(Shuffled(Numbers(10), seed=1), 7, 7, 7, 9) == straight
    assert drawn(Shuffled(Numbers(10), seed=2), 30) != straight


def test_a_batch_may_be_larger_than_the_data() -> None:
    assert Counter(drawn(Shuffled(Numbers(3), seed=0), 9)) == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize("stops", [[1], [9, 1], [10], [3, 3, 3], [25]])
def test_a_feed_goes_on_where_it_stopped(stops: list[int]) -> None:
    straight = drawn(Shuffled(Numbers(10), seed=1, key="a"), 60)
    feed, found = Shuffled(Numbers(10), seed=1, key="a"), []
    for n in stops:
        found += drawn(feed, n)
        file = BytesIO()
        torch.save(feed.state_dict(), file)
        file.seek(0)
        feed = Shuffled(Numbers(10), seed=99, key="a")
        feed.load_state_dict(torch.load(file, weights_only=True))
    assert found + drawn(feed, 60 - len(found)) == straight


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_out_what_one_would_draw(world: int) -> None:
    one = Shuffled(Numbers(10), seed=1)
    ranks = [Shuffled(Numbers(10), seed=1, rank=rank, world=world) for rank in range(world)]
    for _ in range(7):
        together = drawn(one, 2 * world)
        assert sorted(i for rank in ranks for i in drawn(rank, 2)) == sorted(together)
    assert {rank.epoch for rank in ranks} == {one.epoch}


def test_going_on_with_other_data_is_refused() -> None:
    state = Shuffled(Numbers(10), seed=1, key="a").state_dict()
    for other in (Shuffled(Numbers(11), seed=1, key="a"), Shuffled(Numbers(10), seed=1, key="b")):
        with pytest.raises(ConfigError, match="the run learned from 10 rows"):
            other.load_state_dict(state)


def test_the_place_of_an_example_is_its_seed_epoch_and_index() -> None:
    places = []
    for sizes in ([30], [7, 7, 7, 9]):
        feed = Shuffled(Numbers(10), seed=4)
        rows = [row for n in sizes for row in feed.draw(n)]
        assert all(row.place[2] == row.tokens[0] for row in rows)
        places.append([row.place for row in rows])
    ranks = [Shuffled(Numbers(10), seed=4, rank=rank, world=3) for rank in range(3)]
    shares = [[row.place for row in rank.draw(10)] for rank in ranks]
    assert [place for together in zip(*shares) for place in together] == places[0] == places[1]
    assert [place[:2] for place in places[0]] == [(4, 1)] * 10 + [(4, 2)] * 10 + [(4, 3)] * 10


def test_a_place_is_that_of_the_run_that_goes_on() -> None:
    feed = Shuffled(Numbers(10), seed=4)
    feed.draw(13)
    other = Shuffled(Numbers(10), seed=99)
    other.load_state_dict(feed.state_dict())
    assert [row.place for row in other.draw(9)] == [row.place for row in feed.draw(9)]


def test_batches_per_epoch_may_be_no_whole_number() -> None:
    assert Shuffled(Numbers(10), seed=4, batch_size=4).batches_per_epoch == 2.5
