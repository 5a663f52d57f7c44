"""Linear maps and tables whose numbers are left to `init`: making one costs nothing, whatever its size.

The only file that knows kernels for matrix products. On a CPU in fp32, torch calls BLAS, which on some
processors runs
at half the speed of oneDNN's products (measured: 105 against 240 GFLOP/s a core on an AMD Zen 5); both are
plain fp32.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

LARGE = (
    1 << 17
)  # numbers in a matrix from which on oneDNN multiplies one vector faster than BLAS does (measured)
Single = Callable[..., Tensor]  # of the vector of one token, (D,) -> (D,): see `model.stack.Stack.single`

_product = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b by oneDNN; any strides.  (..., K), (N, K), (N,) -> (..., N)"""
    return _product(x, weight, bias, "none", [], "")


class _OneDNN(torch.autograd.Function):
    """x W^T + b, with the products of its gradient by oneDNN as well."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad, rows = grad.flatten(0, -2), x.flatten(0, -2)  # (M, N), (M, K)
        to_x = onednn(grad, weight.t()).view_as(x) if ctx.needs_input_grad[0] else None
        to_weight = None
        if ctx.needs_input_grad[1]:
            # the first operand is copied when it is transposed: let it be the smaller one
            small = grad.shape[1] <= rows.shape[1]
            to_weight = onednn(grad.t(), rows.t()) if small else onednn(rows.t(), grad.t()).t()
        return to_x, to_weight, grad.sum(0) if ctx.has_bias else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, by the fastest kernel at hand."""
    if (
        _product is None
        or x.dtype is not torch.float32
        or x.device.type != "cpu"
        or (x.numel() == x.shape[-1] and weight.numel() < LARGE)
        or torch.is_autocast_enabled("cpu")
        or torch.compiler.is_compiling()
    ):
        return F.linear(x, weight, bias)
    return _OneDNN.apply(x, weight, bias)


def short(module: nn.Module) -> Single:
    """A module's own short way for one token, or its forward with the axes of rows and time put around."""
    own = getattr(module, "single", None)
    return own() if own is not None else lambda x, *rest: module(x[None, None], *rest)[0, 0]


class Linear(nn.Linear):
    """x W^T + b"""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def single(self) -> Single:
        """The same for one token: (K,) -> (N,)."""
        weight, bias = self.weight, self.bias
        if _product is not None and weight.numel() >= LARGE:
            return lambda x: onednn(x[None], weight, bias)[0]
        if bias is None:
            return lambda x: torch.mv(weight, x)
        return lambda x: torch.addmv(bias, weight, x)

    def reset_parameters(self) -> None:
        """Left to the model's init strategy, which fills every parameter."""


class Embedding(nn.Embedding):
    """W[id]"""

    def reset_parameters(self) -> None:
        """Left to the model's init strategy, which fills every parameter."""
