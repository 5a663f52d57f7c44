"""Beam search finds what that of `transformers` finds, with the same scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from model import published
from stubs import chaotic
from test_search import ALPHAS, RAGGED, found, midway, openings, same
from torch import nn

from tfcli.constraints import Constraints
from tfcli.opening import Opening
from tfcli.search import Hypothesis, Ranking

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

LIMIT = 9
EARLY = ("never", False, True)


def gpt2() -> tuple[nn.Module, Any]:
    """A tiny GPT-2 of transformers, and ours with its weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    v, d, h, n = published.V, published.D, published.H, published.CONTEXT
    config = GPT2Config(
        vocab_size=v, n_embd=d, n_head=h, n_layer=2, n_positions=n, bos_token_id=0, eos_token_id=1
    )
    theirs = published.shaken(GPT2LMHeadModel(config))
    size = [
        f"size.{key}={value}"
        for key, value in {"d_ff": 4 * d, "n_heads": h, "n_layers": 2, "context": n}.items()
    ]
    ours = published.cases.model_of({"preset": "gpt2"}, *size)
    have = theirs.state_dict()
    names = {"embedding.table.weight": "wte.weight", "stack.positions.0.table.weight": "wpe.weight"}
    names |= {"stack.final_norm.gain": "ln_f.weight", "stack.final_norm.bias": "ln_f.bias"}
    parts = {"attention.branch.qkv": "attn.c_attn", "attention.branch.out": "attn.c_proj"}
    parts |= {"ffn.branch.up": "mlp.c_fc", "ffn.branch.down": "mlp.c_proj"}
    for i in range(2):
        for own, their in parts.items():
            for kind in ("weight", "bias"):
                names[f"stack.layers.{i}.{own}.{kind}"] = f"h.{i}.{their}.{kind}"
        for own, their in (("attention", "ln_1"), ("ffn", "ln_2")):
            names[f"stack.layers.{i}.{own}.norms.0.gain"] = f"h.{i}.{their}.weight"
            names[f"stack.layers.{i}.{own}.norms.0.bias"] = f"h.{i}.{their}.bias"
    with torch.no_grad():
        for name, tensor in ours.named_parameters():  # tied ones once
            found = have["transformer." + names[name]]
            tensor.copy_(found if found.shape == tensor.shape and "c_proj" not in names[name] else found.T)
    return ours.eval(), theirs


PAIRS = {"gpt2": gpt2, "t5": published.t5, "bart": published.bart, "marian": published.marian,
         "t5_1_1": partial(published.t5, gated=True)}  # fmt: skip


def theirs_finds(
    theirs: Any, given: Opening, eos: int | Sequence[int], width: int, n_best: int, alpha: float, **rules: Any
) -> list:
    """(score, ids without padding) by transformers."""
    source, ends = given.source, [eos] if isinstance(eos, int) else list(eos)
    config = theirs.generation_config
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 0, ends, 0
    config.forced_bos_token_id = config.forced_eos_token_id = config.bad_words_ids = None
    ids = torch.tensor([given.ids])
    what = {"input_ids": ids if source is None else torch.tensor([source])}
    what["attention_mask"] = torch.ones_like(what["input_ids"])
    config.decoder_start_token_id = 0
    how = {"max_new_tokens": LIMIT, "do_sample": False, "length_penalty": alpha, "early_stopping": "never"}
    how |= {"output_scores": True, "return_dict_in_generate": True, "num_return_sequences": n_best}
    out = theirs.generate(**what, **how | {"num_beams": width} | rules)
    texts = []
    for sequence, score in zip(out.sequences, out.sequences_scores):
        new = sequence[len(given.ids) :].tolist()
        length = next((i + 1 for i, token in enumerate(new) if token in ends), LIMIT)
        texts.append((score.item(), new[:length]))
    return texts


@pytest.mark.parametrize("name", PAIRS)
def test_beam_search_equals_that_of_transformers(name: str) -> None:
    ours, theirs = PAIRS[name]()
    one = openings(ours, LIMIT)[0]
    eos, ended = midway(ours, one), set()
    for alpha, width in zip(ALPHAS, (4, 2, 4, 3, 4)):
        rules = Constraints(ends=(eos,))
        (mine,) = found(ours, [one], width, width, Ranking(alpha), rules=rules, vocab_size=published.V)
        same(mine, theirs_finds(theirs, one, eos, width, width, alpha), 1e-4)
        ended |= {text.finish for text in mine}
    assert "eos" in ended


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_constraints_equal_those_of_transformers(name: str) -> None:
    ours, theirs = PAIRS[name]()
    one = openings(ours, LIMIT)[0]
    for n, least in ((1, 0), (2, 5), (3, 0)):
        eos = midway(ours, one, Constraints(no_repeat=n, suppress=(3, 0)))
        rules = Constraints(ends=(eos,), no_repeat=n, least=least, suppress=(3, 0))
        (mine,) = found(ours, [one], 3, 3, rules=rules, vocab_size=published.V)
        how = {"no_repeat_ngram_size": n, "min_new_tokens": least, "suppress_tokens": [0, 3]}
        same(mine, theirs_finds(theirs, one, eos, 3, 3, 1.0, **how), 1e-4)


# --- several ends -----------------------------------------------------------------------------------------


def several(model: nn.Module, opening: Opening) -> tuple[int, ...]:
    """Three tokens that beams come by, early and late: each is one of a text that those before do not end."""
    ends: list[int] = []
    for place in (6, 4, 2):
        (texts,) = found(model, [opening], 4, 4, rules=Constraints(ends=tuple(ends)), vocab_size=published.V)
        tokens = [token for text in texts for token in text.ids[place:] if token not in ends]
        ends.append(next(iter(tokens), place))
    return tuple(ends)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("least", [0, 4])
def test_beams_end_at_any_of_several_tokens_as_those_of_transformers(name: str, least: int) -> None:
    ours, theirs = PAIRS[name]()
    ended = set()
    for one in openings(ours, LIMIT):
        ends = several(ours, one)
        for alpha, width in ((1.0, 4), (0.0, 2), (2.0, 3), (-1.0, 4)):
            rules = Constraints(ends=ends, least=least)
            (mine,) = found(ours, [one], width, width, Ranking(alpha), rules=rules, vocab_size=published.V)
            same(mine, theirs_finds(theirs, one, ends, width, width, alpha, min_new_tokens=least), 1e-4)
            ended |= {ends.index(text.ids[-1]) for text in mine if text.finish == "eos"}
            assert all(len(text.ids) > least for text in mine)
    assert len(ended) > (name != "marian")  # whose bias of logits knows but one


def test_with_several_ends_as_many_beams_go_on() -> None:
    """All but one token end a text: of 2 W candidates none need be left to go on with."""
    ours, theirs = gpt2()
    one, ends = openings(ours, LIMIT)[0], tuple(range(2, published.V))
    (mine,) = found(ours, [one], 4, 4, rules=Constraints(ends=ends), vocab_size=published.V)
    same(mine, theirs_finds(theirs, one, ends, 4, 4, 1.0), 1e-4)


# --- when a search ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bart", "t5"])
def test_a_search_ends_when_that_of_transformers_does(name: str) -> None:
    ours, theirs = PAIRS[name]()
    differ: set[tuple] = set()
    for one in openings(ours, LIMIT):
        ends = several(ours, one)[:2]
        for alpha, width, n_best in ((1.0, 4, 4), (2.0, 3, 1), (0.6, 2, 2), (-1.0, 3, 2)):
            by_early = {}
            for early in EARLY:
                ranking, rules = Ranking(alpha, early=early), Constraints(ends=ends)
                (mine,) = found(ours, [one], width, n_best, ranking, rules=rules, vocab_size=published.V)
                right = theirs_finds(theirs, one, ends, width, n_best, alpha, early_stopping=early)
                same(mine, right, 1e-4)
                by_early[early] = [text.ids for text in mine]
            differ |= {
                pair for pair in ((False, "never"), (True, False)) if by_early[pair[0]] != by_early[pair[1]]
            }
    assert len(differ) >= (1 if name == "gpt2" else 2)  # each way found others than the next, somewhere


@pytest.mark.parametrize("early", EARLY)
def test_a_search_that_ends_early_knows_no_company(early: bool | str) -> None:
    model, given = chaotic(9), [Opening(row, LIMIT) for row in RAGGED]
    how = {"ranking": Ranking(0.6, early=early), "rules": Constraints(ends=(1, 3)), "vocab_size": 9}
    together = found(model, given, 3, 2, **how)
    assert [ids(texts) for texts in together] == [ids(found(model, [one], 3, 2, **how)[0]) for one in given]
    assert len({len(texts[0].ids) for texts in together}) > 1 and len(together) == len(RAGGED)


def ids(texts: list[Hypothesis]) -> list[list[int]]:
    return [text.ids for text in texts]


# --- what is forced ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bart", "marian"])
def test_forced_tokens_are_certain_where_they_do_not_count(name: str) -> None:
    ours, theirs = PAIRS[name]()
    one = openings(ours, LIMIT)[0]
    start = 7 if ours.family == "encoder_decoder" else None
    rules = Constraints(ends=(9,), start=start, end=9)
    for early, alpha in (("never", 1.0), (False, 2.0), (True, 0.5)):
        how = {"forced_bos_token_id": start, "forced_eos_token_id": 9, "early_stopping": early}
        right = theirs_finds(theirs, one, 9, 3, 3, alpha, **how)
        (free,) = found(
            ours, [one], 3, 3, Ranking(alpha, "length", early, False), rules=rules, vocab_size=published.V
        )
        same(free, right, 1e-4)
        (counted,) = found(
            ours, [one], 3, 3, Ranking(alpha, "length", early), rules=rules, vocab_size=published.V
        )
        assert counted[0].score < free[0].score - 0.01
