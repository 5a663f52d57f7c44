"""Windows over a text: which tokens are read, and which are scored."""

import numpy as np
import pytest

from tfcli.batch import IGNORE, PAD
from tfcli.errors import ConfigError
from tfcli.windows import batched, check_window, collate, masked_one_by_one, windows


@pytest.mark.parametrize("length", [2, 9, 10, 11, 12, 19, 20, 21, 100])
@pytest.mark.parametrize("stride", [1, 3, 5, 9, 10])
def test_every_token_but_the_first_is_scored_exactly_once(length, stride):
    ids = list(range(length))  # every token is its own index
    scored = []
    for inputs, labels in windows(ids, 10, stride):
        assert 1 <= len(inputs) == len(labels) <= 10
        assert inputs.tolist() == list(range(inputs[0], inputs[0] + len(inputs)))
        assert all(y in (x + 1, IGNORE) for x, y in zip(inputs, labels))
        scored += [y for y in labels.tolist() if y != IGNORE]
    assert scored == list(range(1, length))


@pytest.mark.parametrize("stride", [1, 3, 7])
def test_what_is_given_is_read_and_not_scored_however_long_it_is(stride):
    ids = list(range(50))
    for n_given in (1, 2, 6, 7, 8, 20, 49, 50):
        rows = list(windows(ids, 7, stride, n_given))
        assert [y for _, labels in rows for y in labels.tolist() if y != IGNORE] == ids[n_given:]
        assert all(1 <= len(inputs) == len(labels) <= 7 for inputs, labels in rows)


def test_rows_of_one_length_have_no_positions_and_ragged_rows_are_padded_on_the_right():
    even, ragged = (
        [*windows(range(3), 3, 3)] * 2,
        [*windows(range(1, 5), 4, 4), *windows([5, 6], 2, 2)],
    )
    assert collate(even).positions is None
    ragged = collate(ragged)
    assert ragged.positions.tolist() == [[0, 1, 2], [0, PAD, PAD]]
    assert ragged.labels.tolist() == [[2, 3, 4], [6, IGNORE, IGNORE]]


def test_batches_hold_rows_of_about_one_length_and_all_rows_once():
    documents = [range(n) for n in (9, 2, 5, 9, 2, 5, 9)]
    batches = list(batched((row for ids in documents for row in windows(ids, 10, 10)), 2))
    assert [batch.inputs.shape[1] for batch in batches] == [8, 8, 4, 1]
    assert sum(batch.targets for batch in batches) == sum(len(ids) - 1 for ids in documents)


def test_ids_of_any_kind_of_number_are_read():
    for kind in (np.uint16, np.uint32, np.int64):
        ((inputs, labels),) = windows(np.array([1, 65535, 2], dtype=kind), 4, 4)
        assert inputs.tolist() == [1, 65535] and labels.tolist() == [65535, 2]


def test_a_window_fits_the_context_and_a_stride_the_window():
    check_window(32, 32, 32)
    check_window(10**6, 1, None)
    with pytest.raises(ConfigError, match="stride=33.*window=32"):
        check_window(32, 33, 32)
    with pytest.raises(ConfigError, match="window=33.*32 tokens"):
        check_window(33, 1, 32)


MASK = 99


@pytest.mark.parametrize("length", [1, 4, 5, 9, 10, 11, 23])
@pytest.mark.parametrize("window", [1, 5, 10])
def test_every_token_is_masked_once_and_all_others_of_its_window_are_as_they_were(length, window):
    ids = np.arange(100, 100 + length)
    found = []
    for inputs, labels in masked_one_by_one(ids, window, MASK):
        (at,) = np.flatnonzero(labels != IGNORE)
        assert inputs[at] == MASK and len(inputs) == min(window, length)
        found.append(int(labels[at]))
        restored = np.where(np.arange(len(inputs)) == at, labels, inputs)
        assert (restored == ids[restored[0] - 100 : restored[0] - 100 + len(restored)]).all()
    assert found == ids.tolist()


def test_ids_that_are_not_scored_are_read_and_never_masked():
    rows = list(masked_one_by_one([1, 7, 8, 2], 4, MASK, unscored={1, 2}))
    assert [inputs.tolist() for inputs, _ in rows] == [[1, MASK, 8, 2], [1, 7, MASK, 2]]
    assert not list(masked_one_by_one([1, 2], 4, MASK, unscored={1, 2}))
    assert not list(masked_one_by_one([], 4, MASK))


def test_the_ids_are_left_as_they_are():
    ids = np.array([5, 6, 7])
    list(masked_one_by_one(ids, 3, MASK))
    list(windows(ids, 2, 1))
    assert ids.tolist() == [5, 6, 7]
