"""Rows of tokens through an encoder, in batches: what its head says of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.objective.rows import collate
from tfcli.reader import evaluating


def plain(ids: Sequence[int] | np.ndarray) -> Example:
    """A row of one text."""
    return Example(np.asarray(ids, dtype=np.int64))


def refuse_long(model: nn.Module, examples: Sequence[Example]) -> None:
    """Raises ConfigError for a row that has more tokens than the model has positions."""
    for number, example in enumerate(examples):
        if model.context is not None and len(example.tokens) > model.context:
            raise ConfigError(
                f"text {number + 1} has {len(example.tokens)} tokens, special ones included, and this model "
                f"has {model.context} positions; shorten it"
            )


def read(
    model: nn.Module, pad_id: int, inputs: Sequence[Sequence[Example]], batch_size: int
) -> Iterator[list[Tensor]]:
    """The model's scores of each input's rows, in fp32 on the CPU, without those of padding."""
    device = next(model.parameters()).device
    for first in range(0, len(inputs), batch_size):
        some = inputs[first : first + batch_size]
        rows = [row for its in some for row in its]
        said: list[Tensor] = []
        for at in range(0, len(rows), batch_size):
            said += scores_of(model, rows[at : at + batch_size], pad_id, device)
        for its in some:
            yield said[: len(its)]
            del said[: len(its)]


@torch.inference_mode()
def scores_of(model: nn.Module, rows: Sequence[Example], pad_id: int, device: torch.device) -> list[Tensor]:
    """What the model says of each row."""
    batch = collate([row.tokens for row in rows], None, rows, pad_id).to(device)
    with evaluating(model):
        out = model(batch).float().cpu()
    if not bool(torch.isfinite(out).all()):
        raise ConfigError("the model's scores are NaN or infinite: its weights are broken")
    if model.head.says in ("class", "vector"):
        return list(out)  # (C,) or (D,) each
    time = -1 if model.head.says == "span" else 0  # of (2, T), or (T, V) and (T, C)
    return [scores.narrow(time, 0, len(row.tokens)) for scores, row in zip(out, rows)]
