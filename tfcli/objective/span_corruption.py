"""Spans of a text are cut out, and to be written."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from tfcli.data import Example, Part
from tfcli.errors import ConfigError
from tfcli.objective import wanted
from tfcli.objective.rows import Row, chance, scored
from tfcli.objective.seq2seq import Pair, Seq2Seq, Start, refuse_packed
from tfcli.tokenizer import Tokenizer
from tfcli.values import Count, Range, Rate

Length = Annotated[float, Range(low=1)]


class SpanCorruption(Seq2Seq):
    """a b c d e f g -> reads a b <0> e <1> eos, writes <0> c d <1> f g eos  (T5, Raffel et al. 2019)

    noise_density of the tokens are cut out, in spans of mean_span tokens on average; where, is drawn evenly
    from all ways to cut the row into as many spans that are kept and cut out in turn. Each span is named by a
    sentinel, <extra_id_0> and so on. A row is one text, special tokens within it are tokens like any, but an
    EOS at its end is the one that ends both sides. A row of less than two tokens is read whole.
    """

    needs = "text"

    def __init__(
        self,
        *,
        noise_density: Part = 0.15,
        mean_span: Length = 3.0,
        start: Start = "pad",
        n_sentinels: Count = 100,
        label_smoothing: Rate = 0.0,
    ) -> None:
        super().__init__(start=start, label_smoothing=label_smoothing)
        least = noise_density / (1 - noise_density)
        if mean_span < least - 1e-9:
            raise ConfigError(
                f"objective.mean_span={mean_span:g}: must be at least {least:g}, so that at "
                f"noise_density={noise_density:g} a token is left between two spans"
            )
        self.noise_density, self.mean_span, self.n_sentinels = noise_density, mean_span, n_sentinels
        self.special = tuple(f"<extra_id_{k}>" for k in range(n_sentinels))

    def bind(self, tokenizer: Tokenizer) -> None:
        super().bind(tokenizer)
        self.eos_id = wanted("EOS", tokenizer.eos_id, "span_corruption")
        known = tokenizer.sentinel_ids
        if len(known) < self.n_sentinels:
            raise ConfigError(
                f"objective.n_sentinels={self.n_sentinels}: this tokenizer has {len(known)} tokens "
                "<extra_id_0>, <extra_id_1> ..."
            )
        self.sentinels = np.array(known[: self.n_sentinels])

    def row(self, seq_len: int) -> int:
        """The most tokens of which neither side gets more than `seq_len`."""
        fits = (n for n in range(2 * seq_len, 1, -1) if max(self.lengths(n)) <= seq_len)
        longest = next(fits, None)
        if longest is None:
            raise ConfigError(f"train.seq_len={seq_len}: must be at least {max(self.lengths(2))}")
        n_spans = self.counts(longest)[1]
        if n_spans > self.n_sentinels:
            raise ConfigError(
                f"objective.n_sentinels={self.n_sentinels}: must be at least {n_spans}, the spans in a "
                f"row of {longest} tokens; or lower train.seq_len={seq_len}"
            )
        return longest

    def lengths(self, n: int) -> tuple[int, int]:
        """How many tokens are read and written of a row of n, n > 1."""
        n_noise, n_spans = self.counts(n)
        return n - n_noise + n_spans + 1, n_noise + n_spans + 1

    def beyond(self, n: int) -> int:
        return sum(self.lengths(n)) - n if n > 1 else 1  # what is read is shorter by what is cut out

    def counts(self, n: int) -> tuple[int, int]:
        """How many of n tokens, n > 1, are cut out, and in how many spans."""
        n_noise = min(max(round(n * self.noise_density), 1), n - 1)
        n_spans = max(round(n_noise / self.mean_span), 1)
        return n_noise, min(n_spans, n - n_noise)

    def pair(self, example: Example) -> Pair:
        refuse_packed(example)
        tokens, score = example.tokens, example.score
        n = len(tokens) - int(len(tokens) > 0 and tokens[-1] == self.eos_id)
        cut = self.cut(n, chance(example))
        target = self.written(tokens[:n], cut)
        if score is None:
            return Pair(self.read(tokens[:n], cut), target, target)
        marks = np.ones_like(self.sentinels, dtype=bool)
        may = removed(score[:n], cut, marks, True)
        return Pair(self.read(tokens[:n], cut), target, scored(target, may))

    def corrupt(self, text: Row, luck: np.random.Generator) -> tuple[Row, Row]:
        """What is read and what is written of a text, both with an EOS that the text has not."""
        cut = self.cut(len(text), luck)
        return self.read(text, cut), self.written(text, cut)

    def read(self, text: Row, cut: np.ndarray) -> Row:
        """The text, a sentinel in place of each span."""
        return replaced(text, cut, self.sentinels, self.eos_id)

    def written(self, text: Row, cut: np.ndarray) -> Row:
        """The spans, each behind its sentinel."""
        return removed(text, cut, self.sentinels, self.eos_id)

    def cut(self, n: int, luck: np.random.Generator) -> np.ndarray:
        """(n,) which tokens are cut out: never the first, always the last."""
        if n < 2:
            return np.zeros(n, dtype=bool)
        n_noise, n_spans = self.counts(n)
        noise, kept = (segments(total, n_spans, luck) for total in (n_noise, n - n_noise))
        lengths = np.stack([kept, noise], axis=1).ravel()  # in turn
        return np.repeat(np.arange(2 * n_spans) % 2 == 1, lengths)

    def reconstruct(self, inputs: Row, targets: Row) -> Row:
        """The text of which `corrupt` made both."""
        starts = np.flatnonzero(np.isin(targets, self.sentinels))
        spans = dict(zip(targets[starts].tolist(), np.split(targets[:-1], starts)[1:]))
        pieces = [spans[i][1:] if i in spans else [i] for i in inputs[:-1].tolist()]
        return np.concatenate([np.zeros(0, dtype=targets.dtype), *pieces])


def segments(total: int, n: int, luck: np.random.Generator) -> np.ndarray:
    """n lengths of at least 1 that sum to the total, drawn evenly from all there are."""
    cuts = np.sort(luck.choice(total - 1, n - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


def replaced(values: Row, gone: np.ndarray, names: Row, end: int) -> Row:
    """Values, the next name in place of each run that is gone, and an end."""
    first = gone & ~np.append(False, gone[:-1])
    out = values.copy()
    out[first] = names[: first.sum()]
    return np.append(out[first | ~gone], end)


def removed(values: Row, gone: np.ndarray, names: Row, end: int) -> Row:
    """What `replaced` took away, each run behind its name, and an end."""
    return replaced(values, ~gone, names, end) if gone.any() else np.append(values[:0], end)
