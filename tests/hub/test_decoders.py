"""Decoders of Hugging Face folders say what `transformers` says, and leave as such folders."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable
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
from tfcli.checkpoint import Loaded
from tfcli.errors import ConfigError
from tfcli.hub import Architecture, architecture
from tfcli.hub.names import Name
from tfcli.hub.weights import found
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


CLOSE = ("ffn.activation=gelu", "ffn.activation=gelu_tanh")  # of each other, so that a flip moves less


@cache
def pair(name: str, more: tuple[tuple[str, Any], ...]) -> tuple[Loaded, nn.Module, Path]:
    """A model in both forms, and its folder, which nobody changes."""
    theirs = decoders.made(name, **dict(more))
    where = parity.folder_of(theirs, Path(mkdtemp()))
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    return origin.load(where), theirs, where


@pytest.mark.parametrize(("name", "more", "changes"), FLIPS, ids=decoders.called)
def test_another_choice_is_seen(name: str, more: dict[str, Any], changes: list[str]) -> None:
    loaded, theirs, where = pair(name, tuple(more.items()))
    assert parity.gap(loaded, theirs) < parity.NEAR / 10
    seen = 3 * parity.NEAR if changes[0] in CLOSE and name not in ("llama", "gemma") else parity.FAR
    assert parity.gap(decoders.flipped(loaded, where, *changes), theirs) > seen


def test_other_slopes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pair("bloom", ())[1]
    monkeypatch.setattr(alibi, "slopes", lambda n: [2 ** (-8 * h / n) for h in range(1, n + 1)])
    assert parity.gap(origin.load(pair("bloom", ())[2]), theirs) > parity.FAR


@pytest.mark.parametrize(
    ("name", "form"), [("bloom", "by_head"), ("gpt_neox", "by_head"), ("gpt2", "transposed")]
)
def test_weights_that_lie_otherwise_are_seen(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, theirs, where = pair(name, ())
    table = architecture(name).names
    assert any(isinstance(entry, Name) and entry.form.__name__ == form for entry in table.values())
    plain = {own: entry.theirs if isinstance(entry, Name) else entry for own, entry in table.items()}
    monkeypatch.setattr(Architecture, "table", lambda self, kind: plain)
    if form == "transposed":  # of which all but square ones are of another shape
        with pytest.raises(ConfigError, match=r"c_attn.weight is \(32, 96\), .* \(96, 32\)"):
            origin.load(where)
    else:
        assert parity.gap(origin.load(where), theirs) > parity.FAR


# --- files that are not as `transformers` writes them now ---------------------------------------------------


def rewritten(name: str, where: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Loaded:
    """What is read of a copy of a folder whose weights were changed."""
    shutil.copytree(pair(name, ())[2], where)
    held = change(load_file(where / "model.safetensors"))
    save_file(held, where / "model.safetensors", metadata={"format": "pt"})
    return origin.load(where)


def with_buffers(held: dict[str, Tensor], layer: str, **extra: Tensor) -> dict[str, Tensor]:
    """The weights with what older files hold beside them in each layer."""
    more = {f"{layer.format(i)}.{name}": t.clone() for i in range(parity.L) for name, t in extra.items()}
    return held | more


TRIANGLE = torch.ones(1, 1, 8, 8, dtype=torch.uint8)
OLD: list[tuple[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]]] = [
    ("gpt2", lambda held: {key.removeprefix("transformer."): held[key] for key in held}),
    ("gpt2", lambda held: with_buffers(held, "transformer.h.{}.attn", bias=TRIANGLE,
     masked_bias=torch.tensor(-1e4))),
    ("gpt2", lambda held: held | {"lm_head.weight": held["transformer.wte.weight"].clone()}),
    ("bloom", lambda held: {key.removeprefix("transformer."): held[key] for key in held}),
    ("gpt_neox", lambda held: with_buffers(held, "gpt_neox.layers.{}.attention", bias=TRIANGLE.bool(),
                                           masked_bias=torch.tensor(-1e9))),
    ("gpt_neox", lambda held: with_buffers(held, "gpt_neox.layers.{}.attention.rotary_emb",
     inv_freq=torch.ones(2))),
    ("gpt_neox", lambda held: {key.replace("embed_out", "lm_head"): held[key] for key in held}),
    ("llama", lambda held: with_buffers(held, "model.layers.{}.self_attn.rotary_emb",
     inv_freq=torch.ones(4))),
    ("gemma", lambda held: held | {"lm_head.weight": held["model.embed_tokens.weight"].clone()}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), OLD)
def test_older_files_are_read(name: str, change: Any, tmp_path: Path) -> None:
    loaded = rewritten(name, tmp_path / "model", change)
    assert parity.gap(loaded, pair(name, ())[1]) < parity.NEAR


def test_a_bare_older_file_of_gpt2_with_its_triangles_is_read(tmp_path: Path) -> None:
    def change(held: dict[str, Tensor]) -> dict[str, Tensor]:
        held = with_buffers(held, "transformer.h.{}.attn", bias=TRIANGLE)
        return {key.removeprefix("transformer."): held[key] for key in held}

    assert parity.gap(rewritten("gpt2", tmp_path / "model", change), pair("gpt2", ())[1]) < parity.NEAR


def test_tied_weights_that_differ_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lm_head.weight differs from transformer.wte.weight"):
        rewritten(
            "gpt2",
            tmp_path / "model",
            lambda held: held | {"lm_head.weight": held["transformer.wte.weight"] + 1},
        )


@pytest.mark.parametrize("name", ["bloom", "gpt2", "olmo2"])
def test_a_weight_that_nobody_knows_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unexpected h.0.attn.other"):
        rewritten(name, tmp_path / "model", lambda held: held | {"h.0.attn.other": torch.ones(2)})


@pytest.mark.parametrize("name", decoders.NAMES)
def test_weights_leave_under_the_names_that_transformers_gives_them(name: str, tmp_path: Path) -> None:
    loaded, _, where = pair(name, ())
    written = parity.written(loaded, where, tmp_path / "ours")
    assert found(written).shapes() == found(where).shapes()
