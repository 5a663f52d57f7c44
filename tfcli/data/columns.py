"""What a row holds in the columns that a user names."""

import json
from collections.abc import Sequence
from typing import Any

from tfcli.errors import ConfigError, suggest
from tfcli.values import Index

Column = str | Index  # a name, `a.b` for b within a; or a number from 0 in rows without names


def value(row: Any, column: Column, where: str, key: str) -> Any:
    """What is in a column. Raises ConfigError, naming the key, where a row has no such column."""
    if isinstance(row, list) and isinstance(column, int) and column < len(row):
        return row[column]
    if isinstance(row, dict) and isinstance(column, str):
        if column in row:
            return row[column]
        first, dot, rest = column.partition(".")
        if dot and first in row:
            return value(row[first], rest, where, key)
    raise ConfigError(f"{where}: {key}={column} is not in this row; it has {_described(row, column)}")


def text(row: Any, column: Column, where: str, key: str) -> str:
    """The text in a column; everything else is refused."""
    found = value(row, column, where, key)
    if not isinstance(found, str):
        raise ConfigError(f"{where}: '{column}' holds {_kind(found)}, it must be text")
    return found


def name(row: Any, column: Column, where: str, key: str, names: Sequence[str] | None = None) -> str:
    """The label in a column, a text or a whole number; of `names` the one with that number."""
    return named(value(row, column, where, key), column, where, names)


def named(found: Any, column: Column, where: str, names: Sequence[str] | None = None) -> str:
    """A label as text, or the one of `names` that has its number."""
    if names is not None and isinstance(found, int):
        if not 0 <= found < len(names):
            raise ConfigError(f"{where}: '{column}' holds {found}, which is none of its {len(names)} names")
        return names[found]
    if isinstance(found, int):
        found = json.dumps(found)  # true and false as they stand in a file
    if not isinstance(found, str) or not found.strip():
        kind = "nothing" if isinstance(found, str) else _kind(found)
        raise ConfigError(f"{where}: '{column}' holds {kind}, it must be a label, text or a whole number")
    return found.strip()


def refuse_mixed(columns: dict[str, Column | None]) -> None:
    """Raises ConfigError where some columns go by name and some by number."""
    given = {key: column for key, column in columns.items() if column is not None}
    if len({isinstance(column, int) for column in given.values()}) > 1:
        said = ", ".join(f"{key}={column}" for key, column in given.items())
        raise ConfigError(f"{said}: must all be names (of a file with a header) or all numbers (without one)")


def _kind(found: Any) -> str:
    return "null" if found is None else type(found).__name__


def _described(row: Any, column: Column) -> str:
    if isinstance(row, list):
        numbers = f"column{'s' * (len(row) > 1)} 0" + (f" to {len(row) - 1}" if len(row) > 1 else "")
        return numbers + ("" if isinstance(column, int) else ", without names")
    if not isinstance(row, dict):
        return "none, it is not an object"
    return ", ".join(map(str, row)) + (
        suggest(column, row) if isinstance(column, str) else " by name, not by number"
    )
