from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from objective import made

from tfcli.batch import IGNORE, PAD
from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.objective.span_corruption import SpanCorruption, segments

KINDS = [*made.RECIPES]
DENSITIES = [(0.15, 3.0), (0.5, 1.0), (0.3, 10.0), (0.05, 1.0), (0.9, 40.0)]


def bound(kind: str = "char", **settings: float) -> SpanCorruption:
    objective = SpanCorruption(**settings)
    objective.bind(made.tokenizer(kind))
    return objective


def test_512_tokens_are_read_of_568_and_114_are_written() -> None:
    objective = bound()
    assert objective.row(512) == 568
    assert objective.lengths(568) == (512, 114) and objective.counts(568) == (85, 28)
    batch = objective(made.rows(made.tokenizer("char"), 4, 568))
    assert batch.source.shape == (4, 512) and batch.inputs.shape == batch.labels.shape == (4, 114)


def test_counts_are_rounded_and_at_least_one() -> None:
    counted = {n: SpanCorruption().counts(n) for n in (2, 3, 10, 11, 92, 100)}
    assert counted == {2: (1, 1), 3: (1, 1), 10: (2, 1), 11: (2, 1), 92: (14, 5), 100: (15, 5)}


@pytest.mark.parametrize(("noise_density", "mean_span"), DENSITIES)
def test_a_row_is_the_longest_of_which_neither_side_is_too_long(
    noise_density: float, mean_span: float
) -> None:
    objective = SpanCorruption(noise_density=noise_density, mean_span=mean_span, n_sentinels=1000)
    for seq_len in (3, 4, 5, 8, 17, 64, 200):
        longest = objective.row(seq_len)
        assert max(objective.lengths(longest + 1)) > seq_len
        for n in range(2, longest + 1):  # the last row of a stream is shorter
            assert max(objective.lengths(n)) <= seq_len
            noise, spans = objective.counts(n)
            assert 1 <= spans <= min(noise, n - noise)


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_on_one_side_and_the_text_can_be_rebuilt(kind: str) -> None:
    objective, tokenizer = bound(kind), made.tokenizer(kind)
    sentinels = set(tokenizer.sentinel_ids)
    for row in made.rows(tokenizer, 60):
        text = row.tokens
        source, target = objective.corrupt(text, np.random.default_rng(row.place))
        both = Counter(source.tolist()) + Counter(target.tolist())
        kept = Counter({i: n for i, n in both.items() if i not in sentinels})
        assert kept == Counter(text.tolist()) + Counter([tokenizer.eos_id] * 2)
        assert objective.reconstruct(source, target).tolist() == text.tolist()
        assert tokenizer.decode(objective.reconstruct(source, target)) == tokenizer.decode(text)


@pytest.mark.parametrize(("noise_density", "mean_span"), DENSITIES)
def test_spans_take_turns_and_are_named_in_order(noise_density: float, mean_span: float) -> None:
    objective = bound(noise_density=noise_density, mean_span=mean_span)
    names = list(made.tokenizer("char").sentinel_ids)
    for n in (2, 3, 7, 50, 131):
        text = np.full(n, 200)
        source, target = objective.corrupt(text, np.random.default_rng(n))
        n_noise, n_spans = objective.counts(n)
        assert (len(source), len(target)) == objective.lengths(n)
        assert [i for i in source if i != 200] == [*names[:n_spans], objective.eos_id]
        assert [i for i in target if i != 200] == [*names[:n_spans], objective.eos_id]
        assert source[0] == 200 and target[0] == names[0]  # what is kept comes first
        assert source[-2] == names[n_spans - 1]  # and the last is cut out
        assert (target == 200).sum() == n_noise
        assert all(len([*run]) == 1 for i, run in groupby(target.tolist()) if i != 200)


def test_each_way_to_cut_is_as_likely() -> None:
    luck = np.random.default_rng(0)
    found = Counter(tuple(segments(6, 3, luck).tolist()) for _ in range(10_000))
    assert len(found) == 10 and all(min(way) > 0 and sum(way) == 6 for way in found)
    assert all(abs(n - 1000) < 4 * np.sqrt(1000 * 0.9) for n in found.values())
    assert segments(1, 1, luck).tolist() == [1]


def test_an_eos_at_the_end_of_a_row_ends_both_sides_once() -> None:
    objective, eos = bound(), made.tokenizer("char").eos_id
    batch = objective([Example(np.array([200, 201, 202, eos]), place=(0, 1, 0))])
    for side in (batch.source, batch.labels):
        assert side[0, -1] == eos and int((side == eos).sum()) == 1
    rebuilt = objective.reconstruct(batch.source[0].numpy(), batch.labels[0].numpy())
    assert rebuilt.tolist() == [200, 201, 202]


def test_the_decoder_begins_with_the_start_and_reads_what_it_is_to_write() -> None:
    objective = bound()
    batch = objective(made.rows(made.tokenizer("char"), 8))
    assert objective.start_id == made.tokenizer("char").pad_id
    assert (batch.inputs[:, 0] == objective.start_id).all()
    for inputs, labels, positions in zip(batch.inputs, batch.labels, batch.positions):
        n = int((positions != PAD).sum())
        assert inputs[1:n].tolist() == labels[: n - 1].tolist()
        assert labels[n - 1] == objective.eos_id and (labels[n:] == IGNORE).all()


def test_a_row_of_a_token_or_none_is_read_whole() -> None:
    objective, eos = bound(), made.tokenizer("char").eos_id
    batch = objective([Example(np.array(row, dtype=np.int64), place=(0, 1, 0)) for row in ([200], [eos], [])])
    assert batch.source.tolist() == [[200, eos], [eos, 0], [eos, 0]]
    assert batch.labels.tolist() == [[eos]] * 3


def test_what_may_be_no_label_is_written_and_not_scored() -> None:
    objective, row = bound(), made.row(made.tokenizer("char"), 0, 100)
    plain = objective([row]).labels[0].numpy()
    batch = objective([row._replace(score=np.zeros(100, bool))])
    named = np.isin(plain, [*objective.sentinels, objective.eos_id])
    labels = batch.labels[0].numpy()
    assert (labels[named[: len(labels)]] == plain[named]).all() and (labels[~named] == IGNORE).all()


def test_more_spans_than_sentinels_are_refused() -> None:
    with pytest.raises(ConfigError, match="objective.n_sentinels=27: must be at least 28, .* 568 tokens"):
        SpanCorruption(n_sentinels=27).row(512)
    assert SpanCorruption(n_sentinels=28).row(512) == 568


def test_a_row_too_short_for_a_span_is_refused() -> None:
    with pytest.raises(ConfigError, match="train.seq_len=2: must be at least 3"):
        SpanCorruption().row(2)


def test_spans_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match="objective.mean_span=3: must be at least 9"):
        SpanCorruption(noise_density=0.9)


def test_a_tokenizer_without_the_sentinels_is_refused() -> None:
    tokenizer = made.tokenizer("char", ("<extra_id_0>", "<extra_id_2>"))
    with pytest.raises(ConfigError, match="objective.n_sentinels=2: this tokenizer has 1 token"):
        SpanCorruption(n_sentinels=2).bind(tokenizer)


def test_its_tokens_are_those_that_it_needs() -> None:
    objective = SpanCorruption(n_sentinels=3)
    assert objective.special == ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")
    objective.bind(made.tokenizer("char", objective.special))


def test_packed_documents_are_refused() -> None:
    tokens = np.full(6, 200)
    row = Example(tokens, np.repeat([0, 1], 3), np.tile(np.arange(3), 2), place=(0, 1, 0))
    with pytest.raises(ConfigError, match="data.packing=documents: .* choose stream or none"):
        bound()([row])
