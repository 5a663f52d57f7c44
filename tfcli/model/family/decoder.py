"""A decoder: each token sees those before it, and the model predicts the next."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tfcli.model.attention import Pass
from tfcli.model.embedding import TokenEmbedding
from tfcli.model.family import Model, read_on, refuse_beyond
from tfcli.model.head import Head
from tfcli.model.parts import Parts
from tfcli.model.stack import Stack
from tfcli.model.state import State
from tfcli.model.visibility import Causal, arange
from tfcli.values import Count


class Decoder(Model):
    """embedding -> stack of causal layers -> head  (Radford et al. 2018)."""

    family = "decoder"

    def __init__(
        self, embedding: TokenEmbedding, parts: Parts, head: Head, n_layers: Count, recompute: bool = False
    ) -> None:
        super().__init__()
        self.embedding = embedding
        parts = parts._replace(cross_attention=None)
        self.stack = Stack(parts, n_layers, rules=(Causal(),), recompute=recompute)
        self.head = head

    def begin(self, prefix: bool = False) -> State:
        """The state from which decoding starts; prefix: the tokens of the first step see each other."""
        return State(self.stack, prefix=prefix)

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
        x = read_on(self.embedding, self.stack, ids, state, present)
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
                refuse_beyond(context, Pass(arange(place, 1, device), arange(0, place + 1, device)))
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
