"""Tiny random decoders of `transformers` and ours with their weights (see `published`)."""

from __future__ import annotations

from typing import Any

import torch
from laws import cases
from model.published import CONTEXT, FF, SIZE, D, H, L, V, filled, shaken
from torch import nn

K = 2  # key and value heads
COMMON = {
    "vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H,
    "intermediate_size": FF, "max_position_embeddings": CONTEXT, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
Both = tuple[nn.Module, nn.Module]


def llama_like(
    theirs: nn.Module, case: cases.Case, more: tuple[str, ...] = (), norms: tuple[str, str] | None = None,
    fused: bool = False, bias: bool = False, qk_norm: bool = False, tied: bool = False,
) -> Both:  # fmt: skip
    """norms: theirs of the attention and the feed-forward; fused: q, k, v are one matrix, and gate, up."""
    shaken(theirs)
    first, second = norms or ("input_layernorm", "post_attention_layernorm")
    qkv = ("qkv_proj",) if fused else ("q_proj", "k_proj", "v_proj")
    names = {
        "embedding.table.weight": ("model.embed_tokens.weight",),
        "head.map.weight": ("model.embed_tokens.weight" if tied else "lm_head.weight",),
        "stack.final_norm.gain": ("model.norm.weight",),
    }
    for i in range(L):
        at, own = f"model.layers.{i}.", f"stack.layers.{i}."
        for kind in ("weight", *(["bias"] if bias else [])):
            names[own + f"attention.branch.qkv.{kind}"] = tuple(f"{at}self_attn.{x}.{kind}" for x in qkv)
        names |= {
            own + "attention.branch.out.weight": (at + "self_attn.o_proj.weight",),
            own + "attention.norms.0.gain": (f"{at}{first}.weight",),
            own + "ffn.norms.0.gain": (f"{at}{second}.weight",),
            own + "ffn.branch.gate_up.weight": (at + "mlp.gate_up_proj.weight",)
            if fused
            else (at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"),
            own + "ffn.branch.down.weight": (at + "mlp.down_proj.weight",),
        }
        for x in ("q", "k") if qk_norm else ():
            names[own + f"attention.branch.{x}_norm.gain"] = (f"{at}self_attn.{x}_norm.weight",)
    return filled(cases.model_of(case, *SIZE, f"size.n_kv_heads={K}", *more), theirs, names), theirs


def gemma(*flip: str) -> Both:
    from transformers import GemmaConfig, GemmaForCausalLM

    theirs = GemmaForCausalLM(GemmaConfig(**COMMON, num_key_value_heads=K, head_dim=6))
    return llama_like(theirs, {"preset": "gemma"}, ("size.head_dim=6", *flip), tied=True)


def qwen2(*flip: str, windows: bool = False) -> Both:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    own: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    theirs = Qwen2ForCausalLM(Qwen2Config(
        **COMMON, num_key_value_heads=K, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=False, **(own if windows else {})))  # fmt: skip
    pattern = ("attention=qwen2_windows", "attention.pattern=[full,sliding,sliding]") if windows else ()
    return llama_like(theirs, {"preset": "qwen2"}, (*pattern, *flip), bias=True)


def olmo2(*flip: str) -> Both:
    from transformers import Olmo2Config, Olmo2ForCausalLM

    theirs = Olmo2ForCausalLM(Olmo2Config(
        **COMMON, num_key_value_heads=K, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}))  # fmt: skip
    norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    return llama_like(theirs, {"preset": "olmo2"}, flip, norms, qk_norm=True)


def qwen3(*flip: str) -> Both:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    theirs = Qwen3ForCausalLM(Qwen3Config(
        **COMMON, num_key_value_heads=K, head_dim=6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}))  # fmt: skip
    more = ("attention=gqa", "attention.qk_norm=head", "size.head_dim=6", *flip)
    return llama_like(theirs, {"preset": "qwen2"}, more, qk_norm=True)


def phi3(*flip: str) -> Both:
    """With factors of its own for each pair of 4 features, and 8 positions before they change."""
    from transformers import Phi3Config, Phi3ForCausalLM

    rope = {
        "rope_type": "longrope",
        "short_factor": [1.1, 1.5],
        "long_factor": [2.0, 5.0],
        "rope_theta": 10000.0,
    }
    theirs = Phi3ForCausalLM(Phi3Config(
        **COMMON, num_key_value_heads=K, rms_norm_eps=1e-5, original_max_position_embeddings=8,
        rope_parameters=rope, tie_word_embeddings=False))  # fmt: skip
    lists = ("position.short_factor=[1.1,1.5]", "position.long_factor=[2.0,5.0]")
    case = {"preset": "llama3", "position": "rope_longrope"}
    return llama_like(theirs, case, (*lists, "position.factor=4.0", *flip), fused=True)


def gpt_neox(*flip: str) -> Both:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    size = {**COMMON, "num_attention_heads": 2}  # of 8 features each: two pairs are turned
    theirs = shaken(GPTNeoXForCausalLM(GPTNeoXConfig(**size, rotary_pct=0.5, tie_word_embeddings=False)))
    names = {
        "embedding.table.weight": ("gpt_neox.embed_in.weight",),
        "head.map.weight": ("lm_head.weight",),
        "stack.final_norm.gain": ("gpt_neox.final_layer_norm.weight",),
        "stack.final_norm.bias": ("gpt_neox.final_layer_norm.bias",),
    }
    linear = {"attention.branch.qkv": "attention.query_key_value", "attention.branch.out": "attention.dense",
              "ffn.branch.up": "mlp.dense_h_to_4h", "ffn.branch.down": "mlp.dense_4h_to_h"}  # fmt: skip
    norms = {"attention.norms.0": "input_layernorm", "ffn.norms.0": "post_attention_layernorm"}
    for i in range(L):
        at, own = f"gpt_neox.layers.{i}.", f"stack.layers.{i}."
        for ours, other in linear.items():
            names |= {f"{own}{ours}.{kind}": (f"{at}{other}.{kind}",) for kind in ("weight", "bias")}
        for ours, other in norms.items():
            names |= {
                f"{own}{ours}.gain": (f"{at}{other}.weight",),
                f"{own}{ours}.bias": (f"{at}{other}.bias",),
            }
    ours = filled(cases.model_of({"preset": "gpt_neox"}, *SIZE, "size.n_heads=2", *flip), theirs, names)
    with torch.no_grad():
        for layer in ours.stack.layers:  # there each head has its q, k and v together
            for p in (layer.attention.branch.qkv.weight, layer.attention.branch.qkv.bias):
                p.copy_(p.unflatten(0, (2, 3, -1)).transpose(0, 1).flatten(0, 2))
    return ours, theirs
