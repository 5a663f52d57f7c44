"""ModernBERT with its heads (Warner et al. 2024, arXiv 2412.13663)."""

from typing import Any

from tfcli import choices
from tfcli.hub import Architecture, Kind, rope
from tfcli.hub.fields import (
    ACTIVATIONS,
    NOT_CAUSAL,
    Alike,
    Asked,
    Choice,
    Derived,
    Field,
    Flat,
    Free,
    Labels,
    Number,
    Only,
    Settings,
    Switch,
    Tags,
    fits,
)
from tfcli.hub.layers import Layers, kinds, shortest
from tfcli.hub.names import Table

TYPES = {"full": "full_attention", "local": "sliding_attention"}  # ours, theirs
SCHEMES = ("default", "linear", "llama3", "yarn")  # the others look at a whole batch
THETA = {"full": ("global_rope_theta", 160000.0), "local": ("local_rope_theta", 10000.0)}


class Seen(Field):
    """Which layers see all of the text, and which a window of it: by a list, or every so many."""

    def read(self, asked: Asked) -> Settings:
        ours = {theirs: own for own, theirs in TYPES.items()}
        n_layers = Layers("num_hidden_layers", "n", 22).read(asked)["n"]
        every = asked.get("global_attn_every_n_layers", 3)
        if type(every) is not int or every < 1:
            raise asked.refused("global_attn_every_n_layers", "must be a whole number of 1 or more")
        usual = [TYPES["local" if i % every else "full"] for i in range(n_layers)]
        pattern = shortest([ours[name] for name in kinds(asked, ours, n_layers, usual)])
        return {"attention.pattern": pattern, "position.pattern": pattern}

    def write(self, our: Flat) -> dict[str, Any]:
        pattern = our.get("attention.pattern")
        if not pattern or not set(pattern) <= set(TYPES):
            return {}
        return {"layer_types": [TYPES[pattern[i % len(pattern)]] for i in range(our["size.n_layers"])]}


class Window(Field):
    """A layer sees half of `local_attention` tokens on each side, and itself."""

    def read(self, asked: Asked) -> Settings:
        width = asked.get("local_attention", 128)
        if type(width) is not int or width < 0 or width % 2:
            raise asked.refused("local_attention", "must be an even number, half of it for each side")
        return {"attention.local.rule.size": width // 2 + 1}

    def write(self, our: Flat) -> dict[str, Any]:
        key = "attention.local.rule.size"
        return {"local_attention": 2 * (our[key] - 1)} if key in our else {}


class Ropes(Field):
    """A rotary scheme for each kind of layer; older files name their bases alone.

    The preset has a plain scheme for each kind. Another has keys that are not there yet, which `++` adds:

        {"full_attention": {"rope_type": "linear", "rope_theta": 160000, "factor": 4}}
        -> position.full._target_=tfcli.model.position.rope.LinearRope
           ++position.full.base=160000.0 ++position.full.factor=4.0 position.local.base=10000.0
    """

    def read(self, asked: Asked) -> Settings:
        newer, older, found = asked.within("rope_parameters"), asked.within("rope_scaling"), {}
        for own, theirs in TYPES.items():
            base = rope.number(asked, *THETA[own])
            said = (newer.within(theirs) if newer else None) or older or Asked({}, asked.file)
            kind = said.get(rope.KIND, "default")
            if not fits(kind, SCHEMES):
                raise said.refused(rope.KIND, f"must be {' or '.join(SCHEMES)}")
            if rope.number(said, rope.SHARE, rope.WHOLE) != rope.WHOLE:
                raise said.refused(rope.SHARE, "this architecture turns all features of a head")
            scheme = rope.read(said, asked, kind, rope.number(said, "rope_theta", base))
            chosen = scheme.pop("position")
            key = f"position.{own}."
            if kind != "default":  # of which the preset's are; another kind has keys of its own
                found[key + "_target_"], key = choices.target("position", chosen), f"++{key}"
            found |= {key + name.removeprefix("position."): value for name, value in scheme.items()}
        if newer:
            newer.refuse_rest()
        return found

    def write(self, our: Flat) -> dict[str, Any]:
        found = {theirs: self.scheme(our, f"position.{own}.") for own, theirs in TYPES.items()}
        return {"rope_parameters": {name: said for name, said in found.items() if said is not None}}

    def scheme(self, our: Flat, start: str) -> dict[str, Any] | None:
        """The parameters of the scheme whose keys begin so."""
        said = rope.write(
            {f"position.{key.removeprefix(start)}": our[key] for key in our if key.startswith(start)}
        )
        return None if said is None else {key: value for key, value in said.items() if key != rope.SHARE}


LAYER = "model.layers.#."
NAMES: Table = {
    "embedding.table": "model.embeddings.tok_embeddings",
    "embedding.norm": "model.embeddings.norm",
    "stack.layers.#.attention.norms.0": LAYER + "attn_norm",
    "stack.layers.#.attention.branch.qkv": LAYER + "attn.Wqkv",
    "stack.layers.#.attention.branch.out": LAYER + "attn.Wo",
    "stack.layers.#.ffn.norms.0": LAYER + "mlp_norm",
    "stack.layers.#.ffn.branch.gate_up": LAYER + "mlp.Wi",
    "stack.layers.#.ffn.branch.down": LAYER + "mlp.Wo",
    "stack.final_norm": "model.final_norm",
}
HEAD: Table = {"head.dense": "head.dense", "head.norm": "head.norm"}
BEFORE_SCORES = (
    Switch("classifier_bias", "head.dense_bias", False),
    Choice("classifier_activation", "head.activation", ACTIVATIONS, "gelu"),
)
DROPOUT = Number("classifier_dropout", "head.dropout", 0.0)
POOLING = Choice("classifier_pooling", "head.pool", {"cls": "first", "mean": "mean"}, "cls")
UNTIED = Free("tie_word_embeddings", "decoder_bias")  # of heads that score no tokens


def scoring(settings: Settings, *fields: Field) -> Kind:
    """A head that scores after a dense map, an activation and a norm."""
    names = {**HEAD, "head.map": "classifier"}
    return Kind({**settings, "head.norm": True}, names, (*BEFORE_SCORES, DROPOUT, UNTIED, *fields))


ARCHITECTURE = Architecture(
    model_type="modernbert",
    settings={"preset": "modernbert"},
    kinds={
        "ModernBertForMaskedLM": Kind(
            {"head": "modernbert", "objective": "modernbert"},
            {**HEAD, "head.map": "decoder"},
            (
                *BEFORE_SCORES,
                Switch("decoder_bias", "head.bias", True),
                Switch("tie_word_embeddings", "head.tied", True),
                Free("classifier_dropout", "classifier_pooling"),
            ),
        ),
        "ModernBertModel": Kind(
            {"head": "vector", "objective": "masked_lm"},
            fields=(
                Free("classifier_bias", "classifier_activation", "classifier_dropout", "classifier_pooling"),
                UNTIED,
            ),
            bare=True,
        ),
        "ModernBertForSequenceClassification": scoring(
            {"head": "classification", "objective": "classification"}, POOLING, Labels()
        ),
        "ModernBertForTokenClassification": scoring(
            {"head": "tagging", "objective": "tagging"}, Free("classifier_pooling"), Tags()
        ),
        "ModernBertForQuestionAnswering": scoring(
            {"head": "span", "head.bias": True, "objective": "reading"}, Free("classifier_pooling")
        ),
    },
    fields=(
        Number("hidden_size", "size.d_model", 768),
        Layers("num_hidden_layers", "size.n_layers", 22),
        Number("num_attention_heads", "size.n_heads", 12),
        Derived("size.n_kv_heads", lambda asked: asked.get("num_attention_heads", 12)),
        Number("intermediate_size", "size.d_ff", 1152),
        Number("max_position_embeddings", "size.context", 8192),
        Seen(),
        Window(),
        Ropes(),
        Number("norm_eps", "norm.eps", 1e-5),
        Alike("norm_eps", "layer_norm_eps"),
        Switch("norm_bias", "norm.bias", False),
        Choice("hidden_activation", "ffn.activation", ACTIVATIONS, "gelu"),
        Switch("attention_bias", "attention.full.bias", False),
        Switch("attention_bias", "attention.local.bias", False),
        Switch("mlp_bias", "ffn.bias", False),
        Number("embedding_dropout", "embedding.dropout", 0.0),
        Number("mlp_dropout", "ffn.dropout", 0.0),
        Only("attention_dropout", 0.0),  # would drop what attention gives as well, and the feed-forward's not
        Only("position_embedding_type", None, "absolute"),
        NOT_CAUSAL,
        Free("initializer_cutoff_factor", "deterministic_flash_attn", "reference_compile"),
        Free("sparse_prediction", "sparse_pred_ignore_index", "repad_logits_with_grad"),
    ),
    names=NAMES,
    prefix="model.",
)
