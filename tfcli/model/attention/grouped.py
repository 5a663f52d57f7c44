"""Attention whose query heads share key and value heads: multi-head, grouped-query and multi-query by their
numbers.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from tfcli.errors import ConfigError
from tfcli.model.attend import Kernel, attend, attention_weights
from tfcli.model.attention import Attention, View
from tfcli.model.cache import Cache, recall
from tfcli.model.linear import Linear, Single, linear
from tfcli.model.placement import MakeNorm
from tfcli.model.single import Glance, attend_single
from tfcli.model.visibility import Rule
from tfcli.values import Count, Positive, Rate


class Grouped(Attention):
    """softmax(q k^T / sqrt(E)) v W_o  with H query heads on K key and value heads.

    K = H is multi-head (Vaswani et al. 2017), K = 1 multi-query (Shazeer 2019), between them grouped-query
    attention
    (Ainslie et al. 2023). A rule narrows what is seen: a window, a stride. q, k and v are one matrix, of
    which cross-attention applies the first rows to the queries' text and the others to the memory. scale:
    what products are multiplied by, where it is not 1 / sqrt(E)  (T5: 1). qk_norm: queries and keys are
    normalised before they are turned, `head`: each head's E features, with one gain for all heads  (Qwen 3),
    `full`: those of all heads together  (OLMo 2).
    """

    takes = frozenset({"input", "rotation", "bias", "score"})
    reads_memory = True

    def __init__(
        self,
        d_model: Count,
        n_heads: Count,
        n_kv_heads: Count | None = None,
        head_dim: Count | None = None,
        rule: Rule | None = None,
        bias: bool = False,
        out_bias: bool | None = None,  # None: as bias
        dropout: Rate = 0.0,
        kernel: Kernel = "sdpa",
        scale: Positive | None = None,
        qk_norm: Literal["head", "full"] | None = None,
        make_norm: MakeNorm | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_kv_heads or n_heads
        if n_heads % n_kv_heads:
            raise ConfigError(f"size.n_heads={n_heads} must be a multiple of size.n_kv_heads={n_kv_heads}")
        if head_dim is None and d_model % n_heads:
            raise ConfigError(
                f"size.d_model={d_model} must be a multiple of size.n_heads={n_heads}, or size.head_dim "
                f"must be set"
            )
        self.head_dim = head_dim or d_model // n_heads
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.rule, self.dropout, self.kernel = rule, dropout, kernel
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.qkv = Linear(d_model, (n_heads + 2 * n_kv_heads) * self.head_dim, bias=bias)
        self.out = Linear(n_heads * self.head_dim, d_model, bias=bias if out_bias is None else out_bias)
        widths = [self.head_dim * (n if qk_norm == "full" else 1) for n in (n_heads, n_kv_heads)]
        self.qk_norm = qk_norm
        self.q_norm, self.k_norm = (make_norm(width) if qk_norm else None for width in widths)
        if qk_norm and self.q_norm.over_tokens:
            raise ConfigError(
                f"attention.qk_norm={qk_norm}: is over features, and this norm is over tokens; set it to "
                "null, or choose another norm"
            )

    def forward(self, x: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        q, k, v = self.heads(x, view, cache) if view.memory is None else self.across(x, view, cache)
        dropout = self.dropout if self.training else 0.0
        gathered = attend(q, k, v, view, scale=self.scale, dropout=dropout, kernel=self.kernel)
        return self.out(gathered.flatten(2))  # (B, T, H, E) -> (B, T, D)

    def heads(self, x: Tensor, view: View, cache: Cache | None = None) -> tuple[Tensor, ...]:
        """(B, T, D) -> turned queries (B, T, H, E), and all keys and values there are, (B, S, K, E)."""
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # (B, T, H + 2K, E)
        if view.rotation is None and self.qk_norm is None:
            q, k, v = heads.split((self.n_heads, self.n_kv_heads, self.n_kv_heads), dim=2)
        else:
            both, v = heads.split((self.n_heads + self.n_kv_heads, self.n_kv_heads), dim=2)
            both = both if self.qk_norm is None else self.normed(both)
            both = both if view.rotation is None else view.rotation(both)  # queries and keys in one go
            q, k = both.split((self.n_heads, self.n_kv_heads), dim=2)
        if cache is None:
            return q, k, v
        kv = recall(cache, lambda: torch.cat((k, v), dim=2))  # one tensor to remember: (B, S, 2K, E)
        return q, *kv.split(self.n_kv_heads, dim=2)

    def across(self, x: Tensor, view: View, cache: Cache | None = None) -> tuple[Tensor, ...]:
        """(B, T, D) -> queries (B, T, H, E), and keys and values of the memory, (B, S, K, E)."""
        n_queries = self.n_heads * self.head_dim
        weights = self.qkv.weight.tensor_split((n_queries,))
        biases = (None, None) if self.qkv.bias is None else self.qkv.bias.tensor_split((n_queries,))
        q, kv = (
            lambda y=y, w=w, b=b: linear(y, w, b).unflatten(-1, (-1, self.head_dim))
            for y, w, b in zip((x, view.memory), weights, biases)
        )
        if self.qk_norm is None:
            return q(), *recall(cache, kv).split(self.n_kv_heads, dim=2)

        def normed_kv() -> Tensor:
            k, v = kv().split(self.n_kv_heads, dim=2)
            return torch.cat((self.over_features(self.k_norm, k), v), dim=2)

        q = self.over_features(self.q_norm, q())
        return q, *recall(cache, normed_kv).split(self.n_kv_heads, dim=2)

    def normed(self, both: Tensor) -> Tensor:
        """Queries, then keys, (..., H + K, E), each by their norm."""
        q, k = both.split((self.n_heads, self.n_kv_heads), dim=-2)
        return torch.cat((self.over_features(self.q_norm, q), self.over_features(self.k_norm, k)), dim=-2)

    def over_features(self, norm: nn.Module, x: Tensor) -> Tensor:
        """(..., H, E) normalised, each head's features or all heads'; in fp32, returned as it came."""
        wide = norm(x) if self.qk_norm == "head" else norm(x.flatten(-2)).unflatten(-1, x.shape[-2:])
        return wide.to(x.dtype)

    def single(self) -> Single:
        general = super().single()
        if self.kernel == "eager":
            return general
        qkv, out, n_heads, n_kv, width = (
            self.qkv.single(),
            self.out.single(),
            self.n_heads,
            self.n_kv_heads,
            self.head_dim,
        )
        scale, normed = self.scale, None if self.qk_norm is None else self.normed

        def step(x: Tensor, glance: Glance, cache: Cache) -> Tensor:
            if glance.scores:
                return general(x, glance, cache)
            heads = qkv(x).view(-1, width)  # (H + 2K, E)
            if normed is not None:
                heads[: n_heads + n_kv] = normed(heads[: n_heads + n_kv])
            if glance.rotation is not None:
                glance.rotation.turn_(heads[: n_heads + n_kv])
            k, v = cache.recall_one(heads[n_heads:]).split(n_kv, 1)  # (S, 2K, E)
            return out(attend_single(heads[:n_heads], k, v, glance.added, scale))

        return step

    def weights(self, x: Tensor, view: View) -> Tensor:
        """(B, T, D) -> (B, H, T, T): who looks at whom, for pictures."""
        q, k, _ = self.heads(x, view)
        return attention_weights(q, k, view, scale=self.scale)
