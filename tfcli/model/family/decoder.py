"""A decoder: each token sees those before it, and the model predicts the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from tfcli.batch import PAD, Batch
from tfcli.errors import ConfigError
from tfcli.model.attention import Pass
from tfcli.model.embedding import TokenEmbedding
from tfcli.model.head import LMHead
from tfcli.model.parts import Parts
from tfcli.model.stack import Stack
from tfcli.model.visibility import Causal, arange
from tfcli.values import Count


class State:
    """Where decoding stands: the caches, and the positions of all that was read.

    While no row was ever padded, rows stand at the same position and positions are a count.
    """

    def __init__(self, stack: Stack) -> None:
        self.caches = stack.new_caches()
        self.slots = 0  # time steps read, padding included
        self.positions: Tensor | None = None  # (B, slots) once a row was padded
        self.single: Callable | Literal[False] | None = (
            None  # the short way for one token; None: not yet asked for
        )
        self.ids: Tensor | None = None  # (B, slots), kept where a longer text may have to be read anew

    def advance(self, ids: Tensor, present: Tensor | None) -> Pass:
        """Reads (B, T) more: their positions, and those of all there is."""
        n_new, start = ids.shape[1], self.slots
        self.slots += n_new
        if present is None and self.positions is None:
            return Pass(arange(start, n_new, ids.device), arange(0, self.slots, ids.device))
        old = self.positions
        if old is None:
            old = arange(0, start, ids.device).expand(ids.shape[0], -1)
        if present is None:
            present = torch.ones_like(ids, dtype=torch.bool)
        following = old.amax(-1, keepdim=True) + 1 if start else torch.zeros_like(ids[:, :1])
        new = torch.where(present, following + present.cumsum(-1) - 1, PAD)
        self.positions = torch.cat((old, new), dim=1)
        padding = int((~present).sum(-1).max())
        for cache in self.caches:
            cache.slack += padding
        return Pass(new, self.positions, padded=True)

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from where row rows[i] stood; rows may repeat (samples, beams) or be left out
        (finished).
        """
        for cache in self.caches:
            cache.reorder(rows)
        if self.positions is not None:
            self.positions = self.positions.index_select(0, rows)
        if self.ids is not None:
            self.ids = self.ids.index_select(0, rows)

    def whole(self, ids: Tensor) -> tuple[Tensor, Pass]:
        """All ids so far, the (B, T) new ones last, as a text to be read from its start."""
        self.ids = ids if self.ids is None else torch.cat((self.ids, ids), dim=1)
        positions = arange(0, self.slots, ids.device) if self.positions is None else self.positions
        return self.ids, Pass(positions, positions, padded=self.positions is not None)


class Decoder(nn.Module):
    """embedding -> stack of causal layers -> head  (Radford et al. 2018)."""

    family = "decoder"

    def __init__(
        self, embedding: TokenEmbedding, parts: Parts, head: LMHead, n_layers: Count, recompute: bool = False
    ):
        super().__init__()
        self.embedding = embedding
        self.stack = Stack(parts, n_layers, rules=(Causal(),), recompute=recompute)
        self.head = head

    @property
    def vocab_size(self) -> int:
        """How many tokens there are scores for."""
        return self.embedding.vocab_size

    @property
    def context(self) -> int | None:
        """How many positions the model knows; None: it goes on."""
        return self.stack.context

    def forward(self, batch: Batch) -> Tensor:
        """Scores of the next token at every place: (B, T, V)."""
        return self.head(self.hidden(batch))

    def hidden(self, batch: Batch) -> Tensor:
        """(B, T) -> (B, T, D), what the head reads."""
        padded = batch.positions is not None
        positions = batch.positions if padded else arange(0, batch.inputs.shape[1], batch.inputs.device)
        this = Pass(positions, positions, padded, batch.documents)
        self.refuse_beyond(this)
        return self.run(batch.inputs, this)

    def begin(self) -> State:
        """The state from which decoding starts."""
        return State(self.stack)

    def step(self, ids: Tensor, state: State, present: Tensor | None = None, last: bool = False) -> Tensor:
        """Reads (B, T) more ids and scores what comes next: (B, T, V), with `last` only of the last place,
        (B, 1, V).

        present: (B, T), False where a row has no token (ragged prompts, padded on any side; None: all there).
        """
        if present is None and ids.numel() == 1 and state.positions is None and not torch.is_grad_enabled():
            if state.single is None:
                state.single = self.single() if self.can_be_short(ids) else False
            if state.single:
                return state.single(ids, state)
        this = state.advance(ids, present)
        self.refuse_beyond(this)
        caches, n_new = state.caches, ids.shape[1]
        if self.stack.stable_until is not None:
            text, whole = state.whole(ids)
            if state.slots > self.stack.stable_until:
                ids, this, caches = text, whole, None  # what is remembered no longer holds
        x = self.run(ids, this, caches)[:, -n_new:]
        return self.head(x[:, -1:] if last else x)

    def single(self) -> Callable[[Tensor, State], Tensor]:
        """`step` for one token of one text, by the shortest ways of its parts (see `model.single`)."""
        device = torch.device("cpu")
        enters = any(scheme.enters == "input" for scheme in self.stack.positions)
        embed = self.embedding.single(
            (lambda x, place: self.stack.embed(x, arange(place, 1, device))) if enters else None
        )
        stack, head, context = self.stack.single(), self.head.single(), self.context

        def step(token: Tensor, state: State) -> Tensor:
            place = state.slots
            if place == context:
                self.refuse_beyond(Pass(arange(place, 1, device), arange(0, place + 1, device)))
            state.slots = place + 1
            return head(stack(embed(token, place), place, state.caches)).view(1, 1, -1)

        return step

    def can_be_short(self, ids: Tensor) -> bool:
        """Whether one token can go that way: evaluation in fp32 on a CPU."""
        return (
            not self.training
            and self.stack.stable_until is None
            and ids.device.type == "cpu"
            and self.embedding.table.weight.dtype is torch.float32
            and not torch.is_autocast_enabled("cpu")
        )

    def run(self, ids: Tensor, this: Pass, caches: list | None = None) -> Tensor:
        if this.padded:
            ids = ids.masked_fill(this.q_pos == PAD, 0)  # what stands in padding must not matter
        x = self.embedding(ids, lambda x: self.stack.embed(x, this.q_pos))
        return self.stack(x, this, caches)

    def refuse_beyond(self, this: Pass) -> None:
        """Raises ConfigError for a text longer than the table of positions."""
        slots = this.k_pos.shape[1]
        if self.context is None or slots <= self.context:
            return
        length = int(this.length.max()) if this.padded else slots  # padding takes slots but no positions
        if length > self.context:
            raise ConfigError(
                f"a text of {length} tokens is longer than the {self.context} positions of this model"
            )
