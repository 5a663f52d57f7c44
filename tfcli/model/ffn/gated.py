"""A feed-forward whose hidden features are gated by a second projection of the same input."""

from torch import Tensor, nn

from tfcli.model.ffn import ACTIVATIONS, Activation, FeedForward
from tfcli.model.linear import Linear, Single
from tfcli.values import Count, Rate


class Gated(FeedForward):
    """down(act(gate(x)) * up(x))  (Shazeer 2020, GLU variants: SwiGLU with silu, GEGLU with gelu, ReGLU with
    relu).

    gate and up are one matrix, (D -> 2 d_ff), the gate first.
    """

    def __init__(
        self,
        d_model: Count,
        d_ff: Count,
        activation: Activation = "silu",
        bias: bool = False,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        self.gate_up = Linear(d_model, 2 * d_ff, bias=bias)
        self.down = Linear(d_ff, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.dropout(self.activation(gate) * up))

    def single(self) -> Single:
        gate_up, down, activation = self.gate_up.single(), self.down.single(), self.activation

        def step(x: Tensor) -> Tensor:
            gate, up = gate_up(x).chunk(2)
            return down(activation(gate) * up)

        return step
