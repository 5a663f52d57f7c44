"""softmax(q k^T) v: the only file that knows kernels."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tfcli.model.attention import HIDDEN, View

Kernel = Literal["auto", "sdpa", "eager"]

_NOTHING = torch.zeros(())


def attend(
    q: Tensor, k: Tensor, v: Tensor, view: View, *, scale: float, dropout: float = 0.0, kernel: Kernel = "auto"
) -> Tensor:
    """(B, T, H, E), (B, S, K, E), (B, S, K, F) -> (B, T, H, F); H/K query heads share a key head, neighbours first.

    dropout is the rate to apply now: 0 in evaluation. A query that sees nothing gets zeros or some finite vector.
    """
    if kernel == "eager" or view.position.enters == "score":
        return eager(q, k, v, view, scale=scale, dropout=dropout)
    return fused(q, k, v, view, scale=scale, dropout=dropout)


def fused(q: Tensor, k: Tensor, v: Tensor, view: View, *, scale: float, dropout: float = 0.0) -> Tensor:
    """torch's scaled_dot_product_attention, which picks flash, memory-efficient or plain kernels."""
    n_heads, n_kv_heads = q.shape[2], k.shape[2]
    mask = view.mask if view.bias is None else view.bias.to(q.dtype)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, T, H, E) -> (B, H, T, E)
    if q.shape[2] == 1 and n_heads != n_kv_heads:
        # one query a head: the heads that share a key head are its queries, and no key is repeated
        q = q.reshape(q.shape[0], n_kv_heads, -1, q.shape[-1])  # (B, H, 1, E) -> (B, K, H/K, E)
        if mask is not None and mask.shape[1] > 1:
            mask = mask.reshape(mask.shape[0], n_kv_heads, -1, mask.shape[-1])
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
        return out.reshape(out.shape[0], 1, n_heads, out.shape[-1])
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=view.causal, scale=scale, enable_gqa=n_heads != n_kv_heads
    )
    return out.transpose(1, 2)


def attend_single(q: Tensor, k: Tensor, v: Tensor, view: View, scale: float) -> Tensor:
    """One query: (H, E), (S, K, E), (S, K, F) -> (H F,). Three products on views, which cost less than one kernel's call."""
    q = q.view(k.shape[1], -1, q.shape[-1])  # (K, H/K, E)
    if view.bias is not None:
        added = view.bias.view(q.shape[0], q.shape[1], -1)
    elif view.mask is not None:
        added = torch.where(view.mask[0, 0], 0.0, HIDDEN)
    else:
        added = None
    keys = k.permute(1, 2, 0)  # (K, E, S)
    if added is None:
        scores = torch.baddbmm(_NOTHING, q, keys, beta=0, alpha=scale)  # (K, H/K, S)
    else:
        scores = torch.baddbmm(added, q, keys, alpha=scale)
    return torch.bmm(scores.softmax(-1), v.transpose(0, 1)).view(-1)


def eager(q: Tensor, k: Tensor, v: Tensor, view: View, *, scale: float, dropout: float = 0.0) -> Tensor:
    """The formula written out: what the fused kernels are held against, and the home of the score hook."""
    weights = attention_weights(q, k, view, scale=scale)
    weights = F.dropout(weights, dropout).to(v.dtype)  # (B, H, T, S)
    v = v.repeat_interleave(q.shape[2] // v.shape[2], dim=2).transpose(1, 2)  # (B, S, K, F) -> (B, H, S, F)
    out = weights @ v
    if view.position.enters == "score":
        relative = view.position.values(weights, view.q_pos, view.k_pos)
        out = out if relative is None else out + relative
    return out.transpose(1, 2)


def attention_weights(q: Tensor, k: Tensor, view: View, *, scale: float) -> Tensor:
    """(B, T, H, E), (B, S, K, E) -> (B, H, T, S): fp32 rows that sum to 1, or to 0 for a query that sees nothing."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2).transpose(1, 2)  # (B, S, K, E) -> (B, H, S, E)
    q = q.transpose(1, 2)
    scores = q @ k.transpose(-1, -2)  # (B, H, T, S)
    if view.position.enters == "score":
        scores = scores + view.position.scores(q, view.q_pos, view.k_pos)
    scores = scores.float() * scale
    if view.bias is not None:
        scores = scores + view.bias
    mask = view.mask
    if view.causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is None:
        return scores.softmax(-1)
    # filled finite and zeroed after: a row that sees nothing must not be NaN, nor its gradient
    return scores.masked_fill(~mask, HIDDEN).softmax(-1).masked_fill(~mask, 0.0)
