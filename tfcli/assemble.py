"""From a configuration to a run. What can be refused is refused here, before any data is touched."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from tfcli import build, checkpoint
from tfcli.compose import flat
from tfcli.data import Corpus, Source
from tfcli.data.corpus import get_tokenizer, prepare
from tfcli.device import pick_device
from tfcli.errors import ConfigError, shown
from tfcli.evaluate import choose
from tfcli.fit import leaks, refuse_misfits
from tfcli.metrics import flops_per_token
from tfcli.objective import Objective
from tfcli.origin import Origin
from tfcli.precision import Precision
from tfcli.runlog import RunLog
from tfcli.start import FREE, MODEL, group_of
from tfcli.train import Run, Settings
from tfcli.values import check_arguments


class Plan(NamedTuple):
    """A configuration whose every part was built once, and found to fit."""

    config: DictConfig  # resolved
    settings: Settings
    objective: Objective
    source: Source
    recipe: Any  # of the tokenizer; None: it comes with what the run starts from
    optimizer: Any  # its recipe
    schedule: Callable[[int], float]
    precision: Precision
    device: torch.device
    folder: Path
    log: RunLog
    start: Origin | None  # what the run goes on from, or takes its weights from


def plan(config: DictConfig, start: Origin | None = None) -> Plan:
    """Builds every part without data. Raises ConfigError for whatever does not fit; writes nothing."""
    settings = build.settings(Settings, config.train, "train")
    settings.checked()
    device = pick_device(config.device)
    model = build.rehearse(config)
    if model.context is not None and settings.seq_len > model.context:
        raise ConfigError(
            f"train.seq_len={settings.seq_len}: must be at most size.context={model.context}, the "
            f"positions that the "
            "model has"
        )
    if settings.batch_tokens is None and settings.batch_size % (settings.micro_batch_size or 1):
        raise ConfigError(
            f"train.micro_batch_size={settings.micro_batch_size} must divide "
            f"train.batch_size={settings.batch_size}"
        )
    objective = build.make(config.objective, "objective")
    if objective.needs == "text":
        objective.row(settings.seq_len)  # which refuses what it cannot make of it
    source = build.make(config.data, "data")
    refuse_misfits(config.choices, settings, objective, model, source)
    precision = build.make(config.precision, "precision").resolve(device, config.size.d_model)
    optimizer = build.make(config.optimizer, "optimizer")
    optimizer.build(model)
    schedule = build.make(config.schedule, "schedule")
    if schedule.absolute and optimizer.lr != 1:
        raise ConfigError(
            f"schedule={config.choices.schedule}: its values are learning rates, not factors of optimizer.lr="
            f"{optimizer.lr:g}; set optimizer.lr=1 (schedule.factor scales them)"
        )
    folder = run_folder(config, start)
    return Plan(
        config=stored(config, precision, optimizer),
        settings=settings,
        objective=objective,
        source=source,
        recipe=None
        if start
        else build.make(config.tokenizer, "tokenizer", offer={"extra": objective.special}),
        optimizer=optimizer,
        schedule=schedule,
        precision=precision,
        device=device,
        folder=folder,
        log=RunLog(**check_arguments(RunLog, {**build.plain(config.log), "folder": folder}, "log")),
        start=start,
    )


def stored(config: DictConfig, precision: Precision, optimizer: Any) -> DictConfig:
    """The configuration as it is kept: resolved, and with the precision that was chosen."""
    kept = OmegaConf.create(build.plain(config))
    kept.precision.name = precision.name
    return kept


def run_folder(config: DictConfig, start: Origin | None) -> Path:
    """Where the run is kept: `out`, or the folder that it goes on in, or a new one by name and time."""
    if config.out is not None:
        folder, key = Path(config.out), f"out={config.out}"
        own = (
            bool(config.resume) and start is not None and start.path.parents[1].resolve() == folder.resolve()
        )
        if checkpoint.steps(folder) and not own:
            raise ConfigError(f"out={folder}: holds a run already; resume={folder} goes on with it")
    elif config.resume and start is not None:
        folder, key = start.path.parents[1], f"resume={config.resume}"
    else:
        named = Path("runs") / config.name / time.strftime("%Y-%m-%d_%H-%M-%S")
        tries = chain([named], (Path(f"{named}-{i}") for i in range(2, 10**6)))
        folder, key = next(p for p in tries if not os.path.exists(p)), f"name={config.name}"
    check_can_be_made(folder, key)
    return folder


def check_can_be_made(folder: Path, key: str) -> None:
    """Raises ConfigError if the folder is none, or cannot be made or written in; makes nothing."""
    place = next(p for p in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(p))
    if not place.is_dir():
        what = "is a file; must be a folder" if place == folder.absolute() else f"{place} is a file"
        raise ConfigError(f"{key}: {what}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: no permission to write in {place}")


def assemble(plan: Plan) -> Run:
    """Reads the data, makes or loads the model, and puts the run together."""
    config, settings = plan.config, plan.settings
    start = plan.start
    tokenizer = start.load_tokenizer() if start else get_tokenizer(plan.recipe, plan.source)
    objective = plan.objective
    objective.bind(tokenizer)
    text = objective.needs == "text"
    corpus: Corpus = prepare(
        plan.source,
        tokenizer,
        seq_len=objective.row(settings.seq_len) if text else settings.seq_len,
        seed=config.seed,
        batch_size=settings.batch_size,
        batch_tokens=settings.batch_tokens,
        kind=objective.needs,
        shifted=objective.shifted,
        written=objective.beyond if text and objective.family == "encoder_decoder" else None,
        labels=build.plain(config.head).get("labels"),
    )
    if corpus.labels is not None:
        config.head.labels = list(corpus.labels)
    torch.manual_seed(config.seed)
    model = build.model(config, tokenizer.vocab_size, fill=start is None or new_head(plan) is not None)
    if start is not None:
        corpus.notices += take_weights(plan, model)
    corpus.notices += leaks(model)
    model.to(plan.device)
    run = Run(
        model=model,
        tokenizer=tokenizer,
        corpus=corpus,
        objective=objective,
        optimizer=plan.optimizer.build(model),
        schedule=plan.schedule,
        precision=plan.precision,
        settings=settings,
        config=config,
        folder=plan.folder,
        log=plan.log,
        device=plan.device,
    )
    check_moments(run)
    if start is not None and config.resume:
        run.go_on_from(checkpoint.load_training(start.path))
    if settings.compile:
        model.compile()
    return run


def check_moments(run: Run) -> None:
    """Raises ConfigError if there is nothing to evaluate on or a sample cannot be written: now, not when it
    is time for it.
    """
    if run.settings.eval_every is not None:
        chosen = choose(len(run.corpus.validation), run.settings.eval_limit)
        if not any(run.objective([run.corpus.validation[i]]).targets for i in chosen):
            raise ConfigError(
                f"{run.corpus.facts['validation'].get('rows', len(chosen))} rows of validation data: the "
                "objective scores no token of them; hold out more, or set train.eval_every=null"
            )
    if run.settings.sample_every is not None:
        try:
            run.written(max_new_tokens=1)
        except ConfigError as error:
            raise ConfigError(f"train.sample_prompt: {error}") from None


def take_weights(plan: Plan, model: nn.Module) -> list[str]:
    """Fills a model from the checkpoint it starts from; what to say of its head where that is a new one."""
    own = None if new_head(plan) is None else "head."
    try:
        left = plan.start.fill(model, new=own)
    except ConfigError as error:
        raise ConfigError(f"{changed(plan)}{error}") from None
    if own is None:
        return [f"left out of {plan.start.path}, having no use here: {shown(left)}"] if left else []
    made = [name for name in checkpoint.unique_tensors(model) if name.startswith(own)]
    return [
        f"head={plan.config.choices.head}: new, so it starts from chance ({shown(made)}); all "
        f"else is that of {plan.start.path}, whose own head is left out ({shown(left)})"
    ]


def changed(plan: Plan) -> str:
    """What the run says otherwise than the model it starts from, which may be why its weights do not fit."""
    old, new = (flat(build.plain(c)) for c in (plan.start.config(), plan.config))
    keys = [key for key in sorted({*old, *new}) if key.split(".")[0] in MODEL and not key.endswith(FREE)]
    keys = [key for key in keys if old.get(key) != new.get(key)]
    groups = {key.split(".")[0] for key in keys}
    groups |= {"preset"} if groups else set()
    typed = [o for o in plan.config.overrides if group_of(o) in groups and o not in plan.start.overrides]
    said = typed or [f"{key}={new.get(key)} (there {old.get(key)})" for key in keys[:3]]
    return f"{', '.join(said)}: does not fit these weights: " if said else ""


def new_head(plan: Plan) -> str | None:
    """The head that a run which takes another's weights makes anew; None: it has the same one."""
    old = dict(plan.start.head)
    new = dict(build.plain(plan.config.head))
    for head in (old, new):
        head.pop("dropout", None)
    return None if plan.config.resume or old == new else str(plan.config.choices.head)


def facts(plan: Plan, run: Run) -> dict[str, list[tuple[str, Any]]]:
    """The table that is shown before the first step."""
    settings, model = plan.settings, run.model
    total = sum(p.numel() for p in model.parameters())
    tables = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Embedding))
    size = ", ".join(f"{n} {plan.config.size[n]}" for n in ("d_model", "n_layers", "n_heads", "context"))
    chosen = [
        (group, f"{choice} ({size})" if group == "size" else choice)
        for group, choice in plan.config.choices.items()
        if choice is not None
    ]
    return {
        "choices": chosen,
        "model": [
            ("parameters", total),
            ("without embeddings", total - tables),
            ("FLOPs per token", flops(model, total - tables, settings.seq_len)),
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
            *per_step(settings, plan.objective),
            ("steps per epoch", run.corpus.train.batches_per_epoch or "unknown (streaming)"),
            ("device", str(plan.device)),
            ("precision", f"{plan.precision.name} ({plan.precision.why})"),
        ],
    }


def per_step(settings: Settings, objective: Objective) -> list[tuple[str, Any]]:
    """How much one step learns from."""
    if settings.batch_tokens is not None:
        return [("tokens per step", f"{settings.batch_tokens:,}, padding included, at most")]
    if objective.needs == "text":
        return [("tokens per step", settings.batch_size * settings.seq_len)]
    return [("examples per step", settings.batch_size)]


def flops(model: nn.Module, n_params: int, seq_len: int) -> int | str:
    """Forward and backward, of a token; a tied table multiplies every token as well."""
    if model.family == "encoder_decoder":
        return "not counted: source and target go different ways"
    attention, table = model.stack.layers[0].attention.branch, model.embedding.table.weight
    return flops_per_token(
        n_params + (table.numel() if model.head.map.weight is table else 0),
        n_layers=len(model.stack.layers),
        n_heads=attention.n_heads,
        head_dim=attention.head_dim,
        seq_len=seq_len,
    )
