"""Types and ranges of the values that a user sets, written as annotations where the value is used.

`lr: Positive` on a constructor or a settings class is all that is needed: `check` refuses what does not fit,
in one sentence that names the key.
"""

import inspect
import math
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tfcli.errors import ConfigError, suggest


@dataclass(frozen=True)
class Range:
    """A closed or open interval; `text` says it to the user."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        low = f"{'above' if self.open_low else 'at least'} {self.low:g}" if self.low > -math.inf else ""
        high = f"{'below' if self.open_high else 'at most'} {self.high:g}" if self.high < math.inf else ""
        return " and ".join(part for part in (low, high) if part)


Count = Annotated[int, Range(low=1)]  # 1, 2, 3 ...
Index = Annotated[int, Range(low=0)]  # 0, 1, 2 ...
Positive = Annotated[float, Range(low=0, open_low=True)]
NonNegative = Annotated[float, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1)]
Rate = Annotated[float, Range(low=0, high=1, open_high=True)]  # dropout, betas: 0 <= x < 1
Base = Annotated[float, Range(low=1, open_low=True)]  # of rotary frequencies
Seed = Annotated[int, Range(low=0, high=2**63 - 1)]

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _describe(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Annotated:
        base, *marks = get_args(kind)
        return " ".join([_describe(base), *(str(m) for m in marks if isinstance(m, Range))])
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(k) for k in get_args(kind))
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if origin in (list, tuple):
        return f"a list, each {_describe(get_args(kind)[0])}" if get_args(kind) else "a list"
    return "null" if kind is type(None) else _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _fits(kind: Any, value: Any) -> tuple[bool, Any]:
    """Whether the value is of that kind, and the value as that kind (3 as 3.0, 1e3 as 1000)."""
    origin = get_origin(kind)
    if origin is Annotated:
        base, *marks = get_args(kind)
        fits, value = _fits(base, value)
        return fits and all(value in m for m in marks if isinstance(m, Range)), value
    if origin in (Union, types.UnionType):
        for choice in get_args(kind):
            fits, converted = _fits(choice, value)
            if fits:
                return True, converted
        return False, value
    if origin is Literal:
        return value in get_args(kind), value
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            return False, value
        inner = get_args(kind)[:1]
        results = [_fits(inner[0], v) if inner else (True, v) for v in value]
        return all(fits for fits, _ in results), origin(v for _, v in results)
    if kind is type(None):
        return value is None, value
    if kind is bool:
        return isinstance(value, bool), value
    if kind is int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return (True, int(value)) if whole and not isinstance(value, bool) else (False, value)
    if kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return (True, float(value)) if number and math.isfinite(value) else (False, value)
    if kind is str:
        return isinstance(value, str), value
    return True, value  # a part, a tensor, a callable: not the user's to mistype


def check(kind: Any, value: Any, key: str) -> Any:
    """The value as that kind. Raises ConfigError, naming the key, for a wrong type or one out of range."""
    fits, converted = _fits(kind, value)
    if fits:
        return converted
    near = suggest(value, get_args(kind)) if get_origin(kind) is Literal and isinstance(value, str) else ""
    shown = f"'{value}'" if isinstance(value, str) else "null" if value is None else value
    raise ConfigError(f"{key}={shown}: must be {_describe(kind)}{near}")


def parameters(function: Any) -> dict[str, tuple[Any, bool]]:
    """Each keyword that a function or class takes: its annotation (None: any) and whether it must be given.

    A constructor's `**rest` stands for what its parent's constructor takes.
    """
    found: dict[str, tuple[Any, bool]] = {}
    for source in _signatures(function):
        hints = get_type_hints(source, include_extras=True)
        signature = inspect.signature(source).parameters
        for name, p in signature.items():
            if name not in ("self", "cls", "_cls") and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                found.setdefault(name, (hints.get(name), p.default is p.empty))
        if not any(p.kind is p.VAR_KEYWORD for p in signature.values()):
            break
    return found


def _signatures(function: Any) -> Iterator[Any]:
    if not inspect.isclass(function) or issubclass(function, tuple):
        yield function
    else:
        yield from (cls.__init__ for cls in function.__mro__ if "__init__" in vars(cls))


def check_arguments(function: Any, arguments: dict[str, Any], key: str) -> dict[str, Any]:
    """The keyword arguments, each checked against the function's annotations, under `key.name`.

    Raises ConfigError for a name the function does not take, a value that does not fit, and a missing one.
    """
    known, prefix = parameters(function), f"{key}." if key else ""
    for name in arguments:
        if name not in known:
            near = suggest(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"{prefix}{name}: no such setting{near}")
    for name, (_, needed) in known.items():
        if needed and name not in arguments:
            raise ConfigError(f"{prefix}{name}: missing")
    return {
        name: value if known[name][0] is None else check(known[name][0], value, prefix + name)
        for name, value in arguments.items()
    }
