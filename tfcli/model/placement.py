"""Where the norm stands around a branch (attention or feed-forward) and its residual connection.

A placement is given the branch and a maker of norms; what it is called with beyond x goes on to the branch.
`final_norm` says whether a stack of such layers ends in a norm of its own.
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from tfcli.model.linear import Single
from tfcli.values import Rate

MakeNorm = Callable[[], nn.Module]


class Placement(nn.Module):
    """A branch with its residual connection."""

    final_norm: ClassVar[bool] = True

    def __init__(self, branch: nn.Module, make_norm: MakeNorm, dropout: Rate = 0.0) -> None:
        super().__init__()
        self.branch = branch
        self.norm = make_norm()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def single(self) -> Single:
        """The same for one token in evaluation, (D,) -> (D,)."""
        raise NotImplementedError


class Pre(Placement):
    """x + f(norm(x))  (Radford et al. 2019, GPT-2; Xiong et al. 2020)"""

    def forward(self, x: Tensor, *rest: object) -> Tensor:
        return x + self.dropout(self.branch(self.norm(x), *rest))

    def single(self) -> Single:
        norm, branch = self.norm.single(), self.branch.single()
        return lambda x, *rest: x + branch(norm(x), *rest)


class Post(Placement):
    """norm(x + f(x))  (Vaswani et al. 2017)"""

    final_norm = False

    def forward(self, x: Tensor, *rest: object) -> Tensor:
        return self.norm(x + self.dropout(self.branch(x, *rest)))

    def single(self) -> Single:
        norm, branch = self.norm.single(), self.branch.single()
        return lambda x, *rest: norm(x + branch(x, *rest))


class Sandwich(Placement):
    """x + norm2(f(norm1(x)))  (Ding et al. 2021, CogView; Gemma 2)"""

    def __init__(self, branch: nn.Module, make_norm: MakeNorm, dropout: Rate = 0.0) -> None:
        super().__init__(branch, make_norm, dropout)
        self.after = make_norm()

    def forward(self, x: Tensor, *rest: object) -> Tensor:
        return x + self.dropout(self.after(self.branch(self.norm(x), *rest)))

    def single(self) -> Single:
        norm, branch, after = self.norm.single(), self.branch.single(), self.after.single()
        return lambda x, *rest: x + after(branch(norm(x), *rest))


class Branch(Placement):
    """x + norm(f(x))  (OLMo 2, 2025; Liu et al. 2021, Swin v2)"""

    def forward(self, x: Tensor, *rest: object) -> Tensor:
        return x + self.dropout(self.norm(self.branch(x, *rest)))

    def single(self) -> Single:
        norm, branch = self.norm.single(), self.branch.single()
        return lambda x, *rest: x + norm(branch(x, *rest))
