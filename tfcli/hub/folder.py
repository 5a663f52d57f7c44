"""A model folder of Hugging Face as a configuration, a tokenizer and weights of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import nn

from tfcli.build import plain
from tfcli.compose import compose, override
from tfcli.errors import ConfigError
from tfcli.hub import Architecture, architecture, kind_of, sentence
from tfcli.hub.fields import GENERATION, Asked, Settings, names_of_classes
from tfcli.hub.filling import fill
from tfcli.hub.names import rows
from tfcli.hub.weights import Weights, found, read_object
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.files import read as read_tokenizer

CONFIG = "config.json"
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


class Folder:
    """What lies in a folder with a config.json. Raises ConfigError, nothing being run or written, for a
    folder that asks for code, for parts that are not here, or for settings that are not carried out exactly.
    """

    brings = ("objective",)
    whole = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said = read_object(path / CONFIG)
        if self.said.get("auto_map"):
            named = ", ".join(map(str, self.said["auto_map"]))
            raise ConfigError(
                f"{path / CONFIG}: auto_map={named}: asks for code of its own, which is never run"
            )
        asked = Asked(self.said, path / CONFIG)
        self.architecture: Architecture = architecture(self.said.get("model_type"), path / CONFIG)
        self.kind = kind_of(self.architecture, asked)
        self.model_settings: Settings = self.architecture.read(self.kind, asked)
        if self.model_settings.get("head") == "vector":
            self.model_settings |= sentence.read(path)
        if self.architecture.tell is not None:
            self.model_settings |= self.architecture.tell(self.weights)
        self.refuse_more_than_there_is()

    @cached_property
    def weights(self) -> Weights:
        """The files of weights."""
        return found(self.path)

    def refuse_more_than_there_is(self) -> None:
        """Raises ConfigError for sizes that the weights cannot have, before room is made for them."""
        shapes = self.weights.shapes().values()
        numbers, width = sum(map(prod, shapes)), self.model_settings["size.d_model"]
        if self.model_settings["size.n_layers"] > len(shapes) or self.vocab_size * width > numbers:
            raise ConfigError(
                f"{self.path / CONFIG}: tells of {self.model_settings['size.n_layers']} layers and "
                f"{self.vocab_size} tokens of {width} numbers; {self.weights.file} has {len(shapes)} tensors "
                f"and {numbers} numbers in all"
            )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Of the files in the folder. Raises ConfigError where the model has too few rows for it."""
        tokenizer = read_tokenizer(self.path)
        if tokenizer.vocab_size > self.vocab_size:
            raise ConfigError(
                f"{self.path / CONFIG}: vocab_size={self.vocab_size}: the tokenizer has "
                f"{tokenizer.vocab_size} tokens, so some would have no vector"
            )
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """How many rows the table of tokens has."""
        size = self.said.get("vocab_size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"{self.path / CONFIG}: vocab_size={size}: must be a whole number of 1 or more")
        return size

    @property
    def labels(self) -> list[str] | None:
        """The names of a head's classes; None: it has none."""
        if self.model_settings.get("head") not in ("classification", "tagging"):
            return None
        return names_of_classes(Asked(self.said, self.path / CONFIG))

    @cached_property
    def overrides(self) -> list[str]:
        """The model in our choices, as they are typed."""
        return [override(key, value) for key, value in self.settings.items()]

    @property
    def settings(self) -> Settings:
        """The same by key."""
        extra = (
            {} if self.vocab_size == self.tokenizer.vocab_size else {"embedding.vocab_size": self.vocab_size}
        )
        return {**self.model_settings, **extra, **self.objective}

    @property
    def objective(self) -> Settings:
        """What it was learned by, as far as the tokenizer has what that needs."""
        tokenizer, chosen = self.tokenizer, self.model_settings.get("objective")
        if chosen == "masked_lm" and tokenizer.mask_id is None:
            return {"objective": "classification"}  # which needs no token of its own
        if "objective.start" not in self.model_settings:
            return {}
        start = {"objective.start": self.start}
        if chosen == "span_corruption" and tokenizer.sentinel_ids:
            return start | {"objective.n_sentinels": len(tokenizer.sentinel_ids)}
        needs_more = chosen == "span_corruption" or (chosen == "bart" and tokenizer.mask_id is None)
        return start | ({"objective": "seq2seq"} if needs_more else {})

    @property
    def start(self) -> str:
        """Which of its special tokens a decoder that looks at a source begins with."""
        asked = Asked(self.said, self.path / CONFIG)
        tokenizer = self.tokenizer
        ids = {
            "pad": tokenizer.pad_id if tokenizer.has_pad else None,
            "eos": tokenizer.eos_id,
            "bos": tokenizer.bos_id,
        }
        usual = self.model_settings["objective.start"]
        begins = asked.get(
            "decoder_start_token_id", self.generation.get("decoder_start_token_id", ids[usual])
        )
        found = [role for role in (usual, *ids) if ids[role] is not None and ids[role] == begins]
        if not found:
            raise asked.refused(
                "decoder_start_token_id", f"must be one of {', '.join(f'{i} ({r})' for r, i in ids.items())}"
            )
        return found[0]

    def config(self, folders: Sequence[Path] = ()) -> DictConfig:
        """The configuration of a run that would have made this model, so far as there is one."""
        own = [override("tokenizer", "file"), override("tokenizer.path", str(self.path))]
        config = compose("train", [*self.overrides, *own], folders)
        config.overrides = self.overrides
        config.data.bos, config.data.eos = self.tokenizer.adds_bos, self.tokenizer.adds_eos
        if self.labels is not None:
            config.head.labels = self.labels
        return config

    @property
    def ends(self) -> dict[str, bool]:
        """Whether texts begin with BOS and end with EOS, as the tokenizer's files have it; that a decoder's
        documents end is for the data to say, as prompts do not.
        """
        begins = {"bos": self.tokenizer.adds_bos}
        decoder = self.config().choices.family == "decoder"
        return begins if decoder else begins | {"eos": self.tokenizer.adds_eos}

    @property
    def head(self) -> dict[str, Any]:
        """The settings of the head."""
        return plain(self.config().head)

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.tokenizer

    def fill(self, model: nn.Module, new: str | None = None) -> list[str]:
        """Fills a model from the folder's weights, strictly; returns the names of those that are left out.

        new: the beginning of the names that stay as they are; theirs are left out.
        """
        arch, kind = self.architecture, self.kind
        table = arch.table(kind)
        try:
            mine = rows(model, table, lambda name: arch.rename(kind, name), without=new)
        except KeyError as error:
            raise ConfigError(f"{self.path}: a {kind} has no weights for {error.args[0]}") from None
        habits = arch.habits._replace(prefix=arch.prefix)
        return fill(mine, self.weights, habits if new is None else habits._replace(spare=(".*",)))

    @property
    def generation(self) -> dict[str, Any]:
        """How the folder says that texts are to be written: generation_config.json, or older config.json."""
        file = self.path / "generation_config.json"
        if file.is_file():
            return read_object(file)
        return {name: self.said[name] for name in (*GENERATION, *IDS) if self.said.get(name) is not None}
