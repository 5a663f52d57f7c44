"""Tiny encoder-decoders of `transformers`, with each of their branches."""

from __future__ import annotations

from typing import Any

import torch
from hub import parity
from torch import nn

SIDES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("attention_heads", parity.H), ("ffn_dim", parity.FF), ("layers", parity.L))
}
TOKENS = {"vocab_size": parity.V, "pad_token_id": parity.PAD_ID, "eos_token_id": parity.EOS_ID}
LIKE_BART = TOKENS | SIDES | {"d_model": parity.D, "max_position_embeddings": parity.CONTEXT}
BART = LIKE_BART | {"bos_token_id": parity.BOS_ID, "decoder_start_token_id": parity.EOS_ID}
MARIAN = LIKE_BART | {"decoder_start_token_id": parity.PAD_ID, "scale_embedding": True,
                      "activation_function": "swish", "forced_eos_token_id": None}  # fmt: skip
T5 = TOKENS | {"d_model": parity.D, "d_kv": 6, "d_ff": parity.FF, "num_layers": parity.L,
               "num_heads": parity.H,
               "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
               "decoder_start_token_id": parity.PAD_ID}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_1_1": ("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}),
    "t5_gated_silu": ("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-silu"}),
    "t5_unscaled": ("T5ForConditionalGeneration", T5 | {"tie_word_embeddings": False}),
    "t5_untied": ("T5ForConditionalGeneration", T5 | {"num_decoder_layers": 2, "layer_norm_epsilon": 1e-3}),
    "bart": ("BartForConditionalGeneration", BART),
    "bart_scaled": ("BartForConditionalGeneration", BART | {
        "scale_embedding": True, "activation_function": "relu", "encoder_layers": 2, "decoder_layers": 4}),
    "marian": ("MarianMTModel", MARIAN),
    "marian_apart": ("MarianMTModel", MARIAN | {
        "share_encoder_decoder_embeddings": False, "activation_function": "gelu", "scale_embedding": False,
        "encoder_layers": 4, "decoder_layers": 2}),
}  # fmt: skip
UNTIED = ("t5_1_1", "t5_untied")  # as real files of T5 1.1 are


def made(case: str, **more: Any) -> nn.Module:
    """A model of theirs with random numbers everywhere but in what is fixed."""
    import transformers

    name, said = CASES[case]
    said = said | more | ({"tie_word_embeddings": False} if case == "t5_1_1" else {})
    kind = getattr(transformers, name)
    theirs = kind(kind.config_class(**said))
    if case in UNTIED:
        theirs.lm_head.weight = nn.Parameter(theirs.lm_head.weight.detach().clone())
    parity.shaken(theirs)
    fixed = {n: t for n, t in kind(theirs.config).state_dict().items() if "embed_positions" in n}
    if case.startswith("marian"):  # the waves are parameters there, which nobody trains
        with torch.no_grad():
            for parameter, tensor in fixed.items():
                theirs.state_dict()[parameter].copy_(tensor)
    return theirs
