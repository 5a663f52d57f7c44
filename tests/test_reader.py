"""How decoding reads: with and without a cache it is told the same, whatever is there first."""

from __future__ import annotations

import pytest
import torch
from model import published

from tfcli.reader import NOTHING, Cached, Given, Uncached, pad_left

PROMPTS = [[5, 6, 7, 8], [9], [3, 4]]
SOURCES = Given.sources([[4, 5, 6, 7, 8], [9, 10], []])
MODELS = {
    "decoder": (lambda: published.cases.model_of({}), NOTHING),
    "prefix": (lambda: published.cases.model_of({}), Given(prefix=True)),
    "windowed prefix": (lambda: published.cases.model_of({"attention": "sliding"}), Given(prefix=True)),
    "t5": (lambda: published.t5()[0], SOURCES),
    "marian": (lambda: published.marian()[0], SOURCES),
}


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_both_readers_are_told_the_same_as_rows_come_go_and_repeat(name: str) -> None:
    make, given = MODELS[name]
    model = make()
    readers = Cached(model, given), Uncached(model, given)
    prompts = PROMPTS if given.source is None else [[1], [1], [1]]
    ids, present = pad_left(prompts)
    told = [reader.read(ids, present) for reader in readers]
    for rows, column in (
        ([1, 2, 0], [4, 5, 6]),
        ([2, 0, 0, 1], [4, 5, 6, 7]),
        ([3, 1], [8, 9]),
        ([1, 1, 0], [2, 3, 4]),
    ):
        assert (told[0] - told[1]).abs().max() < 1e-4
        for reader in readers:
            reader.keep(torch.tensor(rows))
        told = [reader.read(torch.tensor(column)[:, None]) for reader in readers]
    assert (told[0] - told[1]).abs().max() < 1e-4


def test_sources_are_padded_only_where_they_must_be() -> None:
    given = Given.sources([[3, 4], [5]])
    assert given.source.tolist() == [[3, 4], [5, 0]] and given.positions.tolist() == [[0, 1], [0, -1]]
    assert Given.sources([[3, 4]]).positions is None
    assert Given.sources([[], []]).positions.tolist() == [[-1], [-1]]
