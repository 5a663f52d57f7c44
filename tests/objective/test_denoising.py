from collections import Counter
from math import ceil

import numpy as np
import pytest
from objective import made

from tfcli.batch import IGNORE
from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.objective.denoising import Denoising, lay_out

KINDS = [*made.RECIPES]
STILL = {"mask": 0.0, "permute": 0.0}


def bound(kind: str = "char", **settings: float) -> Denoising:
    objective = Denoising(**settings)
    objective.bind(made.tokenizer(kind))
    return objective


def spoiled(objective: Denoising, example: Example) -> np.ndarray:
    return objective.corrupt(example.tokens, np.random.default_rng(example.place))


def one(kind: str, text: str) -> Example:
    return Example(made.document(made.tokenizer(kind), text), place=(0, 1, 5))


def texts(objective: Denoising, row: np.ndarray) -> list[list[int]]:
    """What stands before, between and behind special tokens."""
    found: list[list[int]] = [[]]
    for token in row.tolist():
        if objective.vocabulary.special[token] and token != objective.mask_id:
            found.append([])
        else:
            found[-1].append(token)
    return found


def n_words(objective: Denoising, row: np.ndarray) -> int:
    return int((objective.vocabulary.begins_word(row) & ~objective.vocabulary.special[row]).sum())


def is_within(some: list[int], all_of: list[int]) -> bool:
    """Whether some come in that order among all."""
    rest = iter(all_of)
    return all(i in rest for i in some)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_a_row_stays_as_it_is(kind: str) -> None:
    for row in made.rows(made.tokenizer(kind), 20):
        assert spoiled(bound(kind, **STILL), row).tolist() == row.tokens.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "noise", [{}, {"delete": 0.2, "rotate": 0.5, "replace_random": 0.3}, {"poisson": 1.0}]
)
def test_special_tokens_stay_in_order_and_a_row_does_not_grow(kind: str, noise: dict[str, float]) -> None:
    objective = bound(kind, **noise)
    for row in made.rows(made.tokenizer(kind), 60):
        source, tokens, special = spoiled(objective, row), row.tokens, objective.vocabulary.special
        stayed = source[special[source] & (source != objective.mask_id)]
        assert stayed.tolist() == tokens[special[tokens]].tolist() and len(source) <= len(tokens)
        for end in (0, -1):
            assert not special[tokens[end]] or source[end] == tokens[end]


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_words_are_masked_as_is_said(kind: str) -> None:
    objective = bound(kind, permute=0.0)
    for row in made.rows(made.tokenizer(kind), 80):
        source, tokens = spoiled(objective, row), row.tokens
        kept = [int(i) for i in source if i != objective.mask_id]
        assert is_within(kept, tokens.tolist())
        words = n_words(objective, tokens)
        left = words_left(objective, row)
        assert words - left == ceil(round(words * 0.3, 9))


def words_left(
    objective: Denoising, row: Example, spans: tuple[int, ...] | None = None, permute: float = 0.0
) -> int:
    """How many words of a row are not masked, told by giving every token an id of its own."""
    begins, special = objective.vocabulary.begins_word(row.tokens), objective.vocabulary.special[row.tokens]
    word = np.cumsum(begins & ~special)
    numbered = np.arange(len(row.tokens)) + 10_000

    class Numbered:
        special = np.append(np.zeros(10_000, bool), objective.vocabulary.special[row.tokens])

        def begins_word(self, tokens: np.ndarray) -> np.ndarray:
            return begins

        def begins_sentence(self, tokens: np.ndarray) -> np.ndarray:
            return objective.vocabulary.begins_sentence(row.tokens)

    twin = Denoising(permute=permute)
    if spans is not None:
        twin.spans = lambda budget, luck: (np.array(spans), 0)
    twin.mask_id, twin.vocabulary = objective.mask_id, Numbered()
    source = twin.corrupt(numbered, np.random.default_rng(row.place))
    kept = source[source >= 10_000] - 10_000
    whole = Counter(word[~special].tolist())
    left = Counter(word[kept][~special[kept]].tolist())
    assert all(left[w] == whole[w] for w in left)  # a word is masked whole or not at all
    return len(left)


@pytest.mark.parametrize("kind", KINDS)
def test_each_span_is_one_mask(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = bound(kind, permute=0.0)
    monkeypatch.setattr(objective, "spans", lambda budget, luck: (np.array([2, 1]), 0))
    for index in range(50):
        row = one(kind, "the old man walked slowly home")._replace(place=(0, 1, index))
        source = spoiled(objective, row)
        assert (source == objective.mask_id).sum() == 2 and words_left(objective, row, (2, 1)) == 3
        assert is_within(source[source != objective.mask_id].tolist(), row.tokens.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_words_stay_whole_where_sentences_change_places(kind: str) -> None:
    objective = bound(kind)
    for row in made.rows(made.tokenizer(kind), 40):
        words = n_words(objective, row.tokens)
        assert words - words_left(objective, row, permute=1.0) == ceil(round(words * 0.3, 9))


def test_a_span_across_special_tokens_is_a_mask_on_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, (x,) = bound(permute=0.0), made.tokenizer("char").encode("x")
    monkeypatch.setattr(objective, "spans", lambda budget, luck: (np.array([3]), 0))
    source = spoiled(objective, Example(np.array([1, x, x, 2, 1, x, 2, x]), place=(0, 1, 0)))
    mask = objective.mask_id
    assert source.tolist() == [1, mask, 2, 1, mask, 2, mask]


def test_masked_spans_have_poisson_lengths() -> None:
    objective, luck = bound(), np.random.default_rng(0)
    drawn = [objective.spans(3000, luck) for _ in range(20)]
    lengths = np.concatenate([lengths for lengths, _ in drawn])
    empty = sum(n for _, n in drawn)
    assert all(of.sum() == 3000 and of.min() > 0 for of, _ in drawn)
    n = len(lengths) + empty
    for length, count in ((0, empty), (1, (lengths == 1).sum()), (3, (lengths == 3).sum())):
        share = np.exp(-3) * 3.0**length / (1, 1, 2, 6)[length]
        assert abs(count - n * share) < 4 * np.sqrt(n * share)


def test_the_trimmed_span_comes_anywhere() -> None:
    objective = bound()
    drawn = [objective.spans(12, np.random.default_rng(i))[0] for i in range(3000)]
    first, last = (np.mean([lengths[at] for lengths in drawn]) for at in (0, -1))
    assert abs(first - last) < 0.2


def test_spans_lie_anywhere_and_share_no_word() -> None:
    luck = np.random.default_rng(0)
    found = Counter(tuple(lay_out(np.array([2, 1]), 5, luck).tolist()) for _ in range(6000))
    assert len(found) == 6 and all(way.count(0) == 2 and way.count(1) == 1 for way in found)
    assert all(abs(n - 1000) < 4 * np.sqrt(1000) for n in found.values())
    assert lay_out(np.array([3]), 3, luck).tolist() == [0, 0, 0]
    assert lay_out(np.zeros(0, dtype=np.int64), 2, luck).tolist() == [-1, -1]


def test_a_span_of_no_word_is_a_mask_between_tokens() -> None:
    objective, found = bound(permute=0.0, mask=0.5, poisson=1.0), set()
    row = one("char", "a b c d e f g h")
    words = [made.tokenizer("char").encode(f"{letter} ")[0] for letter in "abcdefgh"]
    for index in range(300):
        source = spoiled(objective, row._replace(place=(0, 1, index))).tolist()
        assert sum(word in source for word in words) == 4 and source[0] == 1 and source[-1] == 2
        found.add(source.count(objective.mask_id))
    assert max(found) > 4  # more masks than masked words: some stand for none


def test_all_words_may_be_masked() -> None:
    for index in range(20):
        row = one("char", "the old man. Not he. She")._replace(place=(0, 1, index))
        source = spoiled(bound(mask=1.0), row)
        assert set(source[1:-1].tolist()) == {made.tokenizer("char").mask_id} and len(source) > 2


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_change_places_whole(kind: str) -> None:
    objective, tokenizer = bound(kind, mask=0.0), made.tokenizer(kind)
    text, seen = "One man. Two men walked! Nobody? She said so", Counter()
    for index in range(200):
        row = one(kind, text)._replace(place=(0, 1, index))
        source = spoiled(objective, row)
        said = tokenizer.decode(source)
        assert source[0] == tokenizer.bos_id and source[-1] == tokenizer.eos_id
        for sentence in ("One man.", "Two men walked!", "Nobody?", "She said so"):
            assert sentence in said
        seen[said] += 1
    assert len(seen) == 24


def test_only_a_share_of_the_sentences_changes_places() -> None:
    objective = bound(permute=0.5)
    for n in (1, 2, 9, 10):
        moved = [
            int((objective.places(n, np.random.default_rng(i)) != np.arange(n)).sum()) for i in range(200)
        ]
        assert max(moved) == (ceil(n / 2) if n > 2 else 0)
        assert sorted(objective.places(n, np.random.default_rng(0))) == [*range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_sentence_leaves_its_document(kind: str) -> None:
    objective = bound(kind, mask=0.0, rotate=1.0)
    for row in made.rows(made.tokenizer(kind), 40):
        before, after = texts(objective, row.tokens), texts(objective, spoiled(objective, row))
        assert [sorted(text) for text in before] == [sorted(text) for text in after]


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_tokens_are_deleted_as_is_said(kind: str) -> None:
    objective = bound(kind, **STILL, delete=0.25)
    for row in made.rows(made.tokenizer(kind), 40):
        source = spoiled(objective, row)
        ordinary = int((~objective.vocabulary.special[row.tokens]).sum())
        assert len(row.tokens) - len(source) == round(ordinary * 0.25)
        assert is_within(source.tolist(), row.tokens.tolist())


def test_no_mask_is_deleted() -> None:
    some, few = bound(), bound(delete=0.5)
    for row in made.rows(made.tokenizer("char"), 20):
        masks = [(spoiled(objective, row) == objective.mask_id).sum() for objective in (some, few)]
        assert masks[0] == masks[1]


def test_a_rotated_text_begins_elsewhere() -> None:
    objective, row = bound(**STILL, rotate=1.0), one("char", "abcdefgh")
    seen = set()
    for index in range(200):
        source = spoiled(objective, row._replace(place=(0, 1, index))).tolist()
        inner, clean = source[1:-1], row.tokens.tolist()[1:-1]
        turn = inner.index(clean[0])
        assert inner[turn:] + inner[:turn] == clean and source[0] == 1 and source[-1] == 2
        seen.add(turn)
    assert seen == {1, 2, 3, 4, 5, 6, 7}
    half = bound(**STILL, rotate=0.5)
    kept = sum(
        spoiled(half, row._replace(place=(0, 1, i))).tolist() == row.tokens.tolist() for i in range(400)
    )
    assert abs(kept - 200) < 3 * 10


def test_some_masks_are_random_tokens_instead() -> None:
    objective, row = bound(replace_random=1.0, permute=0.0), made.row(made.tokenizer("char"), 3, 300)
    source = spoiled(objective, row)
    assert objective.mask_id not in source
    assert np.isin(source, [*objective.vocabulary.ordinary, 1, 2]).all()
    rows = made.rows(made.tokenizer("char"), 60, 300)
    few, none = bound(permute=0.0, replace_random=0.5), bound(permute=0.0)
    half, all_of = (sum(int((spoiled(o, r) == o.mask_id).sum()) for r in rows) for o in (few, none))
    assert abs(half - all_of / 2) < 3 * np.sqrt(all_of / 4)


def test_the_target_is_the_clean_row_behind_the_start() -> None:
    row = one("char", "the old man")
    for start, first in (("eos", 2), ("pad", 0)):
        batch = bound(start=start)([row])
        assert batch.labels.tolist() == [row.tokens.tolist()]
        assert batch.inputs.tolist() == [[first, *row.tokens[:-1]]]


def test_a_start_that_begins_the_row_is_there_once() -> None:
    row = one("char", "the old man")
    batch = bound(start="bos")([row])
    assert batch.inputs.tolist() == [row.tokens[:-1].tolist()]
    assert batch.labels.tolist() == [row.tokens[1:].tolist()]
    inner = bound(start="bos")([row._replace(tokens=row.tokens[1:])])
    assert inner.inputs.tolist() == batch.inputs.tolist() and inner.labels.tolist() == batch.labels.tolist()


def test_what_may_be_no_label_is_written_and_not_scored() -> None:
    row = one("char", "the old man")
    score = np.arange(len(row.tokens)) >= 5
    batch = bound()([row._replace(score=score)])
    assert (batch.labels[0] != IGNORE).tolist() == score[1:].tolist()


def test_rows_of_special_tokens_or_of_nothing_are_read_as_they_are() -> None:
    rows = [Example(np.array(row, dtype=np.int64), place=(0, 1, 0)) for row in ([1, 2], [], [2, 1, 1, 2])]
    batch = bound(delete=0.5, rotate=1.0, replace_random=0.5)(rows)
    assert batch.source.tolist() == [[1, 2, 0, 0], [0, 0, 0, 0], [2, 1, 1, 2]]


def test_a_tokenizer_without_a_mask_is_refused_where_words_are_masked() -> None:
    with pytest.raises(ConfigError, match="objective=denoising: needs a mask token"):
        Denoising().bind(made.tokenizer("char", ()))
    Denoising(mask=0.0).bind(made.tokenizer("char", ()))


def test_packed_documents_are_refused() -> None:
    row = Example(np.full(6, 200), np.repeat([0, 1], 3), np.tile(np.arange(3), 2), place=(0, 1, 0))
    with pytest.raises(ConfigError, match="data.packing=documents: "):
        bound()([row])
