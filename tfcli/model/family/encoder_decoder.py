"""An encoder-decoder: one sequence is read, another is written while looking at it."""

from __future__ import annotations

from torch import Tensor, nn

from tfcli.batch import Batch
from tfcli.errors import ConfigError
from tfcli.model.attention import Memory
from tfcli.model.embedding import TokenEmbedding
from tfcli.model.family import Model, as_pass, read, read_on
from tfcli.model.head import Head
from tfcli.model.parts import Parts
from tfcli.model.stack import Stack
from tfcli.model.state import State
from tfcli.model.visibility import Causal
from tfcli.values import Count, Rate


class EncoderDecoder(Model):
    """source -> encoder -> memory; target so far, and the memory -> decoder -> head  (Vaswani et al. 2017).

    Position enters each side's own attention; between the two texts there is no distance, so the attention
    to the memory has none, and no window. share_embeddings: both sides have one table of tokens. dropout:
    after each of the two stacks (T5).
    """

    family = "encoder_decoder"

    def __init__(
        self,
        embedding: TokenEmbedding,
        source_embedding: TokenEmbedding,
        parts: Parts,
        head: Head,
        n_encoder_layers: Count,
        n_decoder_layers: Count,
        share_embeddings: bool = True,
        dropout: Rate = 0.0,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.embedding, self.source_embedding = embedding, source_embedding
        if share_embeddings:
            source_embedding.table.weight = embedding.table.weight
        blind = parts._replace(cross_attention=None)
        self.encoder = Stack(blind, n_encoder_layers, rules=(), recompute=recompute)
        self.stack = Stack(parts, n_decoder_layers, rules=(Causal(),), recompute=recompute)
        self.dropout = nn.Dropout(dropout)
        self.head = head

    @property
    def source_context(self) -> int | None:
        """How many positions of a source the model knows; None: it goes on."""
        return self.encoder.context

    def encode(self, source: Tensor, positions: Tensor | None = None) -> Memory:
        """(B, S) ids, and their positions (None: nothing is padded) -> what the decoder looks at."""
        x = read(self.source_embedding, self.encoder, source, as_pass(source, positions))
        return Memory(self.dropout(x), positions)

    def hidden(self, batch: Batch) -> Tensor:
        """(B, T) -> (B, T, D), what the head reads."""
        this = as_pass(batch.inputs, batch.positions)
        this = this._replace(memory=self.encode(batch.source, batch.source_positions))
        return self.dropout(read(self.embedding, self.stack, batch.inputs, this))

    def begin(self, source: Tensor | None = None, positions: Tensor | None = None) -> State:
        """The state from which decoding starts, the sources (B, S) being read."""
        if source is None:
            raise ConfigError("an encoder-decoder writes from a source; give one")
        return State(self.stack, self.encode(source, positions))

    def step(self, ids: Tensor, state: State, present: Tensor | None = None, last: bool = False) -> Tensor:
        """Reads (B, T) more ids of the target and scores what comes next, as `Decoder.step`."""
        x = read_on(self.embedding, self.stack, ids, state, present)
        return self.head(self.dropout(x[:, -1:] if last else x))
