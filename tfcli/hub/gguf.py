"""A model in one GGUF file, of the Llama family, as a configuration, a tokenizer and weights of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tfcli.errors import ConfigError, one_line
from tfcli.hub import architecture, gguf_words, model_types
from tfcli.hub.fields import Asked
from tfcli.hub.filling import Habits, fill
from tfcli.hub.folder import Folder
from tfcli.hub.names import Table, rows
from tfcli.tokenizer import Tokenizer

NAMES: Table = {
    "embedding.table": "token_embd",
    "stack.layers.#.attention.norms.0": "blk.#.attn_norm",
    "stack.layers.#.attention.branch.qkv": "blk.#.{attn_q,attn_k,attn_v}",
    "stack.layers.#.attention.branch.out": "blk.#.attn_output",
    "stack.layers.#.ffn.norms.0": "blk.#.ffn_norm",
    "stack.layers.#.ffn.branch.gate_up": "blk.#.{ffn_gate,ffn_up}",
    "stack.layers.#.ffn.branch.down": "blk.#.ffn_down",
    "stack.final_norm": "output_norm",
    "head.map": "output",
}
KINDS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}  # by general.architecture
INTERLEAVED = ("llama",)  # whose pairs of rotated features are (2i, 2i + 1) there
FIELDS = {  # of config.json, by key below the architecture's name
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}  # fmt: skip
FREE = ("tensor_data_layout", "rope.scaling.finetuned", "attention.causal")
FREQUENCIES = "rope_freqs.weight"  # by what each pair is slowed
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


class GgufFile(Folder):
    """What lies in a GGUF file. Raises ConfigError for what is not carried out exactly."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.reader = opened(self.path)
        self.tensors_there = {tensor.name: tensor for tensor in self.reader.tensors}
        self.facts = {key: value(field, self.path) for key, field in self.reader.fields.items()}
        self.family = self.facts.get("general.architecture")
        if self.family not in KINDS or self.family not in model_types():
            known = " or ".join(name for name in KINDS if name in model_types())
            raise ConfigError(f"{path}: general.architecture={self.family}: must be {known}")
        self.said = config_of(self.family, self.facts, self.tensors_there, path)
        self.architecture, self.kind = architecture(self.family), KINDS[self.family]
        self.model_settings = self.architecture.read(self.kind, Asked(self.said, path))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Of the file's metadata."""
        tokenizer = gguf_words.read(self.facts, self.path)
        if tokenizer.vocab_size > self.vocab_size:
            raise ConfigError(
                f"{self.path}: token_embd.weight has {self.vocab_size} rows, and there are "
                f"{tokenizer.vocab_size} tokens"
            )
        return tokenizer

    def fill(self, model: nn.Module, new: str | None = None) -> list[str]:
        """Fills a model, one tensor at a time; see `Folder.fill`."""
        mine = rows(model, NAMES, interleaved=self.family in INTERLEAVED, without=new)
        spare = (FREQUENCIES.replace(".", r"\."), *([".*"] if new else []))
        left = fill(mine, Tensors(self.path, self.tensors_there), Habits(spare))
        return [name for name in left if name != FREQUENCIES]

    @property
    def generation(self) -> dict[str, Any]:
        """A turn's end ends a text as well, where the file tells of one."""
        names = ("eos_token_id", "eot_token_id", "eom_token_id")
        ends = [self.facts.get(gguf_words.PREFIX + name) for name in names]
        ends = [*dict.fromkeys(i for i in ends if i is not None)]
        return {"eos_token_id": ends} if len(ends) > 1 else {}


class Tensors:
    """The tensors of a file as whole numbers of 32 bits, made when they are asked for."""

    def __init__(self, file: Path, held: Mapping[str, Any]) -> None:
        self.file, self.held = file, held

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(int(n) for n in reversed(one.shape)) for name, one in self.held.items()}

    def tensors(self, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        for name in names:
            yield name, numbers(self.held[name], self.file)


def numbers(tensor: Any, file: Path) -> Tensor:
    """A tensor of a file in fp32."""
    from gguf.quants import dequantize

    try:
        return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
    except NotImplementedError:
        kind = tensor.tensor_type.name
        raise ConfigError(f"{file}: {tensor.name} is {kind}, which is not read here") from None


def opened(path: Path) -> Any:
    """The reader of a file. Raises ConfigError for one that is none, or is damaged."""
    gguf = package()
    try:
        return gguf.GGUFReader(path)
    except Exception as error:
        raise ConfigError(f"{path}: is no GGUF file, or is damaged ({one_line(error)})") from None


def package() -> Any:
    """The package of that name."""
    try:
        import gguf
    except ImportError:
        raise ConfigError("GGUF files need the package gguf: pip install 'tfcli[gguf]'") from None
    return gguf


def value(field: Any, path: Path) -> Any:
    """What a field of metadata holds; numbers of 32 bits as they were meant, 1e-05 and not 9.99999974e-06."""
    from gguf import GGUFValueType

    try:
        found = field.contents()
    except (ValueError, UnicodeDecodeError, IndexError) as error:
        raise ConfigError(f"{path}: {field.name}: cannot be read ({one_line(error)})") from None
    meant = field.types == [GGUFValueType.FLOAT32]
    return float(str(field.parts[field.data[0]][0])) if meant else found


# --- what config.json would say -----------------------------------------------------------------------------


def config_of(
    family: str, facts: Mapping[str, Any], tensors: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    """The fields of a config.json. Raises ConfigError, by key and value, for what they cannot say."""
    own = {key.removeprefix(f"{family}."): v for key, v in facts.items() if key.startswith(f"{family}.")}
    asked = Asked(own, path, f"{family}.")
    said: dict[str, Any] = {"model_type": family, "architectures": [KINDS[family]], "hidden_act": "silu"}
    for key, name in FIELDS.items():
        said[name] = needed(asked, key, own.get("attention.head_count") if key.endswith("_kv") else None)
    said |= {"head_dim": head_dim(asked, said), "rope_parameters": rope(asked, tensors, path)}
    said["tie_word_embeddings"] = "output.weight" not in tensors
    if family == "llama":
        said["attention_bias"] = "blk.0.attn_q.bias" in tensors
        said["mlp_bias"] = "blk.0.ffn_gate.bias" in tensors
    table = tensors.get("token_embd.weight")
    if table is None:
        raise ConfigError(f"{path}: has no token_embd.weight")
    said["vocab_size"] = int(table.shape[-1])
    if asked.get("vocab_size", said["vocab_size"]) != said["vocab_size"]:
        raise asked.refused("vocab_size", f"token_embd.weight has {said['vocab_size']} rows")
    for name in FREE:
        asked.get(name)
    asked.refuse_rest()
    return said


def needed(asked: Asked, key: str, default: Any) -> Any:
    """A number that must be there, one for all layers."""
    found = asked.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise asked.refused(key, "must be a number, the same for all layers")
    return found


def head_dim(asked: Asked, said: Mapping[str, Any]) -> int:
    """How many features a head has; all of them are turned, and values have as many."""
    usual = said["hidden_size"] // said["num_attention_heads"]
    width = asked.get("attention.key_length", usual)
    for key in ("attention.value_length", "rope.dimension_count"):
        if asked.get(key, width) != width:
            raise asked.refused(key, f"must be {width}, as many as a head has")
    return width


def rope(asked: Asked, tensors: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The rotary scheme."""
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": asked.get("rope.freq_base", 10000.0)}
    kind = asked.get("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise asked.refused("rope.scaling.type", "must be none or linear")
    factor = asked.get("rope.scaling.factor", 1.0)
    asked.get("rope.scaling.original_context_length")
    if kind == "linear" and factor != 1:
        found |= {"rope_type": "linear", "factor": factor}
    if FREQUENCIES not in tensors:
        return found
    if found["rope_type"] != "default":
        raise asked.refused("rope.scaling.type", f"and {FREQUENCIES} are both there")
    factors = numbers(tensors[FREQUENCIES], path).double()
    return found | slowed(factors, found["rope_theta"], asked.get("context_length", 2048))


def slowed(factors: Tensor, theta: float, length: int) -> dict[str, Any]:
    """Llama 3's scheme where the factors are its; else LongRoPE's, with the same factors in texts of any
    length.
    """
    from tfcli.model.position.rope import Llama3Rope

    most = float(factors.max())
    if most > 1:
        plan = {
            "factor": most,
            "low": 1.0,
            "high": 4.0,
            "original": LLAMA3["original_max_position_embeddings"],
        }
        theirs = Llama3Rope(2 * len(factors), base=theta, **plan)
        plain = theta ** (-torch.arange(len(factors), dtype=torch.float64) / len(factors))
        if torch.allclose(plain / theirs.stretched(plain), factors, rtol=1e-5):
            return {"rope_type": "llama3", "factor": most, **LLAMA3}
    each = [float(factor) for factor in factors]
    return {"rope_type": "longrope", "short_factor": each, "long_factor": each, "factor": 1.0,
            "attention_factor": 1.0, "original_max_position_embeddings": max(length, 2)}  # fmt: skip
