"""From a configuration to a run. What can be refused is refused here, before any data is touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from tfcli import build, checkpoint
from tfcli.data import Corpus, Source
from tfcli.data.corpus import get_tokenizer, prepare
from tfcli.device import pick_device
from tfcli.errors import ConfigError
from tfcli.metrics import flops_per_token
from tfcli.precision import Precision
from tfcli.runlog import RunLog
from tfcli.tokenizer import Tokenizer
from tfcli.train import Run, Settings
from tfcli.values import Index, check

MODEL = ("family", "size", "attention", "position", "norm", "placement", "ffn", "embedding", "head")
OF_ONE_COMMAND = ("resume", "init_from", "out", "choices", "overrides")  # no settings of the run itself


class Plan(NamedTuple):
    """A configuration whose every part was built once, and found to fit."""

    config: DictConfig  # resolved
    settings: Settings
    source: Source
    recipe: Any  # of the tokenizer
    optimizer: Any  # its recipe
    schedule: Callable[[int], float]
    precision: Precision
    device: torch.device
    folder: Path
    log: RunLog
    start: Path | None  # the checkpoint that the run goes on from, or takes its weights from


def plan(config: DictConfig, start: Path | None = None) -> Plan:
    """Builds every part without data. Raises ConfigError for whatever does not fit; writes nothing."""
    settings = build.settings(Settings, config.train, "train")
    check(Index, config.seed, "seed")
    device = pick_device(config.device)
    model = build.rehearse(config)
    if model.context is not None and settings.seq_len > model.context:
        raise ConfigError(
            f"train.seq_len={settings.seq_len}: must be at most size.context={model.context}, the "
            f"positions that the "
            "model has"
        )
    if settings.batch_size % (settings.micro_batch_size or 1):
        raise ConfigError(
            f"train.micro_batch_size={settings.micro_batch_size} must divide "
            f"train.batch_size={settings.batch_size}"
        )
    objective = build.make(config.objective, "objective", offer={"pad_id": 0})
    if objective.family != model.family:
        raise ConfigError(
            f"objective={config.choices.objective} is for family={objective.family}, not {model.family}"
        )
    precision = build.make(config.precision, "precision").resolve(device, config.size.d_model)
    optimizer = build.make(config.optimizer, "optimizer")
    optimizer.build(model)
    schedule = build.make(config.schedule, "schedule")
    if schedule.absolute and optimizer.lr != 1:
        raise ConfigError(
            f"schedule={config.choices.schedule}: its values are learning rates, not factors of optimizer.lr="
            f"{optimizer.lr:g}; set optimizer.lr=1 (schedule.factor scales them)"
        )
    return Plan(
        config=stored(config, precision, optimizer),
        settings=settings,
        source=build.make(config.data, "data"),
        recipe=build.make(config.tokenizer, "tokenizer"),
        optimizer=optimizer,
        schedule=schedule,
        precision=precision,
        device=device,
        folder=run_folder(config, start),
        log=RunLog(run_folder(config, start), **build.plain(config.log)),
        start=start,
    )


def stored(config: DictConfig, precision: Precision, optimizer: Any) -> DictConfig:
    """The configuration as it is kept: resolved, and with the precision that was chosen."""
    kept = OmegaConf.create(build.plain(config))
    kept.precision.name = precision.name
    return kept


def run_folder(config: DictConfig, start: Path | None) -> Path:
    """Where the run is kept: `out`, or the folder that it goes on in, or a new one by name and time."""
    if config.out is not None:
        folder = Path(config.out)
        if not config.resume and checkpoint.steps(folder):
            raise ConfigError(f"out={folder}: holds a run already; resume={folder} goes on with it")
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"out={folder}: is a file; must be a folder")
        return folder
    if config.resume and start is not None:
        return start.parents[1]
    named = Path("runs") / str(config.name) / time.strftime("%Y-%m-%d_%H-%M-%S")
    return next(p for p in chain([named], (Path(f"{named}-{i}") for i in range(2, 10**6))) if not p.exists())


# --- going on from a checkpoint -----------------------------------------------------------------------------


def merged(
    base: DictConfig, before: DictConfig, after: DictConfig, keys: Sequence[str] = ()
) -> tuple[DictConfig, list]:
    """What the new overrides change (`before` -> `after`) laid over `base`; and the changes as (key, old,
    new).

    keys: only these top-level ones are laid over; the others come from `after` as they are.
    """
    base, before, after = (flat(build.plain(c)) for c in (base, before, after))
    inside = (
        (lambda key: key.split(".")[0] in keys)
        if keys
        else lambda key: key.split(".")[0] not in OF_ONE_COMMAND
    )
    result = {key: value for key, value in base.items() if inside(key)}
    result |= {key: value for key, value in after.items() if not inside(key)}
    changes = []
    for key in sorted({k for k in (*before, *after) if inside(k)}):
        old, new = before.get(key), after.get(key)
        if old == new and (key in before) == (key in after):
            continue
        if key not in after:
            result.pop(key, None)
        elif base.get(key) != new or key not in base:
            changes.append((key, base.get(key), new))
            result[key] = new
    return unflat(result), changes


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
    return OmegaConf.create(tree)


Compose = Callable[[Sequence[str]], DictConfig]
Say = Callable[[str], None]


def start(
    config: DictConfig, overrides: list[str], compose: Compose, folders: Sequence[Path], say: Say
) -> tuple[DictConfig, Path | None]:
    """The configuration of the run, and the checkpoint it starts from: by `resume`, by `init_from`, or
    none.
    """
    config.overrides = [o for o in overrides if o.partition("=")[0] not in ("resume", "init_from", "out")]
    if config.resume and config.init_from:
        raise ConfigError(
            "resume and init_from: one of them; resume goes on with a run, init_from starts a new one"
        )
    resume = newest_run(config) if config.resume == "auto" else config.resume and Path(config.resume)
    if config.resume == "auto" and resume is None:
        say("resume=auto: no run to go on with, so a new one starts")
        config.resume = None
    if resume:
        return resumed(resume, compose, config.overrides, folders, say, config)
    if config.init_from:
        return initialised(Path(config.init_from), compose, config, folders, say)
    return config, None


def initialised(
    where: Path, compose: Compose, config: DictConfig, folders: Sequence[Path], say: Say
) -> tuple[DictConfig, Path]:
    """The configuration of a new run whose weights and tokenizer come from a checkpoint, and with them its
    model.
    """
    path = checkpoint.find(where, say)
    old = checkpoint.read_config(path / "config.yaml", folders)
    asked, _ = merged(old, compose([]), config, keys=(*MODEL, "tokenizer"))
    asked.choices = {
        group: old.choices[group] if group in (*MODEL, "tokenizer") else choice
        for group, choice in config.choices.items()
    }
    return asked, path


def resumed(
    folder: Path,
    compose: Compose,
    overrides: Sequence[str],
    folders: Sequence[Path],
    say: Say,
    asked: DictConfig,
) -> tuple[DictConfig, Path]:
    """The configuration of a run that goes on, and its checkpoint.

    It is the stored one, changed by what the command line says anew; every change is printed. What makes the
    model, the tokenizer, the data or the seed another cannot change: ConfigError.
    """
    path = checkpoint.find(folder, say)
    old = checkpoint.read_config(path / "config.yaml", folders)
    first = list(old.overrides)
    config, changes = merged(old, compose(first), compose([*first, *overrides]))
    config.choices, config.overrides = old.choices, [*first, *overrides]
    config.resume, config.init_from, config.out = str(folder), None, asked.out
    for key, before, after in changes:
        group = key.split(".")[0]
        if group in (*MODEL, "tokenizer", "objective", "seed", "data") and not key.endswith("dropout"):
            raise ConfigError(
                f"{key}={after}: a run that goes on keeps its {group} ({key}={before}); start a new run with "
                f"init_from={folder} to change it"
            )
        if not key.startswith("log."):
            say(f"changed: {key}={after} (was {before}){rule(group)}")
    return config, path


def rule(group: str) -> str:
    """What a change of that group means for a run under way."""
    if group in ("train", "schedule", "optimizer"):
        return "; the schedule is computed anew, as if the run had always had it"
    return ""


def newest_run(config: DictConfig) -> Path | None:
    """The run that resume=auto means: `out` if it holds one, else the newest in runs/<name>; None: there is
    none.
    """
    if config.out is not None:
        return Path(config.out) if checkpoint.steps(Path(config.out)) else None
    runs = [p for p in (Path("runs") / str(config.name)).glob("*") if checkpoint.steps(p)]
    return max(runs, key=lambda p: checkpoint.steps(p)[-1].stat().st_mtime, default=None)


# --- with data ----------------------------------------------------------------------------------------------


def assemble(plan: Plan) -> Run:
    """Reads the data, makes or loads the model, and puts the run together."""
    config, settings = plan.config, plan.settings
    tokenizer = Tokenizer.load(plan.start) if plan.start else get_tokenizer(plan.recipe, plan.source)
    corpus: Corpus = prepare(
        plan.source, tokenizer, seq_len=settings.seq_len, seed=config.seed, batch_size=settings.batch_size
    )
    torch.manual_seed(config.seed)
    model = build.model(config, tokenizer.vocab_size, fill=plan.start is None)
    if plan.start is not None:
        checkpoint.load_weights(model, plan.start / "model.safetensors")
    model.to(plan.device)
    run = Run(
        model=model,
        tokenizer=tokenizer,
        corpus=corpus,
        objective=build.make(config.objective, "objective", offer={"pad_id": tokenizer.pad_id}),
        optimizer=plan.optimizer.build(model),
        schedule=plan.schedule,
        precision=plan.precision,
        settings=settings,
        config=config,
        folder=plan.folder,
        log=plan.log,
        device=plan.device,
    )
    if plan.start is not None and config.resume:
        run.go_on_from(checkpoint.load_training(plan.start))
    if settings.compile:
        model.compile()
    return run


def facts(plan: Plan, run: Run) -> dict[str, list[tuple[str, Any]]]:
    """The table that is shown before the first step."""
    settings, model = plan.settings, run.model
    total = sum(p.numel() for p in model.parameters())
    tables = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding))
    per_epoch = run.corpus.train.examples_per_epoch
    attention = model.stack.layers[0].attention.branch
    flops = flops_per_token(
        total - tables + (0 if model.head.map.weight is not model.embedding.table.weight else tables),
        n_layers=len(model.stack.layers),
        n_heads=attention.n_heads,
        head_dim=attention.head_dim,
        seq_len=settings.seq_len,
    )
    chosen = [(group, choice) for group, choice in plan.config.choices.items() if choice is not None]
    return {
        "choices": chosen,
        "model": [
            ("parameters", total),
            ("without embeddings", total - tables),
            ("FLOPs per token", flops),
            ("vocabulary", run.tokenizer.vocab_size),
        ],
        "data": [
            (f"{part} {name}", value)
            for part, kinds in run.corpus.facts.items()
            for name, value in kinds.items()
        ],
        "run": [
            ("folder", str(plan.folder)),
            ("steps", settings.steps),
            ("tokens per step", settings.batch_size * settings.seq_len),
            ("steps per epoch", per_epoch / settings.batch_size if per_epoch else "unknown (streaming)"),
            ("device", str(plan.device)),
            ("precision", f"{plan.precision.name} ({plan.precision.why})"),
        ],
    }
