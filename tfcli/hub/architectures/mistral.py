"""Mistral: Llama without biases, within a sliding window or not (Jiang et al. 2023, arXiv 2310.06825)."""

from typing import Any

from tfcli.hub import Architecture, Kind
from tfcli.hub.architectures.llama import NAMES, SPARE, size
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Asked, Choice, Field, Flat, Number, Settings, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.rope import Rope

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers, as a list of them calls these


def window_of(asked: Asked, absent: int) -> int | None:
    """How many tokens a token sees, itself included; None, which null says: all."""
    there = "sliding_window" in asked.said
    window = asked.get("sliding_window", None if there else absent)
    if window is not None and (type(window) is not int or window < 1):
        raise asked.refused("sliding_window", "must be null or a whole number of at least 1")
    return window


class Sliding(Field):
    """One window for all layers, or none."""

    def read(self, asked: Asked) -> Settings:
        window = window_of(asked, 4096)
        kind = FULL if window is None else SLIDING
        named = asked.get("layer_types", [])
        if not isinstance(named, list) or any(name != kind for name in named):
            raise asked.refused("layer_types", f"with sliding_window={window or 'null'} all must be {kind!r}")
        if window is None:
            return {"attention": "gqa"}
        return {"attention": "mistral", "attention.rule.size": window}

    def write(self, our: Flat) -> dict[str, Any]:
        return {"sliding_window": our.get("attention.rule.size")}


ARCHITECTURE = Architecture(
    model_type="mistral",
    settings={"preset": "mistral"},
    kinds={"MistralForCausalLM": Kind({}, {})},
    body="MistralModel",
    fields=(
        *size(4096, 32, 32, 14336, 131072, n_kv_heads=8),
        Number("rms_norm_eps", "norm.eps", 1e-6),
        Rope(),
        Sliding(),
        Choice("hidden_act", "ffn.activation", ACTIVATIONS, "silu"),
        Switch("tie_word_embeddings", "head.tied", False),
        Number("attention_dropout", "attention.dropout", 0.0),
        CAUSAL,
    ),
    names=NAMES,
    prefix="model.",
    habits=Habits(spare=SPARE),
)
