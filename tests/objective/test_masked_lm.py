import numpy as np
import pytest
from objective import made

from tfcli.batch import IGNORE, PAD
from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.objective.masked_lm import MaskedLM

KINDS = [*made.RECIPES]


def bound(kind: str = "char", **settings: float) -> MaskedLM:
    objective = MaskedLM(**settings)
    objective.bind(made.tokenizer(kind))
    return objective


def within(count: int, n: int, share: float) -> bool:
    """Whether a count is within three standard deviations of a binomial's mean."""
    return abs(count - n * share) <= 3 * np.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("kind", KINDS)
def test_of_many_tokens_as_many_are_chosen_and_changed_as_is_said(kind: str) -> None:
    objective, tokenizer = bound(kind), made.tokenizer(kind)
    rows = [*made.rows(tokenizer, 60, 300), *made.rows(tokenizer, 20)]
    batch = objective(rows)
    special = objective.vocabulary.special
    true = np.full(batch.inputs.shape, tokenizer.pad_id)
    for line, row in zip(true, rows):
        line[: len(row.tokens)] = row.tokens
    there, labels, inputs = batch.positions.numpy() != PAD, batch.labels.numpy(), batch.inputs.numpy()
    chosen, may = labels != IGNORE, there & ~special[true]
    assert may.sum() > 10_000 and not (chosen & ~may).any()
    assert (labels[chosen] == true[chosen]).all() and (inputs[~chosen] == true[~chosen]).all()
    assert within(chosen.sum(), may.sum(), 0.15)
    masked, kept = chosen & (inputs == tokenizer.mask_id), chosen & (inputs == true)
    other = chosen & ~masked & ~kept
    share = len(objective.vocabulary.ordinary)
    assert within(masked.sum(), chosen.sum(), 0.8)
    assert within(kept.sum(), chosen.sum(), 0.1 + 0.1 / share)
    assert within(other.sum(), chosen.sum(), 0.1 - 0.1 / share)
    assert np.isin(inputs[other], objective.vocabulary.ordinary).all()
    assert not special[inputs[other]].any() and tokenizer.unk_id not in inputs[other]


@pytest.mark.parametrize("kind", KINDS)
def test_whole_words_are_chosen_together_and_no_more_of_them(kind: str) -> None:
    objective, tokenizer = bound(kind, whole_word=True, rate=0.3), made.tokenizer(kind)
    n = tokens = words = 0
    for row in made.rows(tokenizer, 150, 300):
        chosen = objective([row]).labels[0].numpy() != IGNORE
        begins = np.flatnonzero(objective.vocabulary.begins_word(row.tokens))
        for word in np.split(chosen, begins[1:]):
            assert word.all() or not word.any()
        special = objective.vocabulary.special[row.tokens]
        assert not (chosen & special).any()
        n, tokens, words = n + chosen.sum(), tokens + (~special).sum(), words + len(begins)
    assert abs(n / tokens - 0.3) < 3 * np.sqrt(0.3 * 0.7 / words) * 1.5  # words are of unequal lengths


def test_what_may_be_no_label_is_not_chosen() -> None:
    row = made.row(made.tokenizer("char"), 0, 200)
    score = np.arange(200) >= 100
    labels = bound(rate=0.9)([row._replace(score=score)]).labels[0].numpy()
    assert (labels[:100] == IGNORE).all() and (labels[100:] != IGNORE).sum() > 50


def test_packed_documents_stay_apart() -> None:
    tokens = np.array(made.tokenizer("char").encode("hello worl"))
    packed = Example(tokens, np.repeat([0, 1], 5), np.tile(np.arange(5), 2), place=(0, 1, 0))
    batch = bound()([packed, packed._replace(tokens=tokens[:3], documents=np.zeros(3, int),
                                             positions=np.arange(3), place=(0, 1, 1))])  # fmt: skip
    assert batch.documents.tolist() == [[0] * 5 + [1] * 5, [0] * 3 + [PAD] * 7]
    assert batch.positions.tolist() == [[*range(5)] * 2, [0, 1, 2] + [PAD] * 7]


def test_full_rows_are_said_to_be_full() -> None:
    batch = bound()(made.rows(made.tokenizer("char"), 3, 20))
    assert batch.positions is None and batch.documents is None and batch.segments is None


def test_all_or_none_of_the_chosen_may_be_masked() -> None:
    row = made.row(made.tokenizer("char"), 0, 300)
    for settings, changed in (({"mask": 1.0, "random": 0.0}, 1.0), ({"mask": 0.0, "random": 0.0}, 0.0)):
        batch = bound(rate=0.5, **settings)([row])
        chosen = batch.labels[0] != IGNORE
        assert ((batch.inputs[0] != batch.labels[0])[chosen] == bool(changed)).all()
    MaskedLM(mask=0.7, random=0.3)


def test_more_than_all_of_the_chosen_is_refused() -> None:
    with pytest.raises(ConfigError, match="objective.mask=0.8: with random=0.3 it must be at most 1"):
        MaskedLM(mask=0.8, random=0.3)


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    with pytest.raises(ConfigError, match="objective=masked_lm: needs a mask token"):
        MaskedLM().bind(made.tokenizer("char", ()))
