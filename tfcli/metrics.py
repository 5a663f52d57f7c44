"""The numbers that a run is judged by: losses in nats per token, and what is derived from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tfcli.batch import IGNORE


def token_nats(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p(label) of each label, in fp32 at least; 0 where it is IGNORE.  (B, ..., V), (B, ...) -> (B, ...)

    Labels may be tokens (B, T), a class (B,), tags (B, T), or the ends of a span (B, 2).
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    # row by row, as a copy of the logits of a whole batch can be the largest tensor of all
    rows = (
        cross_entropy(x.to(wide), y, ignore_index=IGNORE, reduction="none") for x, y in zip(logits, labels)
    )
    return torch.stack(tuple(rows))


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """How many labels have the highest score, the first of equals being it; those that are IGNORE do not
    count.
    """
    there = labels != IGNORE
    return (logits[there].argmax(-1) == labels[there]).sum()  # only scored rows are looked through


def perplexity(loss: float) -> float:
    """exp(loss); inf where that is more than a float can hold."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(nats: float, n_bytes: int) -> float | None:
    """nats / (ln 2 * UTF-8 bytes of the scored text), comparable across tokenizers; None without text."""
    return nats / (math.log(2) * n_bytes) if n_bytes else None


def flops_per_token(n_params: int, *, n_layers: int, n_heads: int, head_dim: int, seq_len: int) -> int:
    """6N + 12 L H E T, forward and backward  (PaLM, Chowdhery et al. 2022, arXiv 2204.02311, appendix B)

    `n_params` counts the parameters that multiply every token, so not the embedding tables.
    """
    return 6 * n_params + 12 * n_layers * n_heads * head_dim * seq_len


@dataclass(frozen=True)
class Score:
    """Sums over what was scored, so the sum of two scores is the score of both. Means are taken only here."""

    nats: float = 0.0  # over all scored tokens, EOS among them
    tokens: int = 0
    text_nats: float = 0.0  # without special tokens, which stand for no byte
    bytes: int = 0  # UTF-8 bytes of the scored text; 0: there is no text behind the tokens
    documents: int = 0  # those with at least one scored token
    correct: int = 0  # how often the label had the highest score, if that was counted
    counted: bool = False  # whether it was, for all tokens

    def __add__(self, other: Score) -> Score:
        return Score(
            self.nats + other.nats,
            self.tokens + other.tokens,
            self.text_nats + other.text_nats,
            self.bytes + other.bytes,
            self.documents + other.documents,
            self.correct + other.correct,
            all(score.counted for score in (self, other) if score.tokens),
        )

    @property
    def loss(self) -> float:
        """Nats per token, a mean over tokens whatever batches they came in; nan without tokens."""
        return self.nats / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)

    @property
    def accuracy(self) -> float | None:
        """How often the label has the highest score; None: not counted."""
        return self.correct / self.tokens if self.counted and self.tokens else None

    @property
    def bits_per_byte(self) -> float | None:
        return bits_per_byte(self.text_nats, self.bytes)
