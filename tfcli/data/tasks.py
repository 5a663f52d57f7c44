"""Algorithmic tasks, whose answers are known: made on the spot, always the same for the same numbers."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

from tfcli.data import Document, Kind, Packing, Source
from tfcli.errors import ConfigError
from tfcli.values import Count, Index

Score = Literal["answer", "all"]


@dataclass(kw_only=True)
class Task(Source):
    """`n_train` problems and `n_validation` others; score: whether the problem is to be predicted as well."""

    gives: ClassVar[frozenset[Kind]] = frozenset({"text", "pair"})
    where: ClassVar[str] = "data"
    separator: ClassVar[str] = "="  # what a prompt ends in
    packing: Packing = "none"
    score: Score = "answer"
    n_train: Count = 10_000
    n_validation: Count = 500
    seed: Index = 0

    def __post_init__(self) -> None:
        needed, known = self.n_train + self.n_validation, self.size()
        if needed > known:
            raise ConfigError(
                f"data.n_train={self.n_train} and data.n_validation={self.n_validation}: there are only "
                f"{known} different problems; ask for fewer, or for longer ones"
            )

    @property
    def score_prompt(self) -> bool:
        return self.score == "all"

    def size(self) -> int:
        """How many different problems there are."""
        raise NotImplementedError

    def problems(self, n: int) -> Iterator[Document]:
        """The first n, all different."""
        raise NotImplementedError

    def documents(self, skip: int = 0) -> Iterator[Document]:
        return islice(self.problems(self.n_train), skip, None)

    def held_out(self) -> Iterator[Document]:
        return islice(self.problems(self.n_train + self.n_validation), self.n_train, None)

    def fingerprint(self) -> str:
        return repr(self)


@dataclass(kw_only=True)
class Strings(Task):
    """Words of `min_length` to `length` symbols, each length as often as another while it has words."""

    symbols: str = "abcdefgh"
    length: Count = 8
    min_length: Count = 1

    def __post_init__(self) -> None:
        if self.min_length > self.length:
            raise ConfigError(f"data.min_length={self.min_length}: must be at most data.length={self.length}")
        if len(set(self.symbols) - set("= ")) < len(self.symbols) or not self.symbols:
            raise ConfigError(
                f"data.symbols={self.symbols!r}: must be different characters without '=' and blanks"
            )
        super().__post_init__()

    def size(self) -> int:
        return sum(len(self.symbols) ** n for n in range(self.min_length, self.length + 1))

    def problems(self, n: int) -> Iterator[Document]:
        draw = random.Random(f"{type(self).__name__} {self.seed}")
        left = {size: len(self.symbols) ** size for size in range(self.min_length, self.length + 1)}
        seen: set[str] = set()
        while len(seen) < n:
            size = draw.choice(list(left))
            word = "".join(draw.choices(self.symbols, k=size))
            if word in seen:
                continue
            seen.add(word)
            left[size] -= 1
            if not left[size]:
                del left[size]
            yield Document(self.answer(word), word + self.separator)

    def answer(self, word: str) -> str:
        """What stands behind the equals sign."""
        raise NotImplementedError


class Copy(Strings):
    """abcd=abcd"""

    def answer(self, word: str) -> str:
        return word


class Reverse(Strings):
    """abcd=dcba"""

    def answer(self, word: str) -> str:
        return word[::-1]


class Sort(Strings):
    """dbca=abcd"""

    def answer(self, word: str) -> str:
        return "".join(sorted(word))


@dataclass(kw_only=True)
class Add(Task):
    """31+58=89, numbers of up to `digits` digits."""

    n_train: Count = 8_000
    digits: Count = 2

    def size(self) -> int:
        return 10 ** (2 * self.digits)

    def problems(self, n: int) -> Iterator[Document]:
        draw, limit = random.Random(f"add {self.seed}"), 10**self.digits
        seen: set[tuple[int, int]] = set()
        while len(seen) < n:
            pair = (draw.randrange(limit), draw.randrange(limit))
            if pair not in seen:
                seen.add(pair)
                yield Document(str(sum(pair)), f"{pair[0]}+{pair[1]}{self.separator}")
