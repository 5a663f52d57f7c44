"""tf-eval WHERE [--text-file FILE] [--json] [data=CHOICE data.path=... ] [key=value ...]

Scores a model on its run's own validation data, on other data, or on a text. WHERE is a run folder, a
checkpoint folder, or a model of Hugging Face (a folder, a GGUF file, a name on the Hub), which has no data of
its own. Other data have BOS and EOS as the run's own, unless given. The scores of what was learned:

  next tokens          loss, perplexity, bits per byte
  masked tokens        loss and accuracy of the same tokens every time; pseudo-perplexity
  pairs                loss, perplexity, bits per byte of targets; with decode=true BLEU, chrF, exact match
  classes              loss, accuracy, macro F1 (the mean over the classes that occur), and each class's
  tags                 loss; precision, recall, F1 of entities as seqeval has them, and each type's
  answers              loss, exact match and F1 as SQuAD has them

  --text-file FILE     score this text, as one document; '-' reads standard input
  --json               one object of all numbers; NAME_ci is [low, high], between which NAME is at 95 %
  --config-dir DIR     a folder with further choices
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfcli import choices
from tfcli.cli.arguments import parse
from tfcli.cli.door import compose, existing, group_help, run
from tfcli.cli.report import as_json, as_table
from tfcli.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from tfcli.checkpoint import Loaded
    from tfcli.data import Source

OPTIONS = {"--text-file": str, "--json": bool, "--config-dir": list, "--help": bool, "-h": bool}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command's entry."""
    run("tf-eval", evaluate, arguments)


def evaluate(arguments: list[str]) -> None:
    """Compose, load, score, show."""
    words, options = parse(arguments, OPTIONS)
    if options["--help"] or options["-h"]:
        return print(help_text())
    if not words:
        raise ConfigError("WHERE is missing: tf-eval WHERE [key=value ...]; see tf-eval --help")
    folders = existing(options["--config-dir"])
    alone = [word for word in words if word.startswith("data.")]
    if alone and not any(word.startswith("data=") for word in words):
        raise ConfigError(f"{alone[0]}: say which data as well, as in data=text {alone[0]}")
    config = compose("eval", words[1:], folders)
    text = None if options["--text-file"] is None else read_text(options["--text-file"], config)
    said = {word.split("=")[0].lstrip("+") for word in words[1:]}
    ends = [key for key in ("bos", "eos") if f"data.{key}" not in said]
    results = score(words[0], config, text, folders, ends)
    print(as_json(results) if options["--json"] else as_table(results))


def read_text(file: str, config: DictConfig) -> str:
    """The whole text of a file, or of standard input, with its lines ended as in training data."""
    from tfcli.data.formats import normal, opened

    if "data" in config:
        raise ConfigError(f"--text-file {file} and data={config.choices.data}: give one of them")
    if file == "-":
        data = sys.stdin.buffer.read()
    else:
        with opened(Path(file)) as opened_file:
            data = opened_file.read()
    try:
        text = normal(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"--text-file {file}: line {line} is not UTF-8 text") from None
    if not text.strip():
        raise ConfigError(f"--text-file {file}: there is no text in it, so 0 tokens to score")
    return text


def score(
    run_folder: str, config: DictConfig, text: str | None, folders: Sequence[Path], ends: Sequence[str] = ()
) -> dict[str, Any]:
    """The numbers to show; the names are those of the JSON object.

    ends: which of bos and eos other data have as the run's own.
    """
    from omegaconf import OmegaConf

    from tfcli import build, origin  # and torch, which takes its time
    from tfcli.device import pick_device
    from tfcli.evaluate import Settings
    from tfcli.judge import Bench, which

    given = {key: config[key] for key in Settings._fields}
    own_data = text is None and "data" not in config
    given["part"] = given["part"] or ("validation" if own_data else "all")
    how = build.settings(Settings, given, "")
    device = pick_device(config.device)
    loaded = origin.load(run_folder, device, folders, say=lambda text: print(text, file=sys.stderr))
    if own_data and not loaded.step:
        none = "is no run, so it has no data of its own"
        raise ConfigError(f"{run_folder}: {none}; give --text-file FILE, or data=CHOICE data.path=...")
    precision = build.make(config.precision, "precision").resolve(device, loaded.config.size.d_model)
    own, where = loaded.config.data, {"device": device, "precision": precision}
    bench = Bench(
        loaded.model,
        loaded.tokenizer,
        loaded.objective,
        loaded.labels,
        how,
        where,
        trained_on=loaded.config.train.seq_len,
    )
    if text is not None:
        return which.judge_one(bench, text, own.bos, own.eos)
    chosen = own if own_data else OmegaConf.merge(config.data, {key: own[key] for key in ends})
    source = build.make(chosen, "data")
    check_gives(loaded, source, (loaded.config if own_data else config).choices.data)
    try:
        return which.judge(bench, source, lambda: build.make(own, "data"))
    finally:  # what was left out may be why there is nothing to score
        for notice in source.notices():
            print(notice, file=sys.stderr)


def check_gives(loaded: Loaded, source: Source, data: str) -> None:
    """Raises ConfigError where the data are not of the kind that the model learned from."""
    from tfcli.fit import GIVES, offering

    needs, name = loaded.objective.needs, f"objective={loaded.config.choices.objective}"
    if needs not in source.gives:
        given = " or ".join(GIVES[kind] for kind in sorted(source.gives))
        raise ConfigError(
            f"data={data}: gives {given}, and this model ({name}) is scored on {GIVES[needs]}; choose "
            f"{offering('data', 'gives', needs)}"
        )


def help_text() -> str:
    """How to call it, the keys with their defaults, and the data it can be called on."""
    text = (choices.config_dir() / "eval.yaml").read_text(encoding="utf-8")
    keys = re.findall(r"^(\w+): (.+?) +# (.+)$", text, re.MULTILINE)
    lines = [f"  {key + '=' + value:<24}{meaning}" for key, value, meaning in keys]
    return "\n".join([__doc__, *lines, group_help(["data", "precision"])])
