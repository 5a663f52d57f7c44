"""What ends a command early, as one line to the user."""

import difflib
from collections.abc import Iterable, Sequence


class ConfigError(Exception):
    """What the user asked for cannot be done; the message names the key or file and says what would be
    right.
    """


class RunError(Exception):
    """The job was begun and could not be finished; the message says what happened and what is left."""


def suggest(word: str, known: Iterable[str]) -> str:
    """What follows a wrong word: `; did you mean 'attention'?` where a known word is near, else nothing."""
    near = difflib.get_close_matches(word, [str(k) for k in known], n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def one_line(error: BaseException) -> str:
    """What an error says, on one line; where it says nothing, its name."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def shown(names: Sequence[str]) -> str:
    """Up to five names, and how many more."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"
