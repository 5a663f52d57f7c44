"""How well classes, tags and answers are found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tfcli.batch import IGNORE
from tfcli.data import Labelled, Question, Source, Tagged
from tfcli.data.records import encode_question
from tfcli.judge import Bench, Numbers, made_of, read
from tfcli.predict import best_span
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
    """Loss, exact match and F1 of answers: of each question the best span in all windows of its context.

    A question that leaves its context no room is `unread`: its answer is "", and it has no loss.
    """
    made = made_of(bench, source, records)
    score, scores = read(bench, made.rows, list)
    of_record: dict[int, list[Tensor]] = defaultdict(list)
    for owner, of_window in zip(made.owners, scores):
        of_record[owner].append(of_window)
    may_refuse = any(not record.answers for record in records)  # else the question is where, not whether
    pairs = [
        (answer_of(bench, record, of_record[i], may_refuse), [answer.text for answer in record.answers])
        for i, record in enumerate(made.records)
    ]
    return {
        "loss": score.loss,
        **of_answers(pairs, bench.how.f1_by),
        "windows": len(scores),
        **made.odd,
    }


def answer_of(bench: Bench, record: Question, scores: Sequence[Tensor], may_refuse: bool) -> str:
    """The piece of the context with the highest start + end score; "" where there is none and it may be so,
    and where no window was read.

    scores: (2, T) of each window. The score of no answer is that of the first token, in the window that is
    least for it  (Devlin et al. 2019, section 4.3).
    """
    if not scores:
        return ""
    windows = encode_question(bench.tokenizer, record.question, record.context, bench.how.window)
    scores = [its[:, : len(window.tokens)] for its, window in zip(scores, windows)]
    best = best_span(windows, record.context, scores)
    if may_refuse and min(float(its[:, 0].sum()) for its in scores) > best.score:
        return ""
    return record.context[best.start : best.end]
