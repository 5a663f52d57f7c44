"""A folder of sentence-transformers gives the vectors that its modules make, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hub import encoders, parity

from tfcli import origin
from tfcli.batch import Batch
from tfcli.errors import ConfigError

pytest.importorskip("transformers")
TYPE = "sentence_transformers.models."
MEAN = "pooling_mode_mean_tokens"
MODES = ("pooling_mode_cls_token", MEAN, "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")


def said(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def modules(*kinds: str, **paths: str) -> list[dict[str, Any]]:
    usual = {"Transformer": "", "Pooling": "1_Pooling"} | paths
    return [{"idx": i, "path": usual.get(kind, kind), "type": TYPE + kind} for i, kind in enumerate(kinds)]


def add(folder: Path, mode: str = MEAN, *kinds: str) -> Path:
    """modules.json, and a folder for the pooling it names."""
    said(folder / "modules.json", modules("Transformer", "Pooling", *kinds))
    said(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16} | {m: m == mode for m in MODES}
    )
    return folder


def pooled(x: torch.Tensor, mask: torch.Tensor, mode: str) -> torch.Tensor:
    """(B, T, D) -> (B, D), a row after the other."""
    rows = [row[there.bool()] for row, there in zip(x, mask)]
    how = {"cls": lambda r: r[0], "mean": lambda r: r.mean(0), "max": lambda r: r.amax(0)}
    return torch.stack([how[mode.split("_")[2]](row) for row in rows])


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("kinds", [(), ("Normalize",)])
@pytest.mark.parametrize("name", ["BertModel", "RobertaModel", "DistilBertModel", "ModernBertModel"])
@torch.no_grad()
def test_vectors_are_pooled_as_the_modules_say(
    name: str, kinds: tuple[str, ...], mode: str, tmp_path: Path
) -> None:
    theirs = encoders.made(name)
    notes: list[str] = []
    loaded = origin.load(add(parity.folder_of(theirs, tmp_path), mode, *kinds), say=notes.append)
    tokens, mask, positions = parity.ragged(14, (14, 6))
    right = pooled(theirs(input_ids=tokens, attention_mask=mask).last_hidden_state, mask, mode)
    right = right / right.norm(dim=-1, keepdim=True) if kinds else right
    assert (loaded.model(Batch(tokens, positions=positions)) - right).abs().max() < parity.NEAR
    assert bool(notes) == name.startswith(("Bert", "Roberta"))  # whose pooler is left out


@torch.no_grad()
def test_another_pooling_is_another_vector(tmp_path: Path) -> None:
    folder = add(parity.folder_of(encoders.made("BertModel"), tmp_path), MEAN, "Normalize")
    tokens, _, positions = parity.ragged(14, (14, 6))
    mean, first, plain = (
        parity.load(folder, *change).model(Batch(tokens, positions=positions))
        for change in ((), ("head.pool=first",), ("head.normalise=false",))
    )
    assert (mean - first).abs().max() > parity.FAR and (mean - plain).abs().max() > parity.FAR


def test_without_modules_there_is_berts_pooler_and_elsewhere_the_mean(tmp_path: Path) -> None:
    heads = {}
    for name in ("BertModel", "RobertaModel", "DistilBertModel", "ModernBertModel"):
        loaded = origin.load(parity.folder_of(encoders.made(name), tmp_path / name))
        heads[name] = (loaded.config.head.pool, loaded.config.head.activation)
    assert heads["BertModel"] == heads["RobertaModel"] == ("first", "tanh")
    assert heads["DistilBertModel"] == heads["ModernBertModel"] == ("mean", None)


REFUSED: list[tuple[str, object, str]] = [
    (
        "modules.json",
        modules("Transformer", "Pooling", "Dense"),
        "type='Transformer, Pooling, Dense': must be",
    ),
    ("modules.json", modules("Transformer"), "type='Transformer': must be"),
    ("modules.json", modules("Pooling", "Transformer"), "in this order"),
    ("modules.json", modules("Transformer", "Pooling", Transformer="0_BERT"), "path='0_BERT'"),
    ("modules.json", modules("Transformer", "Pooling", Pooling="../outside"), "is no folder in this one"),
    ("modules.json", modules("Transformer", "Pooling", Pooling=""), "is no folder in this one"),
    ("modules.json", modules("Transformer", "Pooling", Pooling="2_Pooling"), "cannot be read"),
    ("modules.json", {"type": "Pooling"}, "must hold a list of modules"),
    ("1_Pooling/config.json", {}, "no pooling_mode: must be one of"),
    ("1_Pooling/config.json", [], "must hold an object"),
    ("1_Pooling/config.json", {MODES[0]: True, MEAN: True}, f"{MODES[0]}, {MEAN}: must be one of"),
    ("1_Pooling/config.json", {MODES[3]: True}, f"{MODES[3]}: must be one of"),
    ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case=true"),
    ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name='query'"),
]


@pytest.mark.parametrize(("file", "value", "why"), REFUSED)
def test_what_is_not_carried_out_is_refused(file: str, value: object, why: str, tmp_path: Path) -> None:
    folder = add(parity.folder_of(encoders.made("BertModel"), tmp_path))
    origin.find(folder)
    said(folder / file, value)
    with pytest.raises(ConfigError) as error:
        origin.find(folder)
    assert why in str(error.value) and str(folder) in str(error.value) and "\n" not in str(error.value)


def test_lower_case_is_no_change_where_the_tokenizer_has_it_too(tmp_path: Path) -> None:
    folder = add(parity.folder_of(encoders.made("BertModel"), tmp_path))
    said(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": True})
    said(folder / "tokenizer_config.json", {"do_lower_case": True})
    origin.find(folder)
