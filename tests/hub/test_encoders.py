"""Encoders of Hugging Face folders say what `transformers` says, and leave as such folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hub import encoders, parity
from safetensors.torch import load_file, save_file

from tfcli import origin
from tfcli.batch import Batch
from tfcli.errors import ConfigError
from tfcli.model.placement import Placement, Pre

pytest.importorskip("transformers")


@pytest.mark.parametrize(("name", "more"), encoders.CASES, ids=encoders.called)
def test_an_encoder_says_what_transformers_says(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    theirs = encoders.made(name, **more)
    loaded = origin.load(parity.folder_of(theirs, tmp_path))
    segments = getattr(theirs.config, "type_vocab_size", 0)
    assert encoders.gap(loaded, theirs) < parity.NEAR
    assert not segments or encoders.gap(loaded, theirs, segments) < parity.NEAR


@pytest.mark.parametrize(("name", "more"), encoders.CASES, ids=encoders.called)
def test_an_encoder_leaves_as_it_came(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    if name == "BertForPreTraining":
        pytest.skip("leaves as BertForMaskedLM")
    theirs = encoders.made(name, **more)
    folder = parity.folder_of(theirs, tmp_path / "theirs")
    loaded = origin.load(folder)
    again = parity.same_when_written(loaded, theirs, folder, tmp_path / "ours")
    assert encoders.gap(loaded, again) < parity.NEAR


def test_segments_move_what_bert_says() -> None:
    theirs = encoders.made("BertForMaskedLM")
    tokens, mask, _ = parity.ragged(12, (12, 12))
    kinds = (torch.arange(12) > 5).long().expand(2, -1)
    one, other = (
        encoders.right(theirs, mask, input_ids=tokens, token_type_ids=k) for k in (kinds, 0 * kinds)
    )
    assert (one - other).abs().max() > parity.FAR


FLIPS: list[tuple[str, str, type[Placement] | None]] = [
    ("BertForMaskedLM", "ffn.activation=gelu_tanh", None),
    ("BertForMaskedLM", "head.activation=gelu_tanh", None),
    ("BertForMaskedLM", "norm.eps=0.001", None),
    ("BertForMaskedLM", "attention.scale=1.0", None),
    ("BertForMaskedLM", "size.dropout=0.0", Pre),
    ("BertModel", "head.activation=relu", None),
    ("BertModel", "head.pool=mean", None),
    ("BertModel", "head.pool=max", None),
    ("BertForSequenceClassification", "head.pool=mean", None),
    ("BertForSequenceClassification", "head.activation=relu", None),
    ("RobertaForMaskedLM", "position.offset=0 size.context=64", None),
    ("RobertaForMaskedLM", "norm.eps=0.001", None),
    ("RobertaModel", "head.activation=gelu", None),
    ("DistilBertForMaskedLM", "ffn.activation=gelu_tanh", None),
    ("DistilBertForMaskedLM", "attention.n_heads=2 attention.n_kv_heads=2", None),
    ("DistilBertForMaskedLM", "size.dropout=0.0", Pre),
    ("DistilBertForSequenceClassification", "head.activation=tanh", None),
    ("DistilBertModel", "head.pool=first", None),
    ("ModernBertForMaskedLM", "attention.local.rule.size=4", None),
    ("ModernBertForMaskedLM", "attention.local.rule.size=6", None),
    ("ModernBertForMaskedLM", "attention.pattern=[local,full,local]", None),
    ("ModernBertForMaskedLM", "position.full.base=10000", None),
    ("ModernBertForMaskedLM", "position.local.base=160000", None),
    ("ModernBertForMaskedLM", "position.pattern=[full]", None),
    ("ModernBertForMaskedLM", "ffn.activation=gelu_tanh", None),
    ("ModernBertForMaskedLM", "norm.eps=0.001", None),
    ("ModernBertForSequenceClassification", "head.pool=mean", None),
    ("ModernBertForTokenClassification", "head.activation=tanh", None),
]


@pytest.mark.parametrize(("name", "change", "placement"), FLIPS, ids=encoders.called)
def test_another_choice_says_something_else(
    name: str, change: str, placement: type[Placement] | None, tmp_path: Path
) -> None:
    theirs = encoders.made(name)
    if "gelu" in change:  # its two kinds are near
        theirs = encoders.loud(theirs)
    folder = parity.folder_of(theirs, tmp_path)
    assert "gelu" not in change or encoders.moved(folder, theirs, "size.dropout=0.0") < parity.NEAR
    assert encoders.moved(folder, theirs, change, placement) > parity.FAR


# --- what files may hold beside -----------------------------------------------------------------------------


def edited(folder: Path, **changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The folder's weights with these (dots as double underscores), or without those that are None."""
    held = load_file(folder / "model.safetensors")
    for name, tensor in changes.items():
        name = name.replace("__", ".")
        held.pop(name, None)
        held |= {} if tensor is None else {name: tensor.contiguous()}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return held


def test_older_names_and_spare_weights_are_understood(tmp_path: Path) -> None:
    theirs = encoders.made("BertForMaskedLM")
    folder, d = parity.folder_of(theirs, tmp_path), parity.D
    held = load_file(folder / "model.safetensors")
    older = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
             for n, t in held.items()}  # fmt: skip
    older |= {
        "bert.embeddings.position_ids": torch.arange(parity.CONTEXT)[None],
        "bert.pooler.dense.weight": torch.randn(d, d),
        "bert.pooler.dense.bias": torch.randn(d),
        "cls.seq_relationship.weight": torch.randn(2, d),
        "cls.seq_relationship.bias": torch.randn(2),
        "cls.predictions.decoder.weight": held["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": held["cls.predictions.bias"].clone(),
    }
    save_file(older, folder / "model.safetensors", metadata={"format": "pt"})
    said: list[str] = []
    loaded = origin.load(folder, say=said.append)
    assert encoders.gap(loaded, theirs) < parity.NEAR
    assert "pooler" in said[0] and "seq_relationship" in said[0] and "decoder" not in said[0]


@pytest.mark.parametrize("name", ["cls__predictions__decoder__weight", "cls__predictions__decoder__bias"])
def test_what_is_tied_must_not_differ(name: str, tmp_path: Path) -> None:
    folder = parity.folder_of(encoders.made("BertForMaskedLM"), tmp_path)
    shape = (parity.V, parity.D) if name.endswith("weight") else (parity.V,)
    edited(folder, **{name: torch.randn(shape)})
    with pytest.raises(ConfigError, match=name.replace("__", ".")):
        origin.load(folder)


def test_a_body_is_read_with_and_without_the_beginning_of_its_names(tmp_path: Path) -> None:
    theirs = encoders.made("BertModel")
    folder = parity.folder_of(theirs, tmp_path)
    held = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    assert encoders.gap(origin.load(folder), theirs) < parity.NEAR


def test_a_pooler_that_is_wanted_must_be_there(tmp_path: Path) -> None:
    folder = parity.folder_of(encoders.made("BertModel"), tmp_path)
    edited(folder, pooler__dense__weight=None)
    with pytest.raises(ConfigError, match=r"missing pooler\.dense\.weight"):
        origin.load(folder)


def test_a_text_of_all_positions_fits_roberta_and_no_longer_one(tmp_path: Path) -> None:
    theirs = encoders.made("RobertaForMaskedLM", pad_token_id=1, bos_token_id=0)
    loaded = origin.load(parity.folder_of(theirs, tmp_path))
    assert loaded.model.context == parity.CONTEXT - 2
    tokens = parity.ids(1, loaded.model.context)
    mine = loaded.model(Batch(tokens))
    assert (
        mine - encoders.right(theirs, torch.ones_like(tokens), input_ids=tokens)
    ).abs().max() < parity.NEAR
    with pytest.raises(ConfigError, match="longer than the 62 positions"):
        loaded.model(Batch(parity.ids(1, 63)))
