"""Rows of records, held in a few flat arrays, and the labels that they have."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

import numpy as np

from tfcli.batch import IGNORE
from tfcli.data import Example, Kind
from tfcli.data.records import Ids, segments
from tfcli.data.tokens import Totals
from tfcli.errors import ConfigError, suggest


class Row(NamedTuple):
    """A row while it is made."""

    tokens: Ids
    target: list[int]
    border: int = 0  # where the second text begins


@dataclass(frozen=True)
class Rows:
    """Row i has the tokens[starts[i] : starts[i + 1]] and the target[ends[i] : ends[i + 1]]."""

    tokens: np.ndarray  # (N,) int32
    starts: np.ndarray  # (rows + 1,)
    target: np.ndarray  # (M,) int32
    ends: np.ndarray  # (rows + 1,)
    borders: np.ndarray | None  # (rows,) where the second text begins; None: no row has one
    read: bool = False  # whether the model reads the target too, as that of a pair

    def __len__(self) -> int:
        return len(self.starts) - 1

    def labels(self) -> np.ndarray:
        total = np.concatenate([[0], np.cumsum(self.target != IGNORE)])
        return np.diff(total[self.ends])

    def sizes(self) -> np.ndarray:
        source, target = np.diff(self.starts), np.diff(self.ends)
        return np.stack([source, target if self.read else np.zeros_like(target)], axis=1)

    def __getitem__(self, index: int) -> Example:
        tokens = self.tokens[self.starts[index] : self.starts[index + 1]].astype(np.int64)
        target = self.target[self.ends[index] : self.ends[index + 1]].astype(np.int64)
        second = None if self.borders is None else segments(len(tokens), self.borders[index])
        return Example(tokens, target=target, segments=second, place=(0, 0, int(index)))

    def ids(self) -> list[np.ndarray]:
        """All that are tokens."""
        return [self.tokens, self.target] if self.read else [self.tokens]

    @cached_property
    def check(self) -> int:
        """What is the same only for the same rows."""
        check = 0
        for part in (self.tokens, self.starts, self.target, self.ends):
            check = crc32(part.tobytes(), check)
        return check


class Names:
    """Labels and their ids: as given, or those of the training part in their order, `first` before them."""

    def __init__(self, given: Sequence[str] | None, first: str | None = None) -> None:
        self.given, self.before = None if given is None else tuple(given), first
        self.first: tuple[dict[str, str], ...] = ({}, {})  # of each part, where a label was seen first
        self.ids: dict[str, int] = {}  # until all are known

    def __call__(self, label: str, part: int, where: str) -> int:
        self.first[part].setdefault(label, where)
        return self.ids.setdefault(label, len(self.ids))

    @cached_property
    def known(self) -> tuple[str, ...]:
        if self.given is not None:
            return self.given
        return tuple(sorted(self.first[0], key=lambda label: (label != self.before, label)))

    def settled(self, target: np.ndarray) -> np.ndarray:
        """Targets with the ids that labels have in the end."""
        final = {label: i for i, label in enumerate(self.known)}
        table = np.array([final.get(label, -1) for label in self.ids] or [0], dtype=np.int32)
        return np.where(target == IGNORE, np.int32(IGNORE), table[np.maximum(target, 0)])

    def check(self, where: str) -> None:
        """Raises ConfigError for a label that is not known, and where there is nothing to tell apart."""
        if not self.first[0]:
            return  # there is nothing to train on, which is said elsewhere
        for label, place in (pair for part in self.first for pair in part.items()):
            if label not in self.known:
                whose = "" if self.given else ", the labels of the training part; or name all in head.labels"
                raise ConfigError(
                    f"{place or where}: the label '{label}' must be one of {shown(self.known)}{whose}"
                    + suggest(label, self.known)
                )
        if self.given is None and len(self.known) == 1:
            raise ConfigError(f"{where}: '{self.known[0]}' is the only label; there is nothing to tell apart")


def shown(names: Sequence[str], most: int = 20) -> str:
    """Names in a row, the first of very many."""
    return ", ".join(names[:most]) + (f" ... ({len(names)} in all)" if len(names) > most else "")


class Part:
    """The rows of one part while they are made."""

    def __init__(self) -> None:
        self.tokens, self.target, self.borders = array("i"), array("i"), array("i")
        self.starts, self.ends = array("q", [0]), array("q", [0])
        self.totals, self.odd = Totals(), Counter()

    def add(self, row: Row) -> None:
        self.tokens.extend(row.tokens)
        self.target.extend(row.target)
        self.borders.append(row.border)
        self.starts.append(len(self.tokens))
        self.ends.append(len(self.target))

    def finished(self, kind: Kind, names: Names | None) -> Rows:
        """The rows, without a copy but of labels."""
        tokens, target, borders = map(flat, (self.tokens, self.target, self.borders))
        return Rows(
            tokens=tokens,
            starts=flat(self.starts),
            target=target if names is None else names.settled(target),
            ends=flat(self.ends),
            borders=borders if kind in ("label", "answer") else None,
            read=kind == "pair",
        )


def flat(numbers: array) -> np.ndarray:
    """The same memory as a NumPy array."""
    return np.frombuffer(numbers, numbers.typecode) if len(numbers) else np.empty(0, numbers.typecode)
