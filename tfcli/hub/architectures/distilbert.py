"""DistilBERT with its heads (Sanh et al. 2019, arXiv 1910.01108)."""

from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import (
    ACTIVATIONS,
    NOT_CAUSAL,
    Alike,
    Choice,
    Derived,
    Free,
    Labels,
    Number,
    Only,
    Switch,
    Tags,
)
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Layers
from tfcli.hub.names import Table

LAYER = "distilbert.transformer.layer.#."
NAMES: Table = {
    "embedding.table": "distilbert.embeddings.word_embeddings",
    "embedding.norm": "distilbert.embeddings.LayerNorm",
    "stack.positions.0.table": "distilbert.embeddings.position_embeddings",
    "stack.layers.#.attention.branch.qkv": LAYER + "attention.{q_lin,k_lin,v_lin}",
    "stack.layers.#.attention.branch.out": LAYER + "attention.out_lin",
    "stack.layers.#.attention.norms.0": LAYER + "sa_layer_norm",
    "stack.layers.#.ffn.branch.up": LAYER + "ffn.lin1",
    "stack.layers.#.ffn.branch.down": LAYER + "ffn.lin2",
    "stack.layers.#.ffn.norms.0": LAYER + "output_layer_norm",
}
MASKED: Table = {
    "head.dense": "vocab_transform",
    "head.norm": "vocab_layer_norm",
    "head.map": "vocab_projector",
}
UNTIED = Free("tie_word_embeddings")  # of heads that score no tokens

ARCHITECTURE = Architecture(
    model_type="distilbert",
    settings={"preset": "distilbert"},
    kinds={
        "DistilBertForMaskedLM": Kind(
            {"head": "mlm", "objective": "masked_lm"},
            MASKED,
            (
                Choice("activation", "head.activation", ACTIVATIONS, "gelu"),
                Switch("tie_word_embeddings", "head.tied", True),
                Free("qa_dropout", "seq_classif_dropout"),
            ),
        ),
        "DistilBertModel": Kind(
            {"head": "vector", "objective": "masked_lm"},
            fields=(Free("qa_dropout", "seq_classif_dropout"), UNTIED),
            bare=True,
        ),
        "DistilBertForSequenceClassification": Kind(
            {
                "head": "classification",
                "head.pool": "first",
                "head.activation": "relu",
                "objective": "classification",
            },
            {"head.dense": "pre_classifier", "head.map": "classifier"},
            (Number("seq_classif_dropout", "head.dropout", 0.2), Labels(), Free("qa_dropout"), UNTIED),
        ),
        "DistilBertForTokenClassification": Kind(
            {"head": "tagging", "objective": "tagging"},
            {"head.map": "classifier"},
            (
                Number("dropout", "head.dropout", 0.1),
                Tags(),
                Free("qa_dropout", "seq_classif_dropout"),
                UNTIED,
            ),
        ),
        "DistilBertForQuestionAnswering": Kind(
            {"head": "span", "head.bias": True, "objective": "reading"},
            {"head.map": "qa_outputs"},
            (Number("qa_dropout", "head.dropout", 0.1), Free("seq_classif_dropout"), UNTIED),
        ),
    },
    fields=(
        Number(("dim", "hidden_size"), "size.d_model", 768),
        Layers(("n_layers", "num_hidden_layers"), "size.n_layers", 6),
        Number(("n_heads", "num_attention_heads"), "size.n_heads", 12),
        Derived("size.n_kv_heads", lambda asked: asked.get(("n_heads", "num_attention_heads"), 12)),
        Alike("dim", "hidden_size"),
        Alike("n_layers", "num_hidden_layers"),
        Alike("n_heads", "num_attention_heads"),
        Number("hidden_dim", "size.d_ff", 3072),
        Number("max_position_embeddings", "size.context", 512),
        Choice("activation", "ffn.activation", ACTIVATIONS, "gelu"),
        Number("dropout", "embedding.dropout", 0.1),
        Number("dropout", "placement.dropout", 0.1),
        Number("attention_dropout", "attention.dropout", 0.1),
        Only("tie_weights_", None, True),
        NOT_CAUSAL,
        Free("sinusoidal_pos_embds", "output_past"),
    ),
    names=NAMES,
    prefix="distilbert.",
    habits=Habits(spare=(r"(distilbert\.)?embeddings\.position_ids",)),
)
