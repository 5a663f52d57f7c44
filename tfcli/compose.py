"""From overrides in Hydra's grammar to a configuration, and Hydra's complaints in the user's terms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfcli import choices
from tfcli.errors import ConfigError, suggest

if TYPE_CHECKING:
    from omegaconf import DictConfig


def compose(name: str, overrides: Sequence[str], folders: Sequence[Path] = ()) -> DictConfig:
    """The configuration `name` under overrides in Hydra's grammar; `folders` hold further choices.

    Key `choices` tells which choice each group came to, `overrides` what was said. Raises ConfigError for an
    override that cannot be read, and for an unknown key, group or choice, with the near one.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import open_dict
    from omegaconf.errors import OmegaConfBaseException

    check_overrides(overrides, folders)
    try:
        with initialize_config_dir(str(choices.config_dir()), version_base=None):
            config = hydra_compose(name, [*overrides, *search_path(folders)], return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, AttributeError) as error:
        GlobalHydra.instance().clear()
        raise ConfigError(" ".join(explain(name, error, overrides, folders).split())) from None
    with open_dict(config):
        chosen = {k: v for k, v in config.hydra.runtime.choices.items() if not k.startswith("hydra/")}
        del config.hydra
        config.choices = {
            group.partition("@")[0]: chosen[group] for group in sorted(chosen) if "@" not in group
        }
        config.overrides = list(overrides)
    return config


def search_path(folders: Sequence[Path]) -> list[str]:
    """The override that tells Hydra of further folders, whatever characters their names have."""
    quoted = ("'file://" + str(folder.resolve()).replace("'", r"\'") + "'" for folder in folders)
    return [f"hydra.searchpath=[{','.join(quoted)}]"] if folders else []


def check_overrides(overrides: Sequence[str], folders: Sequence[Path]) -> None:
    """Raises ConfigError for an override that is no `key=value`, and for an unknown choice of a group."""
    known = choices.groups(*folders)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not override.startswith("~"):
            raise ConfigError(f"'{override}' is no key=value" + suggest(override, known))
        group = key.lstrip("+~").partition("@")[0]
        if group in known and re.fullmatch(r"[\w-]+", value):
            options = choices.choices(group, *folders)
            if value not in options:
                near = suggest(value, options) or "; it offers " + ", ".join(options)
                raise ConfigError(f"{override}: {group} has no such choice{near}")


def explain(name: str, error: Exception, overrides: Sequence[str], folders: Sequence[Path]) -> str:
    """Hydra's complaint in the user's terms, on one line."""
    from hydra.errors import OverrideParseException

    if isinstance(error, OverrideParseException):
        key, _, value = str(error.override).partition("=")
        return f"{error.override}: cannot be read; put the value in quotes of its own: \"{key}='{value}'\""
    text = str(error)
    unknown = re.search(r"[Cc]ould not (?:override|append to|delete) '?([\w./@]+)", text)
    if unknown is None:
        return text
    key = unknown[1].replace("/", ".")
    if key == "cross_attention":
        return "cross_attention: is chosen as attention@cross_attention=mha"
    groups = choices.groups(*folders)
    safe = [o for o in overrides if o.partition("=")[0] in groups and key_of(o) != key]
    if len(safe) == len(overrides):  # none of them is to blame
        return text
    node = compose(name, safe, folders)
    node, names = {k: node[k] for k in node if k not in ("choices", "overrides")}, list(node.choices)
    for part in key.split("."):
        if not hasattr(node, "keys"):
            break
        names = list(dict.fromkeys([*map(str, node), *names]))
        if part not in node:
            return f"{key}: no such key{suggest(part, names) or '; there are ' + ', '.join(names)}"
        node, names = node[part], []
    return f"{key}: no such key"


def key_of(override: str) -> str:
    """size.d_model of size.d_model=64, +size.d_model=64 and ~size.d_model."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def flat(node: dict, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; an empty dict is a value."""
    found = {}
    for key, value in node.items():
        path = f"{prefix}{key}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return found


def unflat(values: dict[str, Any]) -> DictConfig:
    """The reverse of `flat`."""
    tree: dict = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    from omegaconf import OmegaConf

    return OmegaConf.create(tree)


def override(key: str, value: Any) -> str:
    """A setting in Hydra's grammar."""
    return f"{key}={spelled(value)}"


def spelled(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(spelled, value))}]"
    bare = isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w-]*", value)
    if isinstance(value, str) and (not bare or value.lower() in ("null", "true", "false", "nan", "inf")):
        return "'" + re.sub(r"(\\*)'", r"\1\1\\'", re.sub(r"(\\+)$", r"\1\1", value)) + "'"
    return str(value)
