"""Next-token prediction behind a prefix that is seen whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tfcli.batch import IGNORE, PAD, Batch
from tfcli.data import Example
from tfcli.objective import Objective
from tfcli.objective.causal_lm import shift
from tfcli.objective.rows import Row, chance, collate, padded
from tfcli.objective.words import Vocabulary
from tfcli.tokenizer import Tokenizer
from tfcli.values import Rate


class PrefixLM(Objective):
    """-log p(x[t] | x[..t-1]) for t >= p, where x[..p-1] all see each other  (Liu et al. 2018; T5)

    The prefix is the prompt where there is one: the leading tokens that may not be labels, if any of them is
    text. Else p is drawn, so that each side has a token or more. The last token of the prefix predicts the
    first behind it; no token of the prefix is a label, as those before it see it. In a row of several
    documents each has its own prefix.
    """

    family = "decoder"
    prefix = True

    def __init__(self, *, label_smoothing: Rate = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def bind(self, tokenizer: Tokenizer) -> None:
        super().bind(tokenizer)
        self.vocabulary = Vocabulary(tokenizer)

    def __call__(self, examples: list[Example]) -> Batch:
        """Rows as causal_lm has them, and a horizon: (B, 1), or (B, T) where documents are packed."""
        rows, labels, horizons = zip(*map(self.row_of, examples))
        batch = collate([row.tokens for row in rows], labels, rows, self.pad_id)
        width = 1 if batch.documents is None else batch.inputs.shape[1]
        return replace(batch, horizon=padded(horizons, PAD, width))

    def row_of(self, example: Example) -> tuple[Example, Row, Row]:
        """Inputs and labels, (T,) each, and where the prefix ends: its last position, (1,) or (T,)."""
        row, labels = shift(example)
        sizes, n_inputs = self.prefixes(example)
        last = sizes - 1  # PAD where there is no input
        if example.documents is None:
            return row, np.where(np.arange(len(labels)) < last, IGNORE, labels), last
        last = np.repeat(last, n_inputs)
        return row, np.where(row.positions < last, IGNORE, labels), last

    def prefixes(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        """Of each document how long its prefix is, and how many inputs it has, (documents,) each."""
        tokens, documents, score = example.tokens, example.documents, example.score
        begins = np.zeros(1, int) if documents is None else np.flatnonzero(np.diff(documents, prepend=PAD))
        ends = np.append(begins[1:], len(tokens))
        n_inputs = np.maximum(ends - begins - 1, 0)
        sizes = chance(example).integers(1, np.maximum(n_inputs, 1) + 1)
        if score is not None:
            prompts = (self.prompt(tokens[a:b], score[a:b]) for a, b in zip(begins, ends))
            sizes = np.array([prompt or drawn for prompt, drawn in zip(prompts, sizes)])
        return np.minimum(sizes, n_inputs), n_inputs

    def prompt(self, tokens: Row, score: Row) -> int:
        """How many leading tokens are a prompt."""
        n = int(np.argmax(np.append(score, True)))
        return 0 if self.vocabulary.special[tokens[:n]].all() else n
