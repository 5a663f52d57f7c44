"""One sequence is read, another is written."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from tfcli.batch import IGNORE, Batch
from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.objective import Objective
from tfcli.objective.rows import Row, counted, padded, scored, widest
from tfcli.tokenizer import Tokenizer
from tfcli.values import Rate

Start = Literal["bos", "pad", "eos"]


class Pair(NamedTuple):
    """What is read, what is written, and what of that is scored."""

    source: Row  # (S,)
    target: Row  # (T,)
    labels: Row  # (T,) the target, or IGNORE


class Seq2Seq(Objective):
    """-log p(y[t] | start, y[..t-1], x)  (Sutskever et al. 2014)

    start: the token that the decoder reads first; it is never a label. Padding is told from tokens by the
    length of a row, never by an id.
    """

    family = "encoder_decoder"
    needs = "pair"
    shifted = False
    packs = False

    def __init__(self, *, start: Start = "bos", label_smoothing: Rate = 0.0) -> None:
        self.start, self.label_smoothing = start, label_smoothing

    def bind(self, tokenizer: Tokenizer) -> None:
        super().bind(tokenizer)
        pad_id = tokenizer.pad_id if tokenizer.has_pad else None
        known = {"bos": tokenizer.bos_id, "pad": pad_id, "eos": tokenizer.eos_id}
        if known[self.start] is None:
            others = " or ".join(role for role, found in known.items() if found is not None)
            hint = f"choose {others}" if others else "choose a tokenizer that has one"
            raise ConfigError(f"objective.start={self.start}: this tokenizer has no such token; {hint}")
        self.start_id: int = known[self.start]

    def __call__(self, examples: list[Example]) -> Batch:
        """Sources (B, S); as inputs (B, T) the start and all but the last of the target, labels (B, T)."""
        sources, targets, labels = zip(*map(self.pair, examples))
        inputs = [np.append(self.start_id, target)[:-1] for target in targets]
        # a side on which no row has a token is one column of padding
        wide_source, wide = max(1, widest(sources)), max(1, widest(targets))
        return Batch(
            inputs=padded(inputs, self.pad_id, wide),
            labels=padded(labels, IGNORE, wide),
            positions=counted(inputs, wide),
            source=padded(sources, self.pad_id, wide_source),
            source_positions=counted(sources, wide_source),
        )

    def pair(self, example: Example) -> Pair:
        """One row of each side."""
        return Pair(example.tokens, example.target, scored(example.target, None))


def refuse_packed(example: Example) -> None:
    """Raises ConfigError for a row of documents that are not to see each other: a memory is seen whole."""
    if example.documents is not None:
        raise ConfigError(
            "data.packing=documents: is not for an encoder-decoder, which sees the whole of a row; "
            "choose stream or none"
        )
