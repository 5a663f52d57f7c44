"""How well classes, tags and answers are found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tfcli.batch import IGNORE
from tfcli.data import Labelled, Question, Source, Tagged
from tfcli.data.records import encode_question
from tfcli.judge import Bench, Numbers, made_of, read
from tfcli.scores import of_answers, of_classes, of_entities


def best(logits: Tensor) -> list[Any]:
    """The class of each row, (B, C), or of each token, (B, T, C)."""
    return logits.argmax(-1).tolist()


def judge_labels(bench: Bench, source: Source, records: Sequence[Labelled]) -> Numbers:
    """Loss, accuracy and macro F1 of classes."""
    made = made_of(bench, source, records)
    score, found = read(bench, made.rows, best)
    return {
        "loss": score.loss,
        **of_classes(found, made.rows.target.tolist(), bench.labels),
        "n": len(found),
        **made.odd,
    }


def judge_tags(bench: Bench, source: Source, records: Sequence[Tagged]) -> Numbers:
    """Loss, entity scores and word accuracy; the tag of a word is that of its first sub-word."""
    made = made_of(bench, source, records)
    score, rows = read(bench, made.rows, best)
    found: dict[int, list[str]] = defaultdict(list)
    for i, (owner, tags) in enumerate(zip(made.owners, rows)):
        said = made.rows[i].target != IGNORE
        found[owner] += [bench.labels[tag] for tag in np.array(tags)[: len(said)][said]]
    wanted = [record.tags for record in made.kept]
    return {
        "loss": score.loss,
        **of_entities(list(found.values()), wanted),
        "sentences": len(wanted),
        **made.odd,
    }


def judge_answers(bench: Bench, source: Source, records: Sequence[Question]) -> Numbers:
    """Loss, exact match and F1 of answers: of each question the best span in all windows of its context."""
    made = made_of(bench, source, records)
    score, scores = read(bench, made.rows, list)
    of_record: dict[int, list[Tensor]] = defaultdict(list)
    for owner, of_window in zip(made.owners, scores):
        of_record[owner].append(of_window)
    may_refuse = any(not record.answers for record in records)  # else the question is where, not whether
    pairs = [
        (answer_of(bench, record, its, may_refuse), [answer.text for answer in record.answers])
        for record, its in zip(made.kept, of_record.values())
    ]
    return {
        "loss": score.loss,
        **of_answers(pairs, bench.how.f1_by),
        "windows": len(scores),
        **made.odd,
    }


def answer_of(bench: Bench, record: Question, scores: Sequence[Tensor], may_refuse: bool) -> str:
    """The piece of the context with the highest start + end score; "" where there is none and it may be so.

    scores: (2, T) of each window. The score of no answer is that of the first token, in the window that is
    least for it  (Devlin et al. 2019, section 4.3).
    """
    windows = encode_question(bench.tokenizer, record.question, record.context, bench.how.window)
    found = [(*best_span(its, window.spans), window.spans) for its, window in zip(scores, windows)]
    score, first, last, spans = max(found, key=lambda span: span[0])
    if may_refuse and min(float(its[:, 0].sum()) for its in scores) > score:
        return ""
    return record.context[spans[first, 0] : spans[last, 1]]


def best_span(scores: Tensor, spans: np.ndarray) -> tuple[float, int, int]:
    """(2, T) -> the highest score of a first and a last token of the context, and which these are."""
    inside = torch.from_numpy(spans[:, 0] >= 0)
    starts, ends = (s[: len(spans)].masked_fill(~inside, -torch.inf) for s in scores)
    both = (starts[:, None] + ends).masked_fill(torch.ones(len(spans), len(spans)).tril(-1) > 0, -torch.inf)
    at = int(both.argmax())
    return float(both.flatten()[at]), at // len(spans), at % len(spans)
