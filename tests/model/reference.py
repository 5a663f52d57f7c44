"""A decoder in float64 NumPy, one token at a time, written from the papers and not from tfcli: the second
opinion.

It reads a model's weights by name and its parts by the choices of the configuration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def activation(name: str, x: np.ndarray) -> np.ndarray:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "gelu":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Reference:
    """The forward pass of one sequence."""

    def __init__(self, config: Any, weights: Weights) -> None:
        self.config, self.w = config, weights

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        c, gain = self.config.norm, self.w[f"{name}.gain"]
        if c._target_.endswith("LayerNorm"):
            y = (x - x.mean()) / np.sqrt(x.var() + c.eps) * gain
            return y + self.w[f"{name}.bias"] if c.bias else y
        return x / np.sqrt((x**2).mean() + c.eps) * (1 + gain if c.one_plus else gain)

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        y = self.w[f"{name}.weight"] @ x
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def branch(self, xs: list[np.ndarray], name: str, f: Any) -> list[np.ndarray]:
        kind = self.config.choices.placement
        if kind in ("pre", "parallel"):
            return [x + y for x, y in zip(xs, f([self.norm(x, f"{name}.norms.0") for x in xs]))]
        if kind == "post":
            return [self.norm(x + y, f"{name}.norms.0") for x, y in zip(xs, f(xs))]
        if kind == "sandwich":
            ys = f([self.norm(x, f"{name}.norms.0") for x in xs])
            return [x + self.norm(y, f"{name}.norms.1") for x, y in zip(xs, ys)]
        return [x + self.norm(y, f"{name}.norms.0") for x, y in zip(xs, f(xs))]

    def ffn(self, xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        c = self.config.ffn
        if c._target_.endswith("Dense"):
            return [
                self.linear(activation(c.activation, self.linear(x, f"{name}.up")), f"{name}.down")
                for x in xs
            ]
        out = []
        for x in xs:
            gate, up = np.split(self.linear(x, f"{name}.gate_up"), 2)
            out.append(self.linear(activation(c.activation, gate) * up, f"{name}.down"))
        return out

    def turned(self, x: np.ndarray, p: int) -> np.ndarray:
        """Rotary by 2 x 2 matrices."""
        c, out = self.config.position, x.copy()
        width = int(len(x) * c.partial)
        for i in range(width // 2):
            a, b = (2 * i, 2 * i + 1) if c.interleaved else (i, i + width // 2)
            angle = p * c.base ** (-2 * i / width)
            if self.config.choices.position == "rope_linear":
                angle /= c.factor
            out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
            out[b] = x[a] * math.sin(angle) + x[b] * math.cos(angle)
        return out

    def normed(self, row: np.ndarray, name: str, over: str, h: int, k: int) -> np.ndarray:
        """The heads of one token, (H + 2K, E), its queries and keys normalised."""
        parts = []
        for which, heads in (("q_norm", row[:h]), ("k_norm", row[h : h + k])):
            if over == "head":
                parts += [self.norm(x, f"{name}.{which}") for x in heads]
            else:
                parts += list(self.norm(np.concatenate(heads), f"{name}.{which}").reshape(heads.shape))
        return np.stack(parts + list(row[h + k :]))

    def sees(self, layer: int, q: int, k: int) -> bool:
        c = self.config.attention
        if "pattern" in c:
            c = c[c.pattern[layer % len(c.pattern)]]
        rule = c.get("rule")
        if rule is None:
            return k <= q
        if "size" in rule:
            return q - rule.size < k <= q
        return k <= q and (q - k < rule.stride or (q - k) % rule.stride == 0)

    def slope(self, head: int, n_heads: int) -> float:
        assert n_heads & (n_heads - 1) == 0
        return 2.0 ** (-8 * (head + 1) / n_heads)

    def t5_bucket(self, distance: int) -> int:
        c = self.config.position
        exact = c.n_buckets // 2
        if distance < exact:
            return distance
        far = math.log(distance / exact) / math.log(c.max_distance / exact) * (c.n_buckets - exact)
        return min(c.n_buckets - 1, exact + int(far))

    def attention(self, xs: list[np.ndarray], name: str, layer: int) -> list[np.ndarray]:
        c = self.config
        kind = c.attention if "pattern" not in c.attention else c.attention[c.attention.pattern[0]]
        width = c.size.head_dim or c.size.d_model // c.size.n_heads
        h, k = kind.n_heads, kind.n_kv_heads
        position = c.choices.position
        rows = [self.linear(x, f"{name}.qkv").reshape(h + 2 * k, width) for x in xs]
        if kind.qk_norm:
            rows = [self.normed(row, name, kind.qk_norm, h, k) for row in rows]
        out = []
        for i, row in enumerate(rows):
            heads = []
            for head in range(h):
                shared = head // (h // k)
                q, total, z = row[head], 0.0, np.zeros(width)
                scores = {}
                for j in range(len(rows)):
                    if not self.sees(layer, i, j):
                        continue
                    key = rows[j][h + shared]
                    a, b = (
                        (self.turned(q, i), self.turned(key, j)) if "interleaved" in c.position else (q, key)
                    )
                    if position == "shaw":
                        clip = c.position.clip
                        b = (
                            b
                            + self.w[f"stack.positions.{layer}.keys.weight"][
                                min(max(j - i, -clip), clip) + clip
                            ]
                        )
                    score = a @ b / math.sqrt(width)
                    if position == "alibi":
                        score -= self.slope(head, h) * (i - j)
                    if position == "t5":
                        score += self.w["stack.positions.0.table.weight"][self.t5_bucket(i - j), head]
                    scores[j] = score
                top = max(scores.values())
                total = sum(math.exp(s - top) for s in scores.values())
                for j, score in scores.items():
                    value = rows[j][h + k + shared]
                    if position == "shaw":
                        clip = c.position.clip
                        table = self.w[f"stack.positions.{layer}.value_table.weight"]
                        value = value + table[min(max(j - i, -clip), clip) + clip]
                    z = z + math.exp(score - top) / total * value
                heads.append(z)
            out.append(self.linear(np.concatenate(heads), f"{name}.out"))
        return out

    def embedded(self, token: int, p: int) -> np.ndarray:
        c, x = self.config, self.w["embedding.table.weight"][token]
        if c.embedding.scale:
            x = x * math.sqrt(c.size.d_model)
        if c.choices.position == "learned":
            x = x + self.w["stack.positions.0.table.weight"][p]
        if c.choices.position == "sinusoidal":
            angles = p / c.position.base ** (np.arange(0, len(x), 2) / len(x))
            waves = np.empty_like(x)
            waves[0::2], waves[1::2] = np.sin(angles), np.cos(angles)
            x = x + waves
        return self.norm(x, "embedding.norm") if c.embedding.norm else x

    def logits(self, tokens: list[int]) -> np.ndarray:
        """(T,) ids -> (T, V)"""
        c = self.config
        xs = [self.embedded(token, p) for p, token in enumerate(tokens)]
        for i in range(c.size.n_layers):
            layer = f"stack.layers.{i}"
            read = xs
            xs = self.branch(
                xs,
                f"{layer}.attention",
                lambda ys, i=i, n=layer: self.attention(ys, f"{n}.attention.branch", i),
            )
            if c.choices.placement == "parallel":
                ys = self.branch(read, f"{layer}.ffn", lambda ys, n=layer: self.ffn(ys, f"{n}.ffn.branch"))
                xs = [x + y - z for x, y, z in zip(xs, ys, read)]
                continue
            xs = self.branch(xs, f"{layer}.ffn", lambda ys, n=layer: self.ffn(ys, f"{n}.ffn.branch"))
        if c.choices.placement != "post":
            xs = [self.norm(x, "stack.final_norm") for x in xs]
        out = np.stack([self.linear(x, "head.map") for x in xs])
        return out if c.head.cap is None else c.head.cap * np.tanh(out / c.head.cap)
