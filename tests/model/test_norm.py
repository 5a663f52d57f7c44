"""Batch normalisation done right: real tokens only, in training and in its running statistics."""

import pytest
import torch
from laws import cases, laws

from tfcli.batch import PAD, Batch
from tfcli.errors import ConfigError
from tfcli.loss import cross_entropy_sum
from tfcli.model.norm import BatchNorm


def values(*numbers: float) -> torch.Tensor:
    """One row of tokens with one feature."""
    return torch.tensor(numbers)[None, :, None]


def test_the_numbers_are_those_of_real_tokens() -> None:
    norm = BatchNorm(1).train()
    said = norm(values(1, 2, 3))[0, :, 0]
    torch.testing.assert_close(said, torch.tensor([-1.2247, 0.0, 1.2247]), atol=1e-3, rtol=0)
    present = torch.tensor([[True, True, True, False, False, False]])
    padded = norm(values(1, 2, 3, 0, 0, 0), present)[0, :3, 0]
    torch.testing.assert_close(padded, said)
    shown = norm(values(1, 2, 3, 0, 0, 0))[0, :3, 0]
    assert not torch.allclose(shown, said, atol=0.1)


def test_it_equals_torchs_where_nothing_is_padded() -> None:
    own, other = BatchNorm(5).train(), torch.nn.BatchNorm1d(5).train()
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randn(4, 7, 5, generator=generator) * 3 + 1
        torch.testing.assert_close(own(x), other(x.transpose(1, 2)).transpose(1, 2))
    torch.testing.assert_close(own.running_mean, other.running_mean)
    torch.testing.assert_close(own.running_var, other.running_var)
    x = torch.randn(2, 3, 5, generator=generator)
    torch.testing.assert_close(own.eval()(x), other.eval()(x.transpose(1, 2)).transpose(1, 2))


def test_running_statistics_do_not_depend_on_padding() -> None:
    rows = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    found = []
    for width in (4, 8, 32):
        norm, x = BatchNorm(3).train(), torch.full((2, width, 3), 7.0)
        x[:, :4] = rows
        norm(x, torch.arange(width).expand(2, -1) < 4)
        found.append(torch.cat((norm.running_mean, norm.running_var)))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_a_single_token_gives_the_bias_and_none_gives_no_harm() -> None:
    norm = BatchNorm(1).train()
    assert norm(values(5.0)).item() == 0
    assert norm.running_mean.item() == pytest.approx(0.5)
    assert norm.running_var.item() == 1
    before = norm.running_mean.clone()
    assert torch.isfinite(norm(values(5.0), torch.tensor([[False]]))).all()
    assert torch.equal(norm.running_mean, before)


def test_what_is_not_finite_leaves_no_trace_in_the_running_statistics() -> None:
    norm = BatchNorm(2).train()
    norm(torch.tensor([[[1.0, 2.0], [float("inf"), 4.0]]]))
    assert norm.running_mean.tolist() == [0.0, pytest.approx(0.3)]
    assert torch.isfinite(norm.running_var).all()


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
def test_in_training_a_models_padding_moves_no_logit_and_no_gradient(family: str) -> None:
    tokens, seen = cases.ids(3, 5), []
    for width, content in ((5, 0), (8, 3), (32, 11)):
        model = cases.model_of({"family": family, "norm": "batchnorm"}).train()
        wide, positions = torch.full((3, width), content), torch.full((3, width), PAD)
        wide[:, :5], positions[:, :5] = tokens, torch.arange(5)
        logits = model(laws.batch(model, wide, positions=positions))[:, :5]
        loss = cross_entropy_sum(logits, cases.ids(3, 5, seed=2))
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        seen.append((logits.detach(), loss.detach(), gradient))
    laws.same(seen)


def test_recomputed_activations_are_refused() -> None:
    with pytest.raises(ConfigError, match="train.recompute=true"):
        cases.model_of({"norm": "batchnorm"}, "train.recompute=true")
    assert cases.model_of({}, "train.recompute=true")(Batch(cases.ids(1, 3))).shape == (1, 3, cases.VOCAB)
