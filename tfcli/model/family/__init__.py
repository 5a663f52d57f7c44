"""What the families share: an embedding, a stack, a head, and how a text goes through them."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from tfcli.batch import IGNORE, PAD, Batch
from tfcli.errors import ConfigError
from tfcli.model.attention import Pass
from tfcli.model.cache import Cache, Once
from tfcli.model.embedding import TokenEmbedding
from tfcli.model.head import Head
from tfcli.model.stack import Stack
from tfcli.model.state import State
from tfcli.model.visibility import arange


class Model(nn.Module):
    """embedding -> stack -> head"""

    family: ClassVar[str]
    embedding: TokenEmbedding
    stack: Stack
    head: Head

    @property
    def vocab_size(self) -> int:
        """How many tokens there are scores for."""
        return self.embedding.vocab_size

    @property
    def context(self) -> int | None:
        """How many positions the model knows; None: it goes on."""
        return self.stack.context

    def forward(self, batch: Batch) -> Tensor:
        """The head's scores: of a next token at every place, (B, T, V), or what else it scores."""
        return self.head(self.hidden(batch), batch.positions)

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The head's scores and the labels they are held against; where few places have a label, as under
        masks, of those alone: (1, N, V) and (1, N).
        """
        labels = batch.labels
        if not self.head.by_token or labels.shape != batch.inputs.shape:
            return self(batch), labels
        chosen = labels != IGNORE
        if not 0 < 2 * int(chosen.sum()) < labels.numel():
            return self(batch), labels
        return self.head(self.hidden(batch)[chosen][None]), labels[chosen][None]

    def hidden(self, batch: Batch) -> Tensor:
        """(B, T) -> (B, T, D), what the head reads."""
        this = as_pass(batch.inputs, batch.positions)
        this = this._replace(documents=batch.documents, horizon=batch.horizon)
        return read(self.embedding, self.stack, batch.inputs, this, batch.segments)


def as_pass(ids: Tensor, positions: Tensor | None) -> Pass:
    """The pass of a whole text, (B, T); positions None: 0, 1, 2 ... and nothing padded."""
    if positions is not None:
        return Pass(positions, positions, padded=True)
    positions = arange(0, ids.shape[1], ids.device)
    return Pass(positions, positions)


def read(
    embedding: TokenEmbedding,
    stack: Stack,
    ids: Tensor,
    this: Pass,
    segments: Tensor | None = None,
    caches: list[Cache] | None = None,
    memories: list[Once] | None = None,
) -> Tensor:
    """(B, T) ids -> (B, T, D). Raises ConfigError for a text longer than the table of positions."""
    refuse_beyond(stack.context, this)
    if this.padded:
        there = this.q_pos != PAD  # what stands in padding must not matter
        ids = ids.where(there, 0)
        segments = None if segments is None else segments.where(there, 0)
    x = embedding(ids, lambda x: stack.embed(x, this.q_pos), segments, this.present)
    return stack(x, this, caches, memories)


def read_on(
    embedding: TokenEmbedding, stack: Stack, ids: Tensor, state: State, present: Tensor | None
) -> Tensor:
    """(B, T) more ids of the text whose state it is -> (B, T, D); present: as `Decoder.step` has it."""
    this = state.advance(ids, present)
    caches, n_new = state.caches, ids.shape[1]
    if stack.stable_until is not None:
        text, whole = state.whole(ids)
        if state.slots > stack.stable_until:
            ids, this, caches = text, whole, None  # what is remembered no longer holds
    return read(embedding, stack, ids, this, caches=caches, memories=state.memories)[:, -n_new:]


def refuse_beyond(context: int | None, this: Pass) -> None:
    """Raises ConfigError for a text longer than the table of positions."""
    slots = this.k_pos.shape[1]
    if context is None or slots <= context:
        return
    length = int(this.length.max()) if this.padded else slots  # padding takes slots but no positions
    if length > context:
        raise ConfigError(f"a text of {length} tokens is longer than the {context} positions of this model")
