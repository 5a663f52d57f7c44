"""Queries and keys that are normalised, and layers whose branches are side by side."""

from __future__ import annotations

import pytest
import torch
from laws import cases, laws
from torch import nn

from tfcli import build
from tfcli.errors import ConfigError
from tfcli.model.attention import Memory, Pass, View
from tfcli.model.attention.grouped import Grouped
from tfcli.model.cache import Once
from tfcli.model.norm import LayerNorm, RMSNorm
from tfcli.model.position.none import NoPosition
from tfcli.model.stack import Seen
from tfcli.model.visibility import arange
from tfcli.optimizer.groups import decays


def attention(over: str, make: type[nn.Module] = RMSNorm) -> Grouped:
    made = Grouped(16, 4, 2, head_dim=6, qk_norm=over, make_norm=make)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3 + (p.ndim == 1))
    return made


@pytest.mark.parametrize("over", ["head", "full"])
def test_a_memory_that_is_the_own_text_is_seen_as_the_own_text(over: str) -> None:
    made, x, positions = attention(over), torch.randn(2, 5, 16), arange(0, 5, torch.device("cpu"))
    this = Pass(positions, positions, memory=Memory(x, None))
    own, across = View.of(this, 5, (), NoPosition()), View.across(this)
    assert torch.allclose(made(x, own), made(x, across), atol=1e-6)
    cache = Once()
    for _ in range(2):  # made once and kept as normed
        assert torch.allclose(made(x, own), made(x, across, cache), atol=1e-6)


@pytest.mark.parametrize(("over", "widths"), [("head", (6, 6)), ("full", (24, 12))])
def test_norms_are_as_wide_as_what_they_are_over(over: str, widths: tuple[int, int]) -> None:
    made = attention(over)
    assert (len(made.q_norm.gain), len(made.k_norm.gain)) == widths


@pytest.mark.parametrize("over", ["head", "full"])
def test_a_larger_query_or_key_scores_no_higher_where_both_are_normalised(over: str) -> None:
    made, x, positions = attention(over), torch.randn(1, 5, 16), arange(0, 5, torch.device("cpu"))
    view = View.of(Pass(positions, positions), 5, (), NoPosition())
    before = made.weights(x, view)
    with torch.no_grad():
        made.qkv.weight[: 6 * 6] *= 100  # queries and keys, no values
    assert torch.allclose(made.weights(x, view), before, atol=1e-3)


def test_values_are_not_normalised() -> None:
    made, x, positions = attention("full"), torch.randn(1, 5, 16), arange(0, 5, torch.device("cpu"))
    view = View.of(Pass(positions, positions), 5, (), NoPosition())
    before = made(x, view)
    with torch.no_grad():
        made.qkv.weight[6 * 6 :] *= 3
    assert torch.allclose(made(x, view), 3 * before, atol=1e-4)


@pytest.mark.parametrize("make", [RMSNorm, LayerNorm])
def test_in_bf16_queries_and_keys_stay_what_values_are(make: type[nn.Module]) -> None:
    made, x, positions = attention("head", make), torch.randn(1, 5, 16), arange(0, 5, torch.device("cpu"))
    for own in (View.of(Pass(positions, positions), 5, (), NoPosition()),
                View.across(Pass(positions, positions, memory=Memory(x, None)))):  # fmt: skip
        exact = made(x, own)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            q, k, v = (made.heads if own.memory is None else made.across)(x, own)
            assert q.dtype is k.dtype is v.dtype is torch.bfloat16
            assert (made(x, own).float() - exact).abs().max() < 0.1


@pytest.mark.parametrize("attention", ["mha", "gqa", "sliding"])
@pytest.mark.parametrize("over", ["head", "full"])
def test_a_norm_over_tokens_is_refused_for_queries_and_keys(attention: str, over: str) -> None:
    with pytest.raises(
        ConfigError, match=f"attention.qk_norm={over}: is over features, and this norm is over"
    ):
        cases.model_of({"attention": attention, "norm": "batchnorm"}, f"attention.qk_norm={over}")
    with pytest.raises(ConfigError, match="attention.qk_norm='rms': must be one of head, full or null"):
        cases.model_of({}, "attention.qk_norm=rms")


@pytest.mark.parametrize("kind", ["local", "full"])
def test_one_kind_of_layers_may_normalise_and_the_other_not(kind: str) -> None:
    model = cases.model_of({"attention": "local_global"}, f"attention.{kind}.qk_norm=head")
    normed = [layer.attention.branch.q_norm is not None for layer in model.stack.layers]
    assert normed == [kind == "local", kind == "full"]
    laws.cached_equals_one_pass(model)


def test_an_own_cross_attention_may_normalise_as_well() -> None:
    more = ("attention@cross_attention=mha", "cross_attention.qk_norm=full")
    model = cases.model_of({"family": "encoder_decoder"}, *more)
    layer = model.stack.layers[0]
    assert layer.attention.branch.q_norm is None and layer.cross_attention.branch.q_norm is not None
    laws.cached_equals_one_pass(model)
    laws.padding_of_a_source_changes_nothing(model)


@pytest.mark.parametrize("init", ["normal", "xavier", "t5", "depth_scaled", "truncated"])
def test_new_norms_of_queries_and_keys_begin_at_one_and_do_not_decay(init: str) -> None:
    config = cases.config_of({"attention": "olmo2", "init": init})
    model = build.model(config, cases.VOCAB)
    found = {name: p for name, p in model.named_parameters() if "q_norm" in name or "k_norm" in name}
    assert len(found) == 4
    for name, parameter in found.items():
        assert torch.equal(parameter, torch.ones_like(parameter))
        assert not decays(name, parameter)


def test_a_model_without_normed_queries_has_no_such_parameters() -> None:
    assert not [name for name in cases.model_of({}).state_dict() if "q_norm" in name or "k_norm" in name]


def looking(view: View, across: View | None = None) -> Seen:
    """What a layer is handed."""
    return Seen(view, across, None, None, None)


@torch.no_grad()
def test_branches_side_by_side_read_the_same_and_are_summed_once() -> None:
    model = cases.model_of({"placement": "parallel"})
    assert model.stack.final_norm is not None
    layer, positions = model.stack.layers[0], arange(0, 6, torch.device("cpu"))
    view = model.stack.view(Pass(positions, positions), 6, 0, {})
    for size in (1.0, 1e6):  # beside a large x, x + f - x would be no f
        x = torch.randn(2, 6, 16) * size
        attended = layer.attention.branch(layer.attention.norms[0](x), view)
        right = x + attended + layer.ffn.branch(layer.ffn.norms[0](x))
        assert torch.equal(layer(x, looking(view)), right)


@torch.no_grad()
def test_attention_to_a_memory_stands_beside_the_others() -> None:
    model = cases.model_of({"placement": "parallel", "family": "encoder_decoder"})
    layer, positions = model.stack.layers[0], arange(0, 6, torch.device("cpu"))
    x, this = torch.randn(1, 6, 16), Pass(positions, positions, memory=model.encode(cases.ids(1, 4)))
    view, across = model.stack.view(this, 6, 0, {}), View.across(this)
    made = [(layer.attention, view), (layer.cross_attention, across), (layer.ffn,)]
    right = x
    for part, *looks_at in made:
        right = right + part.branch(part.norms[0](x), *looks_at)
    assert torch.equal(layer(x, looking(view, across)), right)
