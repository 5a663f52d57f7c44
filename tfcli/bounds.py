"""How long a template may go on, and how large its values may be: bounds that no honest one meets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tfcli.errors import ConfigError

SIZE = 1 << 18  # characters of a template; published ones have up to some 10,000
STEPS, WEIGHT = 1_000_000, 4_000_000  # what a conversation may take beyond what its own size allows
WIDTH = 10_000  # blanks, digits or pieces that a number may ask for
SECONDS = 60.0
PART = 10  # characters or items that cost a step
PADDING = {"center", "ljust", "rjust", "zfill", "batch", "slice", "round", "to_bytes"}  # a number of them
_WIDE = re.compile(r"\d{5}|%[^%a-zA-Z]*\*")  # a width in a format


class Budget:
    """What the rendering of one conversation has left: steps, and the size that one value may have.

    A step is a turn of a loop, a call, or ten characters or items that one makes. Both grow with messages.
    """

    def __init__(self, given: int = 0) -> None:
        self.steps, self.most = STEPS + 100 * given, WEIGHT + 20 * given
        self.end = time.monotonic() + SECONDS

    def spend(self, steps: int) -> None:
        """Raises ConfigError where there are no more."""
        self.steps -= steps
        if self.steps < 0 or time.monotonic() > self.end:
            raise ConfigError("chat template: its loops and calls go on without end")

    def admit(self, size: int) -> None:
        """Raises ConfigError for a value of more than that many characters and items."""
        if size > self.most:
            raise ConfigError(f"chat template: makes a text or list of more than {self.most} characters")


_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def bounded(given: Any) -> Iterator[Budget]:
    """The budget of a rendering of these messages."""
    own = Budget(weight(given))
    before = _BUDGET.set(own)
    try:
        yield own
    finally:
        _BUDGET.reset(before)


def budget() -> Budget:
    """That of the rendering in hand; what is computed while a template is read has its own."""
    return _BUDGET.get() or Budget()


def weight(value: Any, most: int = 1 << 62) -> int:
    """How many characters and items a value is when it is written out; beyond `most` no more are counted."""
    if isinstance(value, (str, bytes, range)):
        return len(value)
    total = 1
    if isinstance(value, (dict, list, tuple)):
        for one in value:
            total += 1 + weight(one, most - total)
            total += weight(value[one], most - total) if isinstance(value, dict) else 0
            if total > most:
                break
    return total


def made(value: Any) -> Any:
    """What an operation made: it costs steps, and must not be too large."""
    now = budget()
    now.spend(1 + (len(value) // PART if isinstance(value, (str, bytes, list, tuple, dict)) else 0))
    now.admit(weight(value, now.most))
    if isinstance(value, int) and value.bit_length() > 4 * WIDTH:
        raise ConfigError(f"chat template: makes a number of more than {WIDTH} digits")
    return value


def written(value: Any) -> Any:
    """What stands between braces, before it is written out."""
    now = budget()
    size = weight(value, now.most)
    now.admit(size)
    now.spend(1 + size // PART)
    return value


def foresee(name: str, first: Any, *others: Any) -> None:
    """Raises ConfigError for an operation whose result would be too large, before memory is taken for it."""
    whole = name == "**" and all(isinstance(n, int) for n in (first, *others))
    if whole and first.bit_length() * abs(others[0]) > 4 * WIDTH:
        raise ConfigError(f"chat template: makes a number of more than {WIDTH} digits")
    if name in PADDING and any(isinstance(n, int) and n > WIDTH for n in others):
        raise ConfigError(f"chat template: {name} is given a number beyond {WIDTH}")
    if name in ("%", "format", "format_map") and isinstance(first, str) and _WIDE.search(first):
        raise ConfigError(f"chat template: formats to a width beyond {WIDTH}, or to one that is not said")
    if name in GROWS:
        try:
            size = GROWS[name](first, *others)
        except (TypeError, AttributeError, ValueError, IndexError):
            return  # it will not do, and says so itself
        budget().admit(size)


def _times(one: Any, other: Any) -> int:
    """`text * n`, `n * list`"""
    one, other = (other, one) if isinstance(one, int) else (one, other)
    return weight(one, budget().most) * other if isinstance(other, int) else 0


def _joined(separator: str, values: Any) -> int:
    return len(values) * (len(separator) + 1)


def _filled(text: str, *values: Any) -> int:
    """Each place of a format may show all there is."""
    places = text.count("{") + text.count("%")
    return len(text) + places * sum(weight(value, budget().most) for value in values)


def _size(wide: Any) -> int:
    return wide if isinstance(wide, int) else weight(wide, budget().most)


def _spread(text: Any, *more: Any) -> int:
    """Every character or item as wide as a number or a text says."""
    return weight(text, budget().most) * max(1, *map(_size, more), 1)


GROWS: dict[str, Callable[..., int]] = {  # the size of what these may make, at most
    "*": _times, "%": _filled, "format": _filled, "format_map": _filled, "join": _joined,
    "replace": lambda text, old, new, *_: len(text) + text.count(old) * len(new),
    "indent": lambda text, width=4, *_: (text.count("\n") + 1) * _size(width),
    "tojson": _spread, "translate": _spread, "wordwrap": _spread, "expandtabs": _spread,
}  # fmt: skip
