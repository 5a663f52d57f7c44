"""A table of learned vectors, one a position."""

from torch import Tensor

from tfcli.batch import PAD
from tfcli.model.linear import Embedding
from tfcli.model.position import PositionScheme
from tfcli.values import Count, Index


class Learned(PositionScheme):
    """x + E[position + offset]  (Gehring et al. 2017; GPT, BERT); offset: rows that no position has  (BART:
    2).
    """

    enters = "input"

    def __init__(self, d_model: Count, context: Count, offset: Index = 0) -> None:
        super().__init__()
        self.context, self.offset = context, offset
        self.table = Embedding(context + offset, d_model)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        # a padding row looks up position 0: it is finite, and nobody sees it
        return x + self.table(positions.masked_fill(positions == PAD, 0) + self.offset)
