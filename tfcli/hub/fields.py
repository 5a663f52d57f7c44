"""Fields of a config.json as settings of ours, each in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError

Flat = Mapping[str, Any]  # a configuration of ours, resolved, by dotted key
Settings = dict[str, Any]  # choices of groups ("position": "rope"), and values by dotted key

ACTIVATIONS = {  # those of theirs that mean the same side by side, the one that is written first
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh", "relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid",
}  # fmt: skip
GENERATION = ("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
              "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
              "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
              "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
              "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
              "max_new_tokens", "min_new_tokens")  # fmt: skip
SAYS_NOTHING = {  # of the model: who made it, how it was run, and what is read elsewhere
    "architectures", "model_type", "vocab_size", "transformers_version", "torch_dtype",
    "dtype", "use_cache", "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "torchscript", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "cls_token_id", "unk_token_id", "mask_token_id", "decoder_start_token_id", "id2label", "label2id",
    "num_labels", "problem_type", "finetuning_task", "task_specific_params", "tokenizer_class",
    "prefix", "gradient_checkpointing", "initializer_range", "chunk_size_feed_forward", "use_bfloat16",
    "attn_implementation", "transformers.js_config",
    "is_encoder_decoder", "keys_to_ignore_at_inference", "is_llama_config",
}  # fmt: skip


class Asked:
    """What a config.json asks for, and which of it was heard so far."""

    def __init__(self, said: Mapping[str, Any], file: Path | str, above: str = "") -> None:
        self.said, self.file, self.above = dict(said), file, above
        self.heard: set[str] = set()

    def get(self, names: str | tuple[str, ...], default: Any = None) -> Any:
        """A field's value, under whichever of its names is there; null is as good as not there.

        Raises ConfigError where it is there under two names, and not the same.
        """
        names = (names,) if isinstance(names, str) else names
        self.heard |= {*names}
        given = [name for name in names if self.said.get(name) is not None]
        for other in given[1:]:
            if self.said[other] != self.said[given[0]]:
                raise self.refused(other, f"{given[0]}={short(self.said[given[0]])} says otherwise")
        return self.said[given[0]] if given else default

    def within(self, name: str) -> Asked | None:
        """What a field that holds fields asks for; None: it is not there."""
        inner = self.get(name)
        if inner is None:
            return None
        if not isinstance(inner, Mapping):
            raise self.refused(name, "must be an object")
        return Asked(inner, self.file, f"{self.above}{name}.")

    def refused(self, names: str | tuple[str, ...], right: str) -> ConfigError:
        """What to raise for a field's value."""
        names = (names,) if isinstance(names, str) else names
        name = next((n for n in names if n in self.said), names[0])
        return ConfigError(f"{self.file}: {self.above}{name}={short(self.said.get(name))}: {right}")

    def refuse_rest(self) -> None:
        """Raises ConfigError for a field that nobody heard, unless it asks for nothing."""
        for name, value in self.said.items():
            private = name.startswith("_")  # notes that a program made for itself
            if name not in self.heard and not private and value not in (None, False, [], {}, ""):
                raise self.refused(name, "is not carried out here, so the model would not be what it says")


def short(value: Any) -> str:
    """A value for a message."""
    text = (
        repr(value)
        if isinstance(value, str)
        else str(value).replace("True", "true").replace("False", "false")
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


class Field:
    """One fact of a model."""

    def read(self, asked: Asked) -> Settings:
        """What it means in our settings. Raises ConfigError for a value that is not carried out exactly."""
        raise NotImplementedError

    def write(self, our: Flat) -> dict[str, Any]:
        """What our settings are in its fields; where they have no such setting, nothing."""
        raise NotImplementedError


class Number(Field):
    """A number under a name of theirs and a key of ours; default: theirs, or a function of what is asked."""

    def __init__(
        self, names: str | tuple[str, ...], key: str, default: float | Callable[[Asked], Any] | None
    ) -> None:
        self.names, self.key, self.default = names, key, default

    def read(self, asked: Asked) -> Settings:
        default = self.default(asked) if callable(self.default) else self.default
        value = asked.get(self.names, default)
        whole = isinstance(default, int) and not isinstance(default, bool)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise asked.refused(self.names, "must be a number")
        if whole and isinstance(value, float) and not value.is_integer():
            raise asked.refused(self.names, "must be a whole number")
        return {self.key: int(value) if whole else value}

    def write(self, our: Flat) -> dict[str, Any]:
        value = our.get(self.key)
        return {} if value is None else {first(self.names): value}


class Derived(Field):
    """A setting of ours that follows from fields which others write."""

    def __init__(self, key: str, value: Callable[[Asked], Any]) -> None:
        self.key, self.value = key, value

    def read(self, asked: Asked) -> Settings:
        return {self.key: self.value(asked)}

    def write(self, our: Flat) -> dict[str, Any]:
        return {}


class Choice(Field):
    """A value of theirs for each of ours, as {theirs: ours}; of several that mean the same the first is
    written. Others are refused.
    """

    def __init__(
        self, names: str | tuple[str, ...], key: str, values: Mapping[Any, Any], default: Any
    ) -> None:
        self.names, self.key, self.values, self.default = names, key, values, default

    def read(self, asked: Asked) -> Settings:
        value = asked.get(self.names, self.default)
        if isinstance(value, list | dict) or value not in self.values:
            raise asked.refused(self.names, f"must be {' or '.join(short(v) for v in self.values)}")
        return {self.key: self.values[value]}

    def write(self, our: Flat) -> dict[str, Any]:
        fits = (theirs for theirs, ours in self.values.items() if self.key in our and our[self.key] == ours)
        return {first(self.names): value for value in [next(fits, None)] if value is not None}


class Switch(Choice):
    """True or false under both names."""

    def __init__(self, names: str | tuple[str, ...], key: str, default: bool) -> None:
        super().__init__(names, key, {True: True, False: False}, default)


class Only(Field):
    """A field of which only these values are carried out, the first of them being its default."""

    def __init__(self, names: str | tuple[str, ...], *values: Any) -> None:
        self.names, self.values = names, values

    def read(self, asked: Asked) -> Settings:
        if asked.get(self.names, self.values[0]) not in self.values:
            right = " or ".join(short(value) for value in self.values)
            raise asked.refused(self.names, f"only {right} is carried out here")
        return {}

    def write(self, our: Flat) -> dict[str, Any]:
        return {} if self.values[0] is None else {first(self.names): self.values[0]}


class Alike(Field):
    """Fields of what is one number here, so that they must not differ; default: of each that is not there;
    None: those that are there must not.
    """

    def __init__(self, *names: str, default: Any = None) -> None:
        self.names, self.default = names, default

    def read(self, asked: Asked) -> Settings:
        said = [(name, asked.get(name, self.default)) for name in self.names]
        said = [(name, value) for name, value in said if value is not None]
        for name, value in said:
            if value != said[0][1]:
                raise asked.refused(name, f"must be as {said[0][0]}={short(said[0][1])}; here they are one")
        return {}

    def write(self, our: Flat) -> dict[str, Any]:
        return {}


class Labels(Field):
    """One class of several, told by the largest score; the names of classes are the folder's."""

    def read(self, asked: Asked) -> Settings:
        if asked.get("problem_type", "single_label_classification") != "single_label_classification":
            raise asked.refused("problem_type", "only single_label_classification is carried out here")
        named = asked.get("id2label")
        if (asked.get("num_labels", 2) if named is None else len(named)) < 2:
            raise asked.refused(("id2label", "num_labels"), "is no choice of classes; must be 2 or more")
        return {}

    def write(self, our: Flat) -> dict[str, Any]:
        return {}


class Free(Field):
    """Fields that change nothing in what a model says, whatever their value."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def read(self, asked: Asked) -> Settings:
        for name in self.names:
            asked.get(name)
        return {}

    def write(self, our: Flat) -> dict[str, Any]:
        return {}


class Quantised(Field):
    """How weights were packed. Of a folder made from a GGUF file it is a note only: its weights are whole."""

    def read(self, asked: Asked) -> Settings:
        how = asked.get("quantization_config")
        if how is not None and (not isinstance(how, Mapping) or how.get("quant_method") != "gguf"):
            raise asked.refused("quantization_config", "packed weights are not read here")
        return {}

    def write(self, our: Flat) -> dict[str, Any]:
        return {}


COMMON = (  # what any config.json may say
    Free(*SAYS_NOTHING, *GENERATION),
    Quantised(),
    Only("is_decoder", False, True),
    Only("add_cross_attention", False),
    Only("tie_encoder_decoder", False),
    Only("pruned_heads", {}),
)


def first(names: str | tuple[str, ...]) -> str:
    """The name under which a field is written."""
    return names if isinstance(names, str) else names[0]
