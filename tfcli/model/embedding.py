"""From ids to vectors, and what is done to them before the first layer."""

import math
from collections.abc import Callable

from torch import Tensor, nn

from tfcli.model.linear import Embedding, short
from tfcli.model.placement import MakeNorm
from tfcli.values import Count, Index, Rate


class TokenEmbedding(nn.Module):
    """dropout(norm(E[id] * scale + S[segment] + position))  (Vaswani et al. 2017, Press & Wolf 2017, BERT)

    scale: by sqrt(D) or not. segments: how many kinds of text tokens may belong to, each with a vector (0:
    none). pad_to_multiple: rows are added until their number is a multiple, for faster kernels; no token has
    them, and no logit is given for them.
    """

    def __init__(
        self,
        vocab_size: Count,
        d_model: Count,
        make_norm: MakeNorm,
        scale: bool = False,
        norm: bool = False,
        segments: Index = 0,
        dropout: Rate = 0.0,
        pad_to_multiple: Count = 1,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.table = Embedding(math.ceil(vocab_size / pad_to_multiple) * pad_to_multiple, d_model)
        self.scale = math.sqrt(d_model) if scale else None
        self.segments = Embedding(segments, d_model) if segments else None
        self.norm = make_norm() if norm else None
        self.dropout = nn.Dropout(dropout) if dropout else None

    def forward(
        self,
        ids: Tensor,
        add_position: Callable[[Tensor], Tensor],
        segments: Tensor | None = None,
        present: Tensor | None = None,
    ) -> Tensor:
        """(B, T) -> (B, T, D); segments (B, T), None: all of the first; present as norms have it."""
        x = self.table(ids)
        if self.scale is not None:
            x = x * self.scale
        if self.segments is not None:
            alike = segments is None or len(self.segments.weight) == 1  # one kind: all are of it
            x = x + (self.segments.weight[0] if alike else self.segments(segments))
        x = add_position(x)
        x = x if self.norm is None else self.norm(x, present)
        return x if self.dropout is None else self.dropout(x)

    def single(self, add_position: Callable[[Tensor, int], Tensor] | None) -> Callable[[Tensor, int], Tensor]:
        """The same for one token in evaluation: its id as a tensor of one, and its place -> (D,).

        add_position: takes (1, 1, D) and the place; None: position does not enter here.
        """
        table, scale = self.table.weight, self.scale
        first = None if self.segments is None else self.segments.weight[0]
        norm = None if self.norm is None else short(self.norm)

        def step(token: Tensor, place: int) -> Tensor:
            x = table[token.item()]
            x = x if scale is None else x * scale
            x = x if first is None else x + first
            x = x if add_position is None else add_position(x[None, None], place)[0, 0]
            return x if norm is None else norm(x)

        return step
