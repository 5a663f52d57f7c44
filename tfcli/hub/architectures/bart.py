"""BART (Lewis et al. 2019, arXiv 1910.13461).

A folder of BartModel is read as BartForConditionalGeneration reads it: scores by the table of tokens.
"""

from typing import Any

from tfcli.hub import Architecture, Kind
from tfcli.hub.fields import (
    ACTIVATIONS,
    CAUSAL,
    Alike,
    Asked,
    Choice,
    Derived,
    Field,
    Flat,
    Free,
    Number,
    Only,
    Settings,
    Switch,
)
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Sides
from tfcli.hub.names import Name, Table, one_row


class Heads(Field):
    """Heads and hidden features, which both sides have alike here."""

    each = (("attention_heads", "size.n_heads", 16), ("ffn_dim", "size.d_ff", 4096))

    def read(self, asked: Asked) -> Settings:
        found: Settings = {}
        for name, key, default in self.each:
            encoder, decoder = f"encoder_{name}", f"decoder_{name}"
            Alike(encoder, decoder, default=default).read(asked)
            found |= Number(encoder, key, default).read(asked)
        return found

    def write(self, our: Flat) -> dict[str, Any]:
        sides = ("encoder", "decoder")
        return {f"{side}_{name}": our[key] for name, key, _ in self.each for side in sides if key in our}


class ForcedStart(Field):
    """An older word for `forced_bos_token_id`, which files have beside it."""

    def read(self, asked: Asked) -> Settings:
        name = "force_bos_token_to_be_generated"
        if asked.get(name, False) and asked.get("forced_bos_token_id") is None:
            raise asked.refused(name, "set forced_bos_token_id instead")
        return {}


def layers(side: str, own: str) -> dict[str, str]:
    """The names of a side's layers, and theirs."""
    at, ours = f"model.{side}.layers.#.", f"{own}.layers.#."
    names = {
        ours + "attention.branch.qkv": at + "self_attn.{q_proj,k_proj,v_proj}",
        ours + "attention.branch.out": at + "self_attn.out_proj",
        ours + "attention.norms.0": at + "self_attn_layer_norm",
        ours + "ffn.branch.up": at + "fc1",
        ours + "ffn.branch.down": at + "fc2",
        ours + "ffn.norms.0": at + "final_layer_norm",
    }
    across = {
        ours + "cross_attention.branch.qkv": at + "encoder_attn.{q_proj,k_proj,v_proj}",
        ours + "cross_attention.branch.out": at + "encoder_attn.out_proj",
        ours + "cross_attention.norms.0": at + "encoder_attn_layer_norm",
    }
    return names if side == "encoder" else names | across


FIELDS = (
    Number(("d_model", "hidden_size"), "size.d_model", 1024),
    Sides(("encoder_layers", "num_hidden_layers"), "decoder_layers", 12, 12),
    Heads(),
    Derived("size.n_kv_heads", lambda asked: asked.get("encoder_attention_heads", 16)),
    Alike("d_model", "hidden_size"),
    Alike("encoder_layers", "num_hidden_layers"),
    Alike("encoder_attention_heads", "num_attention_heads"),
    Number("max_position_embeddings", "size.context", 1024),
    Choice("activation_function", "ffn.activation", ACTIVATIONS, "gelu"),
    Number("dropout", "embedding.dropout", 0.1),
    Number("dropout", "placement.dropout", 0.1),
    Number("attention_dropout", "attention.dropout", 0.0),
    Number("activation_dropout", "ffn.dropout", 0.0),
    Switch("scale_embedding", "embedding.scale", False),
    Only("encoder_layerdrop", 0.0),
    Only("decoder_layerdrop", 0.0),
    Only("is_decoder", False),
    CAUSAL,
    Only("tie_word_embeddings", True),
    Only("normalize_before", None, False),
    Only("add_final_layer_norm", None, False),
    Only("add_bias_logits", None, False),
    Free("classifier_dropout", "classif_dropout", "init_std", "output_past", "save_step"),
)
LAYERS: Table = {
    **layers("encoder", "encoder"),
    **layers("decoder", "stack"),
    "source_embedding.table": "model.encoder.embed_tokens",
    "head.map": "lm_head",
    "head.final_logits_bias": Name("final_logits_bias", one_row),
}
SPARE = (r"(model\.)?(encoder|decoder)\.version",)
ZERO = ("final_logits_bias",)
SETTINGS: Settings = {"objective": "bart", "objective.start": "eos"}

ARCHITECTURE = Architecture(
    model_type="bart",
    settings={"preset": "bart"},
    kinds={
        "BartForConditionalGeneration": Kind(SETTINGS),
        "BartModel": Kind(SETTINGS, bare=True),
    },
    fields=(
        *FIELDS,
        ForcedStart(),
        Only("normalize_embedding", None, True),
        Only("static_position_embeddings", None, False),
        Only("extra_pos_embeddings", None, 2),
    ),
    names={
        **LAYERS,
        "embedding.table": Name("model.shared", also=("model.decoder.embed_tokens.weight",)),
        "embedding.norm": "model.decoder.layernorm_embedding",
        "source_embedding.norm": "model.encoder.layernorm_embedding",
        "stack.positions.0.table": "model.decoder.embed_positions",
        "encoder.positions.0.table": "model.encoder.embed_positions",
    },
    prefix="model.",
    habits=Habits(spare=SPARE, zero=ZERO),
)
