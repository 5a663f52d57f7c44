from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tfcli.data import Document
from tfcli.data.packing import best_fit, pack, pieces
from tfcli.data.tokens import Encoder, Tokens
from tfcli.tokenizer import Tokenizer

LENGTHS = [3, 1, 40, 8, 7, 2, 9, 17, 1, 16, 33, 5]


@pytest.fixture
def tokens(char: Tokenizer) -> Tokens:
    """Documents whose every token is another, so that a pair of tokens says where it was."""
    letters = (chr(33 + i) for i in range(93))
    texts = ["".join(next(letters) for _ in range(n)) for n in (3, 1, 20, 8, 7, 2, 9, 17, 5)]
    return Encoder(char, bos=False, eos=False).gather([Document(text) for text in texts])


def in_documents(tokens: Tokens) -> list[tuple[int, int]]:
    """All pairs of a token and the next of the same document."""
    bounds = pairwise(tokens.starts)
    documents = (tokens.ids[a:b].tolist() for a, b in bounds)
    return [pair for ids in documents for pair in pairwise(ids)]


@pytest.mark.parametrize("seq_len", [1, 2, 3, 5, 8, 16, 17, 71, 72, 99])
def test_a_stream_scores_every_token_but_the_first_once(
    seq_len: int, tokens: Tokens, pairs: Callable
) -> None:
    rows = pack(tokens, "stream", seq_len)
    ids = tokens.ids.tolist()
    assert pairs(rows) == list(pairwise(ids))
    assert [len(rows[i].tokens) for i in range(len(rows) - 1)] == [seq_len + 1] * (len(rows) - 1)
    assert rows[0].documents is None and rows[0].positions is None and rows[0].tokens.dtype == np.int64


@pytest.mark.parametrize("packing", ["documents", "none"])
@pytest.mark.parametrize("seq_len", [1, 2, 3, 5, 8, 16, 17, 20, 99])
def test_documents_lose_no_label_and_predict_no_other_document(
    packing: str, seq_len: int, tokens: Tokens, pairs: Callable
) -> None:
    rows = pack(tokens, packing, seq_len)
    assert Counter(pairs(rows)) == Counter(in_documents(tokens))
    for i in range(len(rows)):
        row = rows[i]
        n_documents = 1 if row.documents is None else len(set(row.documents.tolist()))
        assert 0 < len(row.tokens) - n_documents <= seq_len


def test_packed_documents_are_told_apart_and_begin_at_position_0(tokens: Tokens) -> None:
    rows = pack(tokens, "documents", 16)
    assert any(len(set(rows[i].documents.tolist())) > 2 for i in range(len(rows)))
    for i in range(len(rows)):
        row = rows[i]
        for document in set(row.documents.tolist()):
            inside = np.flatnonzero(row.documents == document)
            assert row.positions[inside].tolist() == list(range(len(inside)))
            assert inside.tolist() == list(range(inside[0], inside[0] + len(inside)))


def test_a_document_without_packing_is_a_row(tokens: Tokens) -> None:
    rows = pack(tokens, "none", 20)
    assert [len(rows[i].tokens) for i in range(len(rows))] == [
        3,
        20,
        8,
        7,
        2,
        9,
        17,
        5,
    ]  # one of 1 has no label
    assert all(rows[i].documents is None for i in range(len(rows)))


def test_a_long_document_goes_on_with_the_token_before_its_next_label() -> None:
    starts, lengths = pieces(np.array([0, 11, 12, 14]), seq_len=4)
    assert list(zip(starts.tolist(), lengths.tolist())) == [(0, 5), (4, 5), (8, 3), (12, 2)]


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
@pytest.mark.parametrize("score_prompt", [True, False])
def test_labels_are_counted_as_the_objective_scores_them(
    packing: str, score_prompt: bool, char: Tokenizer, pairs: Callable
) -> None:
    documents = [Document("a" * n, "q" * (n // 2)) for n in LENGTHS]
    tokens = Encoder(char, score_prompt=score_prompt).gather(documents)
    rows = pack(tokens, packing, 7)
    assert rows.labels().tolist() == [len(pairs([rows[i]])) for i in range(len(rows))]
    if not score_prompt:
        assert rows.labels().sum() == sum(n + 1 for n in LENGTHS)  # the answer and its EOS


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
@pytest.mark.parametrize("seq_len", [1, 2, 5, 8, 16, 17, 20, 72, 99])
def test_rows_that_are_not_shifted_hold_every_token_once(packing: str, seq_len: int, tokens: Tokens) -> None:
    rows = pack(tokens, packing, seq_len, shifted=False)
    found = [rows[i] for i in range(len(rows))]
    held = np.concatenate([row.tokens for row in found])
    assert sorted(held.tolist()) == sorted(tokens.ids.tolist())  # each token of these is another
    if packing != "documents":
        assert held.tolist() == tokens.ids.tolist()
    assert max(len(row.tokens) for row in found) <= seq_len
    assert rows.labels().tolist() == [len(row.tokens) for row in found] == rows.sizes()[:, 0].tolist()


def test_a_document_of_a_single_token_is_a_row_that_is_not_shifted() -> None:
    starts, lengths = pieces(np.array([0, 11, 12, 14]), seq_len=4, shift=0)
    assert list(zip(starts.tolist(), lengths.tolist())) == [(0, 4), (4, 4), (8, 3), (11, 1), (12, 2)]


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_labels_that_are_not_shifted_are_those_that_may_be_scored(packing: str, char: Tokenizer) -> None:
    documents = [Document("a" * n, "q" * (n // 2)) for n in LENGTHS]
    tokens = Encoder(char, score_prompt=False).gather(documents)
    rows = pack(tokens, packing, 7, shifted=False)
    assert rows.labels().tolist() == [int(rows[i].score.sum()) for i in range(len(rows))]
    assert rows.labels().sum() == sum(n + 1 for n in LENGTHS)


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_the_size_of_a_row_is_how_many_tokens_are_read(packing: str, tokens: Tokens) -> None:
    from tfcli.objective.causal_lm import CausalLM

    rows = pack(tokens, packing, 9)
    read = [CausalLM()([rows[i]]).inputs.shape[1] for i in range(len(rows))]
    assert rows.sizes().tolist() == [[n, 0] for n in read]


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_rows_that_no_feed_draws_have_a_place_without_seed_and_epoch(packing: str, tokens: Tokens) -> None:
    for shifted in (True, False):
        rows = pack(tokens, packing, 9, shifted)
        assert [rows[i].place for i in range(len(rows))] == [(0, 0, i) for i in range(len(rows))]


def test_best_fit_fills_groups_and_forgets_none() -> None:
    sizes = np.random.default_rng(0).integers(1, 65, 2000)
    groups = best_fit(sizes, 64)
    assert sorted(i for group in groups for i in group) == list(range(2000))
    assert max(int(sizes[group].sum()) for group in groups) <= 64
    assert len(groups) <= 1.02 * sizes.sum() / 64
    assert groups == best_fit(sizes, 64)


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_each_document_has_one_eos_label_where_bos_is_eos(
    packing: str,
    ready: Callable,
    listed: type,
    char: Tokenizer,
    pairs: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(char, "bos_id", char.eos_id)
    monkeypatch.setattr("tfcli.data.cache.BATCH", 200)
    texts = [f"{i} " + "x" * i for i in range(30)]
    for source in (listed(texts, held=["a", "b"], packing=p) for p in ("documents", packing)):  # one cache
        made = ready(source)
    rows = [made.train.blocks[i] for i in range(len(made.train.blocks))]
    found = pairs(rows)
    assert sum(label == char.eos_id for _, label in found) == len(texts)
    assert sum(given == char.eos_id for given, _ in found) == len(texts)  # each is predicted from its first
    assert (char.eos_id, char.eos_id) not in found
    if packing == "stream":
        ids = made.train.blocks.tokens.ids.tolist()
        assert ids[0] == char.eos_id and ids.count(char.eos_id) == len(texts) + 1
