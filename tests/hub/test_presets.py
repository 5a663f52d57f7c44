"""A decoder's config.json reaches the preset of its name; those on the Hub are read to the last parameter."""

from __future__ import annotations

from typing import Any

import pytest
from hub import parity

from tfcli import build
from tfcli.compose import compose, override
from tfcli.hub import architecture, kind_of
from tfcli.hub.fields import Asked

TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "max_position_embeddings": 48}  # fmt: skip
GROUPED = TINY | {"num_key_value_heads": 2}
OURS = ("size.d_model=64", "size.n_layers=2", "size.n_heads=4", "size.d_ff=96", "size.context=48")
PRESETS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [  # what is said there, and what is said here
    ("llama2", GROUPED | {"model_type": "llama", "rms_norm_eps": 1e-5}, ("size.n_kv_heads=2",)),
    ("llama3", GROUPED | {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 500000.0},
     ("size.n_kv_heads=2",)),
    ("mistral", GROUPED | {"model_type": "mistral", "rms_norm_eps": 1e-5}, ("size.n_kv_heads=2",)),
    ("gemma", GROUPED | {"model_type": "gemma", "head_dim": 24}, ("size.n_kv_heads=2", "size.head_dim=24")),
    ("qwen2", GROUPED | {"model_type": "qwen2", "rope_theta": 1e6}, ("size.n_kv_heads=2",)),
    ("olmo2", GROUPED | {"model_type": "olmo2", "rope_theta": 500000, "rms_norm_eps": 1e-6},
     ("size.n_kv_heads=2",)),
    ("gpt_neox", TINY | {"model_type": "gpt_neox"}, ("size.n_kv_heads=4",)),
    ("bloom", {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "seq_length": 48},
     ("size.n_kv_heads=4", "size.d_ff=256")),
    ("gpt2", {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 48, "n_inner": 96,
              "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0}, ("size.n_kv_heads=4",)),
]  # fmt: skip


@pytest.mark.parametrize(("preset", "said", "more"), PRESETS, ids=[name for name, *_ in PRESETS])
def test_a_config_of_theirs_is_the_preset(preset: str, said: dict[str, Any], more: tuple[str, ...]) -> None:
    assert parity.preset_nodes(said, f"preset={preset}", *OURS, *more) == []


def test_a_config_that_asks_for_something_else_is_not_the_preset() -> None:
    _, said, more = PRESETS[0]
    found = parity.preset_nodes(said | {"rope_theta": 500.0, "mlp_bias": True}, "preset=llama2", *OURS, *more)
    assert found == ["ffn.bias", "position.base"]


def llama(**said: Any) -> dict[str, Any]:
    """What all files of Llama's say, and more."""
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "use_cache": True, "initializer_range": 0.02, "tie_word_embeddings": False, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": None, "bos_token_id": 1, "eos_token_id": 2,
            **said}  # fmt: skip


HUB: dict[str, tuple[int, dict[str, Any]]] = {  # parameters, and what the config.json on the Hub says
    "gpt2": (124_439_808, {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
        "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
        "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
        "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True,
        "max_length": 50}}, "vocab_size": 50257}),
    "Llama-2-7b": (6_738_415_616, llama(
        _name_or_path="meta-llama/Llama-2-7b-hf", hidden_size=4096, intermediate_size=11008,
        max_position_embeddings=4096, num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32,
        torch_dtype="float16", transformers_version="4.31.0.dev0", vocab_size=32000)),
    "Llama-3.1-8B": (8_030_261_248, llama(
        attention_bias=False, attention_dropout=0.0, bos_token_id=128000, eos_token_id=[128001, 128008,
        128009], hidden_size=4096, intermediate_size=14336, max_position_embeddings=131072, mlp_bias=False,
        num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, rope_theta=500000.0,
        rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, torch_dtype="bfloat16",
        transformers_version="4.42.3", vocab_size=128256)),
    "TinyLlama-1.1B": (1_100_048_384, llama(
        attention_bias=False, hidden_size=2048, intermediate_size=5632, max_position_embeddings=2048,
        num_attention_heads=32, num_hidden_layers=22, num_key_value_heads=4, rope_theta=10000.0,
        torch_dtype="bfloat16", transformers_version="4.35.0", vocab_size=32000)),
    "SmolLM2-135M": (134_515_008, llama(
        attention_bias=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=0, hidden_size=576,
        initializer_range=0.041666666666666664, intermediate_size=1536, is_llama_config=True,
        max_position_embeddings=8192, num_attention_heads=9, num_hidden_layers=30, num_key_value_heads=3,
        rope_interleaved=False, rope_theta=100000, tie_word_embeddings=True, torch_dtype="bfloat16",
        transformers_version="4.40.1", vocab_size=49152, **{"transformers.js_config": {"kv_cache_dtype":
        {"q4f16": "float16", "fp16": "float16"}}})),
    "Mistral-7B-v0.1": (7_241_732_096, {
        "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000}),
    "gemma-2b": (2_506_172_416, {
        "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu", "hidden_activation":
        None, "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 16384,
        "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
        "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16", "transformers_version":
        "4.38.0.dev0", "use_cache": True, "vocab_size": 256000}),
    "Qwen2-0.5B": (494_032_768, {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 131072, "max_window_layers": 24, "model_type":
        "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings":
        True, "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True, "use_mrope":
        False, "use_sliding_window": False, "vocab_size": 151936}),
    "OLMo-2-1124-7B": (7_298_617_344, {
        "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id":
        100277, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings":
        False, "torch_dtype": "float32", "transformers_version": "4.47.0", "use_cache": True, "vocab_size":
        100352}),
    "pythia-70m": (70_426_624, {
        "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
        "hidden_size": 512, "initializer_range": 0.02, "intermediate_size": 2048, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8,
        "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False,
        "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": True,
        "use_parallel_residual": True, "vocab_size": 50304}),
    "bloom-560m": (559_214_592, {
        "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0,
        "attention_softmax_in_fp32": True, "architectures": ["BloomForCausalLM"], "bias_dropout_fusion":
        True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "unk_token_id": 0, "hidden_dropout":
        0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "masked_softmax_fusion": True,
        "model_type": "bloom", "n_embed": 1024, "n_inner": None, "n_layer": 24, "num_attention_heads": 16,
        "offset_alibi": 100, "pretraining_tp": 1, "seq_length": 2048, "skip_bias_add": True,
        "skip_bias_add_qkv": False, "transformers_version": "4.20.0", "use_cache": True, "vocab_size":
        250880}),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB)
def test_a_config_on_the_hub_is_read_to_the_last_parameter(name: str) -> None:
    count, said = HUB[name]
    asked = Asked(said, "config.json")
    arch = architecture(said["model_type"])
    settings = arch.read(kind_of(arch, asked), asked) | {"embedding.vocab_size": said["vocab_size"]}
    config = compose("train", [override(key, value) for key, value in settings.items()])
    model = build.rehearse(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert model.vocab_size == said["vocab_size"]


def test_sizes_of_ours_are_those_on_the_hub() -> None:
    for name, size in (("gpt2", "gpt2_124m"), ("gemma-2b", "gemma_2b"), ("pythia-70m", "pythia_70m"),
                       ("bloom-560m", "bloom_560m"), ("Llama-2-7b", "llama2_7b")):  # fmt: skip
        said = HUB[name][1]
        drop = ["size.dropout=0"]
        arch, ours = architecture(said["model_type"]), compose("train", [f"size={size}", *drop]).size
        found = arch.read(next(iter(arch.kinds)), Asked(said, "config.json"))
        assert {k: v for k, v in found.items() if k.startswith("size.") and v} == {
            f"size.{key}": value for key, value in ours.items() if value
        }
