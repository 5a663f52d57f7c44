"""The whole decoder against a second implementation, and what a user meets at its edges."""

import numpy as np
import pytest
import torch
from laws import cases, laws
from model.reference import Reference

from tfcli.batch import Batch
from tfcli.errors import ConfigError
from tfcli.model.norm import Norm

KNOWN = {  # what the reference knows: rotary scalings and named options have their own tests
    "family": ["decoder"],
    "attention": ["mha", "mha_bias", "gqa", "mqa", "sliding", "strided", "local_global", "mistral",
                  "olmo2", "qwen2", "qwen2_windows"],
    "position": ["none", "learned", "sinusoidal", "rope", "rope_linear", "alibi", "t5", "shaw", "qwen2",
                 "gpt_neox"],
    "norm": ["layernorm", "layernorm_nobias", "rmsnorm", "rmsnorm_one_plus", "rmsnorm_1e_6", "bert", "t5"],
    "placement": ["pre", "post", "sandwich", "branch", "parallel"],
    "embedding": ["plain", "scaled", "normed"],
    "head": ["tied", "untied", "capped"],
}  # fmt: skip
AXES = {axis: KNOWN.get(axis, options) for axis, options in cases.offered().items()}


@pytest.mark.parametrize("case", cases.all_pairs(AXES)[::2] + list(cases.single(AXES)), ids=cases.name)
def test_the_decoder_equals_a_second_implementation(case: cases.Case) -> None:
    config, model = cases.config_of(case), cases.model_of(case)
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    tokens = cases.ids(1, 9, seed=21)
    with torch.no_grad():
        said = model(Batch(tokens))[0].numpy()
    np.testing.assert_allclose(
        said, Reference(config, weights).logits(tokens[0].tolist()), atol=1e-4, rtol=1e-4
    )


def test_a_text_longer_than_the_table_is_refused_with_both_numbers() -> None:
    model = cases.model_of({"position": "learned"})
    with pytest.raises(ConfigError, match="33 tokens.*32 positions"):
        model(Batch(cases.ids(1, 33)))
    state = model.begin()
    model.step(cases.ids(1, 32), state)
    with pytest.raises(ConfigError, match="33 tokens.*32 positions"):
        model.step(cases.ids(1, 1), state)


@pytest.mark.parametrize("position", ["rope", "alibi", "t5", "none", "sinusoidal", "shaw"])
def test_other_schemes_go_on_past_the_context(position: str) -> None:
    model = cases.model_of({"position": position})
    assert model.context is None
    tokens = cases.ids(1, 45)
    with torch.no_grad():
        state = model.begin()
        said = torch.cat([model.step(tokens[:, i : i + 1], state) for i in range(45)], dim=1)
        assert (said - model(Batch(tokens))).abs().max() < 1e-4


def test_padding_takes_places_but_no_positions_of_the_table() -> None:
    model = cases.model_of({"position": "learned"})
    tokens, present = cases.ids(2, 32), torch.ones(2, 32, dtype=torch.bool)
    present[0, :20] = False
    with torch.no_grad():
        state = model.begin()
        model.step(tokens, state, present)
        state.reorder(torch.tensor([0]))
        assert torch.isfinite(model.step(cases.ids(1, 5), state)).all()


def test_the_window_counts_itself_and_the_cache_keeps_no_more() -> None:
    size = 4
    model = cases.model_of(
        {"attention": "sliding", "position": "rope"}, "size.n_layers=1", f"attention.rule.size={size}"
    )
    for layer in model.stack.layers:
        layer.attention.branch.rule = type(layer.attention.branch.rule)(size)
    model.stack.kinds = [
        ((rules[0], model.stack.layers[0].attention.branch.rule), s) for rules, s in model.stack.kinds
    ]
    tokens = cases.ids(1, 12)
    with torch.no_grad():
        before = model(Batch(tokens))[0, -1]
        for distance, moves in ((size - 1, True), (size, False)):
            changed = tokens.clone()
            changed[0, -1 - distance] = (changed[0, -1 - distance] + 1) % cases.VOCAB
            assert (not torch.equal(model(Batch(changed))[0, -1], before)) == moves
        state = model.begin()
        model.step(tokens, state)
        assert len(state.caches[0]) == size
        model.step(cases.ids(1, 1), state)
        assert len(state.caches[0]) == size


def test_padded_rows_of_the_vocabulary_get_no_logit_and_no_gradient() -> None:
    model = cases.model_of({}, "embedding.pad_to_multiple=64")
    assert model.embedding.table.weight.shape[0] == 64
    logits = model(Batch(cases.ids(2, 5)))
    assert logits.shape == (2, 5, cases.VOCAB)
    logits.sum().backward()
    assert not model.embedding.table.weight.grad[cases.VOCAB :].any()


def test_only_the_last_place_is_scored_if_that_is_all_that_is_wanted() -> None:
    model, tokens = cases.model_of({}), cases.ids(2, 6)
    with torch.no_grad():
        last = model.step(tokens, model.begin(), last=True)
        assert torch.allclose(last, model(Batch(tokens))[:, -1:], atol=1e-5)


def test_dropout_acts_in_training_only() -> None:
    model, tokens = cases.model_of({"attention": "mha"}, "size.dropout=0.5"), cases.ids(1, 8)
    with torch.no_grad():
        assert torch.equal(model(Batch(tokens)), model(Batch(tokens)))
        model.train()
        assert not torch.equal(model(Batch(tokens)), model(Batch(tokens)))


def test_recomputed_activations_give_the_same_gradients() -> None:
    tokens = cases.ids(2, 10)
    gradients = []
    for recompute in ("false", "true"):
        model = cases.model_of({}, f"train.recompute={recompute}")
        model(Batch(tokens)).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.equal(*gradients)


def test_who_looks_at_whom_can_be_had_for_pictures() -> None:
    model, tokens = cases.model_of({"attention": "gqa"}), cases.ids(2, 6)
    from tfcli.model.attention import Pass, View
    from tfcli.model.visibility import Causal, arange

    positions = arange(0, 6, tokens.device)
    view = View.of(Pass(positions, positions), 6, (Causal(),), model.stack.positions[0])
    weights = model.stack.layers[0].attention.branch.weights(torch.randn(2, 6, 16), view)
    assert weights.shape == (2, 4, 6, 6)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 6))
    assert not weights.triu(1).any()


@pytest.mark.parametrize(
    "more",
    [
        ["position=rope", "position.interleaved=true"],
        ["position=rope", "position.partial=0.5"],
        ["position=rope", "position.partial=0.5", "position.interleaved=true", "attention=gqa"],
        ["position=sinusoidal", "position.layout=concatenated"],
        ["position=shaw", "position.values=false"],
        ["position=t5", "attention=mqa"],
        ["head.bias=true", "head.cap=5.0", "embedding.pad_to_multiple=32"],
        ["attention.bias=true", "attention.out_bias=false", "size.head_dim=6"],
        ["attention=gqa", "attention.qk_norm=head", "norm=layernorm"],
        ["attention=sliding", "attention.qk_norm=head", "position=alibi"],
        ["attention=gqa", "attention.qk_norm=full", "position=shaw", "placement=parallel"],
        ["attention=gqa", "attention.qk_norm=full", "position=rope_longrope", "position.partial=0.5"],
        ["placement=parallel", "family=encoder_decoder", "attention.qk_norm=full"],
        ["position=rope_proportional", "size.head_dim=8"],
        ["ffn.dropout=0.4", "attention.dropout=0.4"],
    ],
    ids=" ".join,
)
def test_options_of_the_parts_obey_the_laws_as_well(more: list[str]) -> None:
    model = cases.model_of({}, *more)
    for law in (
        laws.cached_equals_one_pass,
        laws.future_is_invisible,
        laws.padding_changes_nothing,
        laws.a_row_says_the_same_alone_and_in_company,
    ):
        law(model)


def test_parts_that_know_no_short_way_decode_all_the_same() -> None:
    class Plain(Norm):
        def forward(self, x: torch.Tensor, present: torch.Tensor | None = None) -> torch.Tensor:
            return x - x.mean(-1, keepdim=True)

    model, plain = cases.model_of({}), Plain()
    model.stack.final_norm = plain

    class Squared(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square() - x

    for layer in model.stack.layers:
        layer.ffn.branch, layer.ffn.norms = Squared(), torch.nn.ModuleList([plain])
    laws.cached_equals_one_pass(model)


def test_modules_first_imported_under_the_meta_device_keep_real_numbers() -> None:
    import subprocess
    import sys

    code = """
import torch
with torch.device("meta"):
    import tfcli.model.family.decoder, tfcli.build
from tfcli.model import single
assert single._NOTHING.device.type == "cpu"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_kinds_of_attention_with_other_head_sizes_have_rotations_of_their_own() -> None:
    model = cases.model_of({"attention": "local_global", "position": "rope"}, "attention.full.head_dim=8")
    assert [scheme.width for scheme in model.stack.positions] == [4, 8]
    laws.cached_equals_one_pass(model)


def test_a_table_of_positions_is_one_whatever_kinds_of_attention_there_are() -> None:
    model = cases.model_of({"attention": "local_global", "position": "learned"}, "attention.full.head_dim=8")
    assert len(model.stack.positions) == 1


@pytest.mark.parametrize("over", ["head", "full"])
@pytest.mark.parametrize("norm", ["rmsnorm", "rmsnorm_one_plus", "layernorm"])
def test_normed_queries_and_keys_equal_a_second_implementation(over: str, norm: str) -> None:
    case = {"attention": "gqa", "norm": norm}
    more = (f"attention.qk_norm={over}", "size.head_dim=6")
    config, model = cases.config_of(case, *more), cases.model_of(case, *more)
    weights = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    tokens = cases.ids(1, 9, seed=21)
    with torch.no_grad():
        said = model(Batch(tokens))[0].numpy()
    right = Reference(config, weights).logits(tokens[0].tolist())
    np.testing.assert_allclose(said, right, atol=1e-4, rtol=1e-4)
    config.attention.qk_norm = None
    assert np.abs(said - Reference(config, weights).logits(tokens[0].tolist())).max() > 1e-2
