"""Encoder-decoders of Hugging Face folders say, write and search what `transformers` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hub import encoder_decoders, parity
from safetensors.torch import load_file, save_file
from torch import nn

from tfcli import origin
from tfcli.errors import ConfigError
from tfcli.model.placement import Pre
from tfcli.model.position.sinusoidal import Sinusoidal

pytest.importorskip("transformers")
CASES = list(encoder_decoders.CASES)


@pytest.mark.parametrize("case", CASES)
def test_it_says_what_transformers_says(case: str, tmp_path: Path) -> None:
    theirs = encoder_decoders.made(case)
    loaded = origin.load(parity.folder_of(theirs, tmp_path))
    assert parity.gap_of_pairs(loaded, theirs) < parity.NEAR
    assert (loaded.config.head.tied, loaded.model.head.scale != 1) == (
        case not in encoder_decoders.UNTIED,
        case in ("t5", "t5_gated_silu", "t5_untied"),
    )


@pytest.mark.parametrize("case", CASES)
def test_it_writes_and_searches_what_transformers_does(case: str, tmp_path: Path) -> None:
    theirs = encoder_decoders.made(case)
    loaded = origin.load(parity.folder_of(theirs, tmp_path))
    parity.same_greedy_of_sources(loaded, theirs, n=40)
    for alpha in (1.0, 2.0):
        parity.same_beams(loaded, theirs, alpha=alpha)


@pytest.mark.parametrize("case", CASES)
def test_it_leaves_as_it_came(case: str, tmp_path: Path) -> None:
    theirs = encoder_decoders.made(case)
    folder = parity.folder_of(theirs, tmp_path / "theirs")
    loaded = origin.load(folder)
    again = parity.same_when_written(loaded, theirs, folder, tmp_path / "ours")
    assert parity.gap_of_pairs(loaded, again) < parity.NEAR


def one_sided(model: nn.Module) -> None:
    model.encoder.positions[0].bidirectional = False


def pre(model: nn.Module) -> None:
    for layer in (*model.encoder.layers, *model.stack.layers):
        for part in (layer.attention, layer.cross_attention, layer.ffn):
            if part is not None:
                part.around = Pre.around.__get__(part)


def unbiased(model: nn.Module) -> None:
    model.head.final_logits_bias.zero_()


def slower(model: nn.Module) -> None:
    model.encoder.positions[0] = Sinusoidal(parity.D, base=1000.0, layout="concatenated")


FLIPS: list[tuple[str, str, Callable[[nn.Module], None] | None]] = [
    ("t5", "attention.scale=null", None),
    ("t5", "head.shrink=false", None),
    ("t5", "position.max_distance=30", None),
    ("t5", "ffn.activation=gelu", None),
    ("t5", "norm.eps=0.001", None),
    ("t5", "embedding.scale=true", None),
    ("t5", "", one_sided),
    ("t5_1_1", "ffn.activation=gelu", None),
    ("t5_1_1", "head.shrink=true", None),
    ("t5_gated_silu", "ffn.activation=gelu_tanh", None),
    ("bart", f"position.offset=0 size.context={parity.CONTEXT + 2}", None),
    ("bart", "embedding.scale=true", None),
    ("bart", "ffn.activation=gelu_tanh", None),
    ("bart", "norm.eps=0.001", None),
    ("bart", "", pre),
    ("bart", "", unbiased),
    ("bart_scaled", "embedding.scale=false", None),
    ("bart_scaled", "ffn.activation=gelu", None),
    ("marian", "position.layout=interleaved", None),
    ("marian", "embedding.scale=false", None),
    ("marian", "ffn.activation=gelu", None),
    ("marian", "", pre),
    ("marian", "", slower),
]


@pytest.mark.parametrize(("case", "change", "by_hand"), FLIPS)
@torch.no_grad()
def test_another_choice_says_something_else(
    case: str, change: str, by_hand: Callable[[nn.Module], None] | None, tmp_path: Path
) -> None:
    theirs = encoder_decoders.made(case)
    if "gelu_tanh" in change or case == "t5_1_1":  # its two kinds are near
        theirs.lm_head.weight *= 10
    loaded = parity.load(parity.folder_of(theirs, tmp_path), *change.split())
    if by_hand is not None:
        by_hand(loaded.model)
    assert parity.gap_of_pairs(loaded, theirs) > parity.FAR


# --- what files may hold beside -----------------------------------------------------------------------------


def edited(folder: Path, **changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Writes weights into a folder (dots as double underscores), None: takes them out; what was there."""
    held = load_file(folder / "model.safetensors")
    named = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    kept = {name: tensor for name, tensor in held.items() if name not in named}
    kept |= {name: tensor.contiguous() for name, tensor in named.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return held


def test_older_files_of_t5_hold_one_table_four_times_and_a_bias_that_nobody_uses(tmp_path: Path) -> None:
    theirs = encoder_decoders.made("t5")
    folder = parity.folder_of(theirs, tmp_path)
    shared = load_file(folder / "model.safetensors")["shared.weight"]
    bias = {
        "decoder__block__0__layer__1__EncDecAttention__relative_attention_bias__weight": torch.randn(8, 4)
    }
    tables = {
        f"{at}__weight": shared.clone()
        for at in ("encoder__embed_tokens", "decoder__embed_tokens", "lm_head")
    }
    edited(folder, **tables, **bias)
    said: list[str] = []
    loaded = origin.load(folder, say=said.append)
    assert loaded.config.head.tied and parity.gap_of_pairs(loaded, theirs) < parity.NEAR
    assert "EncDecAttention.relative_attention_bias" in said[0]
    edited(folder, shared__weight=None)
    assert parity.gap_of_pairs(origin.load(folder), theirs) < parity.NEAR


def test_t5_has_a_head_of_its_own_where_the_file_has_one_whatever_config_json_says(tmp_path: Path) -> None:
    folder = parity.folder_of(encoder_decoders.made("t5"), tmp_path)
    edited(folder, lm_head__weight=torch.randn(parity.V, parity.D) * 0.15)
    from transformers import T5ForConditionalGeneration

    theirs = T5ForConditionalGeneration.from_pretrained(folder)
    loaded = origin.load(folder)
    assert not loaded.config.head.tied and loaded.config.head.shrink
    assert parity.gap_of_pairs(loaded, theirs) < parity.NEAR


@pytest.mark.parametrize("name", ["encoder__embed_tokens__weight", "decoder__embed_tokens__weight"])
def test_tables_that_are_one_must_not_differ(name: str, tmp_path: Path) -> None:
    folder = parity.folder_of(encoder_decoders.made("t5"), tmp_path)
    edited(folder, **{name: torch.randn(parity.V, parity.D)})
    with pytest.raises(ConfigError, match=name.replace("__", ".")):
        origin.load(folder)
    edited(folder, **{name: torch.randn(parity.V + 1, parity.D)})
    with pytest.raises(ConfigError, match=r"is \(41, 16\), and config.json tells of \(40, 16\)"):
        origin.load(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_waves_in_a_file_of_marian_are_the_waves_or_it_is_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = encoder_decoders.made("marian")
    folder = parity.folder_of(theirs, tmp_path)
    name, waves = (
        "model__encoder__embed_positions__weight",
        theirs.model.encoder.embed_positions.weight.detach(),
    )
    edited(folder, **{name: waves.to(dtype)})
    assert parity.gap_of_pairs(origin.load(folder), theirs) < parity.NEAR
    edited(folder, **{name: (waves.roll(1, 0)).to(dtype)})
    with pytest.raises(ConfigError, match=r"model\.encoder\.embed_positions\.weight has other numbers"):
        origin.load(folder)


@pytest.mark.parametrize("case", ["bart", "marian"])
def test_a_bias_on_the_scores_that_is_not_there_is_zero(case: str, tmp_path: Path) -> None:
    theirs = encoder_decoders.made(case)
    folder = parity.folder_of(theirs, tmp_path)
    edited(folder, final_logits_bias=None)
    theirs.final_logits_bias.zero_()
    assert parity.gap_of_pairs(origin.load(folder), theirs) < parity.NEAR


def test_a_body_of_bart_scores_by_its_table(tmp_path: Path) -> None:
    theirs = encoder_decoders.made("bart")
    parity.folder_of(theirs, tmp_path)
    theirs.model.save_pretrained(tmp_path)
    theirs.final_logits_bias.zero_()
    assert parity.gap_of_pairs(origin.load(tmp_path), theirs) < parity.NEAR
