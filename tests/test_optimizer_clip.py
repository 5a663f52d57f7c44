"""Gradients are scaled together, or left alone."""

import pytest
import torch
from torch import nn

from tfcli.optimizer import clip_gradients


def gradients(*values: list[float]) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(len(v))) for v in values]
    for p, v in zip(parameters, values):
        p.grad = torch.tensor(v)
    return [*parameters, nn.Parameter(torch.zeros(3))]  # one without a gradient


@pytest.mark.parametrize("most, left", [(2.5, 0.5), (5.0, 1.0), (7.0, 1.0), (None, 1.0)])
def test_clipping_scales_all_gradients_alike_down_to_the_norm(most, left):
    parameters = gradients([3.0, 0.0], [4.0])
    assert clip_gradients(parameters, most).item() == 5
    assert [p.grad.tolist() for p in parameters[:2]] == [[3 * left, 0], [4 * left]]


def test_clipping_leaves_gradients_alone_whose_norm_is_not_finite():
    for bad in (float("nan"), float("inf"), 1e30):
        parameters = gradients([3.0, 1.0], [bad])
        assert not clip_gradients(parameters, 0.5).isfinite()
        assert parameters[0].grad.tolist() == [3, 1]


def test_clipping_nothing_is_a_norm_of_zero():
    assert clip_gradients([nn.Parameter(torch.zeros(2))], 1.0).item() == 0
    parameters = gradients([0.0, 0.0])
    assert clip_gradients(parameters, 1.0).item() == 0 and parameters[0].grad.tolist() == [0, 0]
