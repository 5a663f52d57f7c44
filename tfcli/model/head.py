"""From vectors to scores."""

import torch
from torch import Tensor, nn

from tfcli.model.linear import Linear, Single
from tfcli.values import Positive


class LMHead(nn.Module):
    """W x, one score a token of the vocabulary; W is the embedding's table or its own  (Press & Wolf 2017).

    cap: logits become cap * tanh(logits / cap)  (Gemma 2). Padded rows of the table give no logit.
    """

    def __init__(
        self,
        table: nn.Embedding,
        vocab_size: int,
        tied: bool = True,
        bias: bool = False,
        cap: Positive | None = None,
    ) -> None:
        super().__init__()
        rows, d_model = table.weight.shape
        self.vocab_size, self.cap = vocab_size, cap
        self.map = Linear(d_model, rows, bias=bias)
        if tied:
            self.map.weight = table.weight

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, V)"""
        logits = self.map(x)
        if logits.shape[-1] != self.vocab_size:
            logits = logits[..., : self.vocab_size]
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def single(self) -> Single:
        """The same for one token: (D,) -> (V,)."""
        scores, cap, size = self.map.single(), self.cap, self.vocab_size
        if cap is None:
            return lambda x: scores(x)[:size]
        return lambda x: cap * torch.tanh(scores(x)[:size] / cap)
