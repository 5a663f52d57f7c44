"""tf-eval WHERE [--text-file FILE] [--json] [data=CHOICE data.path=... ] [key=value ...]

Loss, perplexity and bits per byte of a model on its run's own validation data, on other data, or on a text.
WHERE is a run folder or a checkpoint folder. Other data have BOS and EOS as the run's own, unless given.

  --text-file FILE     score this text, as one document; '-' reads standard input
  --json               one object: part, loss, perplexity, bits_per_byte, tokens, bytes, documents, window,
                       stride
  --config-dir DIR     a folder with further choices
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from tfcli import choices
from tfcli.cli.arguments import parse
from tfcli.cli.door import compose, existing, group_help, run
from tfcli.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

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

    from tfcli import build, checkpoint  # and torch, which takes its time
    from tfcli.data import Document
    from tfcli.data.tokens import Encoder
    from tfcli.device import pick_device
    from tfcli.evaluate import Settings, documents_of, score_texts

    given = {key: config[key] for key in Settings._fields}
    own_data = text is None and "data" not in config
    given["part"] = given["part"] or ("validation" if own_data else "all")
    how = build.settings(Settings, given, "")
    device = pick_device(config.device)
    loaded = checkpoint.load(run_folder, device, folders)
    precision = build.make(config.precision, "precision").resolve(device, loaded.config.size.d_model)
    own, endless = loaded.config.data, False
    if text is None:
        chosen = own if own_data else OmegaConf.merge(config.data, {key: own[key] for key in ends})
        source = build.make(chosen, "data")
        documents, endless = documents_of(source, how.part), source.streaming
        encoder = Encoder(loaded.tokenizer, source.bos, source.eos, source.score_prompt)
    else:  # ends that the model knows from its own data
        documents, encoder = [Document(text)], Encoder(loaded.tokenizer, own.bos, own.eos)
        how = how._replace(part="all")
    how = how.completed(loaded.config.train.seq_len)
    where = {"device": device, "precision": precision}
    result = score_texts(loaded.model, documents, encoder, how, endless=endless, **where)
    numbers = ("loss", "perplexity", "bits_per_byte", "tokens", "bytes", "documents")
    shown = {"part": how.part} | {name: getattr(result, name) for name in numbers}
    return shown | {"window": how.window, "stride": how.stride}


def as_json(results: dict[str, Any]) -> str:
    from tfcli.runlog import to_json

    return to_json(results)


def as_table(results: dict[str, Any]) -> str:
    from tfcli.console import table

    shown = results | {
        "loss": f"{results['loss']:.4f} nats per token",
        "perplexity": f"{results['perplexity']:.2f}",
    }
    if results["bits_per_byte"] is not None:
        shown["bits_per_byte"] = f"{results['bits_per_byte']:.4f}"
    return dedent(table({"": [(name.replace("_", " "), value) for name, value in shown.items()]})).strip()


def help_text() -> str:
    """How to call it, the keys with their defaults, and the data it can be called on."""
    text = (choices.config_dir() / "eval.yaml").read_text(encoding="utf-8")
    keys = re.findall(r"^(\w+): (.+?) +# (.+)$", text, re.MULTILINE)
    lines = [f"  {key + '=' + value:<21}{meaning}" for key, value, meaning in keys]
    return "\n".join([__doc__, *lines, group_help(["data", "precision"])])
