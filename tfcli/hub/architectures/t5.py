"""T5 1.0 and 1.1 (Raffel et al. 2019, arXiv 1910.10683; Shazeer 2020, arXiv 2002.05202)."""

from typing import Any

import torch

from tfcli import choices
from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import (
    ACTIVATIONS,
    CAUSAL,
    Alike,
    Asked,
    Derived,
    Field,
    Flat,
    Free,
    Number,
    Only,
    Settings,
)
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Sides
from tfcli.hub.names import Name, Table
from tfcli.hub.weights import Weights


class HeadDim(Field):
    """The features of a head, which have nothing to do with their number."""

    def read(self, asked: Asked) -> Settings:
        return Number(("d_kv", "head_dim"), "size.head_dim", 64).read(asked)

    def write(self, our: Flat) -> dict[str, Any]:
        return {"d_kv": our.get("size.head_dim") or our["size.d_model"] // our["size.n_heads"]}


class FeedForward(Field):
    """`relu`, or `gated-` and the activation of the gate; `gated-gelu` means the one by tanh."""

    def read(self, asked: Asked) -> Settings:
        name = str(asked.get("feed_forward_proj", "relu"))
        gate, _, activation = ("", "", name) if "-" not in name else name.partition("-")
        activation = "gelu_new" if name == "gated-gelu" else activation
        if gate not in ("", "gated") or activation not in ACTIVATIONS:
            right = f"must be one of {', '.join(ACTIVATIONS)}, alone or as gated-relu and so on"
            raise asked.refused("feed_forward_proj", right)
        if ACTIVATIONS.get(str(asked.get("dense_act_fn", activation))) != ACTIVATIONS[activation]:
            raise asked.refused("dense_act_fn", f"must be as feed_forward_proj={name}")
        if asked.get("is_gated_act", bool(gate)) != bool(gate):
            raise asked.refused("is_gated_act", f"must be as feed_forward_proj={name}")
        chosen = {"preset": "t5_1_1"} if gate else {}
        return chosen | {"ffn.activation": ACTIVATIONS[activation]}

    def write(self, our: Flat) -> dict[str, Any]:
        ours = our.get("ffn.activation")
        gated = our.get("ffn._target_") == choices.target("ffn", "t5_1_1")
        written = {"gelu_tanh": "gelu" if gated else "gelu_new", "gelu": "gelu_python" if gated else "gelu"}
        return {"feed_forward_proj": "gated-" * gated + written.get(ours, ours)} if ours else {}


class Head(Field):
    """Whether scores come by the table of tokens, and from smaller vectors; said to be untied, they come from
    vectors as they are, unless `scale_decoder_outputs` has another word.
    """

    def read(self, asked: Asked) -> Settings:
        tied = asked.get("tie_word_embeddings", True)
        shrink = asked.get("scale_decoder_outputs", tied)
        for name, value in (("tie_word_embeddings", tied), ("scale_decoder_outputs", shrink)):
            if not isinstance(value, bool):
                raise asked.refused(name, "must be true or false")
        return {"head.tied": tied, "head.shrink": shrink}

    def write(self, our: Flat) -> dict[str, Any]:
        names = {"tie_word_embeddings": "head.tied", "scale_decoder_outputs": "head.shrink"}
        return {theirs: our[own] for theirs, own in names.items() if own in our}


def tell(weights: Weights) -> Settings:
    """Whether scores come by the table of tokens: unless the file has another matrix for them, whatever is
    said.
    """
    shapes = weights.shapes()
    tables = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")
    own, table = "lm_head.weight", next((name for name in tables if name in shapes), None)
    if own not in shapes or table is None:
        return {"head.tied": own not in shapes}
    if shapes[own] != shapes[table]:
        return {"head.tied": False}
    held = dict(weights.tensors([own, table]))
    return {"head.tied": torch.equal(held[own], held[table])}


def layers(side: str, own: str) -> dict[str, str]:
    """The names of a side's layers, and theirs."""
    ours, at = f"{own}.layers.#.", f"{side}.block.#.layer."
    places = [("attention", "SelfAttention")] + [("cross_attention", "EncDecAttention")] * (own == "stack")
    names = {}
    for i, (place, kind) in enumerate(places):
        names[f"{ours}{place}.branch.qkv"] = f"{at}{i}.{kind}.{{q,k,v}}"
        names[f"{ours}{place}.branch.out"] = f"{at}{i}.{kind}.o"
        names[f"{ours}{place}.norms.0"] = f"{at}{i}.layer_norm"
    last = f"{at}{len(places)}."
    return {
        **names,
        f"{ours}ffn.branch.up": last + "DenseReluDense.wi",
        f"{ours}ffn.branch.gate_up": last + "DenseReluDense.{wi_0,wi_1}",
        f"{ours}ffn.branch.down": last + "DenseReluDense.wo",
        f"{ours}ffn.norms.0": last + "layer_norm",
        f"{own}.positions.0.table": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{own}.final_norm": f"{side}.final_layer_norm",
    }


NAMES: Table = {
    **layers("encoder", "encoder"),
    **layers("decoder", "stack"),
    "embedding.table": Name("shared", also=("decoder.embed_tokens.weight",)),
    "source_embedding.table": "encoder.embed_tokens",
    "head.map": "lm_head",
}
DROPPED = ("embedding", "family", "placement", "attention", "ffn")

ARCHITECTURE = Architecture(
    model_type="t5",
    settings={"preset": "t5"},
    kinds={
        "T5ForConditionalGeneration": Kind({"objective": "span_corruption", "objective.start": "pad"}),
    },
    fields=(
        Number(("d_model", "hidden_size"), "size.d_model", 512),
        Sides(("num_layers", "num_hidden_layers"), "num_decoder_layers", 6),
        Number(("num_heads", "num_attention_heads"), "size.n_heads", 8),
        Derived("size.n_kv_heads", lambda asked: asked.get(("num_heads", "num_attention_heads"), 8)),
        HeadDim(),
        Alike("d_model", "hidden_size"),
        Alike("num_layers", "num_hidden_layers"),
        Alike("num_heads", "num_attention_heads"),
        Alike("d_kv", "head_dim"),
        Number("d_ff", "size.d_ff", 2048),
        Number("n_positions", "size.context", 512),
        Number("relative_attention_num_buckets", "position.n_buckets", 32),
        Number("relative_attention_max_distance", "position.max_distance", 128),
        Number("layer_norm_epsilon", "norm.eps", 1e-6),
        FeedForward(),
        Head(),
        *(Number("dropout_rate", f"{part}.dropout", 0.1) for part in DROPPED),
        Only("is_decoder", False),
        CAUSAL,
        Free("classifier_dropout", "initializer_factor", "output_past"),
    ),
    names=NAMES,
    tell=tell,
    older={"T5WithLMHeadModel": "T5ForConditionalGeneration"},
    habits=Habits(spare=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)),
)
