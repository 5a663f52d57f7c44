"""BERT with its heads (Devlin et al. 2018, arXiv 1810.04805).

BertForPreTraining is read as BertForMaskedLM: its scores of tokens are those, and its pooler and its choice
between two sentences have no say in them.
"""

from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import (
    ACTIVATIONS,
    NOT_CAUSAL,
    Asked,
    Choice,
    Derived,
    Field,
    Free,
    Labels,
    Number,
    Only,
    Tags,
)
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Layers
from tfcli.hub.names import Name, Table

SIZE = (
    Number("hidden_size", "size.d_model", 768),
    Layers("num_hidden_layers", "size.n_layers", 12),
    Number("num_attention_heads", "size.n_heads", 12),
    Derived("size.n_kv_heads", lambda asked: asked.get("num_attention_heads", 12)),
    Number("intermediate_size", "size.d_ff", 3072),
    Number("layer_norm_eps", "norm.eps", 1e-12),
    Number("type_vocab_size", "embedding.segments", 2, least=1),
    Choice("hidden_act", "ffn.activation", ACTIVATIONS, "gelu"),
    Number("hidden_dropout_prob", "embedding.dropout", 0.1),
    Number("hidden_dropout_prob", "placement.dropout", 0.1),
    Number("attention_probs_dropout_prob", "attention.dropout", 0.1),
)
REFUSED = (
    Only("position_embedding_type", None, "absolute"),
    Only("is_decoder", False),
    NOT_CAUSAL,
    Only("directionality", None, "bidi"),
    Only("pooler_type", None, "first_token_transform"),
    Free("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"),
    Free("output_past"),
)
UNTOLD = Free("classifier_dropout", "tie_word_embeddings")  # of heads that have neither


def head_dropout(asked: Asked) -> float:
    """Where no dropout is named for a head, it is that of the layers."""
    return float(asked.get("hidden_dropout_prob", 0.1))


def layers(prefix: str) -> dict[str, str]:
    """The names of a body."""
    at = f"{prefix}encoder.layer.#."
    return {
        "embedding.table": f"{prefix}embeddings.word_embeddings",
        "embedding.segments": f"{prefix}embeddings.token_type_embeddings",
        "embedding.norm": f"{prefix}embeddings.LayerNorm",
        "stack.positions.0.table": f"{prefix}embeddings.position_embeddings",
        "stack.layers.#.attention.branch.qkv": at + "attention.self.{query,key,value}",
        "stack.layers.#.attention.branch.out": at + "attention.output.dense",
        "stack.layers.#.attention.norms.0": at + "attention.output.LayerNorm",
        "stack.layers.#.ffn.branch.up": at + "intermediate.dense",
        "stack.layers.#.ffn.branch.down": at + "output.dense",
        "stack.layers.#.ffn.norms.0": at + "output.LayerNorm",
    }


def spare(prefix: str) -> tuple[str, ...]:
    """Weights that files of a body with any head may have."""
    return (
        rf"({prefix})?embeddings\.(position_ids|token_type_ids)",
        rf"({prefix})?pooler\.dense\.(weight|bias)",
    )


def masked(names: Table, *fields: Field) -> Kind:
    """Tokens under masks."""
    own = (*fields, Only("tie_word_embeddings", True), Free("classifier_dropout"))
    return Kind({"head": "mlm", "objective": "masked_lm"}, names, own)


def classification(names: Table) -> Kind:
    """A class, by the first token, a dense map and tanh."""
    settings = {"head": "classification", "head.pool": "first", "head.activation": "tanh"}
    dropout = Number("classifier_dropout", "head.dropout", head_dropout)
    own = (dropout, Labels(), Free("tie_word_embeddings"))
    return Kind({**settings, "objective": "classification"}, names, own)


def tagging() -> Kind:
    """A tag for each token."""
    dropout = Number("classifier_dropout", "head.dropout", head_dropout)
    settings = {"head": "tagging", "objective": "tagging"}
    return Kind(settings, {"head.map": "classifier"}, (dropout, Tags(), Free("tie_word_embeddings")))


def span() -> Kind:
    """The answer's first and last token."""
    settings = {"head": "span", "head.bias": True, "head.dropout": 0.0, "objective": "reading"}
    return Kind(settings, {"head.map": "qa_outputs"}, (UNTOLD,))


def vector(prefix: str) -> Kind:
    """The pooler's vector; in a folder of sentence-transformers the one that its modules make."""
    settings = {"head": "vector", "head.pool": "first", "head.activation": "tanh", "head.normalise": False}
    names = {"head.dense": f"{prefix}pooler.dense"}
    return Kind({**settings, "objective": "masked_lm"}, names, (UNTOLD,), bare=True)


MASKED: Table = {
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head.map.weight": "cls.predictions.decoder.weight",
    "head.map.bias": Name("cls.predictions.bias", also=("cls.predictions.decoder.bias",)),
}
OF_HEAD = Choice("hidden_act", "head.activation", ACTIVATIONS, "gelu")

ARCHITECTURE = Architecture(
    model_type="bert",
    settings={"preset": "bert"},
    kinds={
        "BertForMaskedLM": masked(MASKED, OF_HEAD),
        "BertForPreTraining": masked(MASKED, OF_HEAD),
        "BertModel": vector("bert."),
        "BertForSequenceClassification": classification(
            {"head.dense": "bert.pooler.dense", "head.map": "classifier"}
        ),
        "BertForTokenClassification": tagging(),
        "BertForQuestionAnswering": span(),
    },
    fields=(*SIZE, Number("max_position_embeddings", "size.context", 512), *REFUSED),
    names=layers("bert."),
    prefix="bert.",
    habits=Habits(
        spare=(*spare("bert."), r"cls\.seq_relationship\.(weight|bias)"),
        alias=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    ),
)
