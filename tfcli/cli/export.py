"""tf-export WHERE FOLDER [--shard-size 5GB] [--dtype float32|bfloat16|float16]
tf-export WHERE FILE.gguf [--dtype float32|float16]

Writes a model as a folder that `transformers` loads by from_pretrained: config.json, safetensors, the
tokenizer, generation_config.json and a model card; or, of the Llama family, as one GGUF file. WHERE is a
run, a checkpoint or a model folder. Where transformers is installed, what was written is loaded by it, and
its scores must be ours, else nothing is left.

  tf-export runs/run/... my-model
  tf-export runs/run/... my-model --dtype bfloat16 --shard-size 2GB
  tf-export runs/run/... my-model.gguf --dtype float16

  --shard-size SIZE    a file of weights is at most this large: bytes, or with KB, MB, GB, KiB, MiB, GiB
  --dtype NAME         what weights are written as; they are float32 where nothing is said
  --config-dir DIR     a folder with further choices, for a run that has some of them
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tfcli.cli.arguments import parse
from tfcli.cli.door import existing, run
from tfcli.errors import ConfigError, suggest

OPTIONS = {"--shard-size": str, "--dtype": str, "--config-dir": list, "--help": bool, "-h": bool}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
DTYPES = ("float32", "bfloat16", "float16")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command's entry."""
    run("tf-export", export, arguments)


def export(arguments: list[str]) -> None:
    """Loads, writes, checks, and says what was done."""
    words, options = parse(arguments, OPTIONS)
    if options["--help"] or options["-h"]:
        return print(__doc__.strip())
    if len(words) != 2:
        wrong = "WHERE and FOLDER are missing" if len(words) < 2 else f"{words[2]}: one model and one folder"
        raise ConfigError(f"{wrong}: tf-export WHERE FOLDER; see tf-export --help")
    where, target = words[0], Path(words[1])
    as_gguf = target.suffix == ".gguf"
    dtype, shard = dtype_of(options["--dtype"], as_gguf), options["--shard-size"]
    if as_gguf and shard is not None:
        raise ConfigError(f"--shard-size {shard}: a GGUF file is one file; leave it out")
    size, folders = bytes_of(shard or "5GB"), existing(options["--config-dir"])
    command = shlex.join(["tf-export", *arguments])
    with ending_in_order():
        if as_gguf:
            from tfcli.hub.gguf_out import export as write

            written = write(where, target, dtype, folders, say)
        else:
            from tfcli.hub.export import export as write

            written = write(where, target, size, dtype, folders, say, command)
    print(report(target, *written))


def report(target: Path, kind: str, parameters: int, checked: tuple[float | None, str]) -> str:
    """What was written, and what was found when it was checked."""
    text, (largest, left_out) = f"{target}: {kind}, {parameters:,} parameters", checked
    if largest is None:
        return f"{text}; not checked ({left_out})"
    found = f"{text}; loaded by transformers, the largest difference of scores is {largest:.1e}"
    return f"{found}; {left_out}" if left_out else f"{found}, the tokenizer gives the same ids"


def say(text: str) -> None:
    """Progress, for people."""
    print(f"tf-export: {text}", file=sys.stderr)


def dtype_of(name: str | None, as_gguf: bool) -> str:
    """A kind of number. Raises ConfigError for one that is not written."""
    name, known = name or "float32", DTYPES[::2] if as_gguf else DTYPES
    if name not in known:
        raise ConfigError(f"--dtype {name}: must be one of {', '.join(known)}{suggest(name, known)}")
    return name


def bytes_of(size: str) -> int:
    """5000000000 of 5GB. Raises ConfigError for what is no size."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]?I?B|)", size.strip().upper())
    found = int(float(match[1]) * UNITS[match[2]]) if match and match[2] in UNITS else 0
    if found < 1:
        raise ConfigError(f"--shard-size {size}: must be a size above 0, as in 5GB, 500MB or 2GiB")
    return found


@contextmanager
def ending_in_order() -> Iterator[None]:
    """A process that is told to end clears away what it has begun."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
