"""What --help says about the groups, from the files themselves; nothing heavy is imported."""

from collections.abc import Sequence
from pathlib import Path

from tfcli import choices
from tfcli.cli.door import group_help

TRAIN = """\
tf-train: train a Transformer that is put together from parts.

  tf-train                                        a small model on Python's own source text, about a minute
  tf-train preset=llama3 attention=mqa            a named model, one part exchanged
  tf-train data=text data.path=book.txt tokenizer=char size.d_model=256 optimizer.lr=3e-4
  tf-train resume=runs/run/...                    go on where a run stopped, bit for bit

usage: tf-train [group=choice ...] [key=value ...] [flags]

Text with spaces, commas or = in it wants quotes of its own: "data.path='my file.txt'".

flags:
  -h, --help          this text
  --cfg job           print the configuration instead of training; with --resolve, values filled in
  -m, --multirun      one run for each combination: tf-train -m optimizer.lr=1e-3,3e-4 seed=1,2
  --config-dir DIR    a folder of your own groups and choices
  --hydra-help        Hydra's further flags

groups and their choices (tf-train group=choice):
"""


def keys_help(name: str) -> str:
    """The keys of a top-level configuration, with their defaults and comments, as its file has them."""
    text = (choices.config_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    start = next(
        i
        for i, line in enumerate(lines)
        if line and not line[0].isspace() and line[0] not in "#-" and not line.startswith("defaults")
    )
    return "\n".join(f"  {line}".rstrip() for line in lines[start:]).rstrip()


def defaults_help(name: str) -> str:
    """Which choice each group starts with."""
    text = (choices.config_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    pairs = (
        line.strip()[2:].partition("  #")[0]
        for line in text.splitlines()
        if line.startswith("  - ") and ": " in line
    )
    return "  " + ", ".join(pair.replace(": ", "=") for pair in pairs)


def train_help(folders: Sequence[Path] = ()) -> str:
    """All of tf-train --help; `folders` hold further choices."""
    groups = [g for g in choices.groups(*folders) if g != "sampler"]
    return (
        f"{TRAIN}\n{group_help(groups, folders)}\n\nunless you choose:\n{defaults_help('train')}\n\n"
        f"keys (tf-train key=value):\n{keys_help('train')}"
    )
