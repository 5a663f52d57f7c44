"""Fields of a decoder's config.json: each is carried out or refused, and what we write is read as it was."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hub import decoders

from tfcli.compose import compose
from tfcli.errors import ConfigError
from tfcli.hub import architecture, kind_of
from tfcli.hub.fields import Asked, Settings
from tfcli.hub.holder import holder


def read(name: str, **said: Any) -> Settings:
    """The settings of a config.json with these fields."""
    asked = Asked({"model_type": name, **said}, "config.json")
    arch = architecture(name)
    return arch.read(kind_of(arch, asked), asked)


@pytest.mark.parametrize("name", decoders.NAMES)
def test_every_field_of_the_class_is_heard(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, f"{decoders.NAMES[name]}Config")
    asked = Asked(kind().to_dict(), "config.json")
    arch = architecture(name)
    arch.read(next(iter(arch.kinds)), asked)
    assert {field.name for field in dataclasses.fields(kind)} <= asked.heard


@pytest.mark.parametrize("name", decoders.NAMES)
def test_what_is_not_said_is_as_transformers_has_it(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, f"{decoders.NAMES[name]}Config")
    bare, full = read(name), read(name, **kind().to_dict())
    sizes = ("size.head_dim", "size.context")  # worked out there; of BLOOM's there is no limit to say
    assert {k: v for k, v in bare.items() if k not in sizes} == {
        k: v for k, v in full.items() if k not in sizes
    }
    if name != "bloom":
        assert bare["size.context"] == full["size.context"]


REFUSED: list[tuple[str, dict[str, Any]]] = [  # the last field of each is named, with its value
    ("llama", {"hidden_act": "quick_gelu"}),
    ("llama", {"hidden_act": ["silu"]}),
    ("llama", {"rope_interleaved": True}),
    ("llama", {"attention_bias": "yes"}),
    ("llama", {"mlp_bias": 2}),
    ("llama", {"tie_word_embeddings": "no"}),
    ("llama", {"hidden_size": "big"}),
    ("llama", {"num_hidden_layers": 2.5}),
    ("llama", {"num_attention_heads": float("inf")}),
    ("llama", {"num_key_value_heads": True}),
    ("llama", {"sliding_window": 8}),
    ("llama", {"quantization_config": {"bits": 4}}),
    ("llama", {"per_layer_config": {"0": {"hidden_size": 8}}}),
    ("llama", {"some_new_field": 0.5}),
    ("llama", {"architectures": ["LlamaForSequenceClassification"]}),
    ("mistral", {"sliding_window": 0}),
    ("mistral", {"sliding_window": "8"}),
    ("mistral", {"sliding_window": 8.0}),
    ("mistral", {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]}),
    ("mistral", {"sliding_window": None, "layer_types": ["sliding_attention"]}),
    ("mistral", {"layer_types": "sliding_attention"}),
    ("mistral", {"attention_bias": True}),
    ("gemma", {"use_bidirectional_attention": True}),
    ("gemma", {"hidden_act": "gelu", "hidden_activation": "gelu_python"}),
    ("gemma", {"hidden_activation": "relu"}),
    ("gemma", {"hidden_activation": ["gelu"]}),
    ("gemma", {"hidden_act": "mish"}),
    ("gemma", {"final_logit_softcapping": 30.0}),
    ("gemma", {"query_pre_attn_scalar": 256}),
    ("qwen2", {"use_mrope": True}),
    ("qwen2", {"num_hidden_layers": 2, "layer_types": ["full_attention", "chunked_attention"]}),
    ("qwen2", {"num_hidden_layers": 3, "layer_types": ["full_attention", "full_attention"]}),
    ("qwen2", {"num_hidden_layers": 1, "sliding_window": 8, "layer_types": ["sliding_attention"]}),
    ("qwen2", {"num_hidden_layers": 1, "layer_types": "full_attention"}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": -1}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": "all"}),
    ("qwen2", {"use_sliding_window": "yes"}),
    ("qwen2", {"attention_bias": True}),
    ("olmo2", {"clip_qkv": 8.0}),
    ("olmo2", {"sliding_window": 4096}),
    ("olmo2", {"hidden_act": "xielu"}),
    ("gpt_neox", {"use_parallel_residual": "yes"}),
    ("gpt_neox", {"rotary_emb_base": 10000, "rope_theta": 500000}),
    ("gpt_neox", {"rope_theta": 500000}),
    ("gpt_neox", {"rotary_pct": 0.25, "partial_rotary_factor": 0.5}),
    ("gpt_neox", {"rotary_pct": "half"}),
    ("gpt_neox", {"head_dim": 64}),
    ("bloom", {"apply_residual_connection_post_layernorm": True}),
    ("bloom", {"pretraining_tp": 2, "slow_but_exact": True}),
    ("bloom", {"hidden_size": 64, "n_inner": 128}),
    ("bloom", {"hidden_size": 64, "n_embed": 128}),
    ("bloom", {"n_layer": 3, "num_hidden_layers": 4}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"add_cross_attention": True}),
    ("gpt2", {"activation_function": "quick_gelu"}),
    ("gpt2", {"scale_attn_weights": 0.5}),
    ("gpt2", {"n_embd": 768, "hidden_size": 512}),
    ("gpt2", {"pruned_heads": {"0": [1]}}),
    ("gpt2", {"tie_encoder_decoder": True}),
]


@pytest.mark.parametrize(("name", "said"), REFUSED, ids=decoders.called)
def test_what_is_not_carried_out_is_refused(name: str, said: dict[str, Any]) -> None:
    field, value = list(said.items())[-1]
    with pytest.raises(ConfigError) as refused:
        read(name, **said)
    message = str(refused.value)
    shown = repr(value) if isinstance(value, str) else str(value).replace("True", "true")
    assert message.startswith(f"config.json: {field}={shown}: ") and "\n" not in message


ALIKE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [  # two ways to say one thing
    ("llama", {"num_attention_heads": 8}, {"num_attention_heads": 8, "num_key_value_heads": 8}),
    ("llama", {"pretraining_tp": 2, "max_sequence_length": 4096}, {}),
    ("llama", {"hidden_act": "swish"}, {"hidden_act": "silu"}),
    ("mistral", {}, {"sliding_window": 4096, "num_key_value_heads": 8}),
    ("mistral", {"num_key_value_heads": None}, {"num_key_value_heads": 32}),
    ("mistral", {"num_hidden_layers": 2, "layer_types": ["sliding_attention"] * 2}, {"num_hidden_layers": 2}),
    ("gemma", {"hidden_act": "gelu"}, {"hidden_act": "gelu_pytorch_tanh"}),
    ("gemma", {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, {}),
    ("gemma", {"hidden_activation": None, "use_bidirectional_attention": False}, {"head_dim": 256}),
    ("qwen2", {"sliding_window": 131072, "max_window_layers": 24, "use_sliding_window": False}, {}),
    ("qwen2", {"use_sliding_window": True, "num_hidden_layers": 4, "max_window_layers": 4},
     {"num_hidden_layers": 4}),
    ("qwen2", {"use_sliding_window": True, "num_hidden_layers": 4, "sliding_window": None},
     {"num_hidden_layers": 4}),
    ("qwen2", {"use_sliding_window": True, "num_hidden_layers": 3, "max_window_layers": 1},
     {"use_sliding_window": True, "num_hidden_layers": 3,
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}),
    ("gpt_neox",
     {"rotary_emb_base": 10000, "rope_theta": 10000, "rotary_pct": 0.25, "partial_rotary_factor": 0.25}, {}),
    ("gpt_neox", {"rotary_pct": 0.5, "classifier_dropout": 0.3},
     {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_type": "default"}}),
    ("bloom", {"n_embed": 128, "num_attention_heads": 4}, {"hidden_size": 128, "n_head": 4}),
    ("bloom", {"n_inner": None, "slow_but_exact": True, "offset_alibi": 100, "skip_bias_add": True},
     {"n_inner": 256}),
    ("bloom", {"pretraining_tp": 4, "slow_but_exact": False, "masked_softmax_fusion": True}, {}),
    ("gpt2", {"n_inner": None, "n_ctx": 1024}, {"n_inner": 3072}),
    ("gpt2",
     {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 8},
     {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 8}),
    ("gpt2", {"summary_type": "last", "summary_first_dropout": 0.5, "reorder_and_upcast_attn": True}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "one", "other"), ALIKE, ids=decoders.called)
def test_older_and_shorter_ways_to_say_it_are_read(
    name: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert read(name, **one) == read(name, **other)


def test_dropouts_are_carried_to_where_they_are_here() -> None:
    found = read("gpt2", embd_pdrop=0.1, attn_pdrop=0.2, resid_pdrop=0.3)
    drops = ("embedding.dropout", "attention.dropout", "placement.dropout", "ffn.dropout", "size.dropout")
    assert [found[key] for key in drops] == [0.1, 0.2, 0.3, 0.0, 0.0]
    found = read("gpt_neox", hidden_dropout=0.1, attention_dropout=0.2)
    assert [found[key] for key in drops] == [0.1, 0.2, 0.1, 0.0, 0.0]
    found = read("bloom", hidden_dropout=0.1, attention_dropout=0.2)
    assert [found[key] for key in drops] == [0.0, 0.2, 0.1, 0.0, 0.0]
    windows = {"use_sliding_window": True, "max_window_layers": 1, "attention_dropout": 0.2}
    found = read("qwen2", **windows)
    assert [found[f"attention.{kind}.dropout"] for kind in ("full", "sliding")] == [0.2, 0.2]
    assert [read(name, attention_dropout=0.2)["attention.dropout"] for name in ("llama", "qwen2")] == [
        0.2,
        0.2,
    ]


def test_a_pattern_of_layers_is_as_short_as_can_be() -> None:
    windows = {"use_sliding_window": True, "sliding_window": 8}
    found = read("qwen2", num_hidden_layers=4, layer_types=decoders.MIXED, **windows)
    assert found["attention.pattern"] == ["sliding", "full"]
    found = read("qwen2", num_hidden_layers=5, layer_types=[*decoders.MIXED, "sliding_attention"], **windows)
    assert found["attention.pattern"] == ["sliding", "full"]
    found = read("qwen2", num_hidden_layers=4, max_window_layers=3, **windows)
    assert found["attention.pattern"] == ["full", "full", "full", "sliding"]


OURS: list[tuple[str, str]] = [
    ("llama", "preset=llama2"),
    ("llama", "preset=llama2 attention=mha size=small"),
    ("llama", "preset=llama3 attention=mqa size.head_dim=48 ffn=geglu_bias head=tied"),
    (
        "llama",
        "preset=llama3 attention.bias=true norm.eps=1e-3 position.interleaved=true attention.kernel=eager",
    ),
    (
        "llama",
        "preset=llama3 ffn.activation=gelu_tanh position=rope_yarn position.factor=3 position.mscale=0.7",
    ),
    ("llama", "preset=llama3 ffn.activation=sigmoid position=rope_llama3 position.original=64"),
    ("llama", "preset=llama3 position=rope_proportional position.partial=0.25"),
    ("llama", "preset=llama3 position=rope_dynamic position.original=48"),
    ("llama", "position=rope attention=gqa"),  # what tf-train does by itself, but for its keys and values
    ("mistral", "preset=mistral size.head_dim=16"),
    ("mistral", "preset=mistral attention.rule.size=5 ffn.activation=relu head=tied"),
    ("gemma", "preset=gemma"),
    ("gemma", "preset=gemma size.head_dim=48 attention.bias=true head=untied attention=mqa"),
    ("gemma", "preset=gemma ffn.activation=gelu"),
    ("qwen2", "preset=qwen2"),
    ("qwen2", "preset=qwen2 attention=qwen2_windows size.n_layers=5"),
    ("qwen2", "preset=qwen2 attention=qwen2_windows attention.pattern=[full,full,sliding]"),
    ("qwen2", "preset=qwen2 attention=qwen2_windows attention.sliding.rule.size=4"),
    ("qwen2", "preset=qwen2 attention=qwen2_windows attention.pattern=[sliding] size.head_dim=16 head=tied"),
    ("olmo2", "preset=olmo2"),
    ("olmo2", "preset=olmo2 attention.bias=true head=tied size.head_dim=16"),
    ("gpt_neox", "preset=gpt_neox"),
    ("gpt_neox", "preset=gpt_neox placement=pre attention.bias=false head=tied position.partial=1.0"),
    (
        "gpt_neox",
        "preset=gpt_neox position=rope_linear position.partial=0.5 ffn.activation=gelu_tanh size=small",
    ),
    ("bloom", "preset=bloom"),
    ("bloom", "preset=bloom size=small size.d_ff=1536 head=untied norm.eps=1e-3"),
    ("gpt2", "preset=gpt2"),
    ("gpt2", "preset=gpt2 attention.scale=1.0 ffn.activation=gelu size.d_ff=100 head=untied"),
]


@pytest.mark.parametrize(("name", "overrides"), OURS)
def test_a_model_of_ours_is_written_so_that_it_is_read_as_it_was(name: str, overrides: str) -> None:
    held = holder(compose("train", overrides.split()))  # which reads again what it writes
    assert held.architecture.model_type == name


HELD_BY_NONE: list[tuple[str, str]] = [
    ("preset=llama3 attention.qk_norm=head", "attention.qk_norm=head"),
    ("preset=llama3 attention.scale=0.5", "attention.scale=0.5"),
    ("preset=llama3 attention.out_bias=true", "attention.out_bias=true"),
    ("preset=mistral attention.bias=true", "attention.bias=true"),
    ("preset=qwen2 attention.bias=true attention.out_bias=true attention=sliding", "attention"),
    ("preset=bloom size.d_ff=100", "ffn.d_ff=100"),
    ("preset=gpt2 ffn.bias=false", "ffn.bias=false"),
    ("preset=gemma head.cap=30", "head.cap=30"),
    ("preset=gpt_neox placement=sandwich", "placement=sandwich"),
]


@pytest.mark.parametrize(("overrides", "named"), HELD_BY_NONE)
def test_a_model_that_none_of_them_holds_is_refused_by_the_choice(overrides: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        holder(compose("train", overrides.split()))
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_layers_are_written_for_older_programs_as_well() -> None:
    config = compose("train", ["preset=qwen2", "attention=qwen2_windows", "size.n_layers=4"])
    config.attention.pattern = ["full", "full", "full", "sliding"]
    said = holder(config).said
    assert said["layer_types"] == ["full_attention"] * 3 + ["sliding_attention"]
    assert (
        said["max_window_layers"] == 3
        and said["use_sliding_window"] is True
        and said["sliding_window"] == 4096
    )
