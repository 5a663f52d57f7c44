"""Tokens that are hidden, or not what they seem, and are to be told from all others."""

from __future__ import annotations

import numpy as np

from tfcli.batch import IGNORE, Batch
from tfcli.data import Example, Part
from tfcli.errors import ConfigError
from tfcli.objective import Objective, wanted
from tfcli.objective.rows import Row, chance, collate
from tfcli.objective.words import Vocabulary
from tfcli.tokenizer import Tokenizer
from tfcli.values import Fraction, Rate


class MaskedLM(Objective):
    """-log p(x[t] | x') at chosen t, where x' is x with the chosen tokens changed  (BERT, Devlin et al. 2018)

    rate: how likely a token is to be chosen; whole_word: all tokens of a word together, each word as likely,
    so the share of tokens is the same. Of the chosen, `mask` become the mask token and `random` any other
    that is no special one; the rest stay. Special tokens, and those that may not be labels, are never chosen.
    """

    family = "encoder"
    shifted = False
    special = ("<mask>",)

    def __init__(
        self,
        *,
        rate: Part = 0.15,
        whole_word: bool = False,
        mask: Fraction = 0.8,
        random: Fraction = 0.1,
        label_smoothing: Rate = 0.0,
    ) -> None:
        if mask + random > 1 + 1e-9:  # 0.7 + 0.3, say, may be a little more in floating point
            raise ConfigError(f"objective.mask={mask:g}: with random={random:g} it must be at most 1")
        self.rate, self.whole_word, self.mask, self.random = rate, whole_word, mask, random
        self.label_smoothing = label_smoothing

    def bind(self, tokenizer: Tokenizer) -> None:
        super().bind(tokenizer)
        self.mask_id = wanted("mask", tokenizer.mask_id, "masked_lm")
        self.vocabulary = Vocabulary(tokenizer)

    def __call__(self, examples: list[Example]) -> Batch:
        """Inputs, and as labels the true tokens where they were chosen; (B, T) each."""
        inputs, labels = zip(*map(self.hide, examples))
        return collate(inputs, labels, examples, self.pad_id)

    def hide(self, example: Example) -> tuple[Row, Row]:
        """Inputs and labels of one row, (T,) each."""
        tokens, luck = example.tokens, chance(example)
        chosen = self.choose(example, luck)
        kind = luck.random(len(tokens))
        others = luck.choice(self.vocabulary.ordinary, len(tokens))
        inputs = np.where(chosen & (kind < self.mask), self.mask_id, tokens)
        inputs = np.where(chosen & (kind >= self.mask) & (kind < self.mask + self.random), others, inputs)
        return inputs, np.where(chosen, tokens, IGNORE)

    def choose(self, example: Example, luck: np.random.Generator) -> np.ndarray:
        """(T,) which tokens are to be told."""
        tokens, drawn = example.tokens, luck.random(len(example.tokens))
        if self.whole_word:
            begins = self.vocabulary.begins_word(tokens, example.documents)
            drawn = drawn[np.cumsum(begins) - 1]
        chosen = (drawn < self.rate) & ~self.vocabulary.special[tokens]
        return chosen if example.score is None else chosen & example.score
