"""BLOOM: ALiBi, normed embeddings (BigScience 2022, arXiv 2211.05100)."""

from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import CAUSAL, Asked, Derived, Field, Free, Number, Only, Settings, Switch
from tfcli.hub.layers import Layers
from tfcli.hub.names import Name, Table, by_head

WIDTH, HEADS = ("hidden_size", "n_embed"), ("n_head", "num_attention_heads")


def inner(asked: Asked) -> int:
    """The width of a feed-forward, which is always four times the model's."""
    return 4 * asked.get(WIDTH, 64)


class Inner(Field):
    """`n_inner`, which older files have, and which nobody heeds."""

    def read(self, asked: Asked) -> Settings:
        if asked.get("n_inner", inner(asked)) != inner(asked):
            raise asked.refused("n_inner", f"must be null or {inner(asked)}, four times the model's width")
        return {}


class Slices(Field):
    """Products in slices, as training was spread: the same sums, but for a bias that is then left out."""

    def read(self, asked: Asked) -> Settings:
        if asked.get("pretraining_tp", 1) != 1 and asked.get("slow_but_exact", False):
            raise asked.refused(
                "slow_but_exact", "leaves out biases with pretraining_tp above 1; set it to false"
            )
        asked.get("slow_but_exact")
        return {}


NAMES: Table = {
    "embedding.table": "transformer.word_embeddings",
    "embedding.norm": "transformer.word_embeddings_layernorm",
    "stack.layers.#.attention.norms.0": "transformer.h.#.input_layernorm",
    "stack.layers.#.attention.branch.qkv": Name("transformer.h.#.self_attention.query_key_value", by_head),
    "stack.layers.#.attention.branch.out": "transformer.h.#.self_attention.dense",
    "stack.layers.#.ffn.norms.0": "transformer.h.#.post_attention_layernorm",
    "stack.layers.#.ffn.branch.up": "transformer.h.#.mlp.dense_h_to_4h",
    "stack.layers.#.ffn.branch.down": "transformer.h.#.mlp.dense_4h_to_h",
    "stack.final_norm": "transformer.ln_f",
    "head.map": "lm_head",
}

ARCHITECTURE = Architecture(
    model_type="bloom",
    settings={"preset": "bloom", "embedding.dropout": 0.0, "ffn.dropout": 0.0},
    kinds={"BloomForCausalLM": Kind({}, {})},
    body="BloomModel",
    fields=(
        Number(WIDTH, "size.d_model", 64),
        Layers(("n_layer", "num_hidden_layers"), "size.n_layers", 2),
        Number(HEADS, "size.n_heads", 8),
        Derived("size.n_kv_heads", lambda asked: asked.get(HEADS, 8)),
        Derived("size.d_ff", inner),
        Inner(),
        Number("seq_length", "size.context", 2048),  # of the texts in training; there is no limit
        Number("layer_norm_epsilon", "norm.eps", 1e-5),
        Number("attention_dropout", "attention.dropout", 0.0),
        Number("hidden_dropout", "placement.dropout", 0.0),
        Switch("tie_word_embeddings", "head.tied", True),
        Only("apply_residual_connection_post_layernorm", False),
        Slices(),
        Free("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "skip_bias_add",
             "skip_bias_add_qkv", "offset_alibi"),  # how training was made fast
        CAUSAL,
    ),
    names=NAMES,
    prefix="transformer.",
)  # fmt: skip
