"""How a folder of sentence-transformers makes one vector of a text: modules.json and what it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError
from tfcli.hub.fields import Settings, short
from tfcli.hub.weights import read_json, read_object

POOLS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
KINDS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])


def read(folder: Path) -> Settings:
    """Settings of head=vector; none where there is no modules.json. Raises ConfigError for what is not
    carried out.
    """
    file = folder / "modules.json"
    if not file.is_file():
        return {}
    modules = read_list(file)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if kinds not in KINDS:
        right = " or ".join(", ".join(some) for some in KINDS)
        raise ConfigError(f"{file}: type={short(', '.join(kinds))}: must be {right}, in this order")
    body, pool = (str(module.get("path", "")) for module in modules[:2])
    if body not in ("", "."):
        raise ConfigError(
            f"{file}: path={short(body)}: the model must lie beside this file, its path be empty"
        )
    refuse_changed_texts(folder)
    return {**pooling(folder, pool, file), "head.normalise": "Normalize" in kinds}


def read_list(file: Path) -> list[dict[str, Any]]:
    """The modules that a file lists."""
    modules = read_json(file)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ConfigError(f"{file}: must hold a list of modules")
    return modules


def pooling(folder: Path, path: str, file: Path) -> Settings:
    """How tokens become one vector."""
    if not path or Path(path).name != path:
        raise ConfigError(f"{file}: path={short(path)}: is no folder in this one")
    config = folder / path / "config.json"
    said = read_object(config)
    chosen = [name for name, value in said.items() if name.startswith("pooling_mode_") and value]
    if len(chosen) != 1 or chosen[0] not in POOLS:
        named = ", ".join(chosen) or "no pooling_mode"
        raise ConfigError(f"{config}: {named}: must be one of {', '.join(POOLS)}")
    return {"head.pool": POOLS[chosen[0]], "head.activation": None}


def refuse_changed_texts(folder: Path) -> None:
    """Raises ConfigError where texts would be changed before the tokenizer has them."""
    beside = {
        name: folder / name for name in ("sentence_bert_config.json", "config_sentence_transformers.json")
    }
    said = {name: read_object(file) if file.is_file() else {} for name, file in beside.items()}
    tokenizer = folder / "tokenizer_config.json"
    lowered = said["sentence_bert_config.json"].get("do_lower_case")
    if lowered and not (tokenizer.is_file() and read_object(tokenizer).get("do_lower_case")):
        file = beside["sentence_bert_config.json"]
        raise ConfigError(
            f"{file}: do_lower_case=true: is the tokenizer's to do, and tokenizer_config.json has it not"
        )
    prompt = said["config_sentence_transformers.json"].get("default_prompt_name")
    if prompt:
        file = beside["config_sentence_transformers.json"]
        raise ConfigError(f"{file}: default_prompt_name={short(prompt)}: no prompt is put before texts here")
