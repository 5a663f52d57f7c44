"""From vectors to scores: of the next token, of a masked one, of a class, of tags, of a span; or to one
vector.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfcli.batch import PAD
from tfcli.loss import chunked_cross_entropy
from tfcli.model.attention import HIDDEN
from tfcli.model.ffn import Activation
from tfcli.model.linear import Linear, Single, short
from tfcli.model.placement import MakeNorm
from tfcli.model.transform import Pool, Transforming, pooled, tokens
from tfcli.values import Count, Positive, Rate

Says = Literal["tokens", "class", "tags", "span", "vector"]
SOME = 2  # labels of a model that is only rehearsed, before the data said which there are


class Head(nn.Module):
    """(B, T, D) -> scores; positions (B|1, T) tell padding from tokens, None: nothing is padded."""

    says: ClassVar[Says]  # what it gives scores of
    by_token = False  # what it says of a token depends on that token's vector alone

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        raise NotImplementedError


class LMHead(Head):
    """W x + b, one score a token of the vocabulary; W is the embedding's table or its own  (Press & Wolf
    2017).

    cap: logits become cap * tanh(logits / cap)  (Gemma 2). shrink: x / sqrt(D) first  (T5).
    final_logits_bias: a bias that is not learned  (BART, Marian). Padded rows of the table give no logit.
    """

    says = "tokens"
    by_token = True

    def __init__(
        self,
        table: nn.Embedding,
        vocab_size: int,
        tied: bool = True,
        bias: bool = False,
        cap: Positive | None = None,
        shrink: bool = False,
        final_logits_bias: bool = False,
    ) -> None:
        super().__init__()
        rows, d_model = table.weight.shape
        self.vocab_size, self.cap = vocab_size, cap
        self.scale = d_model**-0.5 if shrink else 1.0
        self.map = Linear(d_model, rows, bias=bias)
        if tied:
            self.map.weight = table.weight
        self.register_buffer("final_logits_bias", torch.zeros(rows) if final_logits_bias else None)

    def features(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """What the map reads: (B, T, D) -> (B, T, D)."""
        return x if self.scale == 1 else x * self.scale

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, V)"""
        logits = self.map(self.features(x, positions))
        if self.final_logits_bias is not None:
            logits = logits + self.final_logits_bias
        if logits.shape[-1] != self.vocab_size:
            logits = logits[..., : self.vocab_size]
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def chunked_loss(
        self,
        x: Tensor,
        labels: Tensor,
        positions: Tensor | None = None,
        *,
        chunk: int,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """`loss.cross_entropy_sum` of the scores of x, which are made `chunk` tokens at a time."""
        size = self.vocab_size
        biases = [b[:size] for b in (self.map.bias, self.final_logits_bias) if b is not None]
        bias = sum(biases) if biases else None
        return chunked_cross_entropy(
            self.features(x, positions),
            self.map.weight[:size],
            bias,
            labels,
            chunk=chunk,
            cap=self.cap,
            label_smoothing=label_smoothing,
        )

    def single(self) -> Single:
        """The same for one token: (D,) -> (V,)."""
        if self.scale != 1 or self.final_logits_bias is not None:
            return lambda x: self(x[None, None])[0, 0]
        scores, cap, size = self.map.single(), self.cap, self.vocab_size
        if cap is None:
            return lambda x: scores(x)[:size]
        return lambda x: cap * torch.tanh(scores(x)[:size] / cap)


class MLMHead(LMHead, Transforming):
    """W norm(act(A x + a)) + b  (BERT); W is the embedding's table."""

    def __init__(
        self,
        table: nn.Embedding,
        vocab_size: int,
        make_norm: MakeNorm,
        activation: Activation = "gelu",
        dense_bias: bool = True,
        tied: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(table, vocab_size, tied=tied, bias=bias)
        self.transform_by(table.weight.shape[1], activation, dense_bias, make_norm)
        self.by_token = not self.norm.over_tokens

    def features(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        return self.transformed(x, tokens(positions))

    def single(self) -> Single:
        """The same for one token: (D,) -> (V,)."""
        scores, dense, norm, size = self.map.single(), self.dense.single(), short(self.norm), self.vocab_size
        return lambda x: scores(norm(self.activation(dense(x))))[:size]


class Classification(Head, Transforming):
    """W norm(act(A pool(x) + a)) + b, one score a class  (BERT's pooler, with tanh and no norm).

    activation None: no dense map before W.
    """

    says = "class"

    def __init__(
        self,
        d_model: Count,
        labels: list[str] | None = None,
        pool: Pool = "first",
        activation: Activation | None = "tanh",
        dropout: Rate = 0.0,
        dense_bias: bool = True,
        norm: bool = False,
        make_norm: MakeNorm | None = None,
    ) -> None:
        super().__init__()
        self.pool = pool
        self.transform_by(d_model, activation, dense_bias, make_norm if norm else None)
        self.dropout = nn.Dropout(dropout)
        self.map = Linear(d_model, SOME if labels is None else len(labels))

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, C)"""
        there = None if positions is None else tokens(positions).any(-1, keepdim=True)  # (B, 1)
        x = self.transformed(pooled(x, positions, self.pool)[:, None], there)[:, 0]
        return self.map(self.dropout(x))


class Tagging(Head, Transforming):
    """W x + b, one score a tag for each token  (BERT); with an activation W norm(act(A x + a)) + b."""

    says = "tags"

    def __init__(
        self,
        d_model: Count,
        labels: list[str] | None = None,
        dropout: Rate = 0.0,
        activation: Activation | None = None,
        dense_bias: bool = True,
        norm: bool = False,
        make_norm: MakeNorm | None = None,
    ) -> None:
        super().__init__()
        self.transform_by(d_model, activation, dense_bias, make_norm if norm else None)
        self.dropout = nn.Dropout(dropout)
        self.map = Linear(d_model, SOME if labels is None else len(labels))

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, C)"""
        return self.map(self.dropout(self.transformed(x, tokens(positions))))


class Span(Head, Transforming):
    """W x, two scores for each token: as the first and as the last of the answer  (BERT); with an activation
    W norm(act(A x + a)).

    bias: moves all scores alike, and so no probability; for weights that have one.
    """

    says = "span"

    def __init__(
        self,
        d_model: Count,
        dropout: Rate = 0.0,
        bias: bool = False,
        activation: Activation | None = None,
        dense_bias: bool = True,
        norm: bool = False,
        make_norm: MakeNorm | None = None,
    ) -> None:
        super().__init__()
        self.transform_by(d_model, activation, dense_bias, make_norm if norm else None)
        self.dropout = nn.Dropout(dropout)
        self.map = Linear(d_model, 2, bias=bias)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, 2, T), HIDDEN where nothing is"""
        scores = self.map(self.dropout(self.transformed(x, tokens(positions)))).transpose(1, 2)
        return scores if positions is None else scores.masked_fill((positions == PAD)[:, None], HIDDEN)


class Vector(Head, Transforming):
    """act(A pool(x) + a), one vector of the whole text, of length 1 if `normalise`  (Reimers & Gurevych 2019,
    Sentence-BERT; BERT's pooler, with tanh); activation None: pool(x).
    """

    says = "vector"

    def __init__(
        self,
        d_model: Count,
        pool: Pool = "mean",
        activation: Activation | None = None,
        normalise: bool = False,
    ) -> None:
        super().__init__()
        self.pool, self.normalise = pool, normalise
        self.transform_by(d_model, activation)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, D)"""
        x = self.transformed(pooled(x, positions, self.pool)[:, None])[:, 0]
        return F.normalize(x, dim=-1) if self.normalise else x
