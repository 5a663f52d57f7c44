"""Two linear maps with an activation between."""

from torch import Tensor, nn

from tfcli.model.ffn import ACTIVATIONS, Activation, FeedForward
from tfcli.model.linear import Linear, Single
from tfcli.values import Count, Rate


class Dense(FeedForward):
    """down(act(up(x)))  (Vaswani et al. 2017, with ReLU; GPT, with GELU)."""

    def __init__(
        self,
        d_model: Count,
        d_ff: Count,
        activation: Activation = "relu",
        bias: bool = True,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        self.up = Linear(d_model, d_ff, bias=bias)
        self.down = Linear(d_ff, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))

    def single(self) -> Single:
        up, down, activation = self.up.single(), self.down.single(), self.activation
        return lambda x: down(activation(up(x)))
