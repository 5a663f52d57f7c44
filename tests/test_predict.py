"""What encoders say of texts, from models whose every score is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tfcli.batch import PAD, Batch
from tfcli.data.records import Window, encode_question
from tfcli.errors import ConfigError
from tfcli.predict import Settings, answer, best_span, classify, fill, masked, tag, vectors
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Bpe, Byte, Char, Unigram, WordPiece

HOW = Settings(top_n=3, batch_size=2)
TEXT = "the cat sat on the mat. a dog sat on the log! they said that she is the best, so it goes\n" * 20


class Knowing(nn.Module):
    """An encoder that scores each row by a rule of its tokens and segments, whatever its padding."""

    family = "encoder"

    def __init__(
        self, says: str, rule: Callable[[list[int], list[int]], Tensor], context: int | None = None
    ) -> None:
        super().__init__()
        self.head, self.rule, self.context = SimpleNamespace(says=says), rule, context
        self.weight = nn.Parameter(torch.zeros(1))
        self.rows: list[list[int]] = []
        self.sizes: list[int] = []

    def forward(self, batch: Batch) -> Tensor:
        assert not self.training
        there = torch.ones_like(batch.inputs) if batch.positions is None else batch.positions != PAD
        segments = torch.zeros_like(batch.inputs) if batch.segments is None else batch.segments
        self.sizes.append(len(there))
        out = []
        for ids, kinds, n in zip(batch.inputs, segments, there.sum(1).tolist()):
            self.rows.append(ids[:n].tolist())
            scores = self.rule(ids[:n].tolist(), kinds[:n].tolist())
            if self.head.says not in ("class", "vector"):
                missing = batch.inputs.shape[1] - n
                fill_ = (0, missing) if self.head.says == "span" else (0, 0, 0, missing)
                scores = nn.functional.pad(scores, fill_, value=7.0 if self.head.says != "span" else -1e30)
            out.append(scores)
        return torch.stack(out)


def trained(recipe: type = Char, **settings: Any) -> Tokenizer:
    return recipe(extra=("<mask>",), **settings).train([TEXT])


# --- masks --------------------------------------------------------------------------------------------------


def filler(tokenizer: Tokenizer, likely: list[str]) -> Knowing:
    """At every place the same tokens are likely, the first of them the most."""
    ids = [tokenizer.encode(token)[-1] for token in likely]
    scores = torch.full((tokenizer.vocab_size + 3,), -9.0)  # a table that is wider than the tokenizer
    scores[-3:] = 9.0
    for rank, token in enumerate(ids):
        scores[token] = 2.0 - rank
    return Knowing("tokens", lambda row, kinds: scores.repeat(len(row), 1))


def test_each_mask_has_its_likeliest_tokens_in_order() -> None:
    tokenizer = trained()
    model = filler(tokenizer, ["e", "a", "o", "i"])
    texts = ["th[MASK] c[MASK]t", "[MASK]", "s<mask>t"]
    done = list(fill(model, tokenizer, texts, HOW))
    assert [d.text for d in done] == texts and [len(d.slots) for d in done] == [2, 1, 1]
    assert [d.filled for d in done] == ["the cet", "e", "set"]
    for slot in (slot for d in done for slot in d.slots):
        assert [c.token for c in slot] == ["e", "a", "o"]
        assert [c.id for c in slot] == [tokenizer.encode(t)[0] for t in "eao"]
        assert 0 < sum(c.probability for c in slot) < 1
        assert slot[0].probability / slot[1].probability == pytest.approx(math.e, rel=1e-4)
    assert model.sizes == [2, 1]
    head, tail, mask = [tokenizer.bos_id], [tokenizer.eos_id], tokenizer.mask_id
    assert model.rows[1] == [*head, mask, *tail]
    bare = filler(tokenizer, ["e"])
    list(fill(bare, tokenizer, ["[MASK]"], HOW, bos=False, eos=False))
    assert bare.rows == [[mask]]


@pytest.mark.parametrize("recipe", [Char, Byte, Bpe, Unigram, WordPiece])
def test_a_mask_stands_where_the_token_of_a_word_would_stand(recipe: type) -> None:
    settings = {} if recipe in (Char, Byte) else {"vocab_size": 700}
    tokenizer = trained(recipe, **settings)
    for text, word in (("the [MASK] sat", "cat"), ("[MASK] cat", "the"), ("on the [MASK]!", "log")):
        whole = text.replace("[MASK]", word)
        row, ids = masked(tokenizer, text, 0), tokenizer.encode(whole)
        at = row.index(tokenizer.mask_id)
        assert row[:at] == ids[:at] and tokenizer.decode(row).startswith(whole[: whole.index(word)].rstrip())
        if recipe in (Bpe, Unigram):  # whose words hold the blank before them
            assert row[at + 1 :] == ids[len(ids) - len(row) + at + 1 :]
        assert recipe is not Bpe or len(row) == len(ids)
        assert row[at + 1 :] == tokenizer.encode(text.partition("[MASK]")[2])


def test_what_cannot_be_filled_is_refused_by_its_number() -> None:
    tokenizer = trained()
    model = filler(tokenizer, ["e"])
    model.context = 9
    for texts, said in (
        (["[MASK]", "cat"], r"text 2 has no \[MASK\]"),
        (["[MASK]", "[MASK]" + "a" * 9], "text 2 has 12 tokens.*9 positions"),
    ):
        with pytest.raises(ConfigError, match=said):
            fill(model, tokenizer, texts, HOW)
    with pytest.raises(ConfigError, match="no mask token"):
        fill(model, Char().train([TEXT]), ["[MASK]"], HOW)
    assert model.rows == []


def test_broken_weights_are_told() -> None:
    tokenizer = trained()
    broken = Knowing("tokens", lambda row, kinds: torch.full((len(row), tokenizer.vocab_size), math.nan))
    with pytest.raises(ConfigError, match="NaN"):
        list(fill(broken, tokenizer, ["[MASK]"], HOW))


# --- classes and tags ---------------------------------------------------------------------------------------


def test_a_class_comes_with_the_probabilities_of_all() -> None:
    tokenizer = trained()
    a, b = (tokenizer.encode(letter)[0] for letter in "ab")

    def rule(row: list[int], kinds: list[int]) -> Tensor:
        return torch.tensor([float(row.count(a)), float(row.count(b)), 2.0 * sum(kinds)])

    model = Knowing("class", rule)
    pairs = [("aab", None), ("bbb", None), ("a", "b"), ("", None), ("ba", None)]
    done = list(classify(model, tokenizer, ["x", "y", "z"], pairs, HOW))
    assert [d.label for d in done] == ["x", "y", "z", "x", "x"]  # of equals the first
    assert [(d.text, d.second) for d in done] == pairs
    for one in done:
        shares = list(one.probabilities.values())
        assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True)
        assert next(iter(one.probabilities)) == one.label and set(one.probabilities) == {"x", "y", "z"}
    assert done[0].probabilities["x"] == pytest.approx(math.exp(2) / (math.exp(2) + math.e + 1))
    assert sum(model.sizes) == 5 and max(model.sizes) == 2
    model.context = 6
    with pytest.raises(ConfigError, match=r"text 2 has 7 tokens.*6 positions"):
        list(classify(model, tokenizer, ["x", "y", "z"], [("a", "b"), ("aa", "bb")], HOW))


def test_a_text_has_the_same_vector_alone_and_in_company() -> None:
    tokenizer = trained()

    def rule(row: list[int], kinds: list[int]) -> Tensor:
        return torch.tensor([float(sum(row)), float(len(row)), float(row[0])])

    model, texts = Knowing("vector", rule), ["cat", "", "the mat", "a"]
    done = list(vectors(model, tokenizer, texts, HOW))
    assert [d.text for d in done] == texts and model.sizes == [2, 2]
    rows = [[tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id] for text in texts]
    assert [d.vector for d in done] == [[sum(row), len(row), row[0]] for row in rows]
    assert [next(vectors(model, tokenizer, [text], HOW)) for text in texts] == done
    (bare,) = vectors(model, tokenizer, ["cat"], HOW, bos=False, eos=False)
    assert bare.vector[1] == done[0].vector[1] - 2
    model.context, model.rows = 8, []
    with pytest.raises(ConfigError, match="text 3 has 9 tokens.*8 positions"):
        vectors(model, tokenizer, texts, HOW)
    assert model.rows == []


LABELS = ["O", "B-cat", "I-cat", "B-dog"]


def tagger(tokenizer: Tokenizer, by_letter: dict[str, int]) -> Knowing:
    """A token's tag is its letter's; a word's is so that of its first letter."""
    tags = {tokenizer.encode(letter)[0]: tag for letter, tag in by_letter.items()}

    def rule(row: list[int], kinds: list[int]) -> Tensor:
        return torch.stack([3.0 * torch.eye(len(LABELS))[tags.get(token, 0)] for token in row])

    return Knowing("tags", rule)


def test_words_have_the_tag_of_their_first_token_and_tags_make_entities() -> None:
    tokenizer = Char(extra=()).train([TEXT])
    model = tagger(tokenizer, {"c": 1, "s": 2, "d": 3})
    sentences = [["cat", "sat", "on"], ["log", "dog", "sat"], ["o"], ["c"] * 11]
    bare = Tokenizer(tokenizer.backend, tokenizer.special)
    bare.encode_many = lambda words: tokenizer.encode_many(
        [word.strip() for word in words]
    )  # one token a letter
    done = list(tag(model, bare, LABELS, sentences, HOW, limit=8))
    assert [d.tags for d in done[:3]] == [["B-cat", "I-cat", "O"], ["O", "B-dog", "I-cat"], ["O"]]
    assert [d.words for d in done] == sentences and done[3].tags == ["B-cat"] * 11
    p = math.exp(3) / (math.exp(3) + 3)
    assert all(score == pytest.approx(p) for d in done for score in d.scores)
    assert [(e.kind, e.text, e.first, e.last) for e in done[0].entities] == [("cat", "cat sat", 0, 1)]
    assert [(e.kind, e.text, e.first, e.last) for e in done[1].entities] == [
        ("dog", "dog", 1, 1),
        ("cat", "sat", 2, 2),
    ]
    assert done[0].entities[0].score == pytest.approx(p) and len(done[3].entities) == 11
    assert max(map(len, model.rows)) == 8  # longer sentences are read in several rows
    with pytest.raises(ConfigError, match="text 2 has no words"):
        list(tag(model, bare, LABELS, [["cat"], []], HOW, limit=8))


# --- answers ------------------------------------------------------------------------------------------------


def reader(tokenizer: Tokenizer, first: str, last: str) -> Knowing:
    """An answer begins where the text spells `first` and ends where it spells `last`."""
    starts, ends = (tokenizer.encode(letter)[0] for letter in (first, last))

    def rule(row: list[int], kinds: list[int]) -> Tensor:
        scores = torch.tensor([[9.0 * (token == wanted) for token in row] for wanted in (starts, ends)])
        scores[:, 0] += 19.0  # a model that would rather not answer
        return scores

    return Knowing("span", rule)


def test_an_answer_is_a_piece_of_its_context() -> None:
    tokenizer = Byte().train()
    contexts = ["日本 cat! and so on", "no letters", "!c", " cat !"]
    done = list(
        answer(reader(tokenizer, "c", "!"), tokenizer, [("who c!", c) for c in contexts], HOW, limit=64)
    )
    for context, one in zip(contexts, done):
        assert 0 <= one.start < one.end <= len(context) and one.answer == context[one.start : one.end]
        assert one.answer.strip() and 0 < one.score <= 1 and one.question == "who c!"
    assert done[0].answer == "cat!" and (done[0].start, done[0].end) == (3, 7)
    assert done[0].score > 0.9 and done[1].score < 0.05


def test_a_long_context_is_read_in_windows_and_the_best_of_them_answers() -> None:
    tokenizer = Byte().train()
    context = "x" * 300 + "cat!" + "y" * 200
    model = reader(tokenizer, "c", "!")
    (one,) = answer(model, tokenizer, [("who?", context)], HOW, limit=60)
    assert (one.start, one.end, one.answer) == (300, 304, "cat!")
    assert len(model.rows) > 8 and max(map(len, model.rows)) <= 60


@pytest.mark.parametrize("seed", range(5))
def test_the_best_span_is_that_of_all_pairs_in_order_within_the_context(seed: int) -> None:
    tokenizer = Byte().train()
    context = "the cat 日 sat \n on  it"
    windows = encode_question(tokenizer, "q?", context, 24)
    assert len(windows) > 1
    generator = torch.Generator().manual_seed(seed)
    scores = [4 * torch.randn(2, len(w.tokens), generator=generator) for w in windows]
    total, best = 0.0, (-math.inf, (0, 0))
    for window, (starts, ends) in zip(windows, scores):
        for i, j in itertools.combinations_with_replacement(range(len(starts)), 2):
            pieces = [context[a:b].strip() for a, b in (window.spans[i], window.spans[j]) if a >= 0]
            if len(pieces) == 2 and all(pieces):
                score = (starts[i] + ends[j]).item()
                total += math.exp(score)
                best = max(best, (score, (int(window.spans[i, 0]), int(window.spans[j, 1]))))
    found = best_span(windows, context, scores)
    assert (found.start, found.end) == best[1] and found.score == pytest.approx(best[0])
    assert found.share == pytest.approx(math.exp(best[0]) / total, rel=1e-5)


def test_nothing_but_context_can_be_an_answer() -> None:
    spans = np.array([[-1, -1], [-1, -1], [0, 2], [2, 3], [3, 5], [-1, -1]])
    window = Window(np.arange(6), np.zeros(6, dtype=np.int64), spans)
    for i, j in itertools.product(range(6), repeat=2):
        scores = torch.zeros(2, 6)
        scores[0, i] = scores[1, j] = 50.0
        start, end, _, probability = best_span([window], "ab cd", [scores])
        assert 0 <= start < end <= 5 and "ab cd"[start:end].strip() and 0 < probability <= 1
        if i <= j and {i, j} <= {2, 4}:
            assert (start, end) == (spans[i, 0], spans[j, 1]) and probability > 0.99


def test_a_context_without_text_is_refused() -> None:
    tokenizer = Byte().train()
    for context in ("", " \n "):
        with pytest.raises(ConfigError, match="context 2 has no text"):
            list(answer(reader(tokenizer, "c", "!"), tokenizer, [("a", "b"), ("a", context)], HOW, limit=64))
