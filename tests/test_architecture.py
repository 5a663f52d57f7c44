"""The house stands as CONTRIBUTING says: imports go down, few know Hydra, groups mirror modules (law 12)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tfcli
from tfcli import choices

ROOT = Path(tfcli.__file__).parent
FLOORS = [  # a module imports only from lower floors; x.* are the modules within x
    ["errors", "batch"],
    ["values", "choices", "device", "said", "bounds"],
    ["model.linear", "precision", "bootstrap", "compose", "templates"],
    ["model.visibility", "model.cache", "model.position", "model.ffn", "schedule", "sampler", "tokenizer",
     "tokenizer.*", "metrics", "loss", "optimizer", "optimizer.*", "console", "runlog", "detokenize",
     "windows", "scores"],
    ["model", "model.norm", "model.placement", "model.init", "model.position.*", "model.ffn.*",
     "model.attention", "data", "data.*", "reader", "constraints", "chat", "model.transform"],
    ["model.attend", "model.single", "model.embedding", "model.parts", "model.head", "objective",
     "opening"],
    ["model.attention.*", "objective.*", "decode"],
    ["model.stack", "examine", "search"],
    ["model.state", "predict", "writing"],
    ["model.family"],
    ["model.family.*", "generate"],
    ["build"],
    ["checkpoint", "evaluate", "fit", "hub", "hub.asked", "hub.fields", "hub.names", "hub.weights",
     "hub.filling", "hub.layers",
     "hub.rope", "hub.sentence", "hub.folder", "hub.download", "hub.generation", "hub.architectures",
     "hub.architectures.*", "hub.gguf", "hub.gguf_words"],
    ["origin"],
    ["start", "judge", "judge.*", "hub.*"],
    ["train"],
    ["assemble"],
    ["cli", "cli.*"],
]  # fmt: skip
SAME_FLOOR = {
    "data",
    "tokenizer",
    "optimizer",
    "objective",
    "judge",
    "cli",
    "hub",
}  # packages whose modules use each other
KNOW_HYDRA = {"build", "compose", "checkpoint", "origin", "hub.folder", "start", "assemble", "cli.door",
              "cli.train", "cli.generate", "cli.eval", "cli.tasks"}  # fmt: skip


def modules() -> dict[str, Path]:
    """Every module of tfcli by its name below tfcli."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("__init__",) and parts[0] != "configs":
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name.removeprefix("tfcli.") in modules() else node.module for name in inner}
    return names


def floor(name: str) -> int:
    """The floor on which a module stands."""
    for i, names in enumerate(FLOORS):
        if name in names or name.rpartition(".")[0] + ".*" in names:
            return i
    raise AssertionError(f"{name} stands on no floor: add it to FLOORS, as low as it can be")


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_go_down(name: str) -> None:
    for imported in imports(modules()[name]):
        if not imported.startswith("tfcli."):
            continue
        other = imported.removeprefix("tfcli.")
        together = any(
            {name, other} <= {m for m in modules() if m == top or m.startswith(f"{top}.")} or other == top
            for top in SAME_FLOOR
        )
        assert floor(other) < floor(name) or (together and floor(other) == floor(name)), (
            f"{name} imports {other}"
        )


@pytest.mark.parametrize("name", sorted(modules()))
def test_only_the_door_knows_hydra(name: str) -> None:
    known = {imported.split(".")[0] for imported in imports(modules()[name])}
    assert not known & {"hydra", "omegaconf"} or name in KNOW_HYDRA


@pytest.mark.parametrize("group", [g for g in choices.groups() if g not in ("size", "preset")])
def test_a_group_has_the_name_of_the_module_that_its_choices_name(group: str) -> None:
    for path in (choices.config_dir() / group).glob("*.yaml"):
        for target in choices.targets_in(path.read_text(encoding="utf-8")):
            module = target.rpartition(".")[0]
            here = group in module.split(".") or (group in ("rule", "attention") and "visibility" in module)
            assert here, f"{group}/{path.name} names {target}"


@pytest.mark.parametrize("group", choices.groups())
def test_every_choice_says_in_its_first_line_what_it_is(group: str) -> None:
    for choice in choices.choices(group):
        line = choices.headline(group, choice)
        assert len(line) > 15, f"{group}/{choice}.yaml wants a first line that says what it is, and the paper"


def test_no_private_state_is_set_on_modules_from_outside() -> None:
    for name, path in modules().items():
        if name.startswith("model."):
            text = path.read_text(encoding="utf-8")
            assert ("hasattr(" not in text and "isinstance(" not in text) or name in ("model.init",), name
