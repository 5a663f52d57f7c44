"""Decoders of Hugging Face folders say what `transformers` says, and leave as such folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from hub import decoders, parity
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tfcli import origin
from tfcli.errors import ConfigError
from tfcli.hub import names
from tfcli.hub.names import Name
from tfcli.model.position import alibi

pytest.importorskip("transformers")


@pytest.mark.parametrize(("name", "more"), decoders.CASES, ids=decoders.called)
def test_a_decoder_says_what_transformers_says(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    theirs = decoders.made(name, **more)
    loaded = origin.load(parity.folder_of(theirs, tmp_path))
    assert parity.gap(loaded, theirs) < parity.NEAR
    assert parity.gap(loaded, theirs, left=True) < parity.NEAR
    parity.same_greedy(loaded, theirs)


@pytest.mark.parametrize(("name", "more"), decoders.CASES, ids=decoders.called)
def test_a_decoder_leaves_as_it_came(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    theirs = decoders.made(name, **more)
    folder = parity.folder_of(theirs, tmp_path / "theirs")
    loaded = origin.load(folder)
    again = parity.same_when_written(loaded, theirs, folder, tmp_path / "ours")
    assert parity.gap(loaded, again) < parity.NEAR


FLIPS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("llama", {}, ["position.base=5000"]),
    ("llama", {}, ["position.interleaved=true"]),
    ("llama", {}, ["position.partial=0.5"]),
    ("llama", {}, ["position=none"]),
    ("llama", {}, ["norm.eps=1e-4"]),
    ("llama", {}, ["attention.scale=0.36"]),  # for 0.354
    ("llama", {}, ["ffn.activation=gelu"]),
    ("llama", {}, ["placement=sandwich"]),
    ("llama", {}, ["attention.qk_norm=head"]),
    ("llama", {"tie_word_embeddings": True}, ["head.cap=30"]),
    ("mistral", {}, ["attention.rule.size=7"]),
    ("mistral", {}, ["attention.rule.size=9"]),
    ("mistral", {}, ["attention=gqa"]),
    ("gemma", {}, ["embedding.scale=false"]),
    ("gemma", {}, ["norm.one_plus=false"]),
    ("gemma", {}, ["ffn.activation=gelu"]),
    ("gemma", {}, ["attention.scale=0.354"]),  # by d_model / n_heads, for head_dim
    ("gemma", {}, ["norm.eps=1e-4"]),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, ["attention=qwen2"]),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
     ["attention.sliding.rule.size=7"]),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
     ["attention.pattern=[full,full,sliding]"]),
    ("qwen2", {}, ["position.base=20000"]),
    ("qwen2", {}, ["attention.bias=false"]),
    ("olmo2", {}, ["placement=pre"]),
    ("olmo2", {}, ["attention.qk_norm=null"]),
    ("olmo2", {}, ["attention.qk_norm=head"]),
    ("olmo2", {}, ["norm.eps=1e-4"]),
    ("gpt_neox", {}, ["placement=pre"]),
    ("gpt_neox", {"use_parallel_residual": False}, ["placement=parallel"]),
    ("gpt_neox", {}, ["position.partial=1.0"]),
    ("gpt_neox", {}, ["position.partial=0.25"]),
    ("gpt_neox", {}, ["position.interleaved=true"]),
    ("gpt_neox", {"hidden_size": 64, "intermediate_size": 256}, ["ffn.activation=gelu_tanh"]),
    ("gpt_neox", {}, ["norm.eps=1e-4"]),
    ("bloom", {}, ["position=none"]),
    ("bloom", {}, ["embedding.norm=false"]),
    ("bloom", {"hidden_size": 60}, ["ffn.activation=gelu"]),
    ("bloom", {}, ["attention.scale=0.51"]),  # for 0.5
    ("bloom", {}, ["norm.eps=1e-4"]),
    ("gpt2", {"n_embd": 64}, ["ffn.activation=gelu"]),
    ("gpt2", {"n_embd": 64, "activation_function": "gelu"}, ["ffn.activation=gelu_tanh"]),
    ("gpt2", {"scale_attn_weights": False}, ["attention.scale=null"]),
    ("gpt2", {}, ["attention.scale=0.36"]),
    ("gpt2", {}, ["embedding.scale=true"]),
    ("gpt2", {}, ["norm.eps=1e-3"]),
]  # fmt: skip


@cache
def pair(name: str, more: tuple[tuple[str, Any], ...]) -> tuple[Any, nn.Module, Path]:
    """A model in both forms, and its folder."""
    theirs = decoders.made(name, **dict(more))
    where = parity.folder_of(theirs, Path(mkdtemp()))
    return origin.load(where), theirs, where


@pytest.mark.parametrize(("name", "more", "changes"), FLIPS, ids=decoders.called)
def test_another_choice_is_seen(name: str, more: dict[str, Any], changes: list[str]) -> None:
    loaded, theirs, where = pair(name, tuple(more.items()))
    assert parity.gap(loaded, theirs) < parity.NEAR
    assert parity.gap(decoders.flipped(loaded, where, *changes), theirs) > parity.FAR
