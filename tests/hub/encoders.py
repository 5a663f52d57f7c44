"""Tiny encoders of `transformers`, every class with each of its branches, and what they say in our form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hub import parity
from torch import Tensor, nn

from tfcli.batch import Batch
from tfcli.checkpoint import Loaded
from tfcli.errors import ConfigError
from tfcli.model.placement import Placement

SIZE = {"vocab_size": parity.V, "max_position_embeddings": parity.CONTEXT, "pad_token_id": 0}
USUAL = {"hidden_size": parity.D, "num_hidden_layers": parity.L, "num_attention_heads": parity.H,
         "intermediate_size": parity.FF}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "Bert": USUAL,
    "Roberta": USUAL | {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "bos_token_id": 1, "eos_token_id": 2},
    "DistilBert": {"dim": parity.D, "n_layers": parity.L, "n_heads": parity.H, "hidden_dim": parity.FF},
    "ModernBert": USUAL | {"num_hidden_layers": 5, "local_attention": 8, "bos_token_id": 1, "eos_token_id": 2,
                           "cls_token_id": 1, "sep_token_id": 2},
}  # fmt: skip
HEADS = (
    "ForMaskedLM",
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
MIXED = ["sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"]
STRETCHED = {
    "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0},
}
BIASED = {f"{name}_bias": True for name in ("attention", "mlp", "norm", "classifier")}
BRANCHES: list[tuple[str, dict[str, Any]]] = [  # what the classes below do not have by themselves
    ("BertForMaskedLM", {"hidden_act": "gelu_new", "type_vocab_size": 3, "layer_norm_eps": 1e-3}),
    ("BertForPreTraining", {}),
    ("RobertaForMaskedLM", {"pad_token_id": 1, "bos_token_id": 0, "type_vocab_size": 2}),
    ("RobertaForMaskedLM", {"hidden_act": "relu"}),
    ("DistilBertForMaskedLM", {"activation": "relu", "sinusoidal_pos_embds": True}),
    ("DistilBertForMaskedLM", {"tie_word_embeddings": False}),
    ("ModernBertForMaskedLM", {**BIASED, "decoder_bias": False, "norm_eps": 1e-3}),
    ("ModernBertForMaskedLM", {"hidden_activation": "silu", "classifier_activation": "relu"}),
    ("ModernBertForMaskedLM", {"tie_word_embeddings": False, "layer_types": MIXED}),
    ("ModernBertForMaskedLM", {"rope_parameters": STRETCHED}),
    ("ModernBertForSequenceClassification", {"classifier_pooling": "mean", "classifier_bias": True}),
]
CASES = [(body + head, {}) for body in BODIES for head in HEADS] + BRANCHES


def called(case: object) -> str:
    return ",".join(map(str, case)) if isinstance(case, tuple) else str(case)


def made(name: str, **more: Any) -> nn.Module:
    """A model of theirs with random numbers everywhere."""
    import transformers

    body = name.removesuffix("Model").partition("For")[0]
    labels = {} if name.endswith("QuestionAnswering") else {"num_labels": 3}
    config = getattr(transformers, f"{body}Config")(**SIZE | BODIES[body] | labels | more)
    config._attn_implementation = "eager"
    return parity.shaken(getattr(transformers, name)(config))


def right(theirs: nn.Module, mask: Tensor, **inputs: Tensor) -> Tensor:
    """What theirs says: of tokens, of a class, of spans as (B, 2, T), or a vector."""
    with torch.no_grad():
        out = theirs(attention_mask=mask, **inputs)
    if "start_logits" in out:
        return torch.stack((out.start_logits, out.end_logits), dim=1)
    if "last_hidden_state" not in out:
        return out.prediction_logits if "prediction_logits" in out else out.logits
    share = mask[..., None] / mask.sum(1)[:, None, None]
    return out.pooler_output if "pooler_output" in out else (out.last_hidden_state * share).sum(1)


def gap(loaded: Loaded, theirs: nn.Module, segments: int = 0) -> float:
    """The largest difference of what both say of ragged texts, the longest wider than the windows."""
    tokens, mask, positions = parity.ragged(24, (24, 9, 1))
    kinds = torch.arange(tokens.numel()).reshape(tokens.shape) // 5 % segments if segments else None
    theirs_too = {} if kinds is None else {"token_type_ids": kinds}
    wanted = right(theirs, mask, input_ids=tokens, **theirs_too)
    with torch.no_grad():
        mine = loaded.model(Batch(tokens, positions=positions, segments=kinds))
    assert mine.shape == wanted.shape
    there = mask.bool()
    if loaded.model.head.says == "span":
        mine, wanted = mine.transpose(1, 2), wanted.transpose(1, 2)
    by_token = loaded.model.head.says in ("tokens", "tags", "span")
    return (mine - wanted)[there if by_token else ...].abs().max().item()


def loud(theirs: nn.Module) -> nn.Module:
    """The same with scores ten times as large, where a norm follows the table of tokens."""
    with torch.no_grad():
        theirs.get_input_embeddings().weight *= 10
    return theirs


def moved(where: Path, theirs: nn.Module, change: str, placement: type[Placement] | None = None) -> float:
    """How far a change, as it is typed, is from what theirs says."""
    loaded = parity.load(where, *change.split())
    for layer in loaded.model.stack.layers if placement else ():
        for part in (layer.attention, layer.ffn):
            part.around = placement.around.__get__(part)
    return gap(loaded, theirs)


def settings(said: dict[str, Any]) -> dict[str, Any]:
    """What a config.json is in our settings."""
    from tfcli.hub import architecture, kind_of
    from tfcli.hub.fields import Asked

    asked = Asked(said, "config.json")
    arch = architecture(said["model_type"])
    return arch.read(kind_of(arch, asked), asked)


def refusal(said: dict[str, Any]) -> str:
    """Why a config.json is refused; "": it is not."""
    try:
        settings(said)
    except ConfigError as error:
        return str(error)
    return ""
