"""Rotary positions, and the ways to stretch them over longer texts."""

import math
from typing import Annotated

import torch
from torch import Tensor

from tfcli.errors import ConfigError
from tfcli.model.position import PositionScheme, Rotation
from tfcli.values import Base, Count, Fraction, NonNegative, Positive, Range


class Rope(PositionScheme):
    """Queries and keys turned by position * base^(-2i/R)  (Su et al. 2021, RoFormer).

    head_dim: E; the first R = partial * E features are turned. interleaved: pairs (2i, 2i+1) as published
    (GPT-J,
    Meta's Llama), else (i, i + R/2) (GPT-NeoX, Hugging Face's Llama).
    """

    enters = "rotation"

    def __init__(
        self, head_dim: Count, base: Base = 10000.0, interleaved: bool = False, partial: Fraction = 1.0
    ) -> None:
        super().__init__()
        self.width = int(head_dim * partial)
        if self.width < 2 or self.width % 2:
            raise ConfigError(
                f"rotary positions turn pairs of features: head_dim={head_dim} * partial={partial:g} gives "
                f"{self.width}, must be even and at least 2"
            )
        self.base, self.interleaved = base, interleaved
        self.frequencies = self.paired(self.stretched(self.plain(base)))  # (R,) float64
        self.signs = self.paired(torch.ones(self.width // 2, dtype=torch.float64), first=-1.0)
        self.amplitude = 1.0

    def plain(self, base: float | Tensor) -> Tensor:
        """base^(-2i/R), float64."""
        return base ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)

    def stretched(self, frequencies: Tensor) -> Tensor:
        """The frequencies that a scaling uses in place of the plain ones."""
        return frequencies

    def paired(self, values: Tensor, first: float = 1.0) -> Tensor:
        """One value a pair -> one a feature, (..., R/2) -> (..., R), that of each pair's first feature times
        `first`.
        """
        if self.interleaved:
            return torch.stack((first * values, values), dim=-1).flatten(-2)
        return torch.cat((first * values, values), dim=-1)

    def at(self, length: Tensor | int, device: torch.device) -> Tensor:
        """Frequencies for a text of that length: (R,), or (B|1, T|1, 1, R)."""
        return self.frequencies.to(device)

    def rotation(self, positions: Tensor, length: Tensor | int) -> Rotation:
        angles = positions[:, :, None, None] * self.at(length, positions.device)  # (B|1, T, 1, R), float64
        return Rotation(
            (angles.cos() * self.amplitude).float(),
            (angles.sin() * (self.signs * self.amplitude).to(angles.device)).float(),
            self.interleaved,
        )


class ProportionalRope(Rope):
    """Turned by position * base^(-2i/E) / factor the first partial * E/2 pairs, the others not  (Gemma 4).

    Where Rope with `partial` has fewer pairs, (i, i + R/2), here all are (i, i + E/2), and some stand still.
    """

    def __init__(
        self, head_dim: Count, factor: Positive = 1.0, partial: Fraction = 1.0, **rope: object
    ) -> None:
        self.factor, self.turned = factor, int(partial * head_dim // 2)
        if not self.turned:
            raise ConfigError(f"position.partial={partial:g}: turns no pair of head_dim={head_dim} features")
        super().__init__(head_dim, **rope)

    def stretched(self, frequencies: Tensor) -> Tensor:
        turns = torch.arange(len(frequencies)) < self.turned
        return torch.where(turns, frequencies / self.factor, 0.0)


class LinearRope(Rope):
    """Positions divided by `factor`  (Chen et al. 2023, position interpolation)."""

    def __init__(self, head_dim: Count, factor: Positive = 2.0, **rope: object) -> None:
        self.factor = factor
        super().__init__(head_dim, **rope)

    def stretched(self, frequencies: Tensor) -> Tensor:
        return frequencies / self.factor


class DynamicRope(Rope):
    """base * (f L / L0 - (f - 1))^(R / (R-2)) once the text's length L passes L0  (NTK-aware scaling, 2023).

    Past L0 all angles, and so all that was remembered, change as a text grows: a decoder then reads the text
    anew at every step, and says what one pass over the text so far says.
    """

    def __init__(
        self, head_dim: Count, factor: Positive = 2.0, original: Count = 2048, **rope: object
    ) -> None:
        super().__init__(head_dim, **rope)
        if self.width == 2:
            raise ConfigError(
                f"dynamic NTK scaling needs more than one pair of features; head_dim={head_dim}"
            )
        self.factor, self.original = factor, original
        self.stable_until = original

    def at(self, length: Tensor | int, device: torch.device) -> Tensor:
        length = torch.as_tensor(length, dtype=torch.float64, device=device).clamp(min=self.original)
        growth = self.factor * length / self.original - (self.factor - 1)
        base = self.base * growth ** (self.width / (self.width - 2))  # () or (B|1, T|1)
        exponents = -torch.arange(0, self.width, 2, dtype=torch.float64, device=device) / self.width
        return self.paired(base[..., None, None] ** exponents)


class Llama3Rope(Rope):
    """Waves longer than L0/low are stretched by `factor`, shorter than L0/high kept, between them blended
    (Llama 3.1).
    """

    def __init__(
        self,
        head_dim: Count,
        factor: Positive = 8.0,
        low: Positive = 1.0,
        high: Positive = 4.0,
        original: Count = 8192,
        **rope: object,
    ) -> None:
        if high <= low:
            raise ConfigError(f"rope_llama3: high={high:g} must be above low={low:g}")
        self.factor, self.low, self.high, self.original = factor, low, high, original
        super().__init__(head_dim, **rope)

    def stretched(self, frequencies: Tensor) -> Tensor:
        wave = 2 * math.pi / frequencies
        smooth = ((self.original / wave - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - smooth) * frequencies / self.factor + smooth * frequencies


class YarnRope(Rope):
    """Slow waves stretched by `factor`, fast ones kept, a ramp between; scores sharpened  (Peng et al. 2023,
    YaRN).

    amplitude multiplies cos and sin: `attention_factor` if given; else g(mscale) / g(mscale_all_dim) if both
    are set; else g(1), with g(m) = 0.1 m ln(factor) + 1.
    """

    def __init__(
        self,
        head_dim: Count,
        factor: Positive = 4.0,
        original: Count = 2048,
        beta_fast: Positive = 32.0,
        beta_slow: Positive = 1.0,
        attention_factor: Positive | None = None,
        mscale: NonNegative | None = None,
        mscale_all_dim: NonNegative | None = None,
        truncate: bool = True,
        **rope: object,
    ) -> None:
        self.factor, self.original, self.truncate = factor, original, truncate
        self.betas = (beta_fast, beta_slow)
        super().__init__(head_dim, **rope)
        if attention_factor is not None:
            self.amplitude = attention_factor
        elif mscale and mscale_all_dim:
            self.amplitude = self.gain(mscale) / self.gain(mscale_all_dim)
        else:
            self.amplitude = self.gain(1.0)

    def gain(self, mscale: float) -> float:
        """g(m) = 0.1 m ln(factor) + 1, and 1 when nothing is stretched."""
        return 0.1 * mscale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def stretched(self, frequencies: Tensor) -> Tensor:
        low, high = (self.pair_that_turns(beta) for beta in self.betas)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.width - 1)
        index = torch.arange(self.width // 2, dtype=torch.float64)
        ramp = ((index - low) / ((high - low) or 0.001)).clamp(0, 1)
        return frequencies / self.factor * ramp + frequencies * (1 - ramp)

    def pair_that_turns(self, times: float) -> float:
        """The index of the pair that makes that many full turns over the original length."""
        return self.width * math.log(self.original / (times * 2 * math.pi)) / (2 * math.log(self.base))


class LongRope(Rope):
    """Pair i slowed by short_factor[i] in texts of up to `original` tokens, by long_factor[i] in longer ones;
    scores sharpened in both  (Ding et al. 2024, LongRoPE; Phi-3).

    Factors None: 1 in short texts, and `factor` in long ones, for all pairs. amplitude: `attention_factor` if
    given, else sqrt(1 + ln(factor) / ln(original)), and 1 where factor is not above 1.
    """

    def __init__(
        self,
        head_dim: Count,
        short_factor: list[Positive] | None = None,
        long_factor: list[Positive] | None = None,
        factor: Positive = 4.0,
        original: Annotated[int, Range(low=2)] = 2048,
        attention_factor: Positive | None = None,
        **rope: object,
    ) -> None:
        super().__init__(head_dim, **rope)
        self.original = self.stable_until = original
        self.short = self.slowed("short_factor", short_factor, 1.0)
        self.long = self.slowed("long_factor", long_factor, factor)
        if attention_factor is not None:
            self.amplitude = attention_factor
        elif factor > 1:
            self.amplitude = math.sqrt(1 + math.log(factor) / math.log(original))

    def slowed(self, name: str, factors: list[float] | None, alike: float) -> Tensor:
        """The plain frequencies, each divided by its factor, or all alike: (R,) float64."""
        factors = [alike] * (self.width // 2) if factors is None else factors
        if len(factors) != self.width // 2:
            raise ConfigError(
                f"position.{name}: has {len(factors)} numbers; must have {self.width // 2}, one for each "
                "pair of features that is turned"
            )
        return self.paired(self.plain(self.base) / torch.tensor(factors, dtype=torch.float64))

    def at(self, length: Tensor | int, device: torch.device) -> Tensor:
        length = torch.as_tensor(length, device=device)[..., None, None]  # (1, 1) or (B|1, T|1, 1, 1)
        return torch.where(length > self.original, self.long.to(device), self.short.to(device))
