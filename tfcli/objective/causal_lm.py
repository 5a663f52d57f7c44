"""Next-token prediction."""

import numpy as np
import torch
from torch import Tensor

from tfcli.batch import IGNORE, PAD, Batch
from tfcli.data import Example


class CausalLM:
    """-log p(x[t+1] | x[..t])  (Bengio et al. 2003; GPT, Radford et al. 2018)

    Padding is told from tokens by the length of a row, never by an id, so an EOS that serves as padding
    elsewhere is still learned. In a row of several documents the last token of each is a label only: nothing
    follows it.
    """

    family = "decoder"

    def __init__(self, *, pad_id: int = 0) -> None:
        self.pad_id = pad_id

    def __call__(self, examples: list[Example]) -> Batch:
        """Rows of inputs, and as labels the tokens one further; (B, T) each."""
        rows = [shift(example) for example in examples]
        inputs, labels, positions, documents = zip(*rows)
        lengths = {len(row) for row in inputs}
        if len(lengths) == 1 and documents[0] is None:
            return Batch(_stack(inputs), _stack(labels))
        width = max(lengths)
        return Batch(
            inputs=_pad(inputs, self.pad_id, width),
            labels=_pad(labels, IGNORE, width),
            positions=_pad(
                [np.arange(len(i)) if p is None else p for i, p in zip(inputs, positions)], PAD, width
            ),
            documents=None if documents[0] is None else _pad(documents, PAD, width),
        )


def shift(example: Example) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Inputs, labels, positions and documents of one row, (T,) each."""
    tokens, documents, positions, score = example
    inputs, labels = tokens[:-1], tokens[1:]
    if score is not None:
        labels = np.where(score[1:], labels, IGNORE)
    if documents is None:
        return inputs, labels, positions, None
    goes_on = documents[1:] == documents[:-1]
    return inputs[goes_on], labels[goes_on], positions[:-1][goes_on], documents[:-1][goes_on]


def _stack(rows: tuple[np.ndarray, ...]) -> Tensor:
    return torch.from_numpy(np.stack(rows))


def _pad(rows: list[np.ndarray] | tuple[np.ndarray, ...], value: int, width: int) -> Tensor:
    out = np.full((len(rows), width), value, dtype=np.int64)
    for target, row in zip(out, rows):
        target[: len(row)] = row
    return torch.from_numpy(out)
