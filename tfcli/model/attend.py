"""softmax(q k^T) v: the only file that knows kernels."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tfcli.model.attention import HIDDEN, View

Kernel = Literal["sdpa", "eager"]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    view: View,
    *,
    scale: float,
    dropout: float = 0.0,
    kernel: Kernel = "sdpa",
) -> Tensor:
    """(B, T, H, E), (B, S, K, E), (B, S, K, F) -> (B, T, H, F); H/K query heads share a key head, neighbours
    first.

    dropout is the rate to apply now: 0 in evaluation. A query that sees nothing gets zeros or some finite
    vector.
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
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=view.causal,
        scale=scale,
        enable_gqa=n_heads != n_kv_heads,
    )
    return out.transpose(1, 2)


def eager(q: Tensor, k: Tensor, v: Tensor, view: View, *, scale: float, dropout: float = 0.0) -> Tensor:
    """The formula written out: what the fused kernels are held against, and the home of the score
    hook.
    """
    weights = attention_weights(q, k, view, scale=scale)
    weights = F.dropout(weights, dropout).to(v.dtype) if dropout else weights.to(v.dtype)  # (B, H, T, S)
    out = weights @ heads_first(v, q.shape[2])
    if view.position.enters == "score":
        relative = view.position.values(weights, view.q_pos, view.k_pos)
        out = out if relative is None else out + relative
    return out.transpose(1, 2)


def attention_weights(q: Tensor, k: Tensor, view: View, *, scale: float) -> Tensor:
    """(B, T, H, E), (B, S, K, E) -> (B, H, T, S): fp32 rows that sum to 1."""
    keys = heads_first(k, q.shape[2])
    q = q.transpose(1, 2)
    scores = q @ keys.transpose(-1, -2)  # (B, H, T, S)
    if view.position.enters == "score":
        scores = scores + view.position.scores(q, view.q_pos, view.k_pos)
    hidden = added(view, scores)
    scores = scores.float() * scale if hidden is None else torch.add(hidden, scores.float(), alpha=scale)
    weights = scores.softmax(-1)
    if view.memory is not None and view.mask is not None:  # of a memory there may be nothing to see
        weights = weights.masked_fill(~view.mask.any(-1, keepdim=True), 0.0)
    return weights


def heads_first(x: Tensor, n_heads: int) -> Tensor:
    """(B, S, K, E) -> (B, H, S, E), each of the K heads repeated for those that share it."""
    x = x if x.shape[2] == n_heads else x.repeat_interleave(n_heads // x.shape[2], dim=2)
    return x.transpose(1, 2)


def added(view: View, scores: Tensor) -> Tensor | None:
    """What a view adds to scaled scores, HIDDEN where nothing is seen; finite, so that no row becomes NaN."""
    if view.bias is not None:
        return view.bias
    if view.causal:
        return torch.full(scores.shape[-2:], HIDDEN, device=scores.device).triu(1)
    return None if view.mask is None else torch.where(view.mask, 0.0, HIDDEN)
