"""Options that take free text as it stands; what is no option is left for Hydra's grammar."""

from collections.abc import Iterator, Mapping
from typing import Any

from tfcli.errors import ConfigError, suggest


def parse(words: list[str], options: Mapping[str, type]) -> tuple[list[str], dict[str, Any]]:
    """Words that are no options, and the options' values.

    An option of type bool stands alone, one of type str takes the next word whatever it is, or what follows
    `=`, and one of type list may come several times. Raises ConfigError for an unknown option or no value.
    """
    values: dict[str, Any] = {name: None if kind is str else kind() for name, kind in options.items()}
    rest: list[str] = []
    following = iter(words)
    for word in following:
        name, equals, text = word.partition("=")
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif name not in options:
            near = suggest(name, options) or f"; there are {', '.join(options)}"
            raise ConfigError(f"{name}: no such option{near}")
        elif options[name] is bool:
            if equals:
                raise ConfigError(f"{word}: {name} stands alone and takes no value")
            values[name] = True
        else:
            value = text if equals else _next(following, name)
            values[name] = [*values[name], value] if options[name] is list else value
    return rest, values


def _next(words: Iterator[str], name: str) -> str:
    for word in words:
        return word
    raise ConfigError(f"{name}: needs a value")
