"""What the model reads and what it is scored on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

PAD = -1  # the position of a token that is not there
IGNORE = -100  # a label that is not scored


@dataclass
class Batch:
    """One batch, batch first and time second. `None` positions say, without looking at data, that nothing is
    padded.
    """

    inputs: Tensor  # (B, T) what the model reads; an encoder-decoder's decoder
    labels: Tensor | None = None  # (B, T), of a class (B,), of a span (B, 2); IGNORE where nothing is scored
    positions: Tensor | None = None  # (B, T), PAD where there is no token; None: 0..T-1, nothing padded
    documents: Tensor | None = None  # (B, T) which packed document a token belongs to; None: one
    source: Tensor | None = None  # (B, S) what the encoder of an encoder-decoder reads
    source_positions: Tensor | None = None  # (B, S), as positions
    segments: Tensor | None = None  # (B, T) which of two texts a token belongs to; None: the first
    horizon: Tensor | None = None  # (B, 1|T) the last position of a prefix that sees itself

    @property
    def targets(self) -> int:
        """How many labels are scored."""
        return 0 if self.labels is None else int((self.labels != IGNORE).sum())

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(
            self, **{n: t.to(device, non_blocking=True) for n, t in tensors.items() if t is not None}
        )


def pad(rows: list[Tensor], value: int, length: int | None = None) -> Tensor:
    """Rows of unequal length as one (B, T) tensor, filled with `value` on the right."""
    length = length or max((len(r) for r in rows), default=0)
    out = torch.full((len(rows), length), value, dtype=torch.long)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
