"""GPT-NeoX and Pythia: parallel branches, partly rotary (Black et al. 2022, arXiv 2204.06745)."""

from typing import Any

from tfcli import choices
from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Choice, Derived, Flat, Free, Number, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Layers
from tfcli.hub.names import Name, Table, by_head
from tfcli.hub.rope import Rope


class Residual(Choice):
    """Whether the branches of a layer stand side by side."""

    def __init__(self) -> None:
        super().__init__("use_parallel_residual", "placement", {True: "parallel", False: "pre"}, True)

    def write(self, our: Flat) -> dict[str, Any]:
        parallel = choices.target("placement", "parallel")
        return {"use_parallel_residual": our["placement._target_"] == parallel}


NAMES: Table = {
    "embedding.table": "gpt_neox.embed_in",
    "stack.layers.#.attention.norms.0": "gpt_neox.layers.#.input_layernorm",
    "stack.layers.#.attention.branch.qkv": Name("gpt_neox.layers.#.attention.query_key_value", by_head),
    "stack.layers.#.attention.branch.out": "gpt_neox.layers.#.attention.dense",
    "stack.layers.#.ffn.norms.0": "gpt_neox.layers.#.post_attention_layernorm",
    "stack.layers.#.ffn.branch.up": "gpt_neox.layers.#.mlp.dense_h_to_4h",
    "stack.layers.#.ffn.branch.down": "gpt_neox.layers.#.mlp.dense_4h_to_h",
    "stack.final_norm": "gpt_neox.final_layer_norm",
    "head.map": "embed_out",
}

ARCHITECTURE = Architecture(
    model_type="gpt_neox",
    settings={"preset": "gpt_neox", "ffn.dropout": 0.0},
    kinds={"GPTNeoXForCausalLM": Kind({}, {})},
    body="GPTNeoXModel",
    fields=(
        Number("hidden_size", "size.d_model", 6144),
        Layers("num_hidden_layers", "size.n_layers", 44),
        Number("num_attention_heads", "size.n_heads", 64),
        Derived("size.n_kv_heads", lambda asked: asked.get("num_attention_heads", 64)),
        Number("intermediate_size", "size.d_ff", 24576),
        Number("max_position_embeddings", "size.context", 2048),
        Number("layer_norm_eps", "norm.eps", 1e-5),
        Rope(theta="rotary_emb_base", partial=("rotary_pct", 0.25)),
        Residual(),
        Choice("hidden_act", "ffn.activation", ACTIVATIONS, "gelu"),
        Switch("attention_bias", "attention.bias", True),
        Switch("tie_word_embeddings", "head.tied", False),
        Number("attention_dropout", "attention.dropout", 0.0),
        Number("hidden_dropout", "placement.dropout", 0.0),
        Derived("embedding.dropout", lambda asked: asked.get("hidden_dropout", 0.0)),
        Free("classifier_dropout"),
        CAUSAL,
    ),
    names=NAMES,
    prefix="gpt_neox.",
    habits=Habits(
        spare=(r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),  # no weights
        alias=((r"^lm_head\.", "embed_out."),),
    ),
)
