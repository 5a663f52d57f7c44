"""A model of the Llama family as one GGUF file: complete and checked, or not there."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tfcli import origin
from tfcli.checkpoint import Loaded
from tfcli.errors import ConfigError, RunError
from tfcli.hub import gguf_words
from tfcli.hub.export import Exported, ids, refuse_prefixes, round_to, with_ends
from tfcli.hub.gguf import FREQUENCIES, NAMES, package
from tfcli.hub.holder import Held, holder
from tfcli.hub.names import Piece, rows
from tfcli.hub.verify import Checked, verify_file

KIND = "llama"
FILE_TYPES = {"float32": 0, "float16": 1}
NUMBERS = {"float32": torch.float32, "float16": torch.float16}

READ_BACK = "read back here, every number is there"

Say = Callable[[str], None]


def export(
    where: str | Path,
    target: Path,
    dtype: str = "float32",
    folders: Sequence[Path] = (),
    say: Say = lambda text: None,
) -> Exported:
    """Writes a run, a checkpoint or a model folder as a GGUF file, and compares.

    Vectors are of 32 bits whatever dtype says. Raises ConfigError for a model or a tokenizer that the format
    does not hold and a target that is there already, RunError where it cannot be written or says something
    else; then nothing is left.
    """
    package()
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target}: is there already; name a new file")
    loaded = origin.load(where, "cpu", folders, say)
    refuse_prefixes(loaded)
    try:
        held = holder(loaded.config, ids(loaded), only=KIND)
    except ConfigError as error:
        choice = str(error).partition(":")[0]
        raise ConfigError(
            f"{choice}: a GGUF file holds the Llama family here; name a folder instead"
        ) from None
    tokenizer = with_ends(loaded)
    words = gguf_words.write(tokenizer, loaded.model.vocab_size, tokenizer.adds_bos, tokenizer.adds_eos)
    mine = rows(loaded.model, NAMES, interleaved=True)
    round_to([row for row in mine if row.pieces[0].view.ndim > 1], NUMBERS[dtype], dtype)
    facts = metadata(held, loaded, target.stem, FILE_TYPES[dtype]) | words
    pieces = [piece for row in mine for piece in row.pieces] + frequencies(loaded)
    with making(target) as file:
        say("writing")
        write(file, facts, pieces, NUMBERS[dtype])
        say("checking")
        checked = check(file, loaded, held)
    return Exported(held.kind, sum(p.numel() for p in loaded.model.parameters()), checked)


def metadata(held: Held, loaded: Loaded, name: str, file_type: int) -> dict[str, Any]:
    """What the file says of the model. Raises ConfigError for positions that it cannot tell of."""
    said, rope = held.said, held.said["rope_parameters"]
    if rope["rope_type"] not in ("default", "linear", "llama3"):
        chosen = loaded.config.choices.position
        raise ConfigError(f"position={chosen}: GGUF is written with rope, rope_linear or rope_llama3 here")
    if not said.get("hidden_act") == "silu":
        raise ConfigError(f"ffn={loaded.config.choices.ffn}: a GGUF file of the Llama family has swiglu")
    width = said.get("head_dim") or said["hidden_size"] // said["num_attention_heads"]
    found = {
        "general.name": name, "general.type": "model", "general.file_type": file_type,
        "block_count": said["num_hidden_layers"], "context_length": said["max_position_embeddings"],
        "embedding_length": said["hidden_size"], "feed_forward_length": said["intermediate_size"],
        "attention.head_count": said["num_attention_heads"],
        "attention.head_count_kv": said["num_key_value_heads"],
        "attention.key_length": width, "attention.value_length": width, "rope.dimension_count": width,
        "attention.layer_norm_rms_epsilon": float(said["rms_norm_eps"]),
        "rope.freq_base": float(rope["rope_theta"]), "vocab_size": loaded.model.vocab_size,
    }  # fmt: skip
    if rope["rope_type"] == "linear":
        found |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return {key if key.startswith("general.") else f"{KIND}.{key}": value for key, value in found.items()}


def frequencies(loaded: Loaded) -> list[Piece]:
    """By what Llama 3's scheme slows each pair of features, where the model has it."""
    scheme = loaded.model.stack.positions[0]
    if "original" not in vars(scheme) or "low" not in vars(scheme):
        return []
    plain = scheme.plain(scheme.base)
    factors = (plain / scheme.stretched(plain)).float()
    return [Piece(FREQUENCIES, factors, tuple(factors.shape))]


def write(file: Path, facts: dict[str, Any], pieces: list[Piece], dtype: torch.dtype) -> None:
    """Writes the file, one tensor at a time."""
    logging.getLogger("gguf").setLevel(logging.ERROR)
    writer = package().GGUFWriter(file, KIND)
    for key, value in facts.items():
        put(writer, key, value)
    kinds = [dtype if len(piece.shape) > 1 else torch.float32 for piece in pieces]
    for piece, kind in zip(pieces, kinds):
        like = torch.empty(0, dtype=kind)
        n_bytes = piece.view.numel() * like.element_size()
        writer.add_tensor_info(piece.name, piece.shape, like.numpy().dtype, n_bytes)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for piece, kind in zip(pieces, kinds):
            writer.write_tensor_data(piece.view.reshape(piece.shape).to(kind).contiguous().numpy())
    finally:
        writer.close()


def put(writer: Any, key: str, value: Any) -> None:
    """One field of metadata, by its kind."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def check(file: Path, loaded: Loaded, held: Held) -> Checked:
    """Reads the file: by us, when every number must be there again, and by `transformers`, which knows plain
    rotary positions and no biases there. Raises RunError.
    """
    again = origin.load(file)
    mine, back = laid(loaded.model), laid(again.model)
    for name in sorted(mine.keys() | back.keys()):
        if name not in mine or name not in back or not torch.equal(mine[name], back[name]):
            raise RunError(f"{name} is another when the file is read; nothing is left")
    said = held.said
    for key in ("attention_bias", "mlp_bias"):
        if said[key]:
            return Checked(None, f"transformers reads no such file with {key}; {READ_BACK}")
    if said["rope_parameters"]["rope_type"] != "default":
        return Checked(None, f"transformers reads plain rotary positions only in such files; {READ_BACK}")
    return verify_file(file, held.kind, loaded.model, loaded.tokenizer)


def laid(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a model as they lie in a file."""
    mine = rows(model, NAMES, interleaved=True)
    return {piece.name: piece.view.reshape(piece.shape) for row in mine for piece in row.pieces}


@contextmanager
def making(target: Path) -> Iterator[Path]:
    """A file that gets its name when all is done; whatever happens before, nothing is left of it."""
    target, file = target.absolute(), None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=".gguf", dir=target.parent)
        os.close(handle)
        file = Path(name)
        yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(file, 0o666 & ~mask)
        os.rename(file, target)
    except BaseException as error:
        if file is not None:
            file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise RunError(f"{target}: cannot be written ({error}); nothing is left") from None
        raise
