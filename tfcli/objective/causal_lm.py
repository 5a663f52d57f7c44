"""Next-token prediction."""

from __future__ import annotations

import numpy as np

from tfcli.batch import Batch
from tfcli.data import Example
from tfcli.objective import Objective
from tfcli.objective.rows import Row, collate, scored
from tfcli.values import Index, Rate


class CausalLM(Objective):
    """-log p(x[t+1] | x[..t])  (Bengio et al. 2003; GPT, Radford et al. 2018)

    Padding is told from tokens by the length of a row, never by an id, so an EOS that serves as padding
    elsewhere is still learned. In a row of several documents the last token of each is a label only: nothing
    follows it. pad_id: what stands in padding until `bind` takes the tokenizer's.
    """

    family = "decoder"

    def __init__(self, *, label_smoothing: Rate = 0.0, pad_id: Index = 0) -> None:
        self.label_smoothing, self.pad_id = label_smoothing, pad_id

    def __call__(self, examples: list[Example]) -> Batch:
        """Rows of inputs, and as labels the tokens one further; (B, T) each."""
        rows, labels = zip(*map(shift, examples))
        return collate([row.tokens for row in rows], labels, rows, self.pad_id)


def shift(example: Example) -> tuple[Example, Row]:
    """The tokens of a row that have a next one in their document, (T,), and those next ones, (T,)."""
    tokens, documents, positions, score, *_ = example
    labels = scored(tokens[1:], None if score is None else score[1:])
    if documents is None:
        return example._replace(tokens=tokens[:-1]), labels
    goes_on = np.flatnonzero(documents[1:] == documents[:-1])
    row = example._replace(tokens=tokens[goes_on], documents=documents[goes_on], positions=positions[goes_on])
    return row, labels[goes_on]
