"""What objectives share: rows of unequal length as one batch, and the random numbers of an example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tfcli.batch import IGNORE, PAD, Batch
from tfcli.data import Example

Row = np.ndarray  # (L,)


def chance(example: Example) -> np.random.Generator:
    """Random numbers that depend on the example's place only."""
    return np.random.default_rng(list(example.place))


def scored(labels: Row, score: Row | None) -> Row:
    """The labels that may be ones."""
    return labels if score is None else np.where(score, labels, IGNORE)


def padded(rows: Sequence[Row], value: int, width: int) -> Tensor:
    """Rows as one (B, width) tensor, `value` on the right."""
    out = np.full((len(rows), width), value, dtype=np.int64)
    for target, row in zip(out, rows):
        target[: len(row)] = row
    return torch.from_numpy(out)


def counted(rows: Sequence[Row], width: int) -> Tensor | None:
    """Positions 0, 1, 2 ... of padded rows, (B, width); None: every row is full."""
    lengths = np.array([len(row) for row in rows])[:, None]  # (B, 1)
    if (lengths == width).all():
        return None
    places = np.arange(width)[None]
    return torch.from_numpy(np.where(places < lengths, places, PAD))


def widest(rows: Sequence[Row]) -> int:
    """The length of the longest row."""
    return max(map(len, rows))


def collate(
    inputs: Sequence[Row], labels: Sequence[Row] | None, examples: Sequence[Example], pad_id: int
) -> Batch:
    """Rows with a label for each token (None: without), and the examples' positions, documents and segments.

    An example whose inputs are fewer than its tokens comes with these fields cut alike.
    """
    width = widest(inputs)
    packed = examples[0].documents is not None
    return Batch(
        inputs=padded(inputs, pad_id, width),
        labels=None if labels is None else padded(labels, IGNORE, width),
        positions=padded([e.positions for e in examples], PAD, width) if packed else counted(inputs, width),
        documents=padded([e.documents for e in examples], PAD, width) if packed else None,
        segments=_segments(examples, width),
    )


def _segments(examples: Sequence[Example], width: int) -> Tensor | None:
    rows = [e.segments for e in examples]
    if all(row is None for row in rows):
        return None
    return padded([np.zeros(0, dtype=np.int64) if row is None else row for row in rows], 0, width)
