"""Llama 1, 2, 3 and what is built alike (Touvron et al. 2023, arXiv 2302.13971; Dubey et al. 2024)."""

from collections.abc import Callable

from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Asked, Choice, Field, Number, Only, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Layers
from tfcli.hub.names import Table
from tfcli.hub.rope import Rope


def key_heads(n_heads: int, absent: int | None) -> Callable[[Asked], int]:
    """How many key and value heads there are where no number is said: as many as query heads; but where the
    field is not there at all, `absent`, if there is such a number.
    """

    def default(asked: Asked) -> int:
        if absent is not None and "num_key_value_heads" not in asked.said:
            return absent
        return asked.get("num_attention_heads", n_heads)

    return default


def size(
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    context: int,
    n_kv_heads: int | None = None,
    head_dim: int | None = None,
) -> tuple[Field, ...]:
    """The numbers that all descendants of Llama call alike, and what they are where nothing is said."""
    return (
        Number("hidden_size", "size.d_model", d_model),
        Layers("num_hidden_layers", "size.n_layers", n_layers),
        Number("num_attention_heads", "size.n_heads", n_heads),
        Number("num_key_value_heads", "size.n_kv_heads", key_heads(n_heads, n_kv_heads)),
        Number("head_dim", "size.head_dim", head_dim),
        Number("intermediate_size", "size.d_ff", d_ff),
        Number("max_position_embeddings", "size.context", context),
    )


NAMES: Table = {
    "embedding.table": "model.embed_tokens",
    "stack.layers.#.attention.norms.0": "model.layers.#.input_layernorm",
    "stack.layers.#.attention.branch.qkv": "model.layers.#.self_attn.{q_proj,k_proj,v_proj}",
    "stack.layers.#.attention.branch.out": "model.layers.#.self_attn.o_proj",
    "stack.layers.#.ffn.norms.0": "model.layers.#.post_attention_layernorm",
    "stack.layers.#.ffn.branch.gate_up": "model.layers.#.mlp.{gate_proj,up_proj}",
    "stack.layers.#.ffn.branch.down": "model.layers.#.mlp.down_proj",
    "stack.final_norm": "model.norm",
    "head.map": "lm_head",
}
SPARE = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)  # which older files hold

ARCHITECTURE = Architecture(
    model_type="llama",
    settings={"preset": "llama3"},
    kinds={"LlamaForCausalLM": Kind({}, {})},
    body="LlamaModel",
    fields=(
        *size(4096, 32, 32, 11008, 2048),
        Number("rms_norm_eps", "norm.eps", 1e-6),
        Rope(),
        Choice("hidden_act", "ffn.activation", ACTIVATIONS, "silu"),
        Switch("attention_bias", "attention.bias", False),
        Switch("mlp_bias", "ffn.bias", False),
        Switch("tie_word_embeddings", "head.tied", False),
        Number("attention_dropout", "attention.dropout", 0.0),
        Only("rope_interleaved", False),
        CAUSAL,
    ),
    names=NAMES,
    prefix="model.",
    habits=Habits(spare=SPARE),
)
