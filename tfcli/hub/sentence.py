"""How a folder of sentence-transformers makes one vector of a text: modules.json and what it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError
from tfcli.hub.fields import Settings, short

POOLS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
KINDS = ("Transformer", "Pooling", "Normalize")


def read(folder: Path) -> Settings:
    """Settings of head=vector. Raises ConfigError for a module that is not carried out."""
    file = folder / "modules.json"
    if not file.is_file():
        return {}
    found: Settings = {"head.normalise": False}
    for module in read_list(file):
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind not in KINDS:
            raise ConfigError(f"{file}: type={short(module.get('type'))}: must be {', '.join(KINDS)}")
        if kind == "Normalize":
            found["head.normalise"] = True
        if kind == "Pooling":
            found |= pooling(folder, str(module.get("path", "")), file)
    return found


def read_list(file: Path) -> list[dict[str, Any]]:
    """The modules that a file lists."""
    try:
        modules = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error})") from None
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ConfigError(f"{file}: must hold a list of modules")
    return modules


def pooling(folder: Path, path: str, file: Path) -> Settings:
    """How tokens become one vector."""
    if Path(path).name != path:
        raise ConfigError(f"{file}: path={path!r}: is no folder in this one")
    config = folder / path / "config.json"
    try:
        said = json.loads(config.read_text(encoding="utf-8"))
        chosen = [name for name, value in said.items() if name.startswith("pooling_mode_") and value]
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{config}: cannot be read ({error})") from None
    if len(chosen) != 1 or chosen[0] not in POOLS:
        named = ", ".join(chosen) or "no pooling_mode"
        raise ConfigError(f"{config}: {named}: must be one of {', '.join(POOLS)}")
    return {"head.pool": POOLS[chosen[0]], "head.activation": None}
