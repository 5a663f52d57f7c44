"""What heads do to vectors before their own map: pooling, and a dense map with an activation and a norm."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from tfcli.batch import PAD
from tfcli.errors import ConfigError
from tfcli.model.ffn import ACTIVATIONS, Activation
from tfcli.model.linear import Linear

Pool = Literal["first", "mean", "max"]


def tokens(positions: Tensor | None) -> Tensor | None:
    """Which are tokens and no padding, (B|1, T); None: all."""
    return None if positions is None else positions != PAD


def pooled(x: Tensor, positions: Tensor | None, pool: Pool) -> Tensor:
    """(B, T, D) -> (B, D), the first token's vector, or the mean or maximum of all; of a row without tokens,
    zeros.
    """
    if positions is None:
        return x[:, 0] if pool == "first" else x.mean(1) if pool == "mean" else x.amax(1)
    chosen = positions == 0 if pool == "first" else positions != PAD
    if pool == "max":
        highest = x.masked_fill(~chosen[..., None], -float("inf")).amax(1)
        return highest.masked_fill(~chosen.any(-1, keepdim=True), 0.0)
    share = chosen / chosen.sum(-1, keepdim=True).clamp(min=1)  # (B, T)
    return (x * share[..., None].to(x.dtype)).sum(1)


class Transforming(nn.Module):
    """norm(act(A x + a)), beside what else a head is and under the head's own names  (BERT); activation None:
    x as it is.
    """

    def transform_by(
        self,
        d_model: int,
        activation: Activation | None,
        bias: bool = True,
        make_norm: Callable[[], nn.Module] | None = None,
    ) -> None:
        """Makes the parameters; make_norm None: no norm. Raises ConfigError for options of a map that is not
        there.
        """
        if activation is None and (make_norm is not None or not bias):
            said = "dense_bias=false" if make_norm is None else "norm=true"
            raise ConfigError(
                f"head.{said}: is of a dense map, and head.activation=null has none; set the activation"
            )
        self.dense = None if activation is None else Linear(d_model, d_model, bias=bias)
        self.activation = None if activation is None else ACTIVATIONS[activation]
        self.norm = None if make_norm is None else make_norm()

    def transformed(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); present: as norms have it."""
        x = x if self.dense is None else self.activation(self.dense(x))
        return x if self.norm is None else self.norm(x, present)
