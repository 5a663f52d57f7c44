"""Tiny decoders of `transformers`, each of their branches, and models of ours that differ in one choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hub import parity
from torch import nn

from tfcli import build
from tfcli.checkpoint import Loaded
from tfcli.hub.folder import Folder

NAMES = {"llama": "Llama", "mistral": "Mistral", "gemma": "Gemma", "qwen2": "Qwen2", "olmo2": "Olmo2",
         "gpt_neox": "GPTNeoX", "bloom": "Bloom", "gpt2": "GPT2"}  # fmt: skip
TOKENS = {"vocab_size": parity.V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
USUAL = {"hidden_size": 32, "num_hidden_layers": parity.L, "num_attention_heads": 4, "intermediate_size": 40,
         "max_position_embeddings": parity.CONTEXT}  # fmt: skip
GROUPED = USUAL | {"num_key_value_heads": 2}
SIZES: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "mistral": GROUPED | {"sliding_window": 8, "head_dim": 12},
    "gemma": GROUPED | {"head_dim": 12, "num_key_value_heads": 1},
    "qwen2": GROUPED,
    "olmo2": GROUPED,
    "gpt_neox": USUAL | {"rotary_pct": 0.5},
    "bloom": {"hidden_size": 24, "n_layer": parity.L, "n_head": 6},  # heads that are no power of two
    "gpt2": {"n_embd": 32, "n_layer": parity.L, "n_head": 4, "n_positions": parity.CONTEXT},
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
BRANCHES: list[tuple[str, dict[str, Any]]] = [
    (
        "llama",
        {"num_key_value_heads": 1, "head_dim": 12, "attention_bias": True, "tie_word_embeddings": True},
    ),
    ("llama", {"num_key_value_heads": 4, "mlp_bias": True, "hidden_act": "gelu_new", "rms_norm_eps": 1e-3}),
    ("mistral", {"sliding_window": None, "tie_word_embeddings": True, "hidden_act": "relu"}),
    ("mistral", {"sliding_window": 2, "num_key_value_heads": 1}),
    ("gemma", {"num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": False}),
    ("gemma", {"head_dim": 8, "hidden_act": "gelu_python", "rms_norm_eps": 1e-3}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "num_hidden_layers": 4, "layer_types": MIXED},
    ),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0, "head_dim": 12}),
    ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 4, "sliding_window": 8}),
    ("olmo2", {"attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 1}),
    ("olmo2", {"num_key_value_heads": 4, "head_dim": 12, "rms_norm_eps": 1e-3}),
    ("gpt_neox", {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 0.25}),
    ("gpt_neox", {"rotary_pct": 1.0, "tie_word_embeddings": True, "hidden_act": "gelu_new"}),
    ("bloom", {"n_head": 4, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3}),
    ("bloom", {"n_head": 12, "n_layer": 2, "pretraining_tp": 2}),
    ("gpt2", {"n_inner": 40, "activation_function": "gelu", "scale_attn_weights": False}),
    ("gpt2", {"tie_word_embeddings": False, "reorder_and_upcast_attn": True, "layer_norm_epsilon": 1e-3}),
]
CASES: list[tuple[str, dict[str, Any]]] = [*((name, {}) for name in NAMES), *BRANCHES]


def called(case: object) -> str:
    """A case by its name."""
    return ",".join(f"{k}={v}" for k, v in case.items()) or "usual" if isinstance(case, dict) else str(case)


def made(name: str, **more: Any) -> nn.Module:
    """A model of theirs with random numbers everywhere."""
    import transformers

    config = getattr(transformers, f"{NAMES[name]}Config")(**TOKENS | SIZES[name] | more)
    config._attn_implementation = "eager"
    head = "LMHeadModel" if name == "gpt2" else "ForCausalLM"
    return parity.shaken(getattr(transformers, NAMES[name] + head)(config))


def flipped(loaded: Loaded, where: Path, *changes: str) -> Loaded:
    """The same numbers in a model that differs in some choices; norms of another width have gains of 1."""
    folder, anew = Folder(where), tuple(f"{change.partition('=')[0]}." for change in changes)
    folder.overrides = [*(o for o in folder.overrides if not o.startswith(anew)), *changes]
    config = folder.config()
    model = build.model(config, loaded.tokenizer.vocab_size)
    have, want = loaded.model.state_dict(), model.state_dict()
    held = {key: value for key, value in have.items() if key in want and want[key].shape == value.shape}
    assert all("norm" in key for key in want.keys() - held.keys())
    model.load_state_dict(held, strict=False)
    return loaded._replace(model=model.eval(), config=config)
