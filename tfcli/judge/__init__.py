"""A model's answers against the true ones, by what it learned: text, pairs, classes, tags, answers.

Every judge gives the numbers that are shown, by name: shares are from 0 to 1, BLEU and chrF from 0 to 100,
and how sure a NAME is stands under NAME_ci.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn
from tqdm import tqdm

from tfcli.data import Blocks, Record, Source
from tfcli.data.encoding import Reader
from tfcli.data.rows import Names, Part, Rows
from tfcli.errors import ConfigError
from tfcli.evaluate import Settings, score_batches
from tfcli.metrics import Score
from tfcli.objective import Objective
from tfcli.tokenizer import Tokenizer

Numbers = dict[str, Any]
Take = Callable[[Tensor], list[Any]]  # the head's scores of a batch -> something of each row


class Bench(NamedTuple):
    """A model, and how it is judged."""

    model: nn.Module
    tokenizer: Tokenizer
    objective: Objective
    labels: tuple[str, ...] | None
    how: Settings
    where: dict[str, Any]  # device and precision
    trained_on: int  # tokens that a row had in training, at most

    @property
    def special(self) -> frozenset[int]:
        """The ids that stand for no text; <unk> does stand for some."""
        return self.tokenizer.special_ids - {self.tokenizer.unk_id}


def bar(total: int | None, unit: str) -> tqdm:
    """Progress at a terminal, where it takes longer than a second."""
    return tqdm(total=total, unit=unit, unit_scale=True, delay=1, leave=False, disable=None)


def read(bench: Bench, rows: Blocks, take: Take | None = None) -> tuple[Score, list]:
    """The score of rows, and what `take` makes of the head's scores of each, in their order.

    Rows of about one length are read together. Without `take` the score has an accuracy. Raises ConfigError
    where nothing can be scored.
    """
    order = np.argsort(rows.sizes().sum(1), kind="stable")[::-1].tolist()
    slices = (order[at : at + bench.how.batch_size] for at in range(0, len(order), bench.how.batch_size))
    batches = (bench.objective([rows[i] for i in some]) for some in slices)
    found: list[Any] = []
    with bar(len(rows), "row") as progress:

        def see(logits: Tensor) -> None:
            progress.update(len(logits))
            if take is not None:
                found.extend(take(logits.float().cpu()))

        how = {"count_correct": take is None, "special_ids": bench.special, "see": see, **bench.where}
        score = score_batches(bench.model, batches, **how)
    if not score.tokens:
        raise ConfigError(f"there is nothing to score in the {len(rows)} rows of these data")
    return score, [found[i] for i in np.argsort(order)] if found else found


class Made(NamedTuple):
    """Records as rows."""

    records: list[Any]
    rows: Rows
    owners: list[int]  # of each row, the number of its record
    odd: dict[str, int]  # how many records were left out, cut, or are unread

    @property
    def kept(self) -> list[Any]:
        """The records that have a row."""
        return [self.records[i] for i in sorted(set(self.owners))]


def made_of(bench: Bench, source: Source, records: Sequence[Record]) -> Made:
    """Records as the rows that a model learns from. Raises ConfigError for a label that this one does not
    know.
    """
    kind, names, part, owners = bench.objective.needs, Names(bench.labels), Part(), []
    reader = Reader(source, bench.tokenizer, bench.how.window, names).kinds[kind]
    for i, record in enumerate(records):
        for row in reader([record], part, 0):
            part.add(row)
            owners.append(i)
    labelled = kind in ("label", "tags")
    if labelled:
        names.check(source.where)
    if not owners:
        long = (
            f"; window={bench.how.window} is too short for them"
            if part.odd["long"] + part.odd["question"]
            else ""
        )
        raise ConfigError(f"{source.where}: there is nothing to score in {len(records)} records{long}")
    counts = {"left_out": part.odd["long"] + part.odd["empty"], "cut": part.odd["cut"] + part.odd["word"]}
    counts["unread"] = part.odd["question"]
    rows = part.finished(kind, names if labelled else None)
    return Made(list(records), rows, owners, {name: n for name, n in counts.items() if n})
