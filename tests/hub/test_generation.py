"""generation_config.json: under it our texts are those of `transformers`, or it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from model import published
from stubs import Pieces
from torch import nn

from tfcli.cli.generate import checked
from tfcli.compose import compose
from tfcli.errors import ConfigError
from tfcli.generate import Completion, completions
from tfcli.hub.generation import User, overrides
from tfcli.writing import Settings

FILE = "folder/generation_config.json"
TOKENS = Pieces(*(chr(0x4E00 + i) for i in range(published.V - 2)))  # each id but BOS and EOS is a character
OPTIONS: dict[str, Any] = {"--stop": [], "--stream": False}
ROWS = [[5, 6, 7, 8, 9], [4], [3, 9, 12]]
START = 5  # as of BART, a token that ends texts


def settings(words: list[str]) -> Settings:
    """As tf-generate makes them of these overrides."""
    return Settings(**checked(compose("generate", words), OPTIONS))


def of(said: dict[str, Any], start_id: int | None = None, **user: Any) -> list[str]:
    return overrides(said, TOKENS, FILE, start_id, User(**user))


# --- the same texts as transformers -----------------------------------------------------------------------

ENDS = {"eos_token_id": [5, 9, 20]}
SAID = {  # under which chance has no say
    "one end": {"eos_token_id": 9, "max_new_tokens": 9},
    "ends": {**ENDS, "max_new_tokens": 9},
    "lengths": {**ENDS, "max_length": 13, "min_length": 8},
    "new tokens": {**ENDS, "max_new_tokens": 7, "min_new_tokens": 3, "max_length": 50, "min_length": 20},
    "greedy": {**ENDS, "max_length": 15, "do_sample": False, "temperature": 0.2, "top_k": 3, "top_p": 0.4},
    "never": {**ENDS, "max_new_tokens": 8, "bad_words_ids": [[4], [13], [5]], "suppress_tokens": [20, 15]},
    "repeats": {**ENDS, "max_new_tokens": 12, "no_repeat_ngram_size": 2, "use_cache": False},
    "penalty": {**ENDS, "max_new_tokens": 10, "repetition_penalty": 1.8},
    "beams": {**ENDS, "num_beams": 4, "max_length": 12},
    "summary": {**ENDS, "num_beams": 3, "max_length": 14, "min_length": 9, "length_penalty": 2.0,
                "early_stopping": True, "no_repeat_ngram_size": 3, "num_return_sequences": 2},
    "exact": {**ENDS, "num_beams": 3, "max_length": 12, "length_penalty": 0.6, "early_stopping": "never"},
    "last": {**ENDS, "num_beams": 3, "max_new_tokens": 6, "forced_eos_token_id": 9, "length_penalty": 2},
}  # fmt: skip
SAID["renormalised"] = SAID["summary"] | {"bad_words_ids": [[4], [13], [6]], "renormalize_logits": True}
SAID["renormalised last"] = SAID["last"] | {"suppress_tokens": [4, 6, 8], "renormalize_logits": True}
FIRST = {"forced_bos_token_id": 7, "forced_eos_token_id": [9]}
OF_SOURCES = {**{name: SAID[name] for name in ("ends", "lengths", "beams", "summary", "last",
                                              "renormalised", "renormalised last")},
              "first renormalised": {**ENDS, **FIRST, "num_beams": 2, "max_length": 9,
                                     "renormalize_logits": True, "bad_words_ids": [[4], [6]]},
              "first": {**ENDS, **FIRST, "num_beams": 2, "max_length": 9, "num_return_sequences": 2},
              "one first": {**ENDS, **FIRST, "max_length": 9}}  # fmt: skip
Writers = tuple[nn.Module, Any]


@pytest.fixture(scope="module")
def decoder() -> Writers:
    pytest.importorskip("transformers")
    from test_search_published import gpt2

    return gpt2()


@pytest.fixture(scope="module", params=["bart", "t5", "marian"])
def both(request: pytest.FixtureRequest) -> Writers:
    pytest.importorskip("transformers")
    return getattr(published, request.param)()


def ours_writes(
    model: nn.Module, said: dict[str, Any], row: list[int], start_id: int | None
) -> list[Completion]:
    how = settings([*of(said, start_id), "bos=false", "eos=false"])
    if start_id is None:
        return list(completions(model, TOKENS, [row], how))
    sources = ["".join(TOKENS.pieces[i] for i in row)]
    return list(completions(model, TOKENS, None, how, sources=sources, start_id=start_id))


def theirs_writes(model: Any, said: dict[str, Any], row: list[int], start_id: int | None) -> list[tuple]:
    """(ids up to the first end, score)."""
    from transformers import GenerationConfig

    starts = {} if start_id is None else {"decoder_start_token_id": start_id}
    model.generation_config = GenerationConfig(**said, **starts, pad_token_id=0)
    given = torch.tensor([row])
    out = model.generate(
        given, attention_mask=torch.ones_like(given), return_dict_in_generate=True, output_scores=True
    )
    read, ends = len(row) if start_id is None else 1, said["eos_token_id"]
    ends = ends if isinstance(ends, list) else [ends]
    texts = []
    for sequence in out.sequences.tolist():
        new = sequence[read:]
        texts.append(new[: next((i + 1 for i, token in enumerate(new) if token in ends), len(new))])
    scores = out.sequences_scores.tolist() if said.get("num_beams", 1) > 1 else [None] * len(texts)
    return list(zip(texts, scores))


def alike(ours: list[Completion], theirs: list[tuple]) -> bool:
    """Whether the ids are the same; where there are scores, of as many texts as ours."""
    for mine, (ids, score) in zip(ours, theirs, strict=True):
        assert mine.ids == ids and (score is None or mine.score == pytest.approx(score, abs=1e-4))
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAID)
def test_a_decoder_writes_under_a_file_what_transformers_writes(decoder: Writers, name: str) -> None:
    ours, theirs = decoder
    for row in ROWS:
        assert alike(ours_writes(ours, SAID[name], row, None), theirs_writes(theirs, SAID[name], row, None))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_SOURCES)
def test_an_encoder_decoder_writes_under_a_file_what_transformers_writes(both: Writers, name: str) -> None:
    ours, theirs = both
    for row in ROWS:
        said = OF_SOURCES[name]
        assert alike(ours_writes(ours, said, row, START), theirs_writes(theirs, said, row, START))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "said",
    [
        {"do_sample": True},
        {"do_sample": True, "top_k": 0},
        {"do_sample": True, "top_k": None, "temperature": 0.6, "top_p": 0.9},
        {"do_sample": True, "top_k": 5, "temperature": 1.7, "min_p": 0.1},
        {"do_sample": True, "top_k": 12, "top_p": 0.7, "repetition_penalty": 1.4},
    ],
)
def test_a_token_is_drawn_from_the_distribution_of_transformers(
    decoder: Writers, said: dict[str, Any]
) -> None:
    from transformers import GenerationConfig

    _, theirs = decoder
    generator, read = torch.Generator().manual_seed(1), torch.tensor([[3, 9, 60]])
    logits = torch.randn(1, 80, generator=generator) * 3  # more than are drawn from unasked
    theirs.generation_config = GenerationConfig(**said)
    config, _ = theirs._prepare_generation_config(None)
    theirs._prepare_special_tokens(config)
    right = theirs._get_logits_processor(config, input_ids_seq_length=3)(read, logits.clone()).softmax(-1)
    sampler = settings(of(said)).sampler
    seen = torch.zeros(1, 80, dtype=torch.bool).scatter(1, read, True)
    from tfcli.sampler import RepetitionPenalty

    penalised = RepetitionPenalty(sampler.repetition_penalty or 1.0)(logits, seen)
    assert sampler.draws and torch.allclose(sampler.narrow(penalised).softmax(-1), right, atol=1e-6)
    assert int((right > 0).sum()) < 80 or said.get("top_k") == 0


# --- what a file says, as overrides -----------------------------------------------------------------------


def test_what_says_nothing_and_what_transformers_has_unasked_is_nothing() -> None:
    transformers = pytest.importorskip("transformers")
    unasked = transformers.GenerationConfig()._get_default_generation_params()
    del unasked["max_length"]  # which is in no file unless somebody meant it
    assert of({}) == of(unasked) == []
    assert of({name: None for name in transformers.GenerationConfig().to_dict()}) == []
    facts = {
        "transformers_version": "5.24.0",
        "_from_model_config": True,
        "pad_token_id": 0,
        "bos_token_id": 0,
    }
    assert of({**facts, "output_scores": True, "cache_implementation": "hybrid"}) == []


@pytest.mark.parametrize(
    "said, words",
    [
        ({"eos_token_id": 2}, ["ends=[2]"]),
        ({"eos_token_id": [1, 7]}, ["ends=[1,7]"]),
        ({"max_length": 20}, ["max_length=20"]),
        ({"eos_token_id": [5, 9], "bad_words_ids": [[4], [5]], "suppress_tokens": [3]},
         ["ends=[5,9]", "suppress=[3,4]"]),
        ({"max_length": 20, "max_new_tokens": 3}, ["max_new_tokens=3"]),
        ({"do_sample": True}, ["sampler.temperature=1.0", "sampler.top_k=50"]),
        ({"do_sample": False, "temperature": 0.0, "top_p": 7}, []),
        ({"temperature": 0.7, "top_p": 0.9}, []),
        ({"do_sample": True, "num_return_sequences": 3, "top_k": 0},
         ["sampler.temperature=1.0", "sampler.top_k=0", "n_samples=3"]),
        ({"num_beams": 4}, ["num_beams=4", "early_stopping=false"]),
        ({"num_beams": 4, "num_return_sequences": 2, "early_stopping": True, "length_penalty": 0.6},
         ["num_beams=4", "n_best=2", "length_penalty=0.6", "early_stopping=true"]),
        ({"length_penalty": 2.0, "early_stopping": True, "num_beams": 1}, []),
        ({"use_cache": False}, ["cache=false"]),
        ({"renormalize_logits": True}, []),
        ({"renormalize_logits": True, "num_beams": 2},
         ["num_beams=2", "early_stopping=false", "renormalise=true"]),
    ],
)  # fmt: skip
def test_a_file_is_overrides(said: dict[str, Any], words: list[str]) -> None:
    assert of(said) == words
    assert isinstance(settings(words), Settings)


@pytest.mark.parametrize(
    "said, why",
    [
        ({"penalty_alpha": 0.6}, "penalty_alpha=0.6: is not carried out"),
        ({"num_beam_groups": 2}, "num_beam_groups=2: .* must be 1"),
        ({"diversity_penalty": 0.5}, "diversity_penalty=0.5: .* must be 0"),
        ({"typical_p": 0.9}, "typical_p=0.9"),
        ({"epsilon_cutoff": 1e-3}, "epsilon_cutoff=0.001"),
        ({"eta_cutoff": 1e-3}, "eta_cutoff=0.001"),
        ({"guidance_scale": 1.5}, "guidance_scale=1.5"),
        ({"num_beams": 2, "renormalize_logits": "yes"}, "renormalize_logits='yes': must be true or false"),
        ({"num_beams": 24}, "num_beams=24: must be at most 23, the tokens"),
        ({"num_beams": 10**12}, "num_beams=1000000000000: must be at most 23"),
        ({"begin_suppress_tokens": [3]}, r"begin_suppress_tokens=\[3\]"),
        ({"exponential_decay_length_penalty": [5, 1.1]}, "exponential_decay_length_penalty"),
        ({"sequence_bias": [[[3], 2.0]]}, "sequence_bias"),
        ({"watermarking_config": {"bias": 2.0}}, "watermarking_config"),
        ({"encoder_no_repeat_ngram_size": 3}, "encoder_no_repeat_ngram_size=3"),
        ({"stop_strings": ["x"]}, "stop_strings"),
        ({"cache_implementation": "quantized"}, "cache_implementation='quantized'"),
        ({"chat_format": "chatml"}, "chat_format='chatml': is not carried out"),
        ({"max_windows": 0}, "max_windows=0"),
        ({"bad_words_ids": [[3, 4]]}, r"bad_words_ids=\[\[3, 4\]\]: only single tokens"),
        ({"forced_eos_token_id": [3, 4]}, r"forced_eos_token_id=\[3, 4\]: must be one token"),
        ({"forced_bos_token_id": 3}, "forced_bos_token_id=3: is only for encoder-decoders"),
        ({"eos_token_id": 23}, "eos_token_id=23: the tokenizer has 23 tokens"),
        ({"eos_token_id": [1, -1]}, r"eos_token_id=\[1, -1\]: must be a whole number at least 0 or a list"),
        ({"suppress_tokens": [99]}, r"suppress_tokens=\[99\]: the tokenizer has 23"),
        ({"bos_token_id": 4}, "bos_token_id=4: the tokenizer's is 0"),
        ({"do_sample": True, "temperature": 0.0}, "temperature=0.0: must be a number above 0"),
        ({"do_sample": "yes"}, "do_sample='yes': must be true or false"),
        ({"do_sample": True, "top_p": 1.2}, "top_p=1.2: must be a number at least 0 and at most 1"),
        ({"num_beams": 0}, "num_beams=0: must be a whole number at least 1"),
        ({"num_beams": 3, "early_stopping": "soon"}, "early_stopping='soon'"),
        ({"num_beams": 3, "length_penalty": 99}, "length_penalty=99"),
        (
            {"num_beams": 3, "do_sample": True},
            "do_sample=true: with num_beams=3 .* num_beams=1 or sampler=greedy",
        ),
        ({"num_return_sequences": 2}, "num_return_sequences=2: must be at most num_beams, or do_sample"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences=3"),
        (
            {"num_beams": 2, "repetition_penalty": 1.2},
            "repetition_penalty=1.2: is not carried out with beams",
        ),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
    ],
)
def test_what_is_not_carried_out_is_refused_by_file_field_and_value(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"{FILE}: {why}.*generation_config=false") as refused:
        of(json.loads(json.dumps(said)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "said, why",
    [
        ({"decoder_start_token_id": 3}, "decoder_start_token_id=3: texts of this model begin with token 2"),
        ({"decoder_start_token_id": [2, 2]}, r"decoder_start_token_id=\[2, 2\]"),
        ({"bos_token_id": 3}, "bos_token_id=3: texts of this model begin with token 2"),
        (
            {"repetition_penalty": 1.2, "eos_token_id": 2},
            "repetition_penalty=1.2: would hold the start token",
        ),
    ],
)
def test_an_encoder_decoder_begins_as_its_objective_does(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        of(said, 2)
    assert of({"decoder_start_token_id": 2, "bos_token_id": 3}, 2) == of({"bos_token_id": 2}, 2) == []
    assert of({"repetition_penalty": 1.2}, 2) == ["sampler.repetition_penalty=1.2"]


# --- the user wins ----------------------------------------------------------------------------------------

SAMPLES = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "num_return_sequences": 2}
BEAMS = {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "num_return_sequences": 3}


@pytest.mark.parametrize(
    "said, user, words, facts",
    [
        (SAMPLES, {"num_beams": 4}, ["num_beams=4"], {"num_beams": 4, "draws": False, "n_samples": 1}),
        (SAMPLES, {}, ["sampler=greedy"], {"draws": False, "n_samples": 1}),
        (SAMPLES, {"draws": True}, ["sampler=top_k"], {"draws": True, "n_samples": 2}),
        (SAMPLES, {"draws": True}, ["sampler.temperature=0.1"], {"draws": True, "n_samples": 2}),
        (SAMPLES, {"n_samples": 5}, ["n_samples=5"], {"draws": True, "n_samples": 5}),
        (SAMPLES, {}, ["sampler.temperature=0"], {"draws": False}),
        (BEAMS, {"num_beams": 1}, ["num_beams=1"], {"num_beams": 1, "n_samples": 1, "length_penalty": 1.0}),
        (BEAMS, {"num_beams": 2}, ["num_beams=2"], {"num_beams": 2, "n_best": 1, "early_stopping": True}),
        (BEAMS, {"num_beams": 6}, ["num_beams=6"], {"num_beams": 6, "n_best": 3, "length_penalty": 2.0}),
        (BEAMS, {"draws": True}, ["sampler=sample"], {"num_beams": 1, "draws": True, "n_samples": 3}),
        (BEAMS, {"draws": True}, ["sampler.top_k=5"], {"num_beams": 1, "draws": True}),
        (BEAMS, {"n_samples": 2}, ["n_samples=2"], {"num_beams": 1, "n_samples": 2}),
        (BEAMS, {}, ["n_best=1", "length_penalty=0.5"], {"n_best": 1, "length_penalty": 0.5, "num_beams": 4}),
        (ENDS, {"num_beams": 3}, ["num_beams=3"], {"num_beams": 3, "early_stopping": False}),
        (BEAMS, {}, ["early_stopping=never"], {"early_stopping": "never"}),
        (BEAMS | SAMPLES, {}, ["sampler=greedy"], {"num_beams": 4, "draws": False, "n_best": 2}),
        (BEAMS | SAMPLES, {"num_beams": 1}, ["num_beams=1"], {"num_beams": 1, "draws": True, "n_samples": 2}),
        (BEAMS | {"repetition_penalty": 2}, {"num_beams": 1}, ["num_beams=1"], {"num_beams": 1}),
        (BEAMS | {"repetition_penalty": 2}, {}, ["sampler.repetition_penalty=null"], {"num_beams": 4}),
        ({"max_length": 30}, {}, ["max_new_tokens=5"], {"max_new_tokens": 5, "max_length": None}),
        ({"max_new_tokens": 30}, {}, ["max_length=50"], {"max_new_tokens": None, "max_length": 50}),
        ({"min_length": 30}, {}, ["min_new_tokens=2"], {"min_new_tokens": 2, "min_length": 0}),
        ({"eos_token_id": [5, 9]}, {}, ["ends=[7]"], {"ends": (7,)}),
        ({"eos_token_id": [5, 9]}, {}, ["ends=null"], {"ends": None}),
        ({"forced_eos_token_id": 9}, {}, ["forced_end=null"], {"forced_end": None}),
        ({"num_beams": 2, "forced_eos_token_id": 9}, {}, ["count_forced=true"], {"count_forced": True}),
    ],
)  # fmt: skip
def test_the_users_keys_win(
    said: dict[str, Any], user: dict[str, Any], words: list[str], facts: dict
) -> None:
    keys = [word.partition("=")[0] for word in words]
    how = settings([*of(said, keys=keys, **user), *words])
    for name, value in facts.items():
        assert (how.sampler.draws if name == "draws" else getattr(how, name)) == value, name


@pytest.mark.parametrize(
    "said",
    [
        {"max_length": 10**13},
        {"max_new_tokens": 10**30},
        {"min_length": 10**30},
        {"do_sample": True, "num_return_sequences": 10**9},
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a whole number .* and at most 1e") as error:
        settings(of(said))
    assert "\n" not in str(error.value)
