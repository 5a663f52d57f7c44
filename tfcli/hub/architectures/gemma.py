"""Gemma: scaled embeddings, gain 1 + w, GEGLU (Gemma Team 2024, arXiv 2403.08295)."""

from tfcli.hub import Architecture, Kind
from tfcli.hub.architectures.llama import NAMES, SPARE, size
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Asked, Choice, Field, Number, Only, Settings, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.rope import Rope

TANH = {"gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu_tanh"}  # as released files call the GELU by tanh
GELU = {**TANH, **{name: own for name, own in ACTIVATIONS.items() if name != "gelu"}}


class Named(Field):
    """`hidden_activation`, which once stood beside `hidden_act` and which nobody heeds any more."""

    def read(self, asked: Asked) -> Settings:
        named = asked.get("hidden_activation")
        meant = GELU.get(asked.get("hidden_act", "gelu_pytorch_tanh"))
        if named is not None and (not isinstance(named, str) or GELU.get(named) != meant):
            raise asked.refused("hidden_activation", f"hidden_act says {meant}")
        return {}


ARCHITECTURE = Architecture(
    model_type="gemma",
    settings={"preset": "gemma"},
    kinds={"GemmaForCausalLM": Kind({}, {})},
    body="GemmaModel",
    fields=(
        *size(3072, 28, 16, 24576, 8192, n_kv_heads=16, head_dim=256),
        Number("rms_norm_eps", "norm.eps", 1e-6),
        Rope(),
        Choice("hidden_act", "ffn.activation", GELU, "gelu_pytorch_tanh"),
        Named(),
        Switch("attention_bias", "attention.bias", False),
        Switch("tie_word_embeddings", "head.tied", True),
        Number("attention_dropout", "attention.dropout", 0.0),
        Only("use_bidirectional_attention", None, False),
        CAUSAL,
    ),
    names=NAMES,
    prefix="model.",
    habits=Habits(spare=SPARE),
)
