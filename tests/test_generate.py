"""Completions: of a scripted model whose every token is known, and of real decoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from model import published
from stubs import Pieces, Scripted, chaotic, says
from torch import Tensor, nn

from tfcli import build, choices
from tfcli.batch import PAD, Batch
from tfcli.cli.door import compose
from tfcli.data.records import encode_source
from tfcli.errors import ConfigError
from tfcli.generate import Completion, generate
from tfcli.sampler import Sampler
from tfcli.tokenizer.trained import Bpe, Byte

LETTERS = Pieces(*"abcdefgh", "##", "#x", "#", "\n", " ", "one\ntwo")


def texts(completions: list[Completion]) -> list[str]:
    return [completion.text for completion in completions]


# --- ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [True, False])
def test_each_row_ends_by_its_own_reason_and_the_others_go_on(cache: bool) -> None:
    model = says(LETTERS, {"a": list("bcd"), "bb": list("cdefgh"), "ccc": ["d", "##", "#x"], "dddd": []})
    done = generate(model, LETTERS, ["a", "bb", "ccc", "dddd"], max_new_tokens=5, stop=("###",), cache=cache)
    assert texts(done) == ["bcd", "cdefg", "d", ""]
    assert [d.finish_reason for d in done] == ["eos", "length", "stop", "eos"]
    assert [len(d.ids) for d in done] == [4, 5, 1, 1]  # EOS counts; what the stop string cuts does not
    assert [d.prompt for d in done] == ["a", "bb", "ccc", "dddd"]


def test_a_row_that_is_done_costs_nothing_more() -> None:
    model = says(LETTERS, {"a": [], "b": ["c"], "c": list("abcdefgh")})
    generate(model, LETTERS, ["a", "b", "c"], max_new_tokens=8)
    assert model.tokens == 2 + 6  # b and c read one token together, c six more alone


@pytest.mark.parametrize(
    "script, stop, text, reason, n_ids",
    [
        (["a", "##", "#x", "b"], ("###",), "a", "stop", 1),  # spread over tokens
        (["a", "one\ntwo", "b"], ("\n",), "aone", "stop", 1),  # within one
        (["##", "a"], ("###",), "##a", "eos", 3),  # a beginning only
        (["a", "##"], ("###",), "a##", "eos", 3),  # a beginning at the end
        (["a", "b", "c"], ("bc", "b"), "a", "stop", 1),
        (["##", "#x"], ("###",), "", "stop", 0),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_text_ends_before_the_stop_string(
    script: list[str], stop: tuple, text: str, reason: str, n_ids: int, streaming: bool
) -> None:
    heard = []
    on_text = (lambda number, piece: heard.append(piece)) if streaming else None
    (done,) = generate(says(LETTERS, {"h": script}), LETTERS, ["h"], stop=stop, on_text=on_text)
    assert (done.text, done.finish_reason, len(done.ids)) == (text, reason, n_ids)
    if streaming:
        assert "".join(heard) == text and "" not in heard


def test_a_stop_string_in_the_prompt_stops_nothing() -> None:
    model = says(LETTERS, {"a##": ["#", "b"]})
    assert texts(generate(model, LETTERS, ["a##"], stop=("###", "##"))) == ["#b"]


def test_generation_can_go_past_the_end_of_text() -> None:
    (done,) = generate(says(LETTERS, {"a": ["b"]}), LETTERS, ["a"], max_new_tokens=4, ignore_eos=True)
    assert (done.text, done.finish_reason, len(done.ids)) == ("b", "length", 4)


def test_ids_beyond_the_tokenizer_are_never_chosen() -> None:
    rule = says(LETTERS, {"a": list("bcd")}).rule
    wide = Scripted(LETTERS.vocab_size + 9, lambda row: [*rule(row), *[50.0] * 9])
    assert texts(generate(wide, LETTERS, ["a"])) == ["bcd"]
    (done,) = generate(wide, LETTERS, ["a"], sampler=Sampler(temperature=1e-3), seed=0)
    assert done.text == "bcd"


@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"sampler": Sampler(temperature=1e-3), "seed": 1}])
def test_each_of_several_tokens_ends_a_text_and_stands_in_none(way: dict) -> None:
    model = says(LETTERS, {"a": list("bcd"), "bb": ["h", "\n", "c"], "ccc": ["d", "e"]})
    known, how = model.rule, {"max_new_tokens": 6, **way}

    def rule(row: list[int]) -> list[float]:  # beams also come by what no script says
        try:
            return known(row)
        except KeyError:
            return [0.0] * LETTERS.vocab_size

    model.rule = rule
    done = generate(model, LETTERS, ["a", "bb", "ccc"], ends=("c", "\n", 1), **how)
    assert texts(done) == ["b", "h", "de"] and {d.finish_reason for d in done} == {"eos"}
    assert [LETTERS.pieces[d.ids[-1]] for d in done] == ["c", "\n", "<eos>"]
    assert [d.text for d in done] == [
        generate(model, LETTERS, [p], ends=("c", "\n", 1), **how)[0].text for p in ("a", "bb", "ccc")
    ]
    (past,) = generate(model, LETTERS, ["a"], ends=("d",), ignore_eos=True, **how)
    assert (past.text, past.finish_reason, len(past.ids)) == ("bcd", "length", 6)


def test_where_the_ends_are_said_the_tokenizers_own_is_none_of_them() -> None:
    model = says(LETTERS, {"a": ["b"]})  # and EOS for ever
    for ends, n, reason in (((2,), 5, "length"), ((), 5, "length"), (None, 2, "eos"), ((2, 1), 2, "eos")):
        (done,) = generate(model, LETTERS, ["a"], max_new_tokens=5, ends=ends)
        assert (len(done.ids), done.finish_reason) == (n, reason)


def test_a_stream_leaves_its_end_out_as_well() -> None:
    model, heard = says(LETTERS, {"a": list("bcd")}), []
    how = {"ends": ("d",), "on_text": lambda number, piece: heard.append(piece)}
    (done,) = generate(model, LETTERS, ["a"], **how)
    assert (done.text, "".join(heard), LETTERS.pieces[done.ids[-1]]) == ("bc", "bc", "d")


def test_an_end_that_is_no_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="ends='zz': must be one token"):
        generate(chaotic(LETTERS.vocab_size), LETTERS, ["a"], ends=("zz",))


# --- prompts ---------------------------------------------------------------------------------------------


def test_an_empty_prompt_starts_from_bos_and_shifts_no_other() -> None:
    model = says(LETTERS, {"": ["h"], "a": ["b"], "b": ["c"]})
    assert texts(generate(model, LETTERS, ["a", "", "b"])) == ["b", "h", "c"]
    assert generate(model, LETTERS, []) == []


def test_an_empty_prompt_without_a_bos_token_is_refused_by_its_number() -> None:
    tokenizer = Pieces(*"abc")
    tokenizer.bos_id = None
    with pytest.raises(ConfigError, match="prompt 2 is empty.*BOS"):
        generate(chaotic(5), tokenizer, ["a", ""])
    with pytest.raises(ConfigError, match="gives no token"):
        generate(chaotic(5), tokenizer, ["zz"])


def test_bos_is_read_once() -> None:
    read = []
    tokenizer = Pieces(*"abc")
    model = Scripted(5, lambda row: read.append(row[:]) or [0.0, 1.0, 0.0, 0.0, 0.0])
    generate(model, tokenizer, ["ab"])
    tokenizer.encode = lambda text: [0, 2, 3]  # as files do whose text may hold special tokens
    generate(model, tokenizer, ["<bos>ab"])
    assert read == [[0, 2, 3], [0, 2, 3]]


def test_a_model_whose_texts_have_no_bos_reads_it_for_an_empty_prompt_only() -> None:
    read = []
    model = Scripted(5, lambda row: read.append(row[:]) or [0.0, 1.0, 0.0, 0.0, 0.0])
    generate(model, Pieces(*"abc"), ["ab", ""], bos=False)
    assert read == [[2, 3], [0]]


def test_a_prompt_of_ids_is_read_as_it_is() -> None:
    read = []
    model = Scripted(5, lambda row: read.append(row[:]) or [0.0, 1.0, 0.0, 0.0, 0.0])
    done = generate(model, Pieces(*"abc"), [[0, 2, 3], [2]], bos=True)
    assert read == [[0, 2, 3], [2]] and [d.prompt for d in done] == [None, None]
    with pytest.raises(ConfigError, match="prompt 2 has no token"):
        generate(model, Pieces(*"abc"), [[2], []])


@pytest.mark.parametrize("beams", [1, 3])
def test_the_length_of_a_whole_text_counts_what_is_read_first(beams: int) -> None:
    model, how = chaotic(LETTERS.vocab_size), {"ignore_eos": True, "num_beams": beams}
    done = generate(model, LETTERS, ["aaaa", "a", ""], max_length=7, **how)
    assert [len(d.ids) for d in done] == [2, 5, 6]  # with BOS
    sources = generate(both("t5"), LETTERS, sources=["aaaa", "a"], start_id=0, max_length=7, **how)
    assert [len(d.ids) for d in sources] == [6, 6]  # with the start token
    with pytest.raises(ConfigError, match="max_length=5: leaves no room after a prompt of 5 tokens; .* 6"):
        generate(model, LETTERS, ["aaaa", "a"], max_length=5, **how)
    with pytest.raises(ConfigError, match="max_length=18: .* 17 positions.*16; must be at most 17"):
        generate(chaotic(LETTERS.vocab_size, context=16), LETTERS, ["a"], max_length=18, **how)
    with pytest.raises(ConfigError, match="max_new_tokens=3, max_length=9"):
        generate(model, LETTERS, ["a"], max_length=9, max_new_tokens=3, **how)
    with pytest.raises(ConfigError, match="min_length=9: must be at most max_length=8"):
        generate(model, LETTERS, ["a"], max_length=8, min_length=9, **how)


@pytest.mark.parametrize("how", [{}, {"num_beams": 3, "early_stopping": True}])
def test_a_text_ends_only_when_it_holds_so_many_tokens_whole(how: dict) -> None:
    model = Scripted(LETTERS.vocab_size, lambda row: [9.0 * (i == 1) - i for i in range(LETTERS.vocab_size)])
    how |= {"min_length": 6, "max_new_tokens": 9}
    prompts = ["aaaaaaa", "aa", ""]
    done = generate(model, LETTERS, prompts, **how)
    assert [len(d.ids) for d in done] == [1, 4, 6]  # EOS follows 8, 3 + 3 and 1 + 5 tokens
    assert [d.ids for d in done] == [generate(model, LETTERS, [p], **how)[0].ids for p in prompts]
    copier = Copier()
    copier.scores = lambda rows, length: torch.tensor([model.rule(row) for row in rows])[:, None]
    written = generate(copier, LETTERS, sources=["ab"], start_id=7, **how)
    assert [len(d.ids) for d in written] == [6]  # the start token counts, and five more


@pytest.mark.parametrize(
    "n_prompt, n_new, fits",
    [(10, 20, False), (16, 1, True), (16, 2, False), (17, 1, False), (8, 9, True), (8, 10, False)],
)
def test_what_is_longer_than_the_table_is_refused_up_front(n_prompt: int, n_new: int, fits: bool) -> None:
    model = chaotic(LETTERS.vocab_size, context=16)
    prompts = ["a", "a" * (n_prompt - 1)]  # and BOS
    if fits:
        generate(model, LETTERS, prompts, max_new_tokens=n_new)
    else:
        with pytest.raises(ConfigError, match=rf"{n_prompt} tokens.*\b16\b"):
            generate(model, LETTERS, prompts, max_new_tokens=n_new)
        assert model.prompts == 0


def test_without_a_number_of_new_tokens_a_text_fills_the_table() -> None:
    model = chaotic(LETTERS.vocab_size, context=16)
    done = generate(model, LETTERS, ["a" * 5, "a"], ignore_eos=True)
    assert [len(d.ids) for d in done] == [11, 15]
    assert len(generate(chaotic(LETTERS.vocab_size), LETTERS, ["a"], ignore_eos=True)[0].ids) == 128


# --- company, chance and cache ---------------------------------------------------------------------------

PROMPTS = ["abc", "a", "hgfedcba", "bb", "", "abc", "dd d"]
SAMPLERS = {
    "greedy": Sampler(),
    "sample": Sampler(temperature=0.9),
    "filtered": Sampler(top_k=9, top_p=0.9, min_p=0.01),
    "penalty": Sampler(repetition_penalty=1.8),
    "penalty_sample": Sampler(temperature=1.0, repetition_penalty=0.7),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_a_completion_is_the_same_alone_and_in_company(name: str, batch_size: int) -> None:
    how = {"sampler": SAMPLERS[name], "seed": 3, "max_new_tokens": 12, "stop": ("ab", "#")}
    model = chaotic(LETTERS.vocab_size)
    together = generate(model, LETTERS, PROMPTS, n_samples=3, batch_size=batch_size, **how)
    apart = generate(model, LETTERS, PROMPTS, n_samples=3, batch_size=4, cache=False, **how)
    assert together == apart
    assert [d.prompt for d in together] == [p for p in PROMPTS for _ in range(3)]


def test_a_seed_gives_the_same_text_and_samples_differ() -> None:
    model, how = chaotic(LETTERS.vocab_size), {"sampler": Sampler(temperature=1.5), "ignore_eos": True}
    first = generate(model, LETTERS, ["a", "a"], n_samples=3, seed=7, **how)
    assert first == generate(model, LETTERS, ["a", "a"], n_samples=3, seed=7, **how)
    assert len({tuple(d.ids) for d in first}) == 6
    assert texts(first) != texts(generate(model, LETTERS, ["a", "a"], n_samples=3, seed=8, **how))


def test_without_a_seed_one_is_made_and_told_and_nobody_elses_chance_is_touched() -> None:
    model, how = chaotic(LETTERS.vocab_size), {"sampler": Sampler(temperature=1.5)}
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, other = (generate(model, LETTERS, ["a"], **how)[0] for _ in range(2))
    assert one.seed != other.seed and one.text != other.text
    assert generate(model, LETTERS, ["a"], seed=one.seed, **how) == [one]
    assert torch.equal(torch.get_rng_state(), before)
    assert generate(model, LETTERS, ["a"])[0].seed is None


@pytest.mark.parametrize("name", ["greedy", "sample"])
def test_a_longer_limit_only_goes_on(name: str) -> None:
    model, how = chaotic(LETTERS.vocab_size), {"sampler": SAMPLERS[name], "seed": 1, "ignore_eos": True}
    ids = [generate(model, LETTERS, ["abc"], max_new_tokens=n, **how)[0].ids for n in (20, 30, 40)]
    assert ids[2][:20] == ids[1][:20] == ids[0] and ids[2][:30] == ids[1]


def test_a_prompt_is_read_once_for_all_its_samples() -> None:
    model = chaotic(LETTERS.vocab_size)
    generate(model, LETTERS, ["abc", "a"], n_samples=4, max_new_tokens=2, sampler=Sampler(temperature=1.0))
    assert model.prompts == 2


def test_the_prompt_counts_as_seen_and_padding_does_not() -> None:
    tokenizer = Pieces(*"abcd")  # b is the likeliest, then a, then BOS (which pads, too)
    model = Scripted(6, lambda row: [2.8, -9.0, 2.9, 3.0, 0.0, -9.0])
    how = {"sampler": Sampler(repetition_penalty=1.2), "max_new_tokens": 1}
    tokenizer.bos_id = None
    assert texts(generate(model, tokenizer, ["b", "cccc"], **how)) == ["a", "b"]
    ids = [d.ids for d in generate(model, tokenizer, ["ab", "cccc"], **how)]
    assert ids == [[0], [3]]  # token 0 fills the first row's padding, and was not seen


def test_what_was_written_counts_as_seen() -> None:
    tokenizer = Pieces(*"abcd")
    model = Scripted(6, lambda row: [-9.0, -9.0, 2.8, 2.6, 2.4, -9.0])
    how = {"sampler": Sampler(repetition_penalty=1.2), "max_new_tokens": 5}
    assert texts(generate(model, tokenizer, ["d"], **how)) == ["abcaa"]  # once seen, no matter how often


def test_streams_come_whole_and_in_order_of_their_completions() -> None:
    model = chaotic(LETTERS.vocab_size)
    heard: dict[int, str] = {}

    def hear(number: int, piece: str) -> None:
        heard[number] = heard.get(number, "") + piece

    how = {"sampler": Sampler(temperature=1.0), "n_samples": 2, "stop": ("ab",)}
    done = generate(model, LETTERS, PROMPTS, on_text=hear, **how)
    assert [heard.get(i, "") for i in range(len(done))] == texts(done)


@pytest.mark.parametrize("recipe", [Byte(), Bpe(vocab_size=300)])
@pytest.mark.parametrize("text", ["日本 👩‍👩‍👧 é", " a  b\n", "<eos>"])
def test_a_stream_of_any_script_comes_in_whole_characters(recipe: Any, text: str) -> None:
    tokenizer = recipe.train(["日本 some words"])
    prompt = tokenizer.encode("é a")
    script = [*tokenizer.encode(text), tokenizer.eos_id]
    heard: list[str] = []

    def rule(row: list[int]) -> list[float]:
        return [float(i == script[len(row) - 1 - len(prompt)]) for i in range(tokenizer.vocab_size)]

    model = Scripted(tokenizer.vocab_size, rule)
    (done,) = generate(model, tokenizer, ["é a"], on_text=lambda number, piece: heard.append(piece))
    assert "".join(heard) == done.text == text and done.ids == script
    assert "\ufffd" not in "".join(heard)
    assert [done] == generate(model, tokenizer, ["é a"])


def test_a_model_in_training_is_decoded_without_dropout_and_goes_back_to_training() -> None:
    model = says(LETTERS, {"a": ["b"]})
    model.frozen = nn.Dropout().eval()
    model.training = True
    assert texts(generate(model, LETTERS, ["a"])) == ["b"]  # its scores say that it is not training
    assert model.training and not model.frozen.training


def test_broken_weights_are_told_before_anything_is_written() -> None:
    model = Scripted(LETTERS.vocab_size, lambda row: [float("nan")] * LETTERS.vocab_size)
    with pytest.raises(ConfigError, match="NaN"):
        generate(model, LETTERS, ["a"])


def test_a_tokenizer_larger_than_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\b16 tokens.*\b9\b"):
        generate(chaotic(9), LETTERS, ["a"])


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="stop"):
        generate(chaotic(LETTERS.vocab_size), LETTERS, ["a"], stop=("",))


# --- real decoders ---------------------------------------------------------------------------------------

SIZE = {"d_model": 16, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "d_ff": 32, "context": 40}
CHOICES = [f"{group}={choice}" for group in ("position", "attention") for choice in choices.choices(group)]


def narrowed(node: Any) -> Any:
    """The same node, its windows and strides short enough to matter in a short text."""
    if isinstance(node, dict):
        return {k: 5 if k in ("size", "stride", "window") else narrowed(v) for k, v in node.items()}
    return node


def decoder(*overrides: str) -> nn.Module:
    """A decoder with opinions, in training mode and with dropout."""
    size = [f"size.{key}={n}" for key, n in SIZE.items()]
    config = compose("train", [*size, "size.dropout=0.3", *overrides])
    config.attention = narrowed(build.plain(config.attention))
    torch.manual_seed(0)
    model = build.model(config, LETTERS.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.mark.parametrize("choice", CHOICES)
def test_a_decoder_says_the_same_with_and_without_cache_alone_and_in_company(choice: str) -> None:
    model = decoder(choice)
    sampler = Sampler(temperature=1.0, top_p=0.95, repetition_penalty=1.1)
    how = {"sampler": sampler, "max_new_tokens": 12, "seed": 2}
    prompts = ["abcdefgh abcdefgh", "a", "", "dd d", "one\ntwo##"]
    together = generate(model, LETTERS, prompts, n_samples=2, **how)
    assert together == generate(model, LETTERS, prompts, n_samples=2, cache=False, **how)
    assert together == generate(model, LETTERS, prompts, n_samples=2, batch_size=1, **how)
    assert len({d.text for d in together}) > 5


def test_a_model_can_be_trained_after_it_was_decoded_in_training() -> None:
    model = decoder()
    generate(model, LETTERS, ["abc", "a"], max_new_tokens=3)
    model(Batch(torch.tensor([[1, 2, 3, 4, 5]]))).sum().backward()
    assert model.training and all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("cache", [True, False])
def test_texts_of_different_lengths_fill_the_same_table(cache: bool, beams: int) -> None:
    model, how = decoder("position=learned"), {"ignore_eos": True, "cache": cache, "num_beams": beams}
    done = generate(model, LETTERS, ["a" * 39, "a" * 30, "a"], **how)
    assert [len(d.ids) for d in done] == [1, 10, 39]  # with BOS and less the last one: 40 positions each
    with pytest.raises(ConfigError, match="41 tokens is too long: this model has 40 positions"):
        generate(model, LETTERS, ["a" * 40], **how)


# --- beams -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_beams_give_the_best_texts_of_each_prompt_best_first(batch_size: int) -> None:
    how = {"num_beams": 5, "max_new_tokens": 8, "length_penalty": 0.6, "batch_size": batch_size}
    model = chaotic(LETTERS.vocab_size)
    done = generate(model, LETTERS, PROMPTS, n_best=3, **how)
    assert [d.prompt for d in done] == [p for p in PROMPTS for _ in range(3)]
    scores = [[d.score for d in done[i : i + 3]] for i in range(0, len(done), 3)]
    assert all(its == sorted(its, reverse=True) for its in scores)
    assert len({(d.prompt, tuple(d.ids)) for d in done}) == 3 * len(set(PROMPTS))
    assert {d.finish_reason for d in done} == {"eos", "length"} and all(d.seed is None for d in done)
    best = generate(model, LETTERS, PROMPTS, **how)
    assert alike(best, done[::3]) and alike(best, generate(model, LETTERS, PROMPTS, cache=False, **how))


def test_beams_find_likelier_texts_than_greed_and_one_beam_is_greed() -> None:
    model, how = chaotic(LETTERS.vocab_size), {"max_new_tokens": 6, "ignore_eos": True}
    greedy = generate(model, LETTERS, PROMPTS, num_beams=1, **how)
    assert greedy == generate(model, LETTERS, PROMPTS, **how) and greedy[0].score is None
    beams = generate(model, LETTERS, PROMPTS, num_beams=8, **how)

    def total(ids: list[int], prompt: str) -> float:
        row = [0, *LETTERS.encode(prompt), *ids]
        steps = range(len(row) - len(ids), len(row))
        return sum(torch.tensor(model.rule(row[:i])).log_softmax(-1)[row[i]].item() for i in steps)

    totals = [[total(d.ids, d.prompt) for d in its] for its in (greedy, beams)]
    assert all(b >= g - 1e-6 for g, b in zip(*totals)) and sum(totals[1]) > sum(totals[0]) + 1
    assert [d.score for d in beams] == pytest.approx([t / 6 for t in totals[1]], abs=1e-5)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"num_beams": 2, "sampler": Sampler(temperature=0.5)}, "num_beams=2: .*sampler=greedy"),
        ({"num_beams": 2, "sampler": Sampler(repetition_penalty=1.5)}, "num_beams=2: .*repetition_penalty"),
        ({"num_beams": 2, "n_samples": 2}, "num_beams=2: n_samples=2"),
        ({"num_beams": 2, "stop": ("a",)}, "num_beams=2: stop"),
        ({"num_beams": 2, "on_text": print}, "num_beams=2: .*stream"),
        ({"num_beams": 2, "n_best": 3}, "n_best=3: must be at most num_beams=2"),
        ({"n_best": 2}, "n_best=2: must be at most num_beams=1"),
        ({"length_penalty": 0.5}, "length_penalty.*num_beams=1"),
        ({"length_norm": "gnmt"}, "length_norm.*num_beams=1"),
        ({"early_stopping": True}, "early_stopping.*num_beams=1"),
        ({"count_forced": False}, "count_forced.*num_beams=1"),
        ({"renormalise": True}, "renormalise.*num_beams=1"),
        ({"num_beams": 10**9}, "num_beams=1000000000: must be at most"),
    ],
)
def test_what_does_not_go_with_beams_is_refused(settings: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        generate(chaotic(LETTERS.vocab_size), LETTERS, ["a"], **settings)


def test_more_rows_than_memory_holds_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    how = {"n_samples": 10**6, "batch_size": 10**12, "sampler": Sampler(temperature=1.0), "max_new_tokens": 2}
    monkeypatch.setattr("tfcli.generate.memory", lambda: 1 << 20)
    with pytest.raises(ConfigError, match="batch_size=1000000000000: the scores of 1000000 texts at once"):
        generate(chaotic(LETTERS.vocab_size), LETTERS, ["a"], **how)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("x: can't allocate memory: 1\nat y"), torch.OutOfMemoryError("CUDA")],
)
@pytest.mark.parametrize("num_beams", [1, 2])
def test_memory_that_does_not_suffice_is_one_line(
    error: Exception, num_beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("tfcli.generate.search" if num_beams > 1 else "tfcli.generate.decode", fail)
    with pytest.raises(ConfigError, match=f"num_beams={num_beams}, batch_size=16: no memory") as told:
        generate(chaotic(LETTERS.vocab_size), LETTERS, ["a"], num_beams=num_beams)
    assert "\n" not in str(told.value)


# --- encoder-decoders ------------------------------------------------------------------------------------

SOURCES = ["abc", "", "hgfedcba", "b", "dd d", "abc"]
WAYS = {
    "greedy": {},
    "samples": {"sampler": Sampler(temperature=1.0, repetition_penalty=1.2), "seed": 2, "n_samples": 2},
    "beams": {"num_beams": 4, "n_best": 2},
}


def both(preset: str) -> nn.Module:
    """An encoder-decoder that heeds its source."""
    model = published.cases.model_of({"preset": preset}, *published.SIZE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= 10 if "cross_attention" in name and parameter.ndim > 1 else 1
        for buffer in model.buffers():
            buffer.zero_()  # BART's bias of logits, which knows no source
    return model


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("preset", ["t5", "bart"])
def test_an_encoder_decoder_writes_the_same_of_a_source_alone_and_in_company(preset: str, way: str) -> None:
    model = both(preset)
    how = {"start_id": 0, "max_new_tokens": 7, "no_repeat_ngram_size": 2, **WAYS[way]}
    together = generate(model, LETTERS, sources=SOURCES, **how)
    for batch in ({"batch_size": 1}, {"batch_size": 5, "cache": False}):
        assert alike(generate(model, LETTERS, sources=SOURCES, **how, **batch), together)
    each = len(together) // len(SOURCES)
    assert [d.source for d in together] == [s for s in SOURCES for _ in range(each)]
    assert all(d.prompt is None for d in together)
    assert len({tuple(d.ids) for d in together}) > 3
    if way != "samples":
        assert alike(together[:each], together[-each:])  # the same source


def alike(some: list[Completion], others: list[Completion]) -> bool:
    """Whether these are the same, but for the rounding of scores."""
    pairs = [(a.score, b.score) for a, b in zip(some, others) if a.score is not None]
    near = all(a == pytest.approx(b, abs=1e-4) for a, b in pairs)
    return near and [replace(a, score=None) for a in some] == [replace(b, score=None) for b in others]


class Copier(Scripted):
    """An encoder-decoder that writes its source; what its decoder reads is kept."""

    def __init__(self, vocab_size: int = LETTERS.vocab_size, room: int = 8) -> None:
        super().__init__(vocab_size, lambda row: [])
        self.family, self.source_context, self.read = "encoder_decoder", room, []

    def begin(self, source: Tensor, positions: Tensor | None = None) -> Any:
        state = super().begin()
        there = torch.ones_like(source) if positions is None else positions != PAD
        self.sources = [row[keep.bool()].tolist() for row, keep in zip(source, there)]
        return state

    def scores(self, rows: list[list[int]], length: int) -> Tensor:
        self.read.append([list(row) for row in rows])
        following = torch.tensor([[*source, 1][len(row) - 1] for row, source in zip(rows, self.sources)])
        scores = 9.0 * nn.functional.one_hot(following, self.vocab_size)
        return scores[:, None].expand(-1, length, -1)


def test_the_decoder_begins_with_the_start_token_which_is_not_printed() -> None:
    model, ends = Copier(), {"bos": False, "eos": False}
    (done,) = generate(model, LETTERS, sources=["abc"], start_id=7, **ends)
    assert (done.text, done.ids, done.finish_reason) == ("abc", [2, 3, 4, 1], "eos")
    assert model.read == [[[7]], [[7, 2]], [[7, 2, 3]], [[7, 2, 3, 4]]]
    assert model.sources == [[2, 3, 4]]


def test_sources_have_the_ends_they_had_in_training() -> None:
    for ends, source in (
        ({}, [0, 2, 1]),
        ({"bos": False}, [2, 1]),
        ({"eos": False}, [0, 2]),
        ({"bos": True, "eos": True}, [0, 2, 1]),
    ):
        model = Copier()
        generate(model, LETTERS, sources=["a"], start_id=0, max_new_tokens=1, **ends)
        assert model.sources == [source]


class Split(Pieces):
    """Writes by one vocabulary and reads by another, of the same ids."""

    reads = Pieces(*"cbadefgh", *LETTERS.pieces[10:])


def test_sources_are_read_by_the_tokenizer_of_sources_and_texts_written_by_the_other() -> None:
    tokenizer, model = Split(*LETTERS.pieces[2:]), Copier()
    (done,) = generate(model, tokenizer, ["c"], sources=["abcc"], start_id=7, bos=False, eos=False)
    assert model.sources == [[4, 3, 2, 2]] and model.read[0] == [[7, 4]]
    assert (done.source, done.prompt, done.text) == ("abcc", "c", "baa")
    assert encode_source(tokenizer, "abc") == [0, 4, 3, 2, 1]


def test_a_prompt_beside_a_source_is_how_its_text_begins() -> None:
    model = Copier()
    how = {"sources": ["abc"], "start_id": 7, "bos": False}
    (done,) = generate(model, LETTERS, ["a"], **how)
    assert (done.source, done.prompt, done.text) == ("abc", "a", "bc")
    assert model.read[0] == [[7, 2]]
    with pytest.raises(ConfigError, match="1 sources and 2 prompts"):
        generate(model, LETTERS, ["a", "b"], **how)


MASKS, SENTINELS = ("<mask>",), ("<extra_id_0>", "<extra_id_1>")


def written_of(recipe: Any, source: str, **how: Any) -> tuple[list[str], str]:
    """The tokens that are read of a source, and the text of a model that writes the same."""
    tokenizer = recipe.train(["a cat sat on the cat and the cat sat on a mat"] * 9)
    model = Copier(tokenizer.vocab_size, 99)
    how = {"sources": [source], "start_id": tokenizer.pad_id, "bos": False} | how
    (done,) = generate(model, tokenizer, **how)
    return [tokenizer.decode([i], skip_special=False) for i in model.sources[0]], done.text


@pytest.mark.parametrize("source", ["a [MASK]b<mask>", "a <mask>b[MASK]"])
def test_a_denoising_model_is_given_its_masks(source: str) -> None:
    read, text = written_of(Byte(extra=MASKS), source, special=MASKS)
    assert read == ["a", " ", "<mask>", "b", "<mask>", "<eos>"] and text == "a b"


@pytest.mark.parametrize("streamed", [False, True])
def test_sentinels_are_read_and_those_that_are_written_are_shown(streamed: bool) -> None:
    heard: list[str] = []
    how = {"on_text": lambda number, piece: heard.append(piece)} if streamed else {}
    source = "a<extra_id_0>é<extra_id_1> <extra_id_2>"  # the last is no token of the objective
    recipe = Byte(extra=(*MASKS, *SENTINELS, "<extra_id_2>"))
    read, text = written_of(recipe, source, special=SENTINELS, **how)
    assert text == source and "".join(heard) == (source if streamed else "")
    assert [piece for piece in read if len(piece) > 1] == [*SENTINELS, "<eos>"]
    (beams,) = written_of(recipe, source, special=SENTINELS, num_beams=2)[1:]
    assert beams == source
    stopped = written_of(recipe, source, special=SENTINELS, stop=("<extra_id_1>",))[1]
    assert stopped == "a<extra_id_0>é"


def test_the_blank_before_a_mask_is_the_masked_words_where_words_hold_theirs() -> None:
    bpe = Bpe(vocab_size=300, extra=MASKS)
    read, _ = written_of(bpe, "a [MASK] sat", special=MASKS)
    assert read == ["a", "<mask>", " sat", "<eos>"]
    assert written_of(Byte(extra=MASKS), "a [MASK]", special=MASKS)[0] == ["a", " ", "<mask>", "<eos>"]


@pytest.mark.parametrize("source", ["a [MASK]", "<mask>", "<extra_id_0>"])
def test_without_special_tokens_of_the_objective_all_of_a_source_is_text(source: str) -> None:
    read, text = written_of(Byte(extra=(*MASKS, *SENTINELS)), source)
    assert read == [*source, "<eos>"] and text == source


def test_a_mask_for_a_model_that_knows_none_is_refused_with_what_it_knows() -> None:
    said = r"source 1 has \[MASK\], .* no mask token; write <extra_id_0>, <extra_id_1>"
    with pytest.raises(ConfigError, match=said):
        written_of(Byte(extra=(*MASKS, *SENTINELS)), "a [MASK]", special=SENTINELS)


def test_the_start_token_counts_as_nothing_seen() -> None:
    model = Copier()
    model.scores = lambda rows, length: torch.tensor([[0.0] * 7 + [3.0, 2.9] + [0.0] * 7])[:, None]
    how = {"max_new_tokens": 1, "start_id": 7, "sampler": Sampler(repetition_penalty=2.0)}
    assert generate(model, LETTERS, sources=["a"], **how)[0].ids == [7]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"prompts": ["a"]}, "writes from sources"),
        ({"sources": ["a"], "start_id": None}, "start_id"),
        ({"sources": ["a", "abcdefgh"]}, r"source 2 has 10 tokens.*8 positions"),
    ],
)
def test_an_encoder_decoder_says_what_it_wants(given: dict, said: str) -> None:
    model = Copier()
    with pytest.raises(ConfigError, match=said):
        generate(model, LETTERS, **({"start_id": 0} | given))
    assert model.read == []


def test_an_encoder_decoder_writes_no_more_than_its_decoder_has_positions_for() -> None:
    model = both("bart")  # 32 positions
    how = {"sources": ["a"], "start_id": 0, "ignore_eos": True}
    done = generate(model, LETTERS, **how)
    assert len(done[0].ids) == 32 and done == generate(model, LETTERS, cache=False, **how)
    assert len(generate(model, LETTERS, num_beams=2, **how)[0].ids) == 32
    with pytest.raises(ConfigError, match="max_new_tokens=33: with the start token that is 33 positions"):
        generate(model, LETTERS, max_new_tokens=33, **how)


def test_a_decoder_reads_no_source_and_an_encoder_writes_nothing() -> None:
    model = chaotic(LETTERS.vocab_size)
    with pytest.raises(ConfigError, match="a decoder goes on from prompts"):
        generate(model, LETTERS, sources=["a"], start_id=0)
    model.family = "encoder"
    with pytest.raises(ConfigError, match="an encoder writes no text"):
        generate(model, LETTERS, ["a"])


@pytest.mark.parametrize("way", WAYS)
def test_the_tokens_of_a_prefix_see_each_other(way: str) -> None:
    model, how = decoder("position=learned"), {"max_new_tokens": 8, **WAYS[way]}
    prompts = ["abcdefgh", "a", "dd d"]
    together = generate(model, LETTERS, prompts, prefix=True, **how)
    assert alike(together, generate(model, LETTERS, prompts, prefix=True, cache=False, **how))
    assert alike(together, generate(model, LETTERS, prompts, prefix=True, batch_size=1, **how))
    assert not alike(together, generate(model, LETTERS, prompts, **how))
