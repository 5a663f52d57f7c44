"""The learning rate at every step, a factor on `optimizer.lr`: pure functions of the step, counted from 1.

Warm-up is linear and never 0: step s of a warm-up of w steps trains at s/w, so the peak is at step w (at step
1 without warm-up). What decays towards a horizon is exactly at its floor at the last step, and stays there.
Where the warm-up fills the whole run, the warm-up wins: the last step is the highest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from tfcli.values import Count, Fraction, Index, Positive

Shape = Literal["linear", "cosine", "sqrt"]

# how much is left of the way to the floor, after a share p of the decay
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda p: 1 - p,
    "cosine": lambda p: (1 + math.cos(math.pi * p)) / 2,
    "sqrt": lambda p: 1 - math.sqrt(p),
}


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to 1, then `after`, never below the floor. All schedules take these three numbers."""

    steps: Count  # the horizon: how many steps the run has
    warmup: Index = 0  # steps
    floor: Fraction = 0.0  # of the peak
    absolute: ClassVar[bool] = False  # True: the values are learning rates, for optimizer.lr = 1

    @property
    def peak(self) -> int:
        """The step with the highest rate."""
        return max(1, self.warmup)

    def __call__(self, step: int) -> float:
        return step / self.peak if step <= self.peak else max(self.floor, self.after(step))

    def after(self, step: int) -> float:
        """The factor at a step behind the peak."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Schedule):
    """f(s) = min(1, s/w). It has no decay, so nothing for the floor to hold up."""

    def after(self, step: int) -> float:
        return 1.0


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """f(s) = min(s/w, sqrt(w/s)), whatever the horizon  (Raffel et al. 2019, arXiv 1910.10683)"""

    def after(self, step: int) -> float:
        return math.sqrt(self.peak / step)


@dataclass(frozen=True)
class Noam(Schedule):
    """lr(s) = factor * d_model^-1/2 * min(s^-1/2, s * w^-3/2)  (Vaswani et al. 2017, arXiv 1706.03762)

    These are learning rates, for optimizer.lr=1, whatever the horizon. The peak, factor / sqrt(d_model * w),
    is at step w, and the floor is a fraction of it.
    """

    d_model: Count = 512
    factor: Positive = 1.0
    absolute: ClassVar[bool] = True

    def __call__(self, step: int) -> float:
        return self.factor / math.sqrt(self.d_model * self.peak) * super().__call__(step)

    def after(self, step: int) -> float:
        return math.sqrt(self.peak / step)


@dataclass(frozen=True)
class Decay(Schedule):
    """From 1 at the step `start` to the floor at the last step, and the floor from then on."""

    @property
    def start(self) -> int:
        """The last step at full rate."""
        return self.peak

    def __call__(self, step: int) -> float:
        return super().__call__(step) if step <= self.steps else self.floor

    def fade(self, step: int, shape: str) -> float:
        """The factor at a step of the run that is behind `start`."""
        share = (step - self.start) / (self.steps - self.start)
        return self.floor + (1 - self.floor) * SHAPES[shape](share)


@dataclass(frozen=True)
class Linear(Decay):
    """f(s) = floor + (1 - floor) * (1 - p),  p = (s - w) / (steps - w)"""

    def after(self, step: int) -> float:
        return self.fade(step, "linear")


@dataclass(frozen=True)
class Cosine(Decay):
    """f(s) = floor + (1 - floor) * (1 + cos(pi p)) / 2,  p = (s - w) / (steps - w)

    One half period, without restarts (Loshchilov & Hutter 2016, arXiv 1608.03983).
    """

    def after(self, step: int) -> float:
        return self.fade(step, "cosine")


@dataclass(frozen=True)
class WSD(Decay):
    """Warm-up, a stable stretch at 1, and a decay over the last steps  (Hu et al. 2024, arXiv 2404.06395)

    The decay takes the fraction `decay` of the run, or `decay_steps` steps if given, at most what the warm-up
    leaves; with 0 the run ends at 1. Shapes of the decay: 1 - p, 1 - sqrt(p) (Hägele et al. 2024,
    arXiv 2405.18392), half a cosine.
    """

    decay: Fraction = 0.2
    decay_steps: Index | None = None  # None: the fraction decides
    shape: Shape = "linear"

    @property
    def start(self) -> int:
        length = round(self.decay * self.steps) if self.decay_steps is None else self.decay_steps
        return max(self.peak, self.steps - length)

    def after(self, step: int) -> float:
        return 1.0 if step <= self.start else self.fade(step, self.shape)
