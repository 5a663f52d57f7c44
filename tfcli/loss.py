"""Cross-entropy as a sum over tokens, in fp32: the training step divides by the tokens of the whole step.

The kernels here make the gradient together with the loss, a block of rows at a time in one buffer that
stays in the processor's cache. So the scores of a large vocabulary are held once, or not at all.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tfcli.batch import IGNORE

_BLOCK = 1 << 20  # scores worked on at a time: 4 MB in fp32
_SMALL = 1 << 18  # with fewer scores torch's own kernels are faster (measured)


def cross_entropy_sum(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, ignore: int = IGNORE
) -> Tensor:
    """The sum over scored tokens of (1-e) nll + e mean_v(-log p)  (Szegedy et al. 2015, arXiv 1512.00567)

    logits (..., V), labels (...). Logits of -inf have no share in the smoothing. Without a scored token the
    sum is 0, and so are its gradients.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()  # (N, V), (N,)
    large = logits.device.type == "cpu" and logits.numel() >= _SMALL
    if large and logits.requires_grad and torch.is_grad_enabled():
        return _CrossEntropy.apply(logits, labels, label_smoothing, ignore)
    log_p = F.log_softmax(logits, dim=-1, dtype=_wide(logits))
    nll = F.nll_loss(log_p, labels, ignore_index=ignore, reduction="sum")
    if not label_smoothing:
        return nll
    even = torch.where(labels == ignore, 0.0, _even(log_p)).sum()
    return (1 - label_smoothing) * nll + label_smoothing * even


class Logits(NamedTuple):
    """How scores come from z = W h + b, chunk by chunk: cap * tanh(scale * z / cap)."""

    chunk: int
    cap: float | None
    scale: float
    smoothing: float
    ignore: int


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    chunk: int = 1024,
    cap: float | None = None,
    scale: float = 1.0,
    label_smoothing: float = 0.0,
    ignore: int = IGNORE,
) -> Tensor:
    """`cross_entropy_sum` of cap * tanh(scale * (W h + b) / cap), `chunk` tokens at a time.

    hidden (..., D), weight (V, D) without padded rows, labels (...). The gradients of h, W and b are made in
    the forward pass, so nothing of size tokens x V waits for the backward pass.
    """
    how = Logits(chunk, cap, scale, label_smoothing, ignore)
    hidden, labels = hidden.flatten(0, -2), labels.flatten()  # (N, D), (N,)
    return _Chunked.apply(hidden, weight, bias, labels, how, torch.is_grad_enabled())


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _even(log_p: Tensor) -> Tensor:
    """Mean of -log p over the possible classes: (N, V) -> (N,)"""
    possible = log_p > -torch.inf
    return -torch.where(possible, log_p, 0.0).sum(-1) / possible.sum(-1)


def _score_(z: Tensor, labels: Tensor, smoothing: float, ignore: int) -> Tensor:
    """The summed loss of fp32 logits (N, V), which are overwritten by their gradient."""
    rows = max(1, _BLOCK // z.shape[-1]) if z.device.type == "cpu" else max(1, len(z))
    blocks = zip(z.split(rows), labels.split(rows))
    return sum((_score_block_(*block, smoothing, ignore) for block in blocks), z.new_zeros(()))


def _score_block_(z: Tensor, labels: Tensor, smoothing: float, ignore: int) -> Tensor:
    """d loss / d z = p - (1-e) onehot - e/V, in rows that are scored."""
    scored = labels != ignore
    column = labels.where(scored, 0)[:, None]
    z -= z.amax(-1, keepdim=True)
    at_label = z.gather(-1, column)[:, 0]
    if smoothing:
        possible = z > -torch.inf
        share = smoothing / possible.sum(-1, dtype=z.dtype)
        at_label = (1 - smoothing) * at_label + share * torch.where(possible, z, 0.0).sum(-1)
    total = z.exp_().sum(-1)
    loss = torch.where(scored, total.log() - at_label, 0.0).sum()
    weight = scored.to(z.dtype)
    z *= (weight / total)[:, None]  # p
    z.scatter_add_(-1, column, (weight * (smoothing - 1))[:, None])
    if smoothing:
        z -= possible * (weight * share)[:, None]
    return loss


class _CrossEntropy(torch.autograd.Function):
    """The loss of logits that are there already: they and their gradient are all that is held.

    The backward pass scales the gradient in place, so torch refuses to run it twice.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float, ignore: int) -> Tensor:
        n, vocab = logits.shape
        rows = max(1, _BLOCK // vocab)
        block = torch.empty(min(rows, n), vocab, dtype=_wide(logits))
        slope, loss = torch.empty_like(logits), block.new_zeros(())
        for i in range(0, n, rows):
            z = block[: n - i].copy_(logits[i : i + rows])
            loss += _score_block_(z, labels[i : i + rows], smoothing, ignore)
            slope[i : i + rows] = z
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope.mul_(grad), None, None, None


class _Chunked(torch.autograd.Function):
    """The head and its loss in one: logits, loss, their gradient, and what that means for h, W and b."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: Logits, grad: bool
    ) -> Tensor:
        kind, inputs = hidden.device.type, (hidden, weight, bias)
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        w, loss = weight.to(dtype), hidden.new_zeros((), dtype=_wide(hidden))
        slopes = [torch.zeros_like(t, dtype=loss.dtype) if grad and t is not None else None for t in inputs]
        with torch.autocast(kind, enabled=False):
            for i in range(0, len(hidden), how.chunk):
                h = hidden[i : i + how.chunk].to(dtype)
                z = (h @ w.mT).to(loss.dtype)  # (chunk, V)
                part, z = _score_head(z if bias is None else z.add_(bias), labels[i : i + how.chunk], how)
                loss += part
                if grad:
                    _add_slopes(slopes, z, h, w, i)
        ctx.save_for_backward(*slopes)
        ctx.dtypes = [t if t is None else t.dtype for t in inputs]
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = zip(ctx.saved_tensors, ctx.dtypes)
        slopes = [slope if slope is None else slope.mul_(grad).to(dtype) for slope, dtype in saved]
        return (*slopes, None, None, None)


def _score_head(z: Tensor, labels: Tensor, how: Logits) -> tuple[Tensor, Tensor]:
    """The loss of the scores that come from z = W h + b, and d loss / d z. Overwrites z."""
    if how.scale != 1:
        z *= how.scale
    if how.cap is None:
        loss = _score_(z, labels, how.smoothing, how.ignore)
    else:
        bent = z.div_(how.cap).tanh_()
        z = bent * how.cap
        loss = _score_(z, labels, how.smoothing, how.ignore)
        z *= bent.square_().neg_().add_(1)  # d tanh(x) / d x = 1 - tanh(x)^2
    return loss, z if how.scale == 1 else z.mul_(how.scale)


def _add_slopes(slopes: list[Tensor | None], z: Tensor, h: Tensor, w: Tensor, start: int) -> None:
    """What d loss / d z (chunk, V) means for h (its rows from `start`), W and b."""
    hidden, weight, bias = slopes
    if bias is not None:
        bias += z.sum(0)
    z = z.to(w.dtype)
    hidden[start : start + len(h)] = z @ w
    if weight.dtype is z.dtype:
        weight.addmm_(z.mT, h)
    else:
        weight += z.mT @ h
