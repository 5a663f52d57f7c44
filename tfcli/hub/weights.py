"""Files of weights: safetensors, whole or in shards, or a pickle of tensors and nothing else; read and
written.

Nothing in a folder is trusted: an index names files of its own folder only, and no pickle runs code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tfcli.errors import ConfigError
from tfcli.hub.names import Row

WHOLE, PICKLE = "model.safetensors", "pytorch_model.bin"
AT_ONCE = 64 << 20  # bytes read through one mapping of a file; what was read through it stays in memory
Fixed = tuple[str, Callable[[tuple[int, ...]], Tensor]]  # a pattern of names, what they hold by shape
REAL = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


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
                raise ConfigError(f"{part}: cannot be read ({line(error)})") from None
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
        why = "it asks for more than tensors" if "weights_only" in str(error).lower() else line(error)
        raise ConfigError(
            f"{path}: is not read ({why}); convert it to safetensors where you trust it"
        ) from None
    if not isinstance(held, dict) or not all(isinstance(t, Tensor) for t in held.values()):
        raise ConfigError(f"{path}: is not read: must hold tensors by name and nothing else")
    return held


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
        mapped = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if not all(isinstance(name, str) for name in (*mapped, *mapped.values())):
            raise TypeError("weight_map must map names to names")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{index}: is no index of weights ({line(error)})") from None
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


# --- into and out of a model --------------------------------------------------------------------------------


def fill(
    rows: Sequence[Row],
    weights: Weights,
    spare: Sequence[str] = (),
    alias: Sequence[tuple[str, str]] = (),
    prefix: str = "",
    fixed: Sequence[Fixed] = (),
    zero: Sequence[str] = (),
) -> list[str]:
    """Fills tensors of ours, each from its pieces, every piece once; the names of weights without a use.

    spare: patterns of names that may be there without one. alias: (pattern, replacement) of older names.
    prefix: of a body's names, which files have or have not. fixed: what may be there, with these numbers
    only. zero: patterns of what is zero where it is not there.
    Raises ConfigError for pieces that are missing, of another shape or no real numbers, for weights that
    nobody wants, and for tied ones that differ.
    """
    shapes = weights.shapes()
    wanted = {piece.name: piece for row in rows for piece in row.pieces}
    known = {*wanted, *(other for row in rows for other in row.aliases)}
    called = as_known(weights, known, alias, prefix)
    doubles: dict[str, str] = {}
    for row in rows:
        for other in row.aliases:
            if other in called and row.pieces[0].name not in called:
                called[row.pieces[0].name] = called.pop(other)
            elif other in called:
                doubles[other] = row.pieces[0].name
    none = [n for n in wanted if n not in called and any(re.fullmatch(pattern, n) for pattern in zero)]
    for name in none:
        wanted.pop(name).view.zero_()
    missing = sorted(set(wanted) - set(called))
    rest = sorted(set(called) - set(wanted) - set(doubles))
    left = [name for name in rest if any(re.fullmatch(pattern, name) for pattern in spare)]
    numbers = {called[n]: make for n in rest for pattern, make in fixed if re.fullmatch(pattern, n)}
    unexpected = [name for name in rest if name not in left and called[name] not in numbers]
    if missing or unexpected:
        raise ConfigError(
            f"{weights.file}: not the weights that config.json tells of; missing {shown(missing)}; "
            f"unexpected {shown(unexpected)}"
        )
    for name, own in [*((name, name) for name in wanted), *doubles.items()]:
        if shapes[called[name]] != wanted[own].shape:
            raise ConfigError(
                f"{weights.file}: {called[name]} is {shapes[called[name]]}, and config.json tells of "
                f"{wanted[own].shape}"
            )
    refuse_changed(weights, numbers)
    pour(weights, {called[name]: piece for name, piece in wanted.items()})
    refuse_other(weights, {called[double]: wanted[name] for double, name in doubles.items()})
    return left


def as_known(
    weights: Weights, known: set[str], alias: Sequence[tuple[str, str]], prefix: str
) -> dict[str, str]:
    """Each name as the table has it -> as the file has it."""
    called: dict[str, str] = {}
    for name in weights.shapes():
        new = name
        for pattern, replacement in alias:
            new = re.sub(pattern, replacement, new)
        new = next((n for n in (new, prefix + new, new.removeprefix(prefix)) if n in known), new)
        if new in called:
            raise ConfigError(f"{weights.file}: {called[new]} and {name} are the same weight, {new}")
        called[new] = name
    return called


def pour(weights: Weights, into: Mapping[str, object]) -> None:
    """Copies tensors of a file into the views of ours."""
    with torch.no_grad():
        for name, tensor in weights.tensors(list(into)):
            if tensor.dtype not in REAL:
                kind = str(tensor.dtype).removeprefix("torch.")
                raise ConfigError(
                    f"{weights.file}: {name} is {kind}; must be real numbers of 16 bits or more"
                )
            view = into[name].view
            view.copy_(tensor.reshape(view.shape))


def refuse_other(weights: Weights, doubles: Mapping[str, object]) -> None:
    """Raises ConfigError where a weight that is tied here is there twice, and not the same."""
    for name, tensor in weights.tensors(list(doubles)):
        piece = doubles[name]
        if not torch.equal(tensor.reshape(piece.view.shape).to(piece.view.dtype), piece.view):
            raise ConfigError(
                f"{weights.file}: {name} differs from {piece.name}, and config.json says that they are one "
                "(tie_word_embeddings); set it to false there to have both"
            )


def refuse_changed(weights: Weights, numbers: Mapping[str, Callable[[tuple[int, ...]], Tensor]]) -> None:
    """Raises ConfigError where a weight that is made here, of its shape, is there with other numbers."""
    for name, tensor in weights.tensors(list(numbers)):
        right = numbers[name](tuple(tensor.shape))
        near = 4 * torch.finfo(tensor.dtype).eps if tensor.dtype in REAL else 0.0
        if not torch.allclose(tensor.double(), right.double(), rtol=0.0, atol=near):
            raise ConfigError(
                f"{weights.file}: {name} has other numbers than this kind of model makes, so the model would "
                "not be what it says"
            )


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


def shown(names: Sequence[str]) -> str:
    """Up to five names, and how many more."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"


def line(error: Exception) -> str:
    """What an exception says, on one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
