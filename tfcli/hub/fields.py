"""Fields of a config.json as settings of ours, each in both directions."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from math import isfinite
from typing import Any

from tfcli.hub.asked import Asked, short

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
CLASSES_AT_MOST = 10**6  # that a number alone makes
SAYS_NOTHING = {  # of the model: who made it, how it was run, and what is read elsewhere
    "architectures", "model_type", "vocab_size", "transformers_version", "torch_dtype",
    "dtype", "use_cache", "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "torchscript", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "cls_token_id", "unk_token_id", "mask_token_id", "decoder_start_token_id", "id2label", "label2id",
    "num_labels", "problem_type", "finetuning_task", "task_specific_params", "tokenizer_class",
    "prefix", "gradient_checkpointing", "initializer_range", "chunk_size_feed_forward", "use_bfloat16",
    "attn_implementation", "transformers.js_config",
    "is_encoder_decoder", "keys_to_ignore_at_inference", "is_llama_config", "language", "name",
    "eos_token_ids", "model_max_length", "max_sequence_length", "pretraining_tp", "unsloth_fixed",
    "unsloth_version",
}  # fmt: skip


class Field:
    """One fact of a model."""

    def read(self, asked: Asked) -> Settings:
        """What it means in our settings. Raises ConfigError for a value that is not carried out exactly."""
        raise NotImplementedError

    def write(self, our: Flat) -> dict[str, Any]:
        """What our settings are in its fields; where they have no such setting, nothing."""
        return {}


class Number(Field):
    """A number under a name of theirs and a key of ours, of at least `least`; default: theirs, or a function
    of what is asked.
    """

    def __init__(
        self,
        names: str | tuple[str, ...],
        key: str,
        default: float | Callable[[Asked], Any] | None,
        least: float | None = None,
    ) -> None:
        self.names, self.key, self.default, self.least = names, key, default, least

    def read(self, asked: Asked) -> Settings:
        default = self.default(asked) if callable(self.default) else self.default
        value = asked.get(self.names, default)
        whole = isinstance(default, int) and not isinstance(default, bool)
        if value is not None and not is_number(value):
            raise asked.refused(self.names, "must be a number")
        if whole and isinstance(value, float) and not value.is_integer():
            raise asked.refused(self.names, "must be a whole number")
        if self.least is not None and value < self.least:
            raise asked.refused(self.names, f"must be at least {self.least}")
        return {self.key: int(value) if whole else value}

    def write(self, our: Flat) -> dict[str, Any]:
        value = our.get(self.key)
        return {} if value is None else {first(self.names): value}


def is_number(value: Any) -> bool:
    """Whether it is one that floating point has: no true, no NaN, none beyond all bounds."""
    try:
        return type(value) in (int, float) and isfinite(value)
    except OverflowError:
        return False


class Derived(Field):
    """A setting of ours that follows from fields which others write."""

    def __init__(self, key: str, value: Callable[[Asked], Any]) -> None:
        self.key, self.value = key, value

    def read(self, asked: Asked) -> Settings:
        return {self.key: self.value(asked)}


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
        if not fits(value, self.values):
            raise asked.refused(self.names, f"must be {' or '.join(short(v) for v in self.values)}")
        return {self.key: self.values[value]}

    def write(self, our: Flat) -> dict[str, Any]:
        alike = (theirs for theirs, ours in self.values.items() if self.key in our and our[self.key] == ours)
        return {first(self.names): value for value in [next(alike, None)] if value is not None}


def fits(value: Any, known: Container[Any]) -> bool:
    """Whether it is one of these, where it may be a list or an object, which no key is."""
    return not isinstance(value, list | dict) and value in known


class Switch(Choice):
    """True or false under both names."""

    def __init__(self, names: str | tuple[str, ...], key: str, default: bool) -> None:
        super().__init__(names, key, {True: True, False: False}, default)


class Only(Field):
    """A field of which only some values are carried out: `unsaid`, which transformers takes where nothing is
    said, and `others` that come to the same here. It is never written, since to say nothing says it.
    """

    def __init__(self, names: str | tuple[str, ...], unsaid: Any, *others: Any) -> None:
        self.names, self.unsaid, self.values = names, unsaid, (unsaid, *others)

    def read(self, asked: Asked) -> Settings:
        if asked.get(self.names, self.unsaid) not in self.values:
            right = " or ".join(short(value) for value in self.values if value is not None)
            raise asked.refused(self.names, f"only {right} is carried out here")
        return {}


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


class Tags(Field):
    """A class for each token; the folder reads what they are called by `names_of_classes`."""

    least = 1

    def read(self, asked: Asked) -> Settings:
        if len(names_of_classes(asked)) < self.least:
            raise asked.refused(("id2label", "num_labels"), "is no choice of classes; must be 2 or more")
        return {}


class Labels(Tags):
    """One class of several, told by the largest score."""

    least = 2

    def read(self, asked: Asked) -> Settings:
        if asked.get("problem_type", "single_label_classification") != "single_label_classification":
            raise asked.refused("problem_type", "only single_label_classification is carried out here")
        return super().read(asked)


def names_of_classes(asked: Asked) -> list[str]:
    """What a head's classes are called. Raises ConfigError where they are not numbered 0, 1, 2 ..."""
    named, count = asked.get("id2label"), asked.get("num_labels", 2)
    if named is None and (type(count) is not int or not 1 <= count <= CLASSES_AT_MOST):
        raise asked.refused("num_labels", f"must be a whole number from 1 to {CLASSES_AT_MOST}")
    if named is None:
        return [f"LABEL_{i}" for i in range(count)]
    try:
        by_id = {int(i): str(label) for i, label in named.items()}
        names = [by_id[i] for i in range(len(by_id))]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise asked.refused("id2label", "must name 0, 1, 2 ...") from None
    if not names or len({*names}) < len(names):
        raise asked.refused("id2label", "a name comes twice" if names else "must name 0, 1, 2 ...")
    return names


class Free(Field):
    """Fields that change nothing in what a model says, whatever their value."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def read(self, asked: Asked) -> Settings:
        for name in self.names:
            asked.get(name)
        return {}


class Quantised(Field):
    """How weights were packed. Of a folder made from a GGUF file it is a note only: its weights are whole."""

    def read(self, asked: Asked) -> Settings:
        how = asked.get("quantization_config")
        if how is not None and (not isinstance(how, Mapping) or how.get("quant_method") != "gguf"):
            raise asked.refused("quantization_config", "packed weights are not read here")
        return {}


CAUSAL = Only("is_causal", None, True)  # of what writes, which sees what was there before and no more
NOT_CAUSAL = Only("is_causal", None, False)  # of what reads; transformers itself does not heed it there
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
