"""Checkpoints: complete or not there, readable while training goes on, and unable to call what they like.

run/config.yaml  run/metrics.jsonl  run/checkpoints/step-00000500/
    model.safetensors   the weights, each tensor once
    config.yaml         the resolved configuration
    tokenizer.json      and tokenizer_config.json
    training.pt         what training needs to go on: optimizer, order of data, random numbers, counters
    manifest.json       step, hash of the tokenizer, and the size of every file
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from tfcli import build, choices
from tfcli.errors import ConfigError, shown
from tfcli.objective import Objective
from tfcli.tokenizer import Tokenizer

TRIES = 3  # to load a checkpoint of a run that goes on, and removes old ones
MANIFEST = {"step": int, "tokenizer_hash": str, "files": dict}  # what a manifest has to hold


class Loaded(NamedTuple):
    """What a checkpoint holds, ready for use."""

    model: nn.Module
    tokenizer: Tokenizer
    config: DictConfig
    step: int
    path: Path
    objective: Objective  # what it was trained on, bound to the tokenizer
    generation: Mapping[str, Any] = MappingProxyType({})  # how a model folder says that texts are written

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The classes or tags of its head, in the order of their scores; None: it gives none."""
        labels = self.config.head.get("labels")
        return None if labels is None else tuple(labels)


# --- finding ------------------------------------------------------------------------------------------------


def step_of(folder: Path) -> int | None:
    """500 of step-00000500; None for another name."""
    match = re.fullmatch(r"step-(\d+)", folder.name)
    return int(match[1]) if match else None


def folder_of(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of a step."""
    return run / "checkpoints" / f"step-{step:08d}"


def steps(run: Path) -> list[Path]:
    """A run's checkpoint folders, oldest first, by number."""
    found = [p for p in (run / "checkpoints").glob("step-*") if p.is_dir() and step_of(p) is not None]
    return sorted(found, key=step_of)


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder; None: it is complete."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "manifest.json is missing or unreadable"
    for key, kind in MANIFEST.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(key), kind):
            return f"manifest.json has no {key}"
    for name, size in manifest["files"].items():
        try:
            has = (folder / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if has != size:
            return f"{name} has {has} of {size} bytes"
    return None


def find(where: str | Path, say: Any = None) -> Path:
    """The checkpoint folder that `where` names: itself, or the newest complete one of a run folder.

    `say` is told of damaged ones that were passed over. Raises ConfigError if there is none.
    """
    where = Path(where)
    if (where / "manifest.json").is_file() or step_of(where.resolve()) is not None:
        if not where.is_dir():
            raise ConfigError(f"{where}: no such folder")
        problem = damage(where)
        if problem:
            raise ConfigError(f"{where}: damaged, {problem}")
        return where.resolve()
    if not where.exists():
        raise ConfigError(f"{where}: no such folder; name a run folder or a checkpoint folder")
    for folder in reversed(steps(where)):
        problem = damage(folder)
        if problem is None:
            return folder
        if say:
            say(f"{folder}: damaged, {problem}; going back to the checkpoint before it")
    raise ConfigError(
        f"{where}: no checkpoint; a run folder has checkpoints/step-..., each with a manifest.json, and a "
        "model folder of Hugging Face has a config.json"
    )


# --- reading ------------------------------------------------------------------------------------------------


def load(
    where: str | Path, device: str | torch.device = "cpu", folders: Sequence[Path] = (), say: Any = None
) -> Loaded:
    """Model (in evaluation mode), tokenizer and configuration of a checkpoint or of a run's newest one.

    `folders` are the user's own config folders, whose constructors are trusted as well. Raises ConfigError
    for a
    damaged folder, weights that are not the model's, a tokenizer that is not the one trained with, and a
    configuration that names a constructor of which no installed configuration knows.
    """
    for _ in range(TRIES - 1):
        path = find(where, say)
        try:
            return _load(path, device, folders)
        except (OSError, ConfigError):
            if path.exists():
                raise  # else the run, which is still training, removed it meanwhile
    return _load(find(where, say), device, folders)


def _load(path: Path, device: str | torch.device, folders: Sequence[Path]) -> Loaded:
    config = read_config(path / "config.yaml", folders)
    tokenizer = load_tokenizer(path)
    model = build.model(config, tokenizer.vocab_size, fill=False)
    load_weights(model, path / "model.safetensors")
    objective = build.make(config.objective, "objective")
    objective.bind(tokenizer)
    return Loaded(model.to(device).eval(), tokenizer, config, read_manifest(path)["step"], path, objective)


class Stored:
    """A checkpoint folder that `find` found, as something that a run starts from."""

    brings: tuple[str, ...] = ()
    whole = False
    ends: Mapping[str, bool] = MappingProxyType({})

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def overrides(self) -> list[str]:
        """What was said of the run."""
        return list(read_stored(self.path / "config.yaml").overrides)

    @property
    def head(self) -> dict[str, Any]:
        """The stored settings of the head."""
        return build.plain(read_stored(self.path / "config.yaml").head)

    def config(self, folders: Sequence[Path] = ()) -> DictConfig:
        """The stored configuration; see `read_config`."""
        return read_config(self.path / "config.yaml", folders)

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer that it was trained with."""
        return load_tokenizer(self.path)

    def fill(self, model: nn.Module, new: str | None = None) -> list[str]:
        """Fills a model; see `load_weights`."""
        return load_weights(model, self.path / "model.safetensors", new)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a checkpoint folder. Raises ConfigError if it is not the one trained with."""
    tokenizer = Tokenizer.load(path)
    if tokenizer.hash != read_manifest(path)["tokenizer_hash"]:
        raise ConfigError(f"{path / 'tokenizer.json'}: not the tokenizer that this model was trained with")
    return tokenizer


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint folder that `find` found."""
    return json.loads((path / "manifest.json").read_text(encoding="utf-8"))


def read_config(path: Path, folders: Sequence[Path] = ()) -> DictConfig:
    """A stored configuration, all of whose constructors some installed YAML names; else ConfigError, nothing
    called.
    """
    config = read_stored(path)
    trusted = choices.targets(*folders)
    for target in constructors(build.plain(config)):
        if target not in trusted:
            raise ConfigError(
                f"{path}: names {target}, which no configuration of this installation does; it is not "
                f"called. "
                "If it is your own, name its folder with --config-dir"
            )
    return config


def read_stored(path: Path) -> DictConfig:
    """A stored configuration of which nothing is called yet."""
    try:
        config = OmegaConf.load(path)
    except Exception as error:
        raise ConfigError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None
    if not isinstance(config, DictConfig):
        raise ConfigError(f"{path}: is no configuration")
    return config


def constructors(node: Any) -> Iterable[str]:
    """Every `_target_` below a node."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield str(node["_target_"])
        for value in node.values():
            yield from constructors(value)
    elif isinstance(node, list):
        for value in node:
            yield from constructors(value)


def load_weights(model: nn.Module, path: Path, new: str | None = None) -> list[str]:
    """Fills a model from a safetensors file, strictly: ConfigError if a name or a shape is not the
    model's.

    new: the beginning of the names that are the model's own: they stay as they are, and what the file has
    under such names is left out; returns the names that were.
    """
    from safetensors import SafetensorError, safe_open

    own = unique_tensors(model)
    try:
        file = safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    with file, torch.no_grad():
        saved = set(file.keys())
        left = sorted(name for name in saved if new is not None and name.startswith(new))
        own = {name: t for name, t in own.items() if new is None or not name.startswith(new)}
        saved -= set(left)
        missing, unexpected = sorted(set(own) - saved), sorted(saved - set(own))
        if missing or unexpected:
            raise ConfigError(
                f"{path}: not the weights of this model; missing {shown(missing)}; "
                f"unexpected {shown(unexpected)}"
            )
        for name, tensor in own.items():
            if list(tensor.shape) != file.get_slice(name).get_shape():
                has = tuple(file.get_slice(name).get_shape())
                raise ConfigError(f"{path}: {name} is {has}, the model's is {tuple(tensor.shape)}")
            tensor.copy_(file.get_tensor(name))
    return left


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, tied ones once, under the first of their names."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor
    return found


def load_training(path: Path) -> dict[str, Any]:
    """The training state of a checkpoint; tensors and plain values only. Raises ConfigError if unreadable."""
    try:
        return torch.load(path / "training.pt", weights_only=True, map_location="cpu")
    except Exception as error:
        raise ConfigError(f"{path / 'training.pt'}: cannot be read ({str(error).splitlines()[0]})") from None


# --- writing ------------------------------------------------------------------------------------------------


def save(
    run: Path, step: int, model: nn.Module, tokenizer: Tokenizer, config: DictConfig, training: dict[str, Any]
) -> Path:
    """Writes run/checkpoints/step-... : made under another name, forced to disk, then renamed into place.

    Whatever happens meanwhile, older checkpoints stay. Raises OSError (a full disk, say) after cleaning up.
    """
    from safetensors.torch import save_file

    parent = run / "checkpoints"
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        os.chmod(making, 0o777 & ~_umask())
        weights = {name: t.detach().contiguous() for name, t in unique_tensors(model).items()}
        with refused_by_the_disk():
            save_file(weights, making / "model.safetensors", metadata={"format": "pt"})
        os.chmod(making / "model.safetensors", 0o666 & ~_umask())
        OmegaConf.save(config, making / "config.yaml")
        with refused_by_the_disk():
            tokenizer.save(making)
            torch.save(training, making / "training.pt")
        sizes = {p.name: p.stat().st_size for p in sorted(making.iterdir())}
        manifest = {"step": step, "tokenizer_hash": tokenizer.hash, "files": sizes}
        (making / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for path in making.iterdir():
            _force_to_disk(path)
        final = folder_of(run, step)
        if final.exists():
            remove(final)
        os.rename(making, final)
        _force_to_disk(parent)
        return final
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


@contextmanager
def refused_by_the_disk() -> Iterator[None]:
    """What the libraries raise when they cannot write becomes the OSError that it is."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        said = (str(error) or repr(error)).splitlines()[0]
        raise OSError(f"is the disk full? {said}") from error


def save_config(run: Path, config: DictConfig) -> None:
    """The configuration of a run, in its folder, which is made."""
    run.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, run / "config.yaml")


def keep(run: Path, last: int, best: int | None, saved: int) -> None:
    """Removes all but the newest `last` checkpoints and those of the steps `best` and `saved`.

    Damaged ones are left to their owner, and are none of the `last`.
    """
    whole = [folder for folder in steps(run) if damage(folder) is None]
    for folder in whole[:-last]:
        if step_of(folder) not in (best, saved):
            remove(folder)


def remove(folder: Path) -> None:
    """Removes a checkpoint so that nobody finds half of one: it loses its name first."""
    grave = Path(tempfile.mkdtemp(prefix=".removing-", dir=folder.parent))
    os.rename(folder, grave / folder.name)
    shutil.rmtree(grave, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Clears away what a killed process was making or removing."""
    for leftover in [*parent.glob(".making-*"), *parent.glob(".removing-*")]:
        shutil.rmtree(leftover, ignore_errors=True)


def _force_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if path.is_file():  # a folder cannot be synced everywhere
            raise
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
