"""What the commands share, above all the one place where a user's mistake becomes a line."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfcli import choices
from tfcli.compose import compose
from tfcli.errors import ConfigError, RunError

__all__ = ["compose", "existing", "group_help", "hand_to_hydra", "run", "split_flags"]

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
