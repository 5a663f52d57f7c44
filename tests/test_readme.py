"""README.md is held to its word: its example trains, its table is that of configs/, its commands compose."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from textwrap import dedent

import pytest
from conftest import TINY_RUN
from laws import laws

from tfcli import build, checkpoint, choices
from tfcli.cli import door, eval, export, generate
from tfcli.cli.arguments import parse
from tfcli.cli.train import command
from tfcli.errors import ConfigError
from tfcli.evaluate import Settings

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ARXIV = re.compile(r"\d{4}\.\d{5}")


def shell_lines() -> Iterator[str]:
    """Every line of the README that is typed at a shell, those between backquotes included."""
    for _, language, text in BLOCK.findall(README):
        lines = dedent(text).splitlines()
        if language == "sh":
            yield from lines
        elif language == "console":
            yield from (line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    prose = BLOCK.sub("", README)
    yield from re.findall(r"^    (tf-.*)$", prose, re.MULTILINE)
    yield from re.findall(r"`(tf-[^`]*)`", prose)


def commands() -> list[tuple[str, ...]]:
    """The calls of our commands in these lines, as (name, argument, ...)."""
    found = {}
    for line in shell_lines():
        words = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
        words.whitespace_split = True
        call: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("|<>;&"):
                if call and call[0].startswith("tf-"):
                    found[tuple(call)] = None
                call = []
            else:
                call.append(word)
    return list(found)


def jobs(overrides: list[str]) -> Iterator[tuple[str, ...]]:
    """The overrides of each run of a sweep."""
    pairs = (override.partition("=") for override in overrides)
    yield from product(*([f"{key}={value}" for value in values.split(",")] for key, _, values in pairs))


def compose_train(arguments: list[str]) -> None:
    overrides, folders, flags = door.split_flags(arguments)
    overrides = [override for override in overrides if override != "job"]  # what follows --cfg
    for job in jobs(overrides) if "-m" in flags else [overrides]:
        build.rehearse(door.compose("train", job, folders))


def compose_generate(arguments: list[str]) -> None:
    words, options = parse(arguments, generate.OPTIONS)
    if words:
        config = door.compose("generate", words[1:], door.existing(options["--config-dir"]))
        generate.settings(config, options)


def compose_eval(arguments: list[str]) -> None:
    words, options = parse(arguments, eval.OPTIONS)
    if words:
        config = door.compose("eval", words[1:], door.existing(options["--config-dir"]))
        build.settings(Settings, {key: config[key] for key in Settings._fields}, "")


def compose_export(arguments: list[str]) -> None:
    words, options = parse(arguments, export.OPTIONS)
    assert not words or len(words) == 2
    export.bytes_of(options["--shard-size"] or "5GB")
    export.dtype_of(options["--dtype"], as_gguf=bool(words) and words[1].endswith(".gguf"))


COMPOSE = {"tf-train": compose_train, "tf-generate": compose_generate, "tf-eval": compose_eval,
           "tf-export": compose_export}  # fmt: skip


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files of the README's example, in a folder that we are in and that Python looks for modules in."""
    files = dict(FILE.findall(README))
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return files


@pytest.mark.parametrize("call", commands(), ids=" ".join)
def test_every_command_line_composes(call: tuple[str, ...], example: dict[str, str]) -> None:
    name, *arguments = call
    COMPOSE[name](arguments)


def test_all_commands_are_shown_often() -> None:
    names = [call[0] for call in commands()]
    assert all(names.count(name) >= 3 for name in COMPOSE)


def test_the_example_of_a_new_part_trains_and_is_loaded(example: dict[str, str], corpus: Path) -> None:
    assert sorted(Path(name).suffix for name in example) == [".py", ".yaml"]
    own = ["--config-dir", "my_configs", "ffn=squared_relu"]
    command([*TINY_RUN, f"data.path={corpus}", "train.steps=2", "out=run", *own])
    loaded = checkpoint.load("run", folders=[Path("my_configs")])
    assert loaded.step == 2
    assert type(loaded.model.stack.layers[0].ffn.branch).__name__ == "SquaredReLU"
    laws.cached_equals_one_pass(loaded.model)
    laws.future_is_invisible(loaded.model)
    with pytest.raises(ConfigError, match="names my_ffn.SquaredReLU"):
        checkpoint.load("run")


def axes() -> list[tuple[str, list[str]]]:
    """The rows of the table of axes: (axis, choices); a row without an axis belongs to the one above."""
    section = README.partition("## The axes")[2].partition("\n## ")[0]
    rows, axis = [], ""
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith("| axis"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            axis = cells[0] or axis
            rows.append((axis, re.findall(r"`(\w+)`", cells[1])))
    return rows


def test_the_table_of_axes_is_that_of_configs() -> None:
    table: dict[str, list[str]] = {}
    for axis, names in axes():
        table.setdefault(axis, []).extend(names)
    offered = {group: choices.choices(group) for group in choices.groups()}
    assert {axis: sorted(names) for axis, names in table.items()} == offered


def test_every_paper_of_the_table_is_named_in_configs() -> None:
    files = choices.config_dir().rglob("*.yaml")
    known = {number for path in files for number in ARXIV.findall(path.read_text(encoding="utf-8"))}
    section = README.partition("## The axes")[2].partition("\n## ")[0]
    assert set(ARXIV.findall(section)) <= known
