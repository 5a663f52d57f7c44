"""Decoders say and write what `transformers` does on the same weights, to 1e-4 in fp32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from model import published_decoders as made
from model.published import cases, ragged
from torch import Tensor, nn

from tfcli.batch import Batch

pytest.importorskip("transformers")

Make = Callable[..., tuple[nn.Module, nn.Module]]
WINDOWS = partial(made.qwen2, windows=True)
ALL = [made.gemma, made.qwen2, WINDOWS, made.olmo2, made.qwen3, made.phi3, made.gpt_neox]


def called(make: Make) -> str:
    return "qwen2_windows" if make is WINDOWS else getattr(make, "__name__", str(make))


def written(model: nn.Module, prompt: Tensor, n: int) -> tuple[list[int], Tensor]:
    """The n most probable tokens in turn, from cached steps, and the logits that they are of, (n, V)."""
    state, said, ids = model.begin(), [], prompt
    for _ in range(n):
        said.append(model.step(ids, state, last=True)[0, -1])
        ids = said[-1].argmax()[None, None]
    return [int(row.argmax()) for row in said], torch.stack(said)


@pytest.mark.parametrize("make", ALL, ids=called)
@torch.no_grad()
def test_a_decoder_equals_transformers(make: Make) -> None:
    ours, theirs = make()
    tokens = cases.ids(2, 20, seed=12)
    assert (ours(Batch(tokens)) - theirs(input_ids=tokens).logits).abs().max() < 1e-4


@pytest.mark.parametrize("make", ALL, ids=called)
@torch.no_grad()
def test_a_decoder_equals_transformers_with_padding(make: Make) -> None:
    ours, theirs = make()
    lengths = [12, 10]  # beyond phi3's 8: there the whole batch has one kind of factor
    tokens, mask, positions = ragged(2, 12, lengths)
    right = theirs(input_ids=tokens, attention_mask=mask).logits
    assert (ours(Batch(tokens, positions=positions)) - right)[mask.bool()].abs().max() < 1e-4


@pytest.mark.parametrize("make", ALL, ids=called)
@torch.no_grad()
def test_a_decoder_writes_what_transformers_writes(make: Make) -> None:
    ours, theirs = make()
    prompt = cases.ids(1, 5, seed=14)
    theirs.generation_config.eos_token_id = None
    told = {"do_sample": False, "max_new_tokens": 40, "output_logits": True, "return_dict_in_generate": True}
    right = theirs.generate(prompt, **told)
    ids, logits = written(ours, prompt, 40)
    assert ids == right.sequences[0, 5:].tolist()
    assert (logits - torch.cat(right.logits)).abs().max() < 1e-4


FLIPS = [
    (made.gemma, "embedding=plain"),
    (made.gemma, "norm.one_plus=false"),
    (made.gemma, "ffn=geglu"),
    (made.qwen2, "position.base=10000"),
    (WINDOWS, "attention.pattern=[full,full,sliding]"),
    (made.olmo2, "position.base=10000"),
    (made.olmo2, "norm.eps=1e-3"),
    (made.qwen3, "attention.scale=1.0"),
    (made.phi3, "position.factor=2.0"),
    (made.phi3, "position.long_factor=null"),
    (made.phi3, "position.attention_factor=1.0"),
    (made.gpt_neox, "placement=pre"),
    (made.gpt_neox, "position.partial=1.0"),
    (made.gpt_neox, "position.interleaved=true"),
    (made.gpt_neox, "ffn=gelu_tanh"),
]


@pytest.mark.parametrize(("make", "flip"), FLIPS, ids=lambda value: value if isinstance(value, str) else "")
@torch.no_grad()
def test_one_choice_flipped_is_seen(make: Make, flip: str) -> None:
    ours, theirs = make(flip)
    tokens = cases.ids(2, 20, seed=12)
    assert (ours(Batch(tokens)) - theirs(input_ids=tokens).logits).abs().max() > 1e-4
