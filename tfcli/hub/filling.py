"""From files of weights into a model of ours: every weight once, whatever older files call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tfcli.errors import ConfigError, shown
from tfcli.hub.names import Piece, Row
from tfcli.hub.weights import Weights

REAL = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
Make = Callable[[tuple[int, ...]], Tensor]  # numbers of a shape


class Habits(NamedTuple):
    """What files of an architecture have beside its weights, and how they call them."""

    spare: tuple[str, ...] = ()  # patterns of what is there and has no use here
    alias: tuple[tuple[str, str], ...] = ()  # (pattern, replacement): names in older files
    prefix: str = ""  # of a body's names, which files have or have not
    fixed: tuple[tuple[str, Make], ...] = ()  # patterns of what may be there, with these numbers only
    zero: tuple[str, ...] = ()  # patterns of what is zero where it is not there


def fill(rows: Sequence[Row], weights: Weights, habits: Habits = Habits()) -> list[str]:  # noqa: B008
    """Fills tensors of ours, each from its pieces, every piece once; the names of weights without a use.

    Raises ConfigError for pieces that are missing, of another shape or no real numbers, for weights that
    nobody wants, and for tied ones that differ.
    """
    wanted = {piece.name: piece for row in rows for piece in row.pieces}
    called = as_known(weights, {*wanted, *(other for row in rows for other in row.aliases)}, habits)
    doubles = settled(rows, called)
    for name in [n for n in wanted if n not in called and matches(n, habits.zero)]:
        wanted.pop(name).view.zero_()
    rest = sorted(called.keys() - wanted.keys() - doubles.keys())
    made = {called[n]: make for n in rest for pattern, make in habits.fixed if re.fullmatch(pattern, n)}
    left = [name for name in rest if matches(name, habits.spare)]
    unexpected = [name for name in rest if name not in left and called[name] not in made]
    refuse_misfits(weights, sorted(wanted.keys() - called.keys()), unexpected)
    again = {name: wanted[own] for name, own in doubles.items()}
    refuse_shapes(weights, {called[name]: piece for name, piece in [*wanted.items(), *again.items()]})
    refuse_changed(weights, made)
    pour(weights, {called[name]: piece for name, piece in wanted.items()})
    refuse_other(weights, {called[name]: piece for name, piece in again.items()})
    return left


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is that name."""
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def as_known(weights: Weights, known: set[str], habits: Habits) -> dict[str, str]:
    """Each name as the table has it -> as the file has it. Raises ConfigError where two come to one."""
    called: dict[str, str] = {}
    for name in weights.shapes():
        new = name
        for pattern, replacement in habits.alias:
            new = re.sub(pattern, replacement, new)
        ways = (new, habits.prefix + new, new.removeprefix(habits.prefix))
        new = next((way for way in ways if way in known), new)
        if new in called:
            raise ConfigError(f"{weights.file}: {called[new]} and {name} are the same weight, {new}")
        called[new] = name
    return called


def settled(rows: Sequence[Row], called: dict[str, str]) -> dict[str, str]:
    """Other names under which a tied weight is there as well -> its name; where it is there under another
    name alone, `called` is told.
    """
    doubles: dict[str, str] = {}
    for row in rows:
        for other in row.aliases:
            name = row.pieces[0].name
            if other in called and name not in called:
                called[name] = called.pop(other)
            elif other in called:
                doubles[other] = name
    return doubles


def refuse_misfits(weights: Weights, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raises ConfigError where there are any."""
    if missing or unexpected:
        raise ConfigError(
            f"{weights.file}: not the weights that config.json tells of; missing {shown(missing)}; "
            f"unexpected {shown(unexpected)}"
        )


def refuse_shapes(weights: Weights, pieces: Mapping[str, Piece]) -> None:
    """Raises ConfigError for a weight, by its name in the file, of another shape than it has to have."""
    shapes = weights.shapes()
    for name, piece in pieces.items():
        if shapes[name] != piece.shape:
            raise ConfigError(
                f"{weights.file}: {name} is {shapes[name]}, and config.json tells of {piece.shape}"
            )


def pour(weights: Weights, into: Mapping[str, Piece]) -> None:
    """Copies tensors of a file into the views of ours."""
    with torch.no_grad():
        for name, tensor in weights.tensors(list(into)):
            if tensor.dtype not in REAL:
                kind = str(tensor.dtype).removeprefix("torch.")
                raise ConfigError(
                    f"{weights.file}: {name} is {kind}; must be real numbers of 16 bits or more"
                )
            view = into[name].view
            view.copy_(tensor.reshape(view.shape))


def refuse_other(weights: Weights, doubles: Mapping[str, Piece]) -> None:
    """Raises ConfigError where a weight that is tied here is there twice, and not the same."""
    for name, tensor in weights.tensors(list(doubles)):
        piece = doubles[name]
        if not torch.equal(tensor.reshape(piece.view.shape).to(piece.view.dtype), piece.view):
            raise ConfigError(
                f"{weights.file}: {name} differs from {piece.name}, and config.json says that they are one "
                "(tie_word_embeddings); set it to false there to have both"
            )


def refuse_changed(weights: Weights, made: Mapping[str, Make]) -> None:
    """Raises ConfigError where a weight that is made here, of its shape, is there with other numbers."""
    for name, tensor in weights.tensors(list(made)):
        right = made[name](tuple(tensor.shape))
        near = 4 * torch.finfo(tensor.dtype).eps if tensor.dtype in REAL else 0.0
        if not torch.allclose(tensor.double(), right.double(), rtol=0.0, atol=near):
            raise ConfigError(
                f"{weights.file}: {name} has other numbers than this kind of model makes, so the model would "
                "not be what it says"
            )
