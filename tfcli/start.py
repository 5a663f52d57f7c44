"""What a run starts from: nothing, another model's weights (`init_from`), or where another run stopped."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from tfcli import build, checkpoint, choices, origin
from tfcli.compose import check_overrides, flat, key_of, unflat
from tfcli.errors import ConfigError, suggest
from tfcli.origin import Origin
from tfcli.values import Seed

PARTS = ("family", "size", "attention", "position", "norm", "placement", "ffn", "embedding", "head")
MODEL = (*PARTS, "cross_attention")
GROUPS = (*PARTS, "init", "objective", "tokenizer", "data", "optimizer", "schedule", "precision")
KEPT = (*MODEL, "tokenizer", "objective", "seed", "data")  # by a run that goes on
FREE = ("dropout", "recompute")  # settings of a model that change none of its weights
OF_ONE_COMMAND = ("resume", "init_from", "out", "choices", "overrides")  # no settings of the run itself


class TopLevel(NamedTuple):
    """The keys beside the groups, `train` and `log`."""

    name: str
    out: str | None
    seed: Seed
    device: str
    resume: str | None
    init_from: str | None


def merged(base: DictConfig, before: DictConfig, after: DictConfig) -> tuple[DictConfig, list]:
    """What the new overrides change (`before` -> `after`) laid over `base`; and the changes as (key, old,
    new).
    """
    base, before, after = (of_the_run(c) for c in (base, before, after))
    result, changes = dict(base), []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old == new and (key in before) == (key in after):
            continue
        if key not in after:
            result.pop(key, None)
        elif base.get(key) != new or key not in base:
            changes.append((key, base.get(key), new))
            result[key] = new
    return unflat(result), changes


def of_the_run(config: DictConfig) -> dict[str, Any]:
    """The values by dotted key, without those of one command."""
    values = flat(build.plain(config))
    return {key: value for key, value in values.items() if key.split(".")[0] not in OF_ONE_COMMAND}


def group_of(override: str) -> str:
    """size of size.d_model=64."""
    return key_of(override).partition(".")[0]


Compose = Callable[[Sequence[str]], DictConfig]
Say = Callable[[str], None]


def start(
    config: DictConfig, overrides: list[str], compose: Compose, folders: Sequence[Path], say: Say
) -> tuple[DictConfig, Origin | None]:
    """The configuration of the run, and what it starts from: by `resume`, by `init_from`, or nothing."""
    check_top(config)
    absolute(config)
    config.overrides = [o for o in overrides if key_of(o) not in ("resume", "init_from", "out")]
    if config.resume and config.init_from:
        raise ConfigError(
            "resume and init_from: one of them; resume goes on with a run, init_from starts a new one"
        )
    resume = newest_run(config) if config.resume == "auto" else config.resume and Path(config.resume)
    if config.resume == "auto" and resume is None:
        say("resume=auto: no run to go on with, so a new one starts")
        config = compose([o for o in overrides if key_of(o) != "resume"])
        return start(config, list(config.overrides), compose, folders, say)
    if resume:
        return resumed(resume, compose, config.overrides, folders, say, config)
    if config.init_from:
        return initialised(config.init_from, compose, config, folders, say)
    return config, None


def check_top(config: DictConfig) -> None:
    """Raises ConfigError for an unknown top-level key, one of a wrong type, and a group without a choice."""
    for group in GROUPS:
        if not isinstance(config.get(group), DictConfig):
            raise ConfigError(f"{group}: missing; must be one of {', '.join(choices.choices(group))}")
    for name in ("train", "log"):
        if not isinstance(config.get(name), DictConfig):
            raise ConfigError(f"{name}: must be keys with values, as in {name}.KEY=VALUE")
    known = (*TopLevel._fields, *GROUPS, *MODEL, "train", "log", "choices", "overrides")
    for key in config:
        if key not in known:
            raise ConfigError(f"{key}: no such key{suggest(str(key), known)}")
    top = {key: config[key] for key in TopLevel._fields if key in config}
    build.settings(TopLevel, build.plain(OmegaConf.create(top)), "")


def absolute(config: DictConfig) -> None:
    """Makes the paths of data and tokenizer absolute, so that they hold wherever the run is read again."""
    for node in (config.data, config.data.get("paths") or {}, config.tokenizer):
        for key in node:
            named = node is not config.tokenizer and node is not config.data  # files by their label
            if isinstance(node[key], str) and (named or key == "path" or key.endswith("_path")):
                node[key] = absolute_path(node[key])


def absolute_path(path: str) -> str:
    """Of a file, a folder or a pattern; what means nothing on this disk stays as it is."""
    where = Path(path).expanduser()
    if os.path.exists(where):
        return os.path.abspath(where)
    found = next(glob.iglob(str(where), recursive=True), None) if path else None
    return path if found is None else os.path.abspath(Path(glob.escape(os.getcwd())) / where)


def initialised(
    where: str, compose: Compose, config: DictConfig, folders: Sequence[Path], say: Say
) -> tuple[DictConfig, Origin]:
    """The configuration of a new run whose weights and tokenizer come from elsewhere, and with them its
    model: what was said of the model then is said again, before what is said now.
    """
    check_overrides(config.overrides, folders)
    begun = origin.find(where, say)
    old = begun.config(folders)
    for override in config.overrides:
        if group_of(override) == "tokenizer":
            raise ConfigError(f"{override}: init_from={where} brings its own tokenizer; leave this out")
    kept = [o for o in begun.overrides if group_of(o) in (*MODEL, "preset", *begun.brings)]
    if begun.whole:
        kept = afresh(kept, config.overrides, say)
    asked = compose([*fitting(kept, config.overrides, compose, say), *config.overrides])
    check_top(asked)
    asked.tokenizer, asked.choices.tokenizer = old.tokenizer, old.choices.tokenizer
    asked.init_from, asked.out = config.init_from, config.out
    said = {key_of(override) for override in config.overrides}
    texts = build.constructor_of(asked.objective, "objective").needs in ("text", "pair")  # others have both
    for end, adds in begun.ends.items():
        if texts and end in asked.data and f"data.{end}" not in said:
            asked.data[end] = adds
    absolute(asked)
    return asked, begun


def afresh(kept: Sequence[str], new: Sequence[str], say: Say) -> list[str]:
    """What tells all of an old model, without the settings of parts that are chosen anew; those are said."""
    for choice in new:
        lost = [o for o in kept if voids(choice, o)]
        if lost:
            say(f"{choice}: begins afresh, without {', '.join(lost)}")
        kept = [o for o in kept if o not in lost]
    return list(kept)


def voids(new: str, old: str) -> bool:
    """Whether a new override leaves an old setting no meaning: of a part that is chosen anew, as norm.eps
    under norm=layernorm or another preset, or a dropout under the one for all.
    """
    group = new.partition("=")[0].partition("@")[2] or key_of(new)  # attention@cross_attention=mha
    key = key_of(old)
    if group == "size.dropout":
        return key.endswith(".dropout")
    if "." not in key:
        return group == "preset" and key not in ("preset", "size")
    return group_of(old) == group or (group == "preset" and group_of(old) != "size")


def fitting(kept: Sequence[str], new: Sequence[str], compose: Compose, say: Say) -> list[str]:
    """What was said of the old model, without settings that the newly chosen parts do not have."""
    chosen = compose(
        [o for o in (*kept, *new) if "." not in key_of(o) and group_of(o) in (*GROUPS, "preset")]
    )
    nothing = object()
    lost = [
        o
        for o in kept
        if "." in key_of(o)
        and o[0] != "+"
        and OmegaConf.select(chosen, key_of(o), default=nothing) is nothing
    ]
    for override in lost:
        say(f"left out: {override}, which {group_of(override)}={chosen.choices[group_of(override)]} has not")
    return [o for o in kept if o not in lost]


def resumed(
    folder: Path,
    compose: Compose,
    overrides: Sequence[str],
    folders: Sequence[Path],
    say: Say,
    asked: DictConfig,
) -> tuple[DictConfig, Origin]:
    """The configuration of a run that goes on, and its checkpoint.

    It is the stored one, changed by what the command line says anew; every change is printed. What makes the
    model, the tokenizer, the data or the seed another cannot change: ConfigError.
    """
    if origin.is_model_folder(folder):
        raise ConfigError(
            f"resume={folder}: is a model folder and no run; init_from={folder} starts one from it"
        )
    path = checkpoint.find(folder, say)
    old = checkpoint.read_config(path / "config.yaml", folders)
    said = [(o.partition("=")[2], key_of(o)) for o in overrides]
    chosen = [(key, None, choice) for choice, key in said if old.choices.get(key, choice) != choice]
    refuse_another_run(old, chosen, overrides, folder)
    before, after = compose(old.overrides), compose([*old.overrides, *overrides])
    for composed in (before, after):
        check_top(composed)
        absolute(composed)
    config, changes = merged(old, before, after)
    refuse_another_run(old, changes, overrides, folder)
    config.choices = {g: old.choices.get(g) if g in KEPT else c for g, c in after.choices.items()}
    config.overrides = [*old.overrides, *overrides]
    config.resume, config.init_from, config.out = str(folder), None, asked.out
    for key, was, now in changes:
        if not key.startswith("log."):
            say(f"changed: {key}={now} (was {was}){rule(key)}")
    return config, checkpoint.Stored(path)


def refuse_another_run(old: DictConfig, changes: list, overrides: Sequence[str], folder: Path) -> None:
    """Raises ConfigError, naming what was typed, for a change of what a run that goes on keeps."""
    kept = [key for key, _, _ in changes if key.split(".")[0] in KEPT and not key.endswith(FREE)]
    if not kept:
        return
    typed = (o for o in overrides if any(f"{key}.".startswith(f"{key_of(o)}.") for key in kept))
    preset = (o for o in overrides if group_of(o) == "preset")
    found = next(chain(typed, preset), None)
    key = key_of(found) if found else kept[0]
    was = old.choices.get(key) if key in old.choices else OmegaConf.select(old, key)
    another = "without init_from," if group_of(key) == "tokenizer" else f"with init_from={folder}"
    raise ConfigError(
        f"{found or key}: a run that goes on keeps its {group_of(key)} ({key}={was}); start a new run "
        f"{another} to change it"
    )


def rule(key: str) -> str:
    """What a change of that key means for a run under way."""
    if key in ("train.steps", "optimizer.lr") or key.startswith("schedule."):
        return "; the schedule is computed anew, as if the run had always had it"
    return ""


def newest_run(config: DictConfig) -> Path | None:
    """The run that resume=auto means: `out` if it holds one, else the newest in runs/<name>; None: there is
    none.
    """
    if config.out is not None:
        return Path(config.out) if checkpoint.steps(Path(config.out)) else None
    runs = [p for p in (Path("runs") / config.name).glob("*") if checkpoint.steps(p)]
    return max(runs, key=lambda p: checkpoint.steps(p)[-1].stat().st_mtime, default=None)
