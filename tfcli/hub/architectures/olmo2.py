"""OLMo 2: norms on the branches, queries and keys normalised (OLMo Team 2025, arXiv 2501.00656)."""

from tfcli.hub import Architecture, Kind
from tfcli.hub.architectures.llama import NAMES, SPARE, size
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Choice, Number, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.rope import Rope

ARCHITECTURE = Architecture(
    model_type="olmo2",
    settings={"preset": "olmo2"},
    kinds={"Olmo2ForCausalLM": Kind({}, {})},
    body="Olmo2Model",
    fields=(
        *size(4096, 32, 32, 11008, 2048),
        Number("rms_norm_eps", "norm.eps", 1e-5),
        Rope(),
        Choice("hidden_act", "ffn.activation", ACTIVATIONS, "silu"),
        Switch("attention_bias", "attention.bias", False),
        Switch("tie_word_embeddings", "head.tied", False),
        Number("attention_dropout", "attention.dropout", 0.0),
        CAUSAL,
    ),
    names={
        **NAMES,
        "stack.layers.#.attention.norms.0": "model.layers.#.post_attention_layernorm",
        "stack.layers.#.attention.branch.q_norm": "model.layers.#.self_attn.q_norm",
        "stack.layers.#.attention.branch.k_norm": "model.layers.#.self_attn.k_norm",
        "stack.layers.#.ffn.norms.0": "model.layers.#.post_feedforward_layernorm",
    },
    prefix="model.",
    habits=Habits(spare=SPARE),
)
