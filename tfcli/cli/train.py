"""tf-train: trains the model that the choices describe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tfcli.cli import door


def main(arguments: Sequence[str] | None = None) -> None:
    """The command's entry."""
    door.run("tf-train", command, arguments)


def command(arguments: list[str]) -> None:
    overrides, folders, flags = door.split_flags(arguments)
    if {"-h", "--help"} & set(flags):
        from tfcli.cli.help import train_help

        print(train_help(folders))
    elif flags:
        door.hand_to_hydra("train", arguments, lambda job: train(job, folders))
    else:
        train(overrides, folders)


def train(overrides: list[str], folders: Sequence[Path]) -> None:
    """Composes, plans, assembles, shows and trains."""
    config = door.compose("train", first_read(overrides), folders)
    from tfcli import assemble
    from tfcli.console import table
    from tfcli.start import start as start_from

    config, start = start_from(config, overrides, lambda o: door.compose("train", o, folders), folders, say)
    plan = assemble.plan(config, start)
    run = assemble.assemble(plan)
    say(table(assemble.facts(plan, run)))
    for notice in run.corpus.notices:
        say(notice)
    run.begin()
    run.train()


def first_read(overrides: list[str]) -> list[str]:
    """All of them, or, where a checkpoint's own come before them, those that lead to it."""
    leading = ("name", "out", "resume", "init_from")
    known = [o for o in overrides if o.partition("=")[0] in leading]
    return known if any(o.startswith(("resume=", "init_from=")) for o in known) else overrides


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
