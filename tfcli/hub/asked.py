"""What a config.json asks for, so that nothing in it goes unheard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError

MEANT_UNSAID = {  # what transformers takes for something where nothing is said, so that false says otherwise
    "is_causal", "token_classification_bias", "head_dim", "number_of_conv_states",
}  # fmt: skip


class Asked:
    """What a config.json asks for, and which of it was heard so far."""

    def __init__(self, said: Mapping[str, Any], file: Path | str, above: str = "") -> None:
        self.said, self.file, self.above = dict(said), file, above
        self.heard: set[str] = set()

    def get(self, names: str | tuple[str, ...], default: Any = None) -> Any:
        """A field's value, under whichever of its names is there; null is as good as not there.

        Raises ConfigError where it is there under two names, and not the same.
        """
        names = (names,) if isinstance(names, str) else names
        self.heard |= {*names}
        given = [name for name in names if self.said.get(name) is not None]
        for other in given[1:]:
            if self.said[other] != self.said[given[0]]:
                raise self.refused(other, f"{given[0]}={short(self.said[given[0]])} says otherwise")
        return self.said[given[0]] if given else default

    def within(self, name: str) -> Asked | None:
        """What a field that holds fields asks for; None: it is not there."""
        inner = self.get(name)
        if inner is None:
            return None
        if not isinstance(inner, Mapping):
            raise self.refused(name, "must be an object")
        return Asked(inner, self.file, f"{self.above}{name}.")

    def refused(self, names: str | tuple[str, ...], right: str) -> ConfigError:
        """What to raise for a field's value."""
        names = (names,) if isinstance(names, str) else names
        name = next((n for n in names if n in self.said), names[0])
        return ConfigError(f"{self.file}: {self.above}{name}={short(self.said.get(name))}: {right}")

    def refuse_rest(self) -> None:
        """Raises ConfigError for a field that nobody heard, unless it asks for nothing."""
        for name, value in self.said.items():
            private = name.startswith("_")  # notes that a program made for itself
            if name not in self.heard and not private and not nothing(name, value):
                raise self.refused(name, "is not carried out here, so the model would not be what it says")


def nothing(name: str, value: Any) -> bool:
    """Whether a value asks for nothing of an unknown field; a 0 may be a factor, but for a dropout."""
    if isinstance(value, bool):
        return not value and name not in MEANT_UNSAID
    if isinstance(value, int | float):
        return value == 0 and "drop" in name
    return value in (None, [], {}, "")


def short(value: Any) -> str:
    """A value for a message."""
    text = (
        repr(value)
        if isinstance(value, str)
        else str(value).replace("True", "true").replace("False", "false")
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
