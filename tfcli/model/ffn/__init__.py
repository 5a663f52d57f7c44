"""What happens to each token by itself: (B, T, D) -> (B, T, D)."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tfcli.model.linear import Single

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]


def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  (Hendrycks & Gimpel 2016, its approximation)."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "sigmoid": F.sigmoid,
    "tanh": torch.tanh,
}


class FeedForward(nn.Module):
    """(B, T, D) -> (B, T, D), each token by itself."""

    def single(self) -> Single:
        """The same for one token in evaluation, (D,) -> (D,), in as few calls as can be."""
        return lambda x: self(x[None, None])[0, 0]  # a variant that says nothing of it goes this way
