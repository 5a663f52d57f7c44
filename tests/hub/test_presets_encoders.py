"""A config.json of an encoder or encoder-decoder is a preset of ours, or is refused by name and value."""

from __future__ import annotations

from typing import Any

import pytest
from hub import encoders, parity
from hub import published_configs as published

from tfcli.compose import compose, flat, override
from tfcli.errors import ConfigError
from tfcli.hub import architecture, kind_of
from tfcli.hub.fields import Asked

TINY = ("size.d_model=16", "size.n_layers=3", "size.n_heads=4", "size.n_kv_heads=4", "size.d_ff=24",
        "size.context=32", "size.dropout=0.1")  # fmt: skip
USUAL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24,
         "max_position_embeddings": 32}  # fmt: skip
SIDES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("attention_heads", 4), ("ffn_dim", 24), ("layers", 3))
}
LIKE_BART = SIDES | {"d_model": 16, "max_position_embeddings": 32, "attention_dropout": 0.1}
T5 = {
    "model_type": "t5",
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 3,
    "num_heads": 4,
    "n_positions": 32,
}
SMALL: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert"} | USUAL,
    "roberta": {"model_type": "roberta", "type_vocab_size": 1, "layer_norm_eps": 1e-5} | USUAL,
    "distilbert": {"model_type": "distilbert", "dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 24,
                   "max_position_embeddings": 32},
    "modernbert": {"model_type": "modernbert"} | USUAL,
    "t5": T5,
    "t5_1_1": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "bart": {"model_type": "bart"} | LIKE_BART,
    "marian": {"model_type": "marian", "activation_function": "swish", "scale_embedding": True} | LIKE_BART,
}  # fmt: skip
MORE = {
    "roberta": ["size.context=30"],
    "modernbert": ["size.dropout=0.0"],
    "t5": ["size.head_dim=6"],
    "t5_1_1": ["size.head_dim=6"],
}


def apart(said: dict[str, Any], *overrides: str) -> list[str]:
    """In which keys they differ; size.dropout is none of a model of theirs, as each part has its own."""
    return [key for key in parity.preset_nodes(said, *overrides) if key != "size.dropout"]


@pytest.mark.parametrize("preset", SMALL)
def test_a_tiny_config_json_is_the_preset(preset: str) -> None:
    assert apart(SMALL[preset], f"preset={preset}", *TINY, *MORE.get(preset, ())) == []


def test_the_transformer_of_2017_has_other_waves_and_no_biases_so_that_marian_cannot_say_it() -> None:
    said = SMALL["marian"] | {"activation_function": "relu"}
    assert apart(said, "preset=transformer2017", *TINY) == [
        "attention.bias",
        "head.final_logits_bias",
        "position.layout",
    ]


PUBLISHED = {
    "BERT": ("preset=bert", "size=bert_base"),
    "BERT_CHINESE": ("preset=bert", "size=bert_base"),
    "ROBERTA": ("preset=roberta", "size=roberta_base"),
    "DISTILBERT": ("preset=distilbert", "size=distilbert_base"),
    "SST2": ("preset=distilbert", "size=distilbert_base", "head=classification", "head.activation=relu",
             "head.dropout=0.2"),
    "MODERNBERT": ("preset=modernbert", "size=modernbert_base"),
    "T5": ("preset=t5", "size=t5_small"),
    "T5_1_1": ("preset=t5_1_1", "size=t5_1_1_small", "size.dropout=0.1"),
    "BART": ("preset=bart", "size=bart_base", "ffn.dropout=0.1"),
    "BART_CNN": ("preset=bart", "size=bart_large", "attention.dropout=0.0"),
    "MARIAN": ("preset=marian", "size=marian", "attention.dropout=0.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_json_is_a_preset_of_its_size(name: str) -> None:
    assert apart(getattr(published, name), *PUBLISHED[name]) == []


KINDS = [(preset, kind) for preset, said in SMALL.items() for kind in architecture(said["model_type"]).kinds]


@pytest.mark.parametrize(("preset", "kind"), KINDS)
def test_what_is_written_is_read_as_it_was(preset: str, kind: str) -> None:
    said = SMALL[preset] | {"architectures": [kind]}
    arch, first = architecture(said["model_type"]), encoders.settings(said)
    config = compose("train", [override(key, value) for key, value in first.items()])
    from omegaconf import OmegaConf

    written = arch.write(kind, flat(OmegaConf.to_container(config, resolve=True)))
    again = arch.read(kind_of(arch, Asked(written, "config.json")), Asked(written, "config.json"))
    assert again == first


# --- what is not carried out --------------------------------------------------------------------------------

BERT = ("bert", [
    ("position_embedding_type", "relative_key"), ("is_decoder", True), ("add_cross_attention", True),
    ("hidden_act", "quick_gelu"), ("tie_word_embeddings", False), ("directionality", "left"),
    ("pooler_type", "mean"), ("embedding_size", 8), ("pruned_heads", {"0": [1]}),
    ("architectures", ["BertFor"]), ("architectures", ["BertLMHeadModel"]),
    ("num_hidden_layers", 2.5), ("hidden_dropout_prob", "much"),
])  # fmt: skip
ROBERTA = ("roberta", [
    ("position_embedding_type", "relative_key_query"), ("pad_token_id", -1), ("is_decoder", True),
    ("max_position_embeddings", 2), ("architectures", ["RobertaForCausalLM"]), ("adapters", {"a": 1}),
])  # fmt: skip
DISTILBERT = ("distilbert", [
    ("activation", "mish"), ("hidden_size", 8), ("n_layers", "six"), ("tie_weights_", False),
    ("num_attention_heads", 2), ("layer_norm_eps", 1e-5),
])  # fmt: skip
MODERNBERT = ("modernbert", [
    ("local_attention", 129), ("layer_types", ["full_attention"]), ("layer_types", ["chunked_attention"] * 3),
    ("global_attn_every_n_layers", 0), ("rope_parameters", {"full": {"rope_theta": 1e4}}),
    ("rope_parameters", {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}),
    ("rope_parameters", {"full_attention": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    ("position_embedding_type", "relative"), ("hidden_activation", "xielu"), ("attention_dropout", 0.1),
    ("head_dim", 8), ("norm_eps", 1e-6),
])  # fmt: skip
T5_REFUSED = ("t5", [
    ("feed_forward_proj", "gated-gelu-new"), ("feed_forward_proj", "glu-gelu"), ("is_gated_act", True),
    ("feed_forward_proj", "gated-mish"), ("dense_act_fn", "gelu_new"), ("scale_decoder_outputs", "no"),
    ("is_decoder", True), ("head_dim", 4), ("num_hidden_layers", 2), ("feed_forward_proj", 3),
    ("architectures", ["T5EncoderModel"]), ("tie_encoder_decoder", True),
])  # fmt: skip
BART = ("bart", [
    ("normalize_before", True), ("add_final_layer_norm", True), ("normalize_embedding", False),
    ("static_position_embeddings", True), ("extra_pos_embeddings", 3), ("add_bias_logits", True),
    ("encoder_layerdrop", 0.1), ("decoder_layerdrop", 0.1), ("decoder_attention_heads", 2),
    ("decoder_ffn_dim", 32), ("num_hidden_layers", 4), ("num_attention_heads", 2), ("hidden_size", 8),
    ("is_decoder", True), ("tie_word_embeddings", False), ("force_bos_token_to_be_generated", True),
    ("activation_function", "gelu_10"), ("do_blenderbot_90_layernorm", True),
])  # fmt: skip
MARIAN = ("marian", [
    ("decoder_vocab_size", 60), ("normalize_embedding", True), ("static_position_embeddings", False),
    ("tie_word_embeddings", False), ("encoder_layerdrop", 0.5), ("encoder_ffn_dim", 32),
    ("share_encoder_decoder_embeddings", "no"),
])  # fmt: skip
REFUSED = [
    (preset, field, value)
    for preset, pairs in (BERT, ROBERTA, DISTILBERT, MODERNBERT, T5_REFUSED, BART, MARIAN)
    for field, value in pairs
]
BY_ANOTHER = {("marian", "encoder_ffn_dim"): "decoder_ffn_dim", ("modernbert", "norm_eps"): "layer_norm_eps"}


@pytest.mark.parametrize(("preset", "field", "value"), REFUSED)
def test_what_is_not_carried_out_is_refused_by_its_name_and_value(
    preset: str, field: str, value: object
) -> None:
    beside = {"layer_norm_eps": 1e-5} if (preset, field) == ("modernbert", "norm_eps") else {}
    with pytest.raises(ConfigError) as error:
        encoders.settings(SMALL[preset] | {"vocab_size": 40} | beside | {field: value})
    text = str(error.value)
    assert "\n" not in text and text.startswith("config.json: ")
    assert BY_ANOTHER.get((preset, field), field) in text


@pytest.mark.parametrize("more", [
    {"problem_type": "regression"}, {"problem_type": "multi_label_classification"}, {"num_labels": 1},
    {"id2label": {"0": "LABEL_0"}},
])  # fmt: skip
def test_a_class_that_is_not_one_of_several_is_refused(more: dict[str, Any]) -> None:
    kinds = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "modernbert": "ModernBert"}
    for preset, name in kinds.items():
        said = SMALL[preset] | {"architectures": [f"{name}ForSequenceClassification"]}
        assert encoders.refusal(said) == ""
        assert next(iter(more)) in encoders.refusal(said | more)
