"""GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners")."""

from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Asked, Choice, Derived, Free, Number, Only, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Layers
from tfcli.hub.names import Name, Table, transposed

WIDTH, HEADS = ("n_embd", "hidden_size"), ("n_head", "num_attention_heads")
GELU = {"gelu_new": "gelu_tanh", **ACTIVATIONS}


def inner(asked: Asked) -> int:
    """The width of a feed-forward where none is named."""
    return 4 * asked.get(WIDTH, 768)


NAMES: Table = {
    "embedding.table": "transformer.wte",
    "stack.positions.0.table": "transformer.wpe",
    "stack.layers.#.attention.norms.0": "transformer.h.#.ln_1",
    "stack.layers.#.attention.branch.qkv": Name("transformer.h.#.attn.c_attn", transposed),
    "stack.layers.#.attention.branch.out": Name("transformer.h.#.attn.c_proj", transposed),
    "stack.layers.#.ffn.norms.0": "transformer.h.#.ln_2",
    "stack.layers.#.ffn.branch.up": Name("transformer.h.#.mlp.c_fc", transposed),
    "stack.layers.#.ffn.branch.down": Name("transformer.h.#.mlp.c_proj", transposed),
    "stack.final_norm": "transformer.ln_f",
    "head.map": "lm_head",
}

ARCHITECTURE = Architecture(
    model_type="gpt2",
    settings={"preset": "gpt2", "ffn.dropout": 0.0},
    kinds={"GPT2LMHeadModel": Kind({}, {})},
    body="GPT2Model",
    fields=(
        Number(WIDTH, "size.d_model", 768),
        Layers(("n_layer", "num_hidden_layers"), "size.n_layers", 12),
        Number(HEADS, "size.n_heads", 12),
        Derived("size.n_kv_heads", lambda asked: asked.get(HEADS, 12)),
        Number("n_inner", "size.d_ff", inner),
        Number(("n_positions", "max_position_embeddings"), "size.context", 1024),
        Number("layer_norm_epsilon", "norm.eps", 1e-5),
        Choice("activation_function", "ffn.activation", GELU, "gelu_new"),
        Choice("scale_attn_weights", "attention.scale", {True: None, False: 1.0}, True),
        Number("embd_pdrop", "embedding.dropout", 0.1),
        Number("attn_pdrop", "attention.dropout", 0.1),
        Number("resid_pdrop", "placement.dropout", 0.1),
        Switch("tie_word_embeddings", "head.tied", True),
        Only("scale_attn_by_inverse_layer_idx", False),
        Free("reorder_and_upcast_attn"),  # the precision of sums that are in fp32 here in any case
        Free("n_ctx"),  # the length once more
        Free("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
             "summary_first_dropout"),
        CAUSAL,
    ),
    names=NAMES,
    prefix="transformer.",
    habits=Habits(spare=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",)),  # triangles, not weights
)  # fmt: skip
