"""How sure a score is: intervals from drawing the sentences anew, with replacement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 1000
SEED = 12345
CELLS = 1 << 22  # numbers drawn at a time

Score = Callable[[np.ndarray], np.ndarray]  # sums of statistics (R, K) -> scores (R,)


def interval(statistics: Sequence[Sequence[float]], score: Score) -> list[float]:
    """[low, high] of the percentile bootstrap, 95 %  (Efron 1979), the same every time.

    statistics (N, K): a sentence's share in K sums, of which `score` makes the score.
    """
    return of_kinds(*np.unique(np.asarray(statistics, dtype=np.float64), axis=0, return_counts=True), score)


def of_kinds(kinds: np.ndarray, counts: np.ndarray, score: Score) -> list[float]:
    """The same where sentences are of few kinds: (U, K) statistics of each, and (U,) how many there are.

    How often each kind is drawn is multinomial.
    """
    n, draw = int(counts.sum()), np.random.default_rng(SEED)
    scores: list[np.ndarray] = []
    left = RESAMPLES
    while left:
        some = min(left, max(1, CELLS // len(kinds)))
        often = draw.multinomial(n, counts / n, size=some)  # (some, U)
        scores.append(score(often @ kinds))
        left -= some
    low, high = np.percentile(np.concatenate(scores), [2.5, 97.5])
    return [float(low), float(high)]


def of_mean(values: Sequence[float]) -> list[float]:
    """The interval of a mean over sentences."""
    return interval([[value, 1.0] for value in values], ratio)


def ratio(sums: np.ndarray) -> np.ndarray:
    """(R, 2) -> (R,): the first by the second; 0 where that is 0."""
    return np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] != 0)
