"""Constraints: what each leaves, whoever else is in the batch."""

from __future__ import annotations

import random

import pytest
import torch
from stubs import Pieces, Scripted, chaotic, says
from torch import Tensor

from tfcli.batch import PAD
from tfcli.constraints import Constraints, NoRepeat, token_id
from tfcli.errors import ConfigError
from tfcli.generate import generate
from tfcli.sampler import Sampler
from tfcli.tokenizer.trained import Byte

V = 6
LETTERS = Pieces(*"abcdef")


def left(scores: Tensor) -> list[list[int]]:
    """Which tokens may follow in each row."""
    return [[i for i, x in enumerate(row) if x > -torch.inf] for row in scores.tolist()]


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])


def banned(row: list[int], n: int) -> set[int]:
    """By the definition: what would make the row's last n tokens come a second time."""
    grams = {tuple(row[i : i + n]) for i in range(len(row) - n + 1)}
    return {token for token in range(V) if (*row[len(row) - n + 1 :], token)[-n:] in grams} if row else set()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_ngram_comes_twice_in_rows_of_any_length(n: int) -> None:
    chance = random.Random(n)
    for _ in range(30):
        rows = [chance.choices(range(V), k=chance.randint(0, 12)) for _ in range(5)]
        rows[0] = rows[0] or [1]
        scores = NoRepeat(n)(padded(rows), torch.zeros(5, V))
        right = [[t for t in range(V) if len(row) < n - 1 or t not in banned(row, n)] for row in rows]
        assert left(scores) == right


def test_the_end_of_a_text_is_no_repetition() -> None:
    text = torch.tensor([[1, 2, 1, 2]])  # 1 begins texts, and ends them
    assert left(NoRepeat(1, ends=(1,))(text, torch.zeros(1, V))) == [[0, 1, 3, 4, 5]]
    assert left(NoRepeat(1)(text, torch.zeros(1, V))) == [[0, 3, 4, 5]]


def test_what_is_allowed_keeps_its_score_and_what_was_given_is_left_as_it_was() -> None:
    scores = torch.randn(2, V)
    before, last, text = scores.clone(), torch.tensor([False, True]), torch.tensor([[2, 3], [4, 5]])
    rules = Constraints(no_repeat=1, least=5, end=0, suppress=(0,), ends=(1,))
    out = rules(scores, 3, last, text)
    assert torch.equal(scores, before) and left(out) == [[4, 5], [0]]
    assert torch.equal(out[out > -torch.inf], before[out > -torch.inf])
    assert left(Constraints(start=2, suppress=(3,))(scores, 0, last)) == [[2], [2]]
    assert left(Constraints(start=2, suppress=(3,))(scores, 1, last)) == [[0, 1, 2, 4, 5]] * 2
    rules = Constraints(no_repeat=1, least=5, ends=(1, 3))
    assert left(rules(scores, 3, last, text)) == [[0, 4, 5], [0, 2]]
    assert left(rules(scores, 5, last, text)) == [[0, 1, 3, 4, 5], [0, 1, 2, 3]]


def test_no_end_comes_before_a_text_holds_so_many_tokens_whoever_else_is_in_the_batch() -> None:
    text, last = padded([[2], [2, 4, 5], [0, 2, 4, 5]]), torch.tensor([False] * 3)
    scores = Constraints(least_whole=4, ends=(1, 3))(torch.zeros(3, V), 1, last, text)
    assert left(scores) == [[0, 2, 4, 5], [0, 2, 4, 5], list(range(V))]


def test_what_is_forced_is_told_by_row() -> None:
    last = torch.tensor([False, True])
    assert Constraints(start=2, end=3).forces(0, last).tolist() == [True, True]
    assert Constraints(start=2, end=3).forces(1, last).tolist() == [False, True]
    assert Constraints(start=2).forces(1, last).tolist() == [False, False]


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"sampler": Sampler(temperature=1.0), "seed": 1}])
def test_every_way_of_writing_keeps_to_the_constraints(how: dict) -> None:
    model = chaotic(LETTERS.vocab_size)
    rules = {"no_repeat_ngram_size": 2, "min_new_tokens": 4, "forced_start": "c", "forced_end": "d"}
    rules |= {"suppress": ("a", 3, 0), "max_new_tokens": 9}
    prompts = ["abab", "", "f", "cc"]
    done = generate(model, LETTERS, prompts, **rules, **how)
    for one in done:
        whole = [0, *LETTERS.encode(one.prompt), *one.ids]
        n_old, n_free = len(whole) - len(one.ids), len(whole) - (one.finish_reason == "length")
        for i in range(n_old + 1, n_free):  # what is forced may come again
            assert whole[i] not in banned(whole[:i], 2)
        assert len(one.text) >= 4 and one.text[0] == "c" and not set(one.text) & {"a", "b"}
        assert one.finish_reason != "length" or one.text[-1] == "d"
    if "seed" not in how:
        assert done == [generate(model, LETTERS, [prompt], **rules, **how)[0] for prompt in prompts]


def test_the_end_may_come_only_after_so_many_tokens() -> None:
    model = says(LETTERS, {"a": []})  # EOS at once, and always
    for n in (0, 1, 3):
        (done,) = generate(Scripted(8, model_rule(model)), LETTERS, ["a"], min_new_tokens=n)
        assert (len(done.ids), done.finish_reason) == (n + 1, "eos")


def model_rule(model: Scripted):
    """EOS is the likeliest, then the others in order."""
    return lambda row: [5.0 if i == 1 else -float(i) for i in range(model.vocab_size)]


def test_the_last_token_is_forced_only_where_there_is_no_more_room() -> None:
    ends, goes_on = (generate(m, LETTERS, ["a"], max_new_tokens=4, forced_end="f")[0] for m in (
        says(LETTERS, {"a": ["b"]}), says(LETTERS, {"a": list("bcdebcd")})))  # fmt: skip
    assert (ends.text, ends.finish_reason) == ("b", "eos")
    assert (goes_on.text, goes_on.finish_reason) == ("bcdf", "length")
    (done,) = generate(says(LETTERS, {"a": list("bcdebcd")}), LETTERS, ["a"], max_new_tokens=4, forced_end=1)
    assert (done.text, done.finish_reason) == ("bcd", "eos")


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}])
def test_texts_with_different_room_are_each_forced_at_their_own_end(how: dict) -> None:
    model = chaotic(LETTERS.vocab_size, context=12)  # room for 4, 11 and 7 tokens
    prompts = ["abcdefab", "a", "abcde"]
    done = generate(model, LETTERS, prompts, ignore_eos=True, forced_end="f", **how)
    assert [len(one.ids) for one in done] == [4, 11, 7]
    assert all(LETTERS.decode(one.ids[-1:]) == "f" for one in done)
    free = generate(model, LETTERS, prompts, ignore_eos=True, **how)
    assert how or [one.ids[:-1] for one in free] == [one.ids[:-1] for one in done]


@pytest.mark.parametrize("how", [{}, {"num_beams": 2}, {"sampler": Sampler(temperature=1.0), "seed": 1}])
def test_a_text_ends_where_the_constraints_leave_nothing_and_says_so(how: dict) -> None:
    model = chaotic(LETTERS.vocab_size)
    rules = {"no_repeat_ngram_size": 1, "ignore_eos": True, "suppress": (0, 1)}
    done = generate(model, LETTERS, ["ab", "c"], max_new_tokens=20, **rules, **how)
    assert [(sorted(d.prompt + d.text), d.finish_reason) for d in done] == [
        (list("abcdef"), "constraints")
    ] * 2
    assert all(d.score is None or -100 < d.score < 0 for d in done)


@pytest.mark.parametrize(
    "rules, said",
    [
        ({"min_new_tokens": 9}, "min_new_tokens=9: there is room for 8"),
        ({"max_new_tokens": 1, "forced_start": "a", "forced_end": "b"}, "no room for both"),
        ({"forced_start": 1, "min_new_tokens": 1}, "forced_start"),
        ({"forced_start": "a", "suppress": ("a",)}, "forced_start: is token 2"),
        ({"forced_end": "a", "suppress": (2,)}, "forced_end: is token 2"),
        ({"suppress": tuple(range(8))}, "suppress: names all 8"),
        ({"forced_start": 8}, "forced_start=8: .*8 tokens"),
        ({"forced_start": "ab"}, "forced_start='ab'"),
        ({"forced_end": "z"}, "forced_end='z'"),
        ({"suppress": ("z",)}, "suppress='z'"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_read(rules: dict, said: str) -> None:
    model = chaotic(LETTERS.vocab_size)
    with pytest.raises(ConfigError, match=said):
        generate(model, LETTERS, ["a"], **({"max_new_tokens": 8} | rules))
    assert model.prompts == 0


def test_a_token_is_named_by_its_id_its_text_or_as_the_vocabulary_spells_it() -> None:
    tokenizer = Byte().train()
    space = tokenizer.encode(" ")[0]
    assert token_id(tokenizer, "<eos>", "x") == tokenizer.eos_id == token_id(tokenizer, tokenizer.eos_id, "x")
    assert token_id(tokenizer, " ", "x") == space == token_id(tokenizer, "Ġ", "x")
