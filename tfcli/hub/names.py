"""Names and shapes of weights, ours and theirs: one table that is read in both directions.

A table maps modules of ours to modules of theirs, `#` standing for a layer's number:

    "stack.layers.#.attention.branch.qkv": "model.layers.#.self_attn.{q,k,v}_proj"

In braces are the names of what is one matrix here. A form says how a tensor lies there, where it is not as
here. An entry may also name one tensor, as "head.map.bias": "cls.predictions.bias".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from tfcli.errors import ConfigError

PARAMETERS = {"gain": "weight"}  # what theirs are called, where it is not as ours
_LAYER = re.compile(r"(?<=layers\.)(\d+)(?=\.)")
_BRACES = re.compile(r"\{([^}]*)\}")


class Piece(NamedTuple):
    """A tensor of theirs as a view of one of ours: what is copied into it fills ours."""

    name: str
    view: Tensor
    shape: tuple[int, ...]  # theirs; the view has as many numbers in the same order


class Row(NamedTuple):
    """One of our tensors, the pieces it lies in there, and other names under which they may lie there too."""

    own: str
    pieces: list[Piece]
    aliases: list[str]  # of a single piece, in files that hold tied weights more than once


class Owner(NamedTuple):
    """Where a matrix of several parts stands, and how the rows of a query's or key's head lie there."""

    module: nn.Module  # the attention or feed-forward around it
    pairs: tuple[int, int] | None = None  # ours as this, theirs with the two exchanged; None: alike

    def widths(self, n_parts: int, rows: int) -> list[int]:
        """How many rows each part of a matrix has: queries, keys, values, or equal shares."""
        if n_parts == 3:
            a = self.module
            return [a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim, a.n_kv_heads * a.head_dim]
        return [rows // n_parts] * n_parts


Form = Callable[[Tensor, int, Owner], list[tuple[Tensor, tuple[int, ...]]]]


def plain(tensor: Tensor, n_parts: int, owner: Owner) -> list[tuple[Tensor, tuple[int, ...]]]:
    """The parts one below the other, as they are."""
    if n_parts == 1:
        return [(tensor, tuple(tensor.shape))]
    parts = tensor.split(owner.widths(n_parts, len(tensor)))
    if n_parts == 3 and owner.pairs:
        *turned, v = parts
        relaid = [part.unflatten(0, (-1, *owner.pairs)).transpose(1, 2) for part in turned]
        return [(view, tuple(part.shape)) for view, part in zip((*relaid, v), parts)]
    return [(part, tuple(part.shape)) for part in parts]


def transposed(tensor: Tensor, n_parts: int, owner: Owner) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Matrices as (in, out), as GPT-2's `Conv1D` has them; vectors as they are."""
    return [(t.t(), tuple(t.t().shape)) if t.ndim == 2 else (t, s) for t, s in plain(tensor, n_parts, owner)]


def by_head(tensor: Tensor, n_parts: int, owner: Owner) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Query, key and value of the first head, then those of the second ... (GPT-NeoX, BLOOM)."""
    heads = tensor.unflatten(0, (3, owner.module.n_heads, owner.module.head_dim))
    return [(heads.transpose(0, 1), tuple(tensor.shape))]


def one_row(tensor: Tensor, n_parts: int, owner: Owner) -> list[tuple[Tensor, tuple[int, ...]]]:
    """A vector as (1, n)."""
    return [(tensor[None], (1, *tensor.shape))]


class Name(NamedTuple):
    """A name of theirs, and how it lies there."""

    theirs: str
    form: Form = plain
    also: tuple[str, ...] = ()  # whole names under which the tensor may lie there too, or instead


Entry = str | Name | Callable[[nn.Module], str | Name]  # the last: where it depends on the model
Table = Mapping[str, Entry]


def rows(
    model: nn.Module,
    table: Table,
    rename: Callable[[str], str] = str,
    interleaved: bool = False,
    without: str | None = None,
) -> list[Row]:
    """Every tensor of a model of ours with its pieces there, but those whose names begin with `without`.

    rename: the last word on a name of theirs. interleaved: whether pairs of rotated features are (2i, 2i+1)
    there. Raises KeyError for a tensor that the table does not know.
    """
    found: dict[int, Row] = {}
    for own, tensor in model.state_dict(keep_vars=True).items():
        if without is not None and own.startswith(without):
            continue
        name, names = spelled(own, table, model)
        names = [rename(n) for n in names]
        if id(tensor) in found:  # tied: there, too, it may lie under several names
            found[id(tensor)].aliases.extend(n for n in names if n != found[id(tensor)].pieces[0].name)
            continue
        owner = Owner(owner_of(model, own), pairs(model, own, interleaved))
        forms = name.form(scored_rows(model, own, tensor.detach()), len(names), owner)
        pieces = [Piece(n, view, shape) for n, (view, shape) in zip(names, forms, strict=True)]
        found[id(tensor)] = Row(own, pieces, [rename(n) for n in name.also])
    return list(found.values())


def spelled(own: str, table: Table, model: nn.Module) -> tuple[Name, list[str]]:
    """The entry of a tensor of ours, and the names of its pieces."""
    layer = _LAYER.search(own)
    general = _LAYER.sub("#", own, count=1)
    module, _, parameter = general.rpartition(".")
    if general in table:
        name = as_name(table[general], model)
        text = name.theirs
    else:
        name = as_name(table[module], model)
        text = f"{name.theirs}.{PARAMETERS.get(parameter, parameter)}"
    text = text.replace("#", layer[1]) if layer else text
    braces = _BRACES.search(text)
    if braces is None:
        return name, [text]
    return name, [text[: braces.start()] + part + text[braces.end() :] for part in braces[1].split(",")]


def as_name(entry: Entry, model: nn.Module) -> Name:
    """An entry of a table, for this model."""
    entry = entry if isinstance(entry, str | Name) else entry(model)
    return Name(entry) if isinstance(entry, str) else entry


def owner_of(model: nn.Module, own: str) -> nn.Module:
    """The module that has the matrix of which this is the weight or the bias."""
    return model.get_submodule(".".join(own.split(".")[:-2]))


def scored_rows(model: nn.Module, own: str, tensor: Tensor) -> Tensor:
    """A table of tokens without the rows that no token has."""
    tokens = own in ("embedding.table.weight", "source_embedding.table.weight") or own.startswith("head.map.")
    if own == "head.final_logits_bias" or (
        tokens and (not own.startswith("head.") or model.head.says == "tokens")
    ):
        return tensor[: model.vocab_size]
    return tensor


def pairs(model: nn.Module, own: str, interleaved: bool) -> tuple[int, int] | None:
    """How the rows of a head that are turned in pairs are to be seen so that they can be laid as there; None:
    they lie alike. Raises ConfigError where that cannot be.
    """
    if ".attention.branch." not in own:
        return None
    scheme, width = scheme_of(model, own), owner_of(model, own).head_dim
    if scheme.enters != "rotation" or scheme.interleaved == interleaved:
        return None
    if scheme.width != width or "_norm." in own:
        what = "attention.qk_norm" if "_norm." in own else "position.partial"
        raise ConfigError(
            f"position.interleaved={str(scheme.interleaved).lower()}: with {what} the pairs of features "
            "cannot be laid as they are there"
        )
    return (width // 2, 2) if scheme.interleaved else (2, width // 2)


def scheme_of(model: nn.Module, own: str) -> nn.Module:
    """The position scheme of the layer in which a tensor is."""
    stack = model.get_submodule(own.partition(".layers.")[0])
    return stack.positions[stack.kinds[int(_LAYER.search(own)[1])][1]]
