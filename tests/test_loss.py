"""Cross-entropy against float64 recomputations, and the large-vocabulary kernels against the plain one."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tfcli import loss
from tfcli.batch import IGNORE
from tfcli.loss import chunked_cross_entropy, cross_entropy_sum


@pytest.fixture(params=["torch", "own"])
def kernel(request, monkeypatch):
    """Both ways to one loss: torch's for few scores, our own for many."""
    monkeypatch.setattr(loss, "_SMALL", 0 if request.param == "own" else 1 << 60)
    monkeypatch.setattr(loss, "_BLOCK", 100)  # a few rows at a time, and a rest


def by_hand(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> float:
    """Sum over scored tokens of (1-e) nll + e mean(-log p), in numpy float64."""
    z, y = logits.detach().double().numpy().reshape(-1, logits.shape[-1]), labels.numpy().reshape(-1)
    total = 0.0
    for row, label in zip(z, y):
        if label != IGNORE:
            log_p = row - np.log(np.exp(row - row.max()).sum()) - row.max()
            total -= (1 - smoothing) * log_p[label] + smoothing * log_p[np.isfinite(log_p)].mean()
    return total


def some(n: int = 37, vocab: int = 23, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    labels = torch.randint(vocab, (n,))
    labels[::5] = IGNORE
    return (3 * torch.randn(n, vocab)).to(dtype).requires_grad_(), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_it_is_the_sum_by_hand(kernel, smoothing):
    logits, labels = some()
    value = cross_entropy_sum(logits.view(1, 37, 23), labels.view(1, 37), label_smoothing=smoothing)
    assert value.dtype is torch.float32
    assert value.item() == pytest.approx(by_hand(logits, labels, smoothing), rel=1e-6)


def test_smoothing_has_the_value_that_was_measured(kernel):
    logits = torch.tensor([[2, 0, -1, 0.5], [0, 1, 0, 0], [3, 3, 3, 3]], requires_grad=True)
    value = cross_entropy_sum(logits, torch.tensor([0, 1, IGNORE]), label_smoothing=0.1)
    assert value.item() / 2 == pytest.approx(0.661759, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_its_gradient_is_that_of_the_formula(kernel, smoothing):
    logits, labels = some(dtype=torch.float64)
    (gradient,) = torch.autograd.grad(0.5 * cross_entropy_sum(logits, labels, smoothing), logits)
    target = (1 - smoothing) * F.one_hot(labels.clamp(min=0), 23).double() + smoothing / 23
    expected = 0.5 * (logits.exp() / logits.exp().sum(-1, keepdim=True) - target)
    expected[labels == IGNORE] = 0
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def test_a_second_backward_pass_is_refused_and_not_wrong(monkeypatch):
    monkeypatch.setattr(loss, "_SMALL", 0)
    logits, labels = some()
    value = cross_entropy_sum(logits, labels)
    value.backward(torch.tensor(2.0), retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_what_is_not_scored_adds_nothing(kernel, smoothing):
    logits, labels = some()
    alone = cross_entropy_sum(logits[labels != IGNORE], labels[labels != IGNORE], smoothing)
    assert cross_entropy_sum(logits, labels, smoothing).item() == pytest.approx(alone.item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(cross_entropy_sum(logits, labels, smoothing), logits)
    assert gradient[labels == IGNORE].eq(0).all() and gradient[labels != IGNORE].ne(0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_a_target_it_is_zero_and_so_is_its_gradient(kernel, smoothing):
    logits, labels = some()
    value = cross_entropy_sum(logits, torch.full_like(labels, IGNORE), smoothing)
    value.backward()
    assert value.item() == 0 and value.requires_grad
    assert logits.grad.eq(0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_impossible_classes_have_no_share(kernel, smoothing):
    logits, labels = some()
    barred = torch.cat((logits, logits.new_full((37, 4), -torch.inf)), dim=1)
    value = cross_entropy_sum(barred, labels, smoothing)
    assert value.item() == pytest.approx(by_hand(logits, labels, smoothing), rel=1e-6)
    (gradient,) = torch.autograd.grad(value, logits)
    (expected,) = torch.autograd.grad(cross_entropy_sum(logits, labels, smoothing), logits)
    torch.testing.assert_close(gradient, expected)


def test_bf16_logits_are_scored_in_fp32(kernel):
    logits, labels = some(dtype=torch.bfloat16)
    value = cross_entropy_sum(logits, labels)
    assert value.dtype is torch.float32
    assert value.item() == pytest.approx(by_hand(logits, labels), rel=1e-6)
    value.backward()
    assert logits.grad.dtype is torch.bfloat16


def test_large_logits_do_not_overflow(kernel):
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = cross_entropy_sum(logits, torch.tensor([1]))
    value.backward()
    assert value.item() == 2e4 and logits.grad.tolist() == [[1, -1, 0]]


def head(bias: bool = True) -> list[Tensor | None]:
    torch.manual_seed(1)
    tensors = [torch.randn(4, 9, 16), torch.randn(50, 16) / 2, torch.randn(50) if bias else None]
    return [t if t is None else t.requires_grad_() for t in tensors]


def plain(
    h: Tensor, w: Tensor, b: Tensor | None, labels: Tensor, cap=None, scale=1.0, smoothing=0.0
) -> Tensor:
    """Logits first, then their loss."""
    z = scale * F.linear(h, w, b)
    return cross_entropy_sum(z if cap is None else cap * torch.tanh(z / cap), labels, smoothing)


@pytest.mark.parametrize("chunk", [1, 7, 36, 1000])
@pytest.mark.parametrize(
    "how",
    [{}, {"bias": False}, {"cap": 3.0}, {"scale": 0.25}, {"cap": 2.0, "scale": 0.5, "smoothing": 0.1}],
    ids=str,
)
def test_in_chunks_it_is_the_same_loss_with_the_same_gradients(chunk, how):
    how = dict(how)
    tensors = head(bias=how.pop("bias", True))
    labels = torch.randint(50, (4, 9))
    labels[0, :5] = IGNORE
    expected = plain(*tensors, labels, **how) / 31
    smoothing = how.pop("smoothing", 0.0)
    value = chunked_cross_entropy(*tensors, labels, chunk=chunk, label_smoothing=smoothing, **how) / 31
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    inputs = [t for t in tensors if t is not None]
    for ours, theirs in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs)):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_in_chunks_it_follows_autocast():
    h, w, _ = head(bias=False)
    labels = torch.randint(50, (4, 9))
    with torch.autocast("cpu", torch.bfloat16):
        value, expected = chunked_cross_entropy(h, w, None, labels, chunk=8), plain(h, w, None, labels)
    assert value.dtype is torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-3)
    ours, theirs = torch.autograd.grad(value, [h, w]), torch.autograd.grad(expected, [h, w])
    assert [g.dtype for g in ours] == [torch.float32] * 2
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.05)


def test_in_chunks_nothing_is_kept_when_no_gradient_is_wanted():
    tensors, labels = head(), torch.randint(50, (4, 9))
    with torch.no_grad():
        value = chunked_cross_entropy(*tensors, labels, chunk=5)
    assert not value.requires_grad and value.item() == pytest.approx(plain(*tensors, labels).item(), rel=1e-6)


MEASURE = """
import sys, torch
from pathlib import Path
from tfcli.loss import chunked_cross_entropy, cross_entropy_sum
h, w = torch.randn(2048, 64).requires_grad_(), torch.randn(50_000, 64).requires_grad_()
labels = torch.randint(50_000, (2048,))
cross_entropy_sum(h[:1, :8], labels[:1] % 8).backward()
def peak():  # of this process alone: ru_maxrss begins with that of its parent
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
if sys.argv[1] == "chunked":
    chunked_cross_entropy(h, w, None, labels, chunk=128).backward()
else:
    cross_entropy_sum(h @ w.T, labels).backward()
print(peak() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc"
)
def test_in_chunks_the_peak_of_memory_falls():
    def peak(way: str) -> int:
        run = subprocess.run([sys.executable, "-c", MEASURE, way], capture_output=True, text=True, check=True)
        return int(run.stdout)

    logits = 2048 * 50_000 * 4 // 1024  # KiB; the plain way holds them and their gradient
    assert peak("plain") > 1.5 * logits
    assert peak("chunked") < 0.5 * logits
