"""A text is spoiled, and to be written as it was."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Annotated, NamedTuple

import numpy as np

from tfcli.data import Example
from tfcli.objective import wanted
from tfcli.objective.rows import Row, chance, scored
from tfcli.objective.seq2seq import Pair, Seq2Seq, Start, refuse_packed
from tfcli.objective.words import Vocabulary
from tfcli.tokenizer import Tokenizer
from tfcli.values import Fraction, Range, Rate

Length = Annotated[float, Range(low=1)]


class Draft(NamedTuple):
    """A row on its way, (L,) each."""

    tokens: np.ndarray
    fixed: np.ndarray  # special tokens, which stay where they are
    begins: np.ndarray  # where words begin

    def texts(self) -> Iterator[slice]:
        """Each stretch between special tokens."""
        edges = np.diff(self.fixed, prepend=True, append=True)
        yield from (slice(a, b) for a, b in np.flatnonzero(edges).reshape(-1, 2))


class Denoising(Seq2Seq):
    """-log p(x[t] | x[..t-1], noise(x))  (BART, Lewis et al. 2019, arXiv 1910.13461)

    The noise, in this order. permute: that share of the sentences of a text change places. mask: so many of
    its words, rounded up, are masked, in spans whose lengths in words are Poisson; the last is trimmed, so
    that the number holds exactly. No two spans share a word; each becomes one mask, and one of length 0 puts
    a mask between two tokens, as long as a row does not get longer. delete: that share of the tokens that are
    left, masks aside, is removed. rotate: a text, as likely as that, begins elsewhere and goes on at its end
    with its beginning. replace_random: that share of the masks become a random token.

    A text is what stands between special tokens, which stay; a span that reaches across one is a mask on each
    side. The target is the clean row, but where it begins with `start` has that once.
    """

    needs = "text"
    special = ("<mask>",)

    def __init__(
        self,
        *,
        mask: Fraction = 0.3,
        poisson: Length = 3.0,
        permute: Fraction = 1.0,
        delete: Rate = 0.0,
        rotate: Fraction = 0.0,
        replace_random: Fraction = 0.0,
        start: Start = "bos",
        label_smoothing: Rate = 0.0,
    ) -> None:
        super().__init__(start=start, label_smoothing=label_smoothing)
        self.mask, self.poisson, self.replace_random = mask, poisson, replace_random
        self.permute, self.delete, self.rotate = permute, delete, rotate

    def bind(self, tokenizer: Tokenizer) -> None:
        super().bind(tokenizer)
        self.mask_id = wanted("mask", tokenizer.mask_id, "denoising") if self.mask else -1
        self.vocabulary = Vocabulary(tokenizer)

    def pair(self, example: Example) -> Pair:
        refuse_packed(example)
        row, score = example.tokens, example.score
        again = int(len(row) > 0 and row[0] == self.start_id)
        labels = scored(row, score)[again:]
        return Pair(self.corrupt(row, chance(example)), row[again:], labels)

    def corrupt(self, row: Row, luck: np.random.Generator) -> Row:
        """The row with noise, never longer than it was."""
        draft = Draft(row, self.vocabulary.special[row], self.vocabulary.begins_word(row))
        for noise in (self.permuted, self.infilled, self.thinned, self.rotated):
            draft = noise(draft, luck)
        return self.mixed(draft, luck).tokens

    def permuted(self, draft: Draft, luck: np.random.Generator) -> Draft:
        """Some sentences of each text in another order."""
        if not self.permute:
            return draft
        order = np.arange(len(draft.tokens))
        begins = self.vocabulary.begins_sentence(draft.tokens)
        for at in draft.texts():
            sentences = np.split(order[at], np.flatnonzero(begins[at]))
            order[at] = np.concatenate([sentences[i] for i in self.places(len(sentences), luck)])
        return Draft(draft.tokens[order], draft.fixed, draft.begins[order])

    def places(self, n: int, luck: np.random.Generator) -> np.ndarray:
        """0..n-1, of which a share change places."""
        places = np.arange(n)
        chosen = luck.permutation(n)[: up(n * self.permute)]
        places[chosen] = luck.permutation(chosen)
        return places

    def infilled(self, draft: Draft, luck: np.random.Generator) -> Draft:
        """Spans of words as one mask each, and masks for spans without a word."""
        word = np.where(draft.fixed, -1, np.cumsum(draft.begins & ~draft.fixed) - 1)  # (L,)
        n_words = int(word.max(initial=-1)) + 1
        lengths, n_empty = self.spans(up(n_words * self.mask), luck)
        span_of = np.append(lay_out(lengths, n_words, luck), -1)  # (words + 1,), the last: of no word
        span = span_of[word]
        first = (span >= 0) & (span != np.append(-1, span[:-1]))
        kept = first | (span < 0)
        tokens = np.where(first, self.mask_id, draft.tokens)
        shorter = Draft(tokens[kept], draft.fixed[kept], draft.begins[kept])
        return self.inserted(shorter, min(n_empty, int((~kept).sum())), luck)

    def spans(self, budget: int, luck: np.random.Generator) -> tuple[np.ndarray, int]:
        """Lengths of at least 1 that sum to the budget, and how many of length 0 were drawn with them."""
        lengths = luck.poisson(self.poisson, budget)
        while lengths.sum() < budget:
            lengths = np.append(lengths, luck.poisson(self.poisson, budget))
        total = np.cumsum(lengths)
        last = int(np.searchsorted(total, budget))  # the first with which the budget is reached
        lengths, over = lengths[: last + 1], total[last : last + 1] - budget
        lengths[-1:] -= over
        return luck.permutation(lengths[lengths > 0]), int((lengths == 0).sum())

    def inserted(self, draft: Draft, n: int, luck: np.random.Generator) -> Draft:
        """n masks more, each beside some text."""
        if not n:
            return draft
        beside = ~np.append(draft.fixed, True) | ~np.append(True, draft.fixed)  # (L + 1,)
        at = np.sort(luck.choice(np.flatnonzero(beside), n))
        return Draft(*(np.insert(a, at, value) for a, value in zip(draft, (self.mask_id, False, True))))

    def thinned(self, draft: Draft, luck: np.random.Generator) -> Draft:
        """Without some of the tokens of texts."""
        if not self.delete:
            return draft
        there = np.flatnonzero(~draft.fixed & (draft.tokens != self.mask_id))
        gone = luck.choice(there, round(len(there) * self.delete), replace=False)
        return Draft(*(np.delete(a, gone) for a in draft))

    def rotated(self, draft: Draft, luck: np.random.Generator) -> Draft:
        """Some texts begun elsewhere."""
        order = np.arange(len(draft.tokens))
        for at in draft.texts() if self.rotate else ():
            n = at.stop - at.start
            if n > 1 and luck.random() < self.rotate:
                order[at] = np.roll(order[at], luck.integers(1, n))
        return Draft(*(a[order] for a in draft))

    def mixed(self, draft: Draft, luck: np.random.Generator) -> Draft:
        """Other tokens in place of some masks."""
        if not self.replace_random:
            return draft
        masks = ~draft.fixed & (draft.tokens == self.mask_id)
        masks &= luck.random(len(masks)) < self.replace_random
        others = luck.choice(self.vocabulary.ordinary, len(masks))
        return draft._replace(tokens=np.where(masks, others, draft.tokens))


def up(number: float) -> int:
    """Rounded up; 0.1 * 30, a little above 3 in floating point, is 3."""
    return ceil(round(number, 9))


def lay_out(lengths: np.ndarray, n: int, luck: np.random.Generator) -> np.ndarray:
    """(n,) which span a word is in, -1 in none; any arrangement of spans and words between is as likely."""
    free = n - int(lengths.sum())
    slots = np.sort(luck.choice(free + len(lengths), len(lengths), replace=False))
    starts = slots + np.cumsum(lengths) - lengths - np.arange(len(lengths))
    number = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(number)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    span = np.full(n, -1)
    span[starts[number] + within] = number
    return span
