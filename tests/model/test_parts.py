"""The small parts, each against its formula or another implementation."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tfcli.batch import PAD
from tfcli.errors import ConfigError
from tfcli.model.attention import View
from tfcli.model.attention.grouped import Grouped
from tfcli.model.cache import Cache, WindowCache
from tfcli.model.embedding import TokenEmbedding
from tfcli.model.ffn import gelu_tanh
from tfcli.model.ffn.dense import Dense
from tfcli.model.ffn.gated import Gated
from tfcli.model.head import LMHead
from tfcli.model.init import Normal, Xavier
from tfcli.model.linear import LARGE, Linear, linear, onednn
from tfcli.model.norm import LayerNorm, RMSNorm
from tfcli.model.placement import Branch, Post, Pre, Sandwich
from tfcli.model.position.none import NoPosition
from tfcli.model.visibility import Causal, Strided, Window, arange, visible

DOUBLE = torch.float64


def filled(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return module


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7), (1, 7), (1, 1, 7), (3, 2, 2, 7)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_map_and_its_gradients_equal_those_in_float64(shape: tuple[int, ...], bias: bool) -> None:
    layer = filled(Linear(7, 4, bias=bias))
    x = torch.randn(shape, requires_grad=True)
    layer(x).sin().sum().backward()
    wide = x.detach().to(DOUBLE).requires_grad_()
    weight = layer.weight.detach().to(DOUBLE).requires_grad_()
    offset = layer.bias.detach().to(DOUBLE).requires_grad_() if bias else None
    out = wide @ weight.t() + (offset if bias else 0)
    out.sin().sum().backward()
    assert torch.allclose(layer(x).to(DOUBLE), out, atol=1e-5)
    assert torch.allclose(x.grad.to(DOUBLE), wide.grad, atol=1e-5)
    assert torch.allclose(layer.weight.grad.to(DOUBLE), weight.grad, atol=1e-5)
    assert not bias or torch.allclose(layer.bias.grad.to(DOUBLE), offset.grad, atol=1e-5)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch is built without oneDNN")
def test_onednn_multiplies_in_plain_fp32_with_any_strides() -> None:
    x, weight = torch.randn(64, 300), torch.randn(300, 50)
    right = x.to(DOUBLE) @ weight.to(DOUBLE)
    error = (onednn(x, weight.t()).to(DOUBLE) - right).abs().max()
    blas = ((x @ weight).to(DOUBLE) - right).abs().max()
    assert error < 4 * blas + 1e-5  # bf16 products would be a thousand times off


def test_a_large_matrix_times_one_vector_is_the_same_by_every_way() -> None:
    layer, x = filled(Linear(512, LARGE // 512)), torch.randn(1, 1, 512)
    with torch.no_grad():
        right = (x.to(DOUBLE) @ layer.weight.to(DOUBLE).t() + layer.bias.to(DOUBLE))[0, 0]
        assert torch.allclose(layer(x)[0, 0].to(DOUBLE), right, atol=1e-4)
        assert torch.allclose(layer.single()(x[0, 0]).to(DOUBLE), right, atol=1e-4)


def test_a_linear_map_in_float64_and_under_autocast_stays_torchs_own() -> None:
    x = torch.randn(3, 4, dtype=DOUBLE, requires_grad=True)
    weight = torch.randn(5, 4, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(linear, (x, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(torch.randn(3, 4), torch.randn(5, 4)).dtype is torch.bfloat16


def test_layernorm_is_its_formula_with_and_without_bias() -> None:
    x = torch.randn(2, 3, 8) * 5 + 1
    norm = filled(LayerNorm(8, eps=1e-3))
    wide = x.to(DOUBLE)
    centred = wide - wide.mean(-1, keepdim=True)
    right = centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.gain + norm.bias
    assert torch.allclose(norm(x).to(DOUBLE), right, atol=1e-5)
    assert LayerNorm(8, bias=False).bias is None


@pytest.mark.parametrize("one_plus", [False, True])
def test_rmsnorm_is_its_formula(one_plus: bool) -> None:
    x = torch.randn(2, 3, 8) * 5
    norm = filled(RMSNorm(8, eps=1e-3, one_plus=one_plus))
    gain = 1 + norm.gain if one_plus else norm.gain
    wide = x.to(DOUBLE)
    right = wide / (wide.square().mean(-1, keepdim=True) + 1e-3).sqrt() * gain
    assert torch.allclose(norm(x).to(DOUBLE), right, atol=1e-5)
    assert torch.allclose(norm.single()(x[0, 0]).to(DOUBLE), right[0, 0], atol=1e-5)
    fresh = RMSNorm(8, one_plus=one_plus)
    assert torch.allclose(fresh(x), F.rms_norm(x, (8,), eps=1e-5))


def test_norms_compute_in_fp32_what_comes_in_bf16() -> None:
    x = (torch.randn(4, 64) * 100 + 300).bfloat16()
    for norm in (LayerNorm(64), RMSNorm(64)):
        assert norm(x).dtype is torch.float32
        assert torch.equal(norm(x), norm(x.float()))


@pytest.mark.parametrize("placement", [Pre, Post, Sandwich, Branch])
def test_placements_are_their_formulas(placement: type) -> None:
    branch = nn.Linear(8, 8)
    made = filled(placement(branch, lambda: LayerNorm(8)))
    x, f, norm = torch.randn(2, 3, 8), branch, made.norms[0]
    right = {
        Pre: lambda: x + f(norm(x)),
        Post: lambda: norm(x + f(x)),
        Sandwich: lambda: x + made.norms[1](f(norm(x))),
        Branch: lambda: x + norm(f(x)),
    }[placement]()
    assert torch.allclose(made(x), right)
    assert placement.final_norm == (placement is not Post)


def test_the_layer_of_2017_and_the_pre_norm_layer_equal_those_of_torch() -> None:
    """Post- and pre-norm layers with ReLU against torch's encoder layer on the same weights, causal."""
    from tfcli.model.attention import Pass

    x, n = torch.randn(2, 6, 16), 6
    for placement, first in ((Post, False), (Pre, True)):
        attention, ffn = Grouped(16, 4, bias=True), Dense(16, 24)
        ours = filled(nn.ModuleList([placement(b, lambda: LayerNorm(16)) for b in (attention, ffn)]))
        theirs = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, norm_first=first, batch_first=True)
        names = {
            "self_attn.in_proj_": "0.branch.qkv.", "self_attn.out_proj.": "0.branch.out.",
            "linear1.": "1.branch.up.",
            "linear2.": "1.branch.down.", "norm1.": "0.norms.0.", "norm2.": "1.norms.0.",
        }  # fmt: skip
        state = ours.state_dict()
        for name in theirs.state_dict():
            head = next(key for key in names if name.startswith(key))
            source = names[head] + name.removeprefix(head)
            theirs.state_dict()[name].copy_(state[source.replace("norms.0.weight", "norms.0.gain")])
        positions = arange(0, n, x.device)
        view = View.of(Pass(positions, positions), n, (Causal(),), NoPosition())
        said = ours[1](ours[0](x, view))
        assert torch.allclose(
            said, theirs(x, nn.Transformer.generate_square_subsequent_mask(n), is_causal=True), atol=1e-5
        )


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("gelu_tanh", gelu_tanh),
        ("silu", F.silu),
        ("sigmoid", torch.sigmoid),
    ],
)
def test_feed_forwards_are_their_formulas(name: str, f) -> None:
    x = torch.randn(2, 3, 6)
    dense, gated = filled(Dense(6, 10, activation=name)), filled(Gated(6, 10, activation=name, bias=True))
    w = {k: v.detach() for k, v in dense.named_parameters()}
    right = f(x @ w["up.weight"].t() + w["up.bias"]) @ w["down.weight"].t() + w["down.bias"]
    assert torch.allclose(dense(x), right, atol=1e-5)
    w = {k: v.detach() for k, v in gated.named_parameters()}
    both = x @ w["gate_up.weight"].t() + w["gate_up.bias"]
    right = (f(both[..., :10]) * both[..., 10:]) @ w["down.weight"].t() + w["down.bias"]
    assert torch.allclose(gated(x), right, atol=1e-5)
    for ffn in (dense, gated):
        assert torch.allclose(ffn.single()(x[0, 0]), ffn(x)[0, 0], atol=1e-5)


def test_gelu_by_tanh_is_its_formula_and_not_the_exact_one() -> None:
    x = torch.linspace(-4, 4, 101, dtype=DOUBLE)
    right = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert torch.allclose(gelu_tanh(x), right, atol=1e-12)
    assert (gelu_tanh(x) - F.gelu(x)).abs().max() > 1e-4


def test_grouped_queries_equal_multi_head_attention_whose_keys_are_repeated() -> None:
    from tfcli.model.attention import Pass

    few, many = filled(Grouped(16, 4, 2)), Grouped(16, 4, 4)
    q, k, v = few.qkv.weight.detach().view(8, 4, 16).split((4, 2, 2))
    with torch.no_grad():
        many.qkv.weight.copy_(
            torch.cat((q, k.repeat_interleave(2, 0), v.repeat_interleave(2, 0))).view(48, 16)
        )
        many.out.weight.copy_(few.out.weight)
    positions = arange(0, 4, q.device)  # as many positions as heads: a repeated wrong axis would fit
    view, x = View.of(Pass(positions, positions), 4, (Causal(),), NoPosition()), torch.randn(3, 4, 16)
    assert torch.allclose(few(x, view), many(x, view), atol=1e-5)


def test_heads_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match="size.n_heads=6.*size.n_kv_heads=4"):
        Grouped(12, 6, 4)
    with pytest.raises(ConfigError, match="size.d_model=16.*size.n_heads=3"):
        Grouped(16, 3)
    assert Grouped(16, 3, head_dim=8).out.weight.shape == (16, 24)


def test_rules_are_their_predicates() -> None:
    q, k = torch.arange(9)[:, None], torch.arange(9)[None]
    for i in range(9):
        for j in range(9):
            assert Causal()(q, k)[i, j] == (j <= i)
            assert Window(3)(q, k)[i, j] == (abs(i - j) <= 2)
            assert Strided(3)(q, k)[i, j] == (abs(i - j) < 3 or (i - j) % 3 == 0)
    for rule in (Causal(), Window(3), Strided(3)):
        for n in range(1, 9):
            newest = (rule(q, k) & Causal()(q, k))[n - 1, :n]
            assert rule.covers(n) <= bool(newest.all()), f"{rule} says it covers {n}"


def test_nobody_sees_padding_or_another_document() -> None:
    positions = torch.tensor([[PAD, 0, 1, 0, 1]])
    documents = torch.tensor([[0, 0, 0, 1, 1]])
    seen = visible((Causal(),), positions, positions, documents, documents)[0].int().tolist()
    assert seen == [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]


def test_a_cache_hands_out_all_it_was_given_however_much_that_is() -> None:
    cache, given = Cache(), torch.randn(2, 700, 3)
    for start, end in ((0, 1), (1, 300), (300, 301), (301, 700)):
        assert cache.upcoming(end - start) == end
        assert torch.equal(cache.recall(given[:, start:end]), given[:, :end])
    cache.reorder(torch.tensor([1, 1, 0]))
    more = torch.randn(3, 1, 3)
    assert torch.equal(cache.recall(more), torch.cat((given[[1, 1, 0]], more), 1))


def test_a_window_cache_keeps_what_the_window_reaches_and_hands_prefill_out_whole() -> None:
    cache, given = WindowCache(4), torch.randn(1, 600, 2)
    assert torch.equal(cache.recall(given[:, :11]), given[:, :11])
    assert len(cache) == 4
    for i in range(11, 600):
        assert cache.upcoming(1) == 4
        assert torch.equal(cache.recall_one(given[0, i]), given[0, i - 3 : i + 1])
    assert len(cache) == 4
    assert cache.room.shape[1] <= 1024


def test_embeddings_scale_add_positions_and_norm_in_this_order() -> None:
    made = filled(TokenEmbedding(10, 8, lambda: LayerNorm(8), scale=True, norm=True))
    ids, shift = torch.tensor([[1, 9]]), torch.randn(8)
    right = made.norm(made.table.weight[ids] * 8**0.5 + shift)
    assert torch.allclose(made(ids, lambda x: x + shift), right)


def test_a_head_is_tied_by_being_the_same_parameter_and_caps_softly() -> None:
    table = TokenEmbedding(10, 8, lambda: LayerNorm(8), pad_to_multiple=16).table
    filled(table)
    tied, own = LMHead(table, 10), filled(LMHead(table, 10, tied=False, bias=True))
    assert tied.map.weight is table.weight and own.map.weight is not table.weight
    x = torch.randn(2, 3, 8)
    assert torch.allclose(tied(x), x @ table.weight[:10].t(), atol=1e-5)
    capped = LMHead(table, 10, cap=2.0)
    assert torch.allclose(capped(x), 2 * torch.tanh(tied(x) / 2), atol=1e-5)
    assert torch.allclose(capped.single()(x[0, 0]), capped(x)[0, 0], atol=1e-5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(400, 64, lambda: RMSNorm(64))
        self.attention, self.ffn = Grouped(64, 4, bias=True), Dense(64, 256)
        self.head = LMHead(self.embedding.table, 400)


@pytest.mark.parametrize("init", [Normal(), Normal(std=0.1, depth_scaled=True), Xavier()])
def test_an_init_fills_every_parameter_and_repeats_under_its_seed(init) -> None:
    nets = []
    for _ in range(2):
        net = Net()
        for p in net.parameters():
            if p.ndim > 1:
                nn.init.constant_(p, float("nan"))
        torch.manual_seed(5)
        init(net, 8)
        nets.append(net)
    first, second = (dict(n.named_parameters()) for n in nets)
    assert all(torch.isfinite(p).all() and torch.equal(p, second[name]) for name, p in first.items())
    assert not first["attention.qkv.bias"].any()


def test_inits_have_the_spread_they_say() -> None:
    net = Net()
    Normal(std=0.02, depth_scaled=True)(net, n_layers=8)
    assert net.ffn.up.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert net.ffn.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert net.attention.out.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert net.embedding.table.weight.std().item() == pytest.approx(0.02, rel=0.05)
    Xavier()(net, n_layers=8)
    bound = math.sqrt(6 / (64 + 256))
    assert net.ffn.up.weight.abs().max().item() == pytest.approx(bound, rel=0.02)
    assert net.embedding.table.weight.std().item() == pytest.approx(1 / 8, rel=0.05)
