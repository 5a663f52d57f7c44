"""What the commands share: composing a configuration, and the one place where a user's mistake becomes a
line.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfcli import choices
from tfcli.errors import ConfigError, RunError, suggest

if TYPE_CHECKING:
    from omegaconf import DictConfig


def run(command: str, main: Callable[[list[str]], None], arguments: Sequence[str] | None = None) -> None:
    """Runs a command on its arguments (None: the process's), and ends the process where it cannot be done.

    A user's mistake is one line and exit code 2, a job that failed one line and 1, Ctrl-C 130, a closed pipe
    141.
    """
    try:
        main(list(sys.argv[1:] if arguments is None else arguments))
    except (ConfigError, RunError) as error:
        print(f"{command}: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, ConfigError) else 1) from None
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:  # nobody reads on, as in `tf-generate ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


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
    safe = [o for o in overrides if o.partition("=")[0] in groups]
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


def split_flags(arguments: Sequence[str]) -> tuple[list[str], list[Path], list[str]]:
    """(overrides, folders of --config-dir, other flags as they came)."""
    overrides, folders, flags = [], [], []
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            folders.append(value if equals else next(words, ""))
        elif word.startswith("-"):
            flags.append(word)
        else:
            overrides.append(word)
    return overrides, existing(folders), flags


def existing(folders: Sequence[str]) -> list[Path]:
    """The folders of --config-dir. Raises ConfigError for one that is not there."""
    for folder in folders:
        if not folder or folder.startswith("-"):
            raise ConfigError("--config-dir: needs a value, a folder of your own choices")
        if not Path(folder).is_dir():
            raise ConfigError(f"--config-dir {folder}: no such folder")
    return [Path(folder) for folder in folders]


def hand_to_hydra(name: str, arguments: Sequence[str], task: Callable[[list[str]], None]) -> None:
    """Hydra's own flags (--cfg, --resolve, --multirun, --info ...) are Hydra's to carry out.

    `task` is handed the overrides of each job of a sweep.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    def guarded(config: DictConfig) -> None:
        job = list(HydraConfig.get().overrides.task)
        GlobalHydra.instance().clear()  # the job composes its configuration itself
        run(f"tf-{name}", task, job)

    overrides = split_flags(arguments)[0]
    first = next((i for i, word in enumerate(arguments) if "=" in word and word in overrides), len(arguments))
    sys.argv[1:] = [*arguments[:first], *leave_nothing(), *arguments[first:]]
    hydra.main(version_base=None, config_path=str(choices.config_dir()), config_name=name)(guarded)()


def leave_nothing() -> list[str]:
    """Overrides by which Hydra writes nothing beside runs/, and there no more than what was swept over."""
    sweep = f"hydra.sweep.dir=runs/sweeps/{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    return [sweep, "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled"]


def group_help(groups: Sequence[str], folders: Sequence[Path] = ()) -> str:
    """Groups, their choices, and what each is."""
    lines = []
    for group in groups:
        lines.append(f"\n{group}")
        for choice in choices.choices(group, *folders):
            lines.append(f"  {choice:18} {choices.headline(group, choice, *folders)}".rstrip())
    return "\n".join(lines).lstrip("\n")
