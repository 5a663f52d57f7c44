"""Where the norm stands around a branch (attention or feed-forward) and its residual connection.

A placement is given the branch and a maker of norms; what it is called with beyond x goes on to the branch.
`final_norm` says whether a stack of such layers ends in a norm of its own, `parallel` whether it is the layer
that adds the branches up.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from tfcli.model.linear import Single, short
from tfcli.values import Rate

MakeNorm = Callable[..., nn.Module]  # of a Norm, (x, present) -> x; of another width if it is told one
Function = Callable[[Tensor], Tensor]


class Placement(nn.Module):
    """A branch with its residual connection; a placement says in `around` where its norms stand."""

    final_norm: ClassVar[bool] = True
    parallel: ClassVar[bool] = False  # gives what a layer adds to x; all branches of a layer read the same x
    n_norms: int = 1

    def __init__(self, branch: nn.Module, make_norm: MakeNorm, dropout: Rate = 0.0) -> None:
        super().__init__()
        self.branch = branch
        self.norms = nn.ModuleList(make_norm() for _ in range(self.n_norms))
        self.dropout = nn.Dropout(dropout) if dropout else None

    def around(self, x: Tensor, branch: Function, *norms: Function) -> Tensor:
        """(..., D) -> (..., D), of functions (..., D) -> (..., D): the formula."""
        raise NotImplementedError

    def forward(self, x: Tensor, *rest: object, present: Tensor | None = None) -> Tensor:
        """The formula with the branch called on `rest` as well, and dropout on what it gives.

        present: (B, T), which are tokens and no padding, for norms that look at more than one token; None:
        all.
        """

        def branch(y: Tensor) -> Tensor:
            y = self.branch(y, *rest)
            return y if self.dropout is None else self.dropout(y)

        norms = self.norms if present is None else (partial(norm, present=present) for norm in self.norms)
        return self.around(x, branch, *norms)

    def single(self) -> Single:
        """The same for one token in evaluation, (D,) -> (D,)."""
        around, branch, norms = self.around, short(self.branch), [short(norm) for norm in self.norms]
        return lambda x, *rest: around(x, lambda y: branch(y, *rest), *norms)


class Pre(Placement):
    """x + f(norm(x))  (Radford et al. 2019, GPT-2; Xiong et al. 2020)"""

    def around(self, x: Tensor, branch: Function, norm: Function) -> Tensor:
        return x + branch(norm(x))


class PreSkipFirst(Pre):
    """x + f(norm(x)), but x + f(x) in the first attention, whose input the embedding has normalised already
    (ModernBERT, Warner et al. 2024).
    """

    def __init__(
        self, branch: nn.Module, make_norm: MakeNorm, dropout: Rate = 0.0, first: bool = False
    ) -> None:
        self.n_norms = 0 if first else 1
        super().__init__(branch, make_norm, dropout)

    def around(self, x: Tensor, branch: Function, norm: Function | None = None) -> Tensor:
        return x + branch(x if norm is None else norm(x))


class Post(Placement):
    """norm(x + f(x))  (Vaswani et al. 2017)"""

    final_norm = False

    def around(self, x: Tensor, branch: Function, norm: Function) -> Tensor:
        return norm(x + branch(x))


class Sandwich(Placement):
    """x + after(f(before(x)))  (Ding et al. 2021, CogView; Gemma 2)"""

    n_norms = 2

    def around(self, x: Tensor, branch: Function, before: Function, after: Function) -> Tensor:
        return x + after(branch(before(x)))


class Branch(Placement):
    """x + norm(f(x))  (OLMo 2, 2025; Liu et al. 2021, Swin v2)"""

    def around(self, x: Tensor, branch: Function, norm: Function) -> Tensor:
        return x + norm(branch(x))


class Parallel(Placement):
    """f(norm(x)), to which a layer adds x and its other branches: x + f(norm(x)) + g(norm'(x))  (Wang &
    Komatsuzaki 2021, GPT-J; Black et al. 2022, GPT-NeoX)
    """

    parallel = True

    def around(self, x: Tensor, branch: Function, norm: Function) -> Tensor:
        return branch(norm(x))
