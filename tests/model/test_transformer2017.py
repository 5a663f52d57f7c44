"""The Transformer of 2017 against torch.nn's own encoder and decoder layers, on copied weights."""

from __future__ import annotations

import math

import pytest
import torch
from laws import cases
from torch import Tensor, nn

from tfcli.batch import PAD, Batch
from tfcli.model.family.encoder_decoder import EncoderDecoder
from tfcli.model.stack import Layer

D, H, FF = 16, 4, 24


def copied_attention(own: nn.Module, other: nn.MultiheadAttention) -> None:
    """In both, q, k and v are one matrix in this order."""
    other.in_proj_weight.copy_(own.qkv.weight)
    other.out_proj.weight.copy_(own.out.weight)
    for bias, has in ((other.in_proj_bias, own.qkv.bias), (other.out_proj.bias, own.out.bias)):
        bias.copy_(torch.zeros_like(bias) if has is None else has)


def copied(own: Layer, kind: type) -> nn.Module:
    """torch.nn's layer with the weights of ours."""
    other = kind(D, H, FF, dropout=0.0, activation="relu", norm_first=False, batch_first=True)
    with torch.no_grad():
        copied_attention(own.attention.branch, other.self_attn)
        if own.cross_attention is not None:
            copied_attention(own.cross_attention.branch, other.multihead_attn)
        for mine, its in ((own.ffn.branch.up, other.linear1), (own.ffn.branch.down, other.linear2)):
            its.weight.copy_(mine.weight)
            its.bias.copy_(mine.bias)
        places = [p for p in (own.attention, own.cross_attention, own.ffn) if p is not None]
        for i, place in enumerate(places, 1):
            norm = getattr(other, f"norm{i}")
            norm.weight.copy_(place.norms[0].gain)
            norm.bias.copy_(place.norms[0].bias)
    return other.eval()


def waves(length: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos, written out in Python's floats."""
    angle = [[p / 10000 ** (2 * (i // 2) / D) for i in range(D)] for p in range(length)]
    return torch.tensor(
        [[math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(row)] for row in angle],
        dtype=torch.float32,
    )


def torchs(model: EncoderDecoder, source: Tensor, hidden: Tensor, target: Tensor) -> Tensor:
    """The same model's logits out of torch.nn's layers; hidden (B, S): the source's padding."""
    table = model.embedding.table.weight
    x = table[source] * math.sqrt(D) + waves(source.shape[1])
    for layer in model.encoder.layers:
        x = copied(layer, nn.TransformerEncoderLayer)(x, src_key_padding_mask=hidden)
    y = table[target] * math.sqrt(D) + waves(target.shape[1])
    future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    for layer in model.stack.layers:
        y = copied(layer, nn.TransformerDecoderLayer)(y, x, tgt_mask=future, memory_key_padding_mask=hidden)
    return y @ table.t()


@pytest.mark.parametrize("attention", ["mha", "mha_bias"])
def test_it_equals_torchs_layers(attention: str) -> None:
    model = cases.model_of({"preset": "transformer2017", "attention": attention})
    source, target = cases.ids(2, 9), cases.ids(2, 7, seed=2)
    hidden = torch.tensor([[False] * 9, [False] * 6 + [True] * 3])
    positions = torch.arange(9).expand(2, -1).masked_fill(hidden, PAD)
    with torch.no_grad():
        said = model(Batch(target, source=source, source_positions=positions))
        right = torchs(model, source, hidden, target)
    assert (said - right).abs().max() < 1e-5 * max(1.0, right.abs().max().item())


def test_three_matrices_are_one() -> None:
    model = cases.model_of({"preset": "transformer2017"})
    assert model.embedding.table.weight is model.source_embedding.table.weight is model.head.map.weight
    apart = cases.model_of({"preset": "transformer2017"}, "family.share_embeddings=false")
    assert apart.embedding.table.weight is not apart.source_embedding.table.weight
    assert apart.embedding.table.weight is apart.head.map.weight


def test_the_halves_may_differ_in_depth_and_the_attention_between_them_in_kind() -> None:
    deep = cases.model_of(
        {"family": "encoder_decoder", "attention@cross_attention": "mqa", "attention": "sliding"},
        "family.n_decoder_layers=1",
    )
    assert (len(deep.encoder.layers), len(deep.stack.layers)) == (2, 1)
    layer = deep.stack.layers[0]
    assert layer.cross_attention.branch.n_kv_heads == 1
    assert layer.attention.branch.rule is not None
    assert layer.cross_attention.branch.rule is None


def test_buckets_and_slopes_are_two_sided_in_an_encoder_and_one_sided_in_a_decoder() -> None:
    model = cases.model_of({"family": "encoder_decoder", "position": "t5"})
    assert model.encoder.positions[0].bidirectional
    assert not model.stack.positions[0].bidirectional
    scheme = cases.model_of({"family": "encoder", "position": "alibi"}).stack.positions[0]
    bias = scheme.bias(torch.arange(5)[None], torch.arange(5)[None])
    torch.testing.assert_close(bias, bias.transpose(-1, -2))
