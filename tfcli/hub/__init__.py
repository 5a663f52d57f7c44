"""Model folders of Hugging Face: what an architecture of theirs is in our choices, and the reverse.

A file in `architectures/` is named after a `model_type` and says in its ARCHITECTURE all there is to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import NamedTuple

from tfcli.errors import ConfigError, suggest
from tfcli.hub.fields import COMMON, Asked, Field, Flat, Settings
from tfcli.hub.filling import Habits
from tfcli.hub.names import Table
from tfcli.hub.weights import Weights

FIRST = ("llama", "gpt2", "bert", "bart", "t5")  # where several can hold a model, these are chosen first


class Kind(NamedTuple):
    """One class of an architecture: a body with a head."""

    settings: Settings  # what every model of the class has, beside what the architecture has
    names: Table = MappingProxyType({})  # of the head's weights
    fields: tuple[Field, ...] = ()
    bare: bool = False  # the body alone, whose weights are named without the architecture's prefix


class Architecture(NamedTuple):
    """A `model_type`: its classes, its fields, the names of its weights."""

    model_type: str
    settings: Settings  # what every model of it has, "preset" first of all
    kinds: Mapping[str, Kind]  # by the name of the class; the first is meant where none is named
    fields: tuple[Field, ...]
    names: Table
    prefix: str = ""  # what the names of a body begin with where it has a head
    habits: Habits = Habits()  # of its files
    tell: Callable[[Weights], Settings] | None = None  # settings that only the weights tell
    body: str = ""  # a class without a head, read as the first where the table of tokens is the head's
    older: Mapping[str, str] = MappingProxyType({})  # classes by names that they once had

    def read(self, kind: str, asked: Asked) -> Settings:
        """Our settings. Raises ConfigError for what is not carried out exactly."""
        found: Settings = {**self.settings, "size.dropout": 0.0, **self.kinds[kind].settings}
        for field in (*self.fields, *self.kinds[kind].fields, *COMMON):
            found |= field.read(asked)
        asked.refuse_rest()
        if self.body and named(asked) == self.body and not found["head.tied"]:
            right = "has no head, and makes one of the table of tokens only with tie_word_embeddings=true"
            raise asked.refused("architectures", right)
        return found

    def write(self, kind: str, our: Flat) -> dict[str, object]:
        """The fields of a config.json that say most of what our settings say."""
        found: dict[str, object] = {"architectures": [kind], "model_type": self.model_type}
        for field in (*self.fields, *self.kinds[kind].fields):
            found |= field.write(our)
        return found

    def table(self, kind: str) -> Table:
        """The names of all weights of a class."""
        return {**self.names, **self.kinds[kind].names}

    def rename(self, kind: str, name: str) -> str:
        """A name of the table as the class has it."""
        return name.removeprefix(self.prefix) if self.kinds[kind].bare else name


@cache
def model_types() -> tuple[str, ...]:
    """All that there are."""
    from tfcli.hub import architectures

    found = [module.name for module in iter_modules(architectures.__path__)]
    return tuple(sorted(found, key=lambda name: (name not in FIRST, name)))


def architecture(model_type: object, file: object = "config.json") -> Architecture:
    """The architecture of a model_type. Raises ConfigError, naming the file, for one that is not known."""
    if model_type not in model_types():
        raise ConfigError(
            f"{file}: model_type={model_type!r}: is none that is known here"
            f"{suggest(str(model_type), model_types()) or '; there are ' + ', '.join(model_types())}"
        )
    return import_module(f"tfcli.hub.architectures.{model_type}").ARCHITECTURE


def kind_of(arch: Architecture, asked: Asked) -> str:
    """The class that a config.json names, or the architecture's first."""
    kind, usual = named(asked), next(iter(arch.kinds))
    kind = usual if kind is None or kind == arch.body else kind
    kind = arch.older.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in arch.kinds:
        raise asked.refused("architectures", f"must be {' or '.join(arch.kinds)}")
    return kind


def named(asked: Asked) -> object:
    """The class that a config.json names first; None: it names none."""
    listed = asked.get("architectures")
    return listed[0] if isinstance(listed, list) and listed else listed
