"""The ordinary loop: one token of each row at a time, until every row has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from tfcli.batch import PAD
from tfcli.constraints import Constraints
from tfcli.detokenize import Transcript
from tfcli.errors import ConfigError
from tfcli.opening import Opening, held
from tfcli.reader import Cached, Given, Uncached, pad_left
from tfcli.sampler import NEVER, Sampler

Finish = Literal["eos", "stop", "length", "constraints"]  # eos: any end; constraints: they left no token


@dataclass
class Row:
    """One completion while it is written."""

    which: int  # the number of its opening
    opening: Opening
    transcript: Transcript
    ends: tuple[int, ...]  # tokens that end it
    chance: Callable[[], float]
    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None

    def push(self, token: int) -> bool:
        """Takes the next token; whether the row goes on."""
        self.ids.append(token)
        if token in self.ends:
            return self.end("eos")
        if self.transcript.followed and self.transcript.push(token):
            return self.end("stop")
        return self.end("length") if len(self.ids) == self.opening.limit else True

    def end(self, finish: Finish) -> bool:
        """The row goes on no more."""
        text, its_end = split(self.ids, finish)
        text = self.transcript.close(text)
        self.ids = text if self.transcript.stopped else text + its_end
        self.finish = "stop" if self.transcript.stopped else finish
        return False


def split(ids: list[int], finish: Finish) -> tuple[list[int], list[int]]:
    """What stands in a text, and the token that ended it, which does not, if one did."""
    length = len(ids) - (finish == "eos")
    return ids[:length], ids[length:]


def begin(
    model: nn.Module, openings: Sequence[Opening], device: torch.device, cache: bool = True
) -> tuple[Cached | Uncached, Tensor]:
    """A reader that has read the openings, each once, and (B, V) scores of what follows them."""
    given = Given(prefix=openings[0].prefix)
    if openings[0].source is not None:
        given = Given.sources([opening.source for opening in openings], device)
    reader = Cached(model, given) if cache else Uncached(model, given)
    ids, present = pad_left([opening.ids for opening in openings])
    logits = reader.read(ids.to(device), None if present is None else present.to(device))
    if not bool((logits < torch.inf).all()):
        raise ConfigError("the model's scores are NaN or infinite: its weights are broken")
    return reader, logits


def decode(
    model: nn.Module,
    rows: list[Row],
    sampler: Sampler,
    rules: Constraints,
    vocab_size: int,
    cache: bool = True,
) -> None:
    """Writes the rows to their ends."""
    device = next(model.parameters()).device
    reader, logits = begin_shared(model, rows, device, cache)
    n_new, limits = 0, torch.tensor([row.opening.limit for row in rows], device=device)
    seen = seen_in(rows, vocab_size, device) if sampler.penalises else None
    text = held([row.opening for row in rows], device) if rules.reads else None
    ruled, stuck = bool(rules), [False] * len(rows)
    while True:
        logits = logits[:, :vocab_size]
        if ruled:
            logits = rules(logits, n_new, limits == n_new + 1, text)
            nothing = logits.amax(-1) == NEVER
            stuck, logits = nothing.tolist(), logits.masked_fill(nothing[:, None], 0.0)
        chance = chances(rows, device) if sampler.draws else None
        tokens = sampler(logits, chance=chance, seen=seen)  # (B,)
        n_new += 1
        going = [
            i
            for i, (row, token) in enumerate(zip(rows, tokens.tolist()))
            if (row.end("constraints") if stuck[i] else row.push(token))
        ]
        if not going:
            return
        if seen is not None:
            seen.scatter_(1, tokens[:, None], True)
        if text is not None:
            text = torch.cat((text, tokens[:, None]), dim=1)
        if len(going) < len(rows):
            rows = [rows[i] for i in going]
            kept = torch.tensor(going, device=device)
            reader.keep(kept)
            tokens, limits = tokens[kept], limits[kept]
            seen, text = (None if t is None else t[kept] for t in (seen, text))
        logits = reader.read(tokens[:, None])


def begin_shared(
    model: nn.Module, rows: list[Row], device: torch.device, cache: bool
) -> tuple[Cached | Uncached, Tensor]:
    """`begin` for rows that may share openings, which are read once."""
    openings = {row.which: row.opening for row in rows}
    reader, logits = begin(model, list(openings.values()), device, cache)
    if len(openings) < len(rows):
        place = {which: i for i, which in enumerate(openings)}
        repeats = torch.tensor([place[row.which] for row in rows], device=device)
        reader.keep(repeats)
        logits = logits[repeats]
    return reader, logits


def chances(rows: list[Row], device: torch.device) -> Tensor:
    """(B,): the next number of each row's own source."""
    return torch.tensor([row.chance() for row in rows], dtype=torch.float64, device=device)


def seen_in(rows: list[Row], vocab_size: int, device: torch.device) -> Tensor:
    """(B, V): which tokens stand in each row's prompt."""
    seen = torch.zeros(len(rows), vocab_size, dtype=torch.bool)
    for i, row in enumerate(rows):
        seen[i, [token for token in row.opening.held if token != PAD]] = True
    return seen.to(device)
