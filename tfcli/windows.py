"""How a text longer than a model reads is scored: in windows, as batches, each token once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from tfcli.batch import IGNORE, PAD, Batch, pad
from tfcli.errors import ConfigError

Row = tuple[np.ndarray, np.ndarray]  # inputs, and the label of each, (T,) both

SORTED_AHEAD = 32  # batches whose rows are sorted by length together, so that little is padding


def check_window(window: int, stride: int, context: int | None) -> None:
    """Raises ConfigError for a stride that leaves tokens out, or a window longer than the model reads."""
    if stride > window:
        raise ConfigError(f"stride={stride}: must be at most window={window}, or tokens would be left out")
    if context is not None and window > context:
        raise ConfigError(f"window={window}: this model reads at most {context} tokens at once")


def windows(ids: Sequence[int] | np.ndarray, window: int, stride: int, n_given: int = 1) -> Iterator[Row]:
    """Windows of `window` tokens, one every `stride`: each token after the given ones is scored exactly once.

    A row is (inputs, labels): a label is the token after its input, IGNORE where an earlier window scored it.
    The first window scores all it can, the later ones their last `stride` tokens, the last one what is left.
    So a token is predicted from at least window - stride tokens before it, or all there are; for stride 1,
    from window - 1. Where the stride is the window, the token before the window is read too, or the window's
    first token had nothing to be predicted from. The model never reads more than `window` tokens at once.
    """
    ids = np.asarray(ids, dtype=np.int64)
    scored = n_given  # the ids before this one are given, or scored
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        if end > scored:
            read = min(begin, scored - 1)
            labels = ids[read + 1 : end].copy()
            labels[: scored - 1 - read] = IGNORE
            yield ids[read : end - 1], labels
            scored = end
        if end == len(ids):
            return


def masked_one_by_one(
    ids: Sequence[int] | np.ndarray, window: int, mask_id: int, unscored: Collection[int] = ()
) -> Iterator[Row]:
    """A row for each token that is scored: the text with a mask in its place, which is what is to be found.

    A longer text is cut into windows of `window` tokens; the last one is full as well, and masks only what no
    window masked before it. unscored: ids that are never masked.
    """
    ids = np.asarray(ids, dtype=np.int64)
    masked = 0  # the ids before this one had their turn
    while masked < len(ids):
        begin = max(0, min(masked, len(ids) - window))
        piece = ids[begin : begin + window]
        for i in range(masked - begin, len(piece)):
            if int(piece[i]) not in unscored:
                inputs, labels = piece.copy(), np.full_like(piece, IGNORE)
                inputs[i], labels[i] = mask_id, piece[i]
                yield inputs, labels
        masked = begin + len(piece)


def batched(rows: Iterator[Row], size: int) -> Iterator[Batch]:
    """Batches of `size` rows, rows of about one length together."""
    while ahead := list(islice(rows, size * SORTED_AHEAD)):
        ahead.sort(key=lambda row: len(row[0]), reverse=True)
        yield from (collate(ahead[i : i + size]) for i in range(0, len(ahead), size))


def collate(rows: Sequence[Row]) -> Batch:
    """Windows as one batch, padded on the right. Unpadded, it has no positions, which is the fast case."""
    lengths = [len(inputs) for inputs, _ in rows]
    ragged = min(lengths) < max(lengths)
    return Batch(
        inputs=pad([torch.from_numpy(inputs) for inputs, _ in rows], 0),
        labels=pad([torch.from_numpy(labels) for _, labels in rows], IGNORE),
        positions=pad([torch.arange(n) for n in lengths], PAD) if ragged else None,
    )
