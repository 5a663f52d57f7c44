"""What a command is called on, or a run starts from: a run, a checkpoint, or a model of Hugging Face's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from omegaconf import DictConfig
from torch import nn

from tfcli import build, checkpoint
from tfcli.checkpoint import Loaded
from tfcli.errors import ConfigError, shown
from tfcli.tokenizer import Tokenizer

Say = Callable[[str], None]
NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")  # of a model on the Hub


class Origin(Protocol):
    """A model at rest."""

    path: Path
    overrides: list[str]  # the choices that made the model, as they are typed
    whole: bool  # whether those tell all of it, each part's every setting; else what a user once said
    brings: tuple[str, ...]  # groups beside those of the model whose choices a new run takes over
    ends: Mapping[
        str, bool
    ]  # whether a new run's texts have bos and eos; where nothing is said, as its data say
    head: Mapping[str, Any]  # the settings of its head

    def config(self, folders: Sequence[Path] = ()) -> DictConfig:
        """Its configuration."""

    def load_tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    def fill(self, model: nn.Module, new: str | None = None) -> list[str]:
        """Fills a model with its weights, strictly; new: the beginning of names that stay as they are.
        Returns the names of weights that are left out.
        """


def find(where: str | Path, say: Say | None = None) -> Origin:
    """What `where` names. Raises ConfigError if there is nothing that can be used."""
    return elsewhere(where) or checkpoint.Stored(checkpoint.find(where, say))


def elsewhere(where: str | Path) -> Origin | None:
    """A model that no run of ours made; None: it is for `checkpoint` to find."""
    path = Path(where)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConfigError(f"{where}: no such file")
        from tfcli.hub.gguf import GgufFile

        return GgufFile(path)
    if is_model_folder(path):
        from tfcli.hub.folder import Folder

        return Folder(path.resolve())
    if not path.exists() and on_the_hub(str(where)):
        from tfcli.hub.download import download
        from tfcli.hub.folder import Folder

        return Folder(download(str(where)))
    return None


def is_model_folder(path: Path) -> bool:
    """Whether a folder is one of Hugging Face's, and no run or checkpoint."""
    own = (path / "manifest.json").is_file() or (path / "checkpoints").is_dir()
    return not own and (path / "config.json").is_file()


def on_the_hub(where: str) -> bool:
    """Whether this may be the name of a model there, and is no path that was mistyped."""
    return bool(NAME.fullmatch(where)) and not Path(where.partition("/")[0]).exists()


def load(
    where: str | Path,
    device: str | torch.device = "cpu",
    folders: Sequence[Path] = (),
    say: Say | None = None,
) -> Loaded:
    """Model (in evaluation mode), tokenizer and configuration, ready for use.

    `folders` are the user's own config folders, whose constructors are trusted as well. Raises ConfigError
    for what is damaged, or asks for what is not here.
    """
    origin = elsewhere(where)
    if origin is None:
        return checkpoint.load(where, device, folders, say)
    config, tokenizer = origin.config(folders), origin.load_tokenizer()
    try:
        model = build.model(config, tokenizer.vocab_size, fill=False)
    except (RuntimeError, MemoryError) as error:  # torch's words for what is too large
        said = (str(error) or "out of memory").splitlines()[0]
        raise ConfigError(f"{origin.path}: no room for a model of these sizes ({said})") from None
    left = origin.fill(model)
    if left and say:
        say(f"{origin.path}: left out, as this class has no use for them: {shown(left)}")
    objective = build.make(config.objective, "objective")
    objective.bind(tokenizer)
    return Loaded(
        model.to(device).eval(), tokenizer, config, 0, origin.path, objective, dict(origin.generation)
    )
