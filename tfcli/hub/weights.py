"""Files of weights: safetensors, whole or in shards, or a pickle of tensors and nothing else; read and
written.

Nothing in a folder is trusted: an index names files of its own folder only, and no pickle runs code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tfcli.errors import ConfigError, one_line
from tfcli.hub.names import Row

WHOLE, PICKLE = "model.safetensors", "pytorch_model.bin"
AT_ONCE = 64 << 20  # bytes read through one mapping of a file; what was read through it stays in memory


class Weights(Protocol):
    """Tensors by name, read when they are asked for."""

    file: Path  # to name in messages

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape."""

    def tensors(self, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        """These tensors, in an order that suits the file."""


class Safetensors:
    """One file or several. Raises ConfigError for one that cannot be read, or a name that comes twice."""

    def __init__(self, file: Path, parts: Sequence[Path]) -> None:
        from safetensors import SafetensorError, safe_open

        self.file = file
        self.parts: dict[Path, dict[str, tuple[int, ...]]] = {}
        seen: set[str] = set()
        for part in parts:
            try:
                with safe_open(part, framework="pt") as opened:
                    shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in list(opened.keys())}
            except FileNotFoundError:
                raise ConfigError(f"{part}: is missing, and {file.name} names it") from None
            except (OSError, SafetensorError) as error:
                raise ConfigError(f"{part}: cannot be read ({one_line(error)})") from None
            twice = seen & shapes.keys()
            if twice:
                raise ConfigError(f"{part}: has {min(twice)}, which another file of this folder has as well")
            seen |= shapes.keys()
            self.parts[part] = shapes

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for shapes in self.parts.values() for name, shape in shapes.items()}

    def tensors(self, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        from safetensors import safe_open

        wanted = set(names)
        for part, shapes in self.parts.items():
            rest = [name for name in shapes if name in wanted]
            while rest:
                read = 0
                with safe_open(part, framework="pt") as opened:
                    while rest and read < AT_ONCE:
                        tensor = opened.get_tensor(rest[0])
                        read += tensor.nbytes
                        yield rest.pop(0), tensor
                        del tensor


class Pickled:
    """A file of `torch.save`, of which nothing but tensors is read."""

    def __init__(self, parts: Sequence[Path]) -> None:
        self.file = parts[0]
        self.held: dict[str, Tensor] = {}
        for part in parts:
            self.held |= unpickled(part)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.held.items()}

    def tensors(self, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        for name in names:
            yield name, self.held[name]


def unpickled(path: Path) -> dict[str, Tensor]:
    """Names and tensors, mapped into memory. Raises ConfigError if there is more to it."""
    import zipfile

    try:
        held = torch.load(path, weights_only=True, map_location="cpu", mmap=zipfile.is_zipfile(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: is missing") from None
    except Exception as error:
        why = "it asks for more than tensors" if "weights_only" in str(error).lower() else one_line(error)
        raise ConfigError(
            f"{path}: is not read ({why}); convert it to safetensors where you trust it"
        ) from None
    if not isinstance(held, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in held.items()
    ):
        raise ConfigError(f"{path}: is not read: must hold tensors by name and nothing else")
    odd = next((name for name, tensor in held.items() if not is_plain(tensor)), None)
    if odd is not None:
        raise ConfigError(f"{path}: is not read: {odd} must be a dense tensor with its numbers in the file")
    return held


def is_plain(tensor: Tensor) -> bool:
    """Whether it is numbers side by side: not sparse, nested, packed, or without numbers (meta)."""
    dense = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized
    return dense and tensor.device.type == "cpu"


def found(folder: Path) -> Weights:
    """The weights of a folder. Raises ConfigError where there are none, or not all that an index names."""
    if (folder / WHOLE).is_file():
        return Safetensors(folder / WHOLE, [folder / WHOLE])
    index = folder / f"{WHOLE}.index.json"
    if index.is_file():
        weights = Safetensors(index, listed(index))
        lacking = sorted(weight_map(index).keys() - weights.shapes().keys())
        if lacking:
            raise ConfigError(f"{index}: names {lacking[0]}, which its file has not")
        return weights
    if (folder / PICKLE).is_file():
        return Pickled([folder / PICKLE])
    index = folder / f"{PICKLE}.index.json"
    if index.is_file():
        return Pickled(listed(index))
    raise ConfigError(f"{folder}: has no weights; there must be {WHOLE} (or {WHOLE}.index.json), or {PICKLE}")


def weight_map(index: Path) -> dict[str, str]:
    """Tensor to file, as an index has it."""
    try:
        mapped = read_object(index)["weight_map"]
        if not all(isinstance(name, str) for name in (*mapped, *mapped.values())):
            raise TypeError("weight_map must map names to names")
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{index}: is no index of weights ({one_line(error)})") from None
    return mapped


def listed(index: Path) -> list[Path]:
    """The files that an index names, all of them in its own folder."""
    names = sorted(set(weight_map(index).values()))
    for name in names:
        if not re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name):
            raise ConfigError(f"{index}: names {name!r}, which is no file of weights in this folder")
        if not (index.parent / name).is_file():
            raise ConfigError(f"{index.parent / name}: is missing, and {index.name} names it")
    if not names:
        raise ConfigError(f"{index}: names no file")
    return [index.parent / name for name in names]


def save(rows: Sequence[Row], folder: Path, shard: int, dtype: torch.dtype) -> None:
    """Writes model.safetensors, or shards of at most `shard` bytes and their index."""
    from safetensors.torch import save_file

    pieces = [piece for row in rows for piece in row.pieces]
    size = torch.empty(0, dtype=dtype).element_size()
    shards, room = [[]], shard
    for piece in pieces:
        need = piece.view.numel() * size
        if need > room and shards[-1]:
            shards.append([])
            room = shard
        shards[-1].append(piece)
        room -= need
    several, placed = len(shards) > 1, {}
    for number, some in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if several else WHOLE
        held = {p.name: p.view.reshape(p.shape).to(dtype).contiguous() for p in some}
        save_file(held, folder / name, metadata={"format": "pt"})
        placed |= dict.fromkeys(held, name)
    if several:
        total = sum(piece.view.numel() * size for piece in pieces)
        index = {"metadata": {"total_size": total}, "weight_map": placed}
        (folder / f"{WHOLE}.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def read_object(path: Path) -> dict[str, Any]:
    """An object in a file of JSON. Raises ConfigError if there is none."""
    said = read_json(path)
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: must hold an object")
    return said


def read_json(path: Path) -> Any:
    """What a file of JSON holds, whether or not it begins with a byte order mark. Raises ConfigError."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no file")  # a pipe would be waited for
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({one_line(error)})") from None
