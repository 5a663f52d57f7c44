"""Rotary positions in a config.json: `rope_parameters`, or `rope_theta` and `rope_scaling` of older files."""

from __future__ import annotations

from typing import Any

from tfcli import choices
from tfcli.hub.fields import Asked, Field, Flat, Free, Settings, is_number

LENGTH = "max_position_embeddings"
ORIGINAL = "original_max_position_embeddings"
SHARE, WHOLE = "partial_rotary_factor", 1.0
KIND = ("rope_type", "type")
TYPES: dict[str, tuple[str, dict[str, str]]] = {  # a rope_type is a choice of ours with keys named so there
    "default": ("rope", {}),
    "linear": ("rope_linear", {"factor": "factor"}),
    "dynamic": ("rope_dynamic", {"factor": "factor"}),
    "llama3": ("rope_llama3", {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor",
                               "original": ORIGINAL}),
    "yarn": ("rope_yarn", {"factor": "factor", "original": ORIGINAL, "beta_fast": "beta_fast",
                           "beta_slow": "beta_slow", "attention_factor": "attention_factor",
                           "mscale": "mscale", "mscale_all_dim": "mscale_all_dim", "truncate": "truncate"}),
    "longrope": ("rope_longrope", {"short_factor": "short_factor", "long_factor": "long_factor",
                                   "factor": "factor", "original": ORIGINAL,
                                   "attention_factor": "attention_factor"}),
    "proportional": ("rope_proportional", {"factor": "factor"}),
}  # fmt: skip
USUAL = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}  # where nothing is said
MAY_LACK = ("attention_factor", "mscale", "mscale_all_dim")
LISTS = ("short_factor", "long_factor")


class Rope(Field):
    """A rotary scheme. It stands behind the field of the length, which one scheme writes as well.

    theta: the field with the base, beside the parameters. partial: whether the architecture turns a part of
    each head's features, the field that says how large a part, and how large where nothing is said.
    """

    def __init__(self, theta: str = "rope_theta", partial: tuple[str, float] | None = None) -> None:
        self.theta, self.partial = theta, partial

    def read(self, asked: Asked) -> Settings:
        older, newer = asked.within("rope_scaling"), asked.within("rope_parameters")
        said = older if older and older.said else newer or Asked({}, asked.file)  # the older one wins
        kind = said.get(KIND, "default")
        if not isinstance(kind, str) or kind not in TYPES:
            raise said.refused(KIND, f"must be {' or '.join(TYPES)}")
        base, share = self.beside(asked)
        part = {"position.partial": number(said, SHARE, share)}
        if not self.partial and kind != "proportional":
            part = {}
            for place in (asked, said):
                if number(place, SHARE, WHOLE) != WHOLE:
                    raise place.refused(SHARE, "this architecture turns all features of a head")
        return read(said, asked, kind, number(said, "rope_theta", base)) | part

    def beside(self, asked: Asked) -> tuple[float, float]:
        """The base and the share of features that are said outside of the parameters."""
        name, usual = self.partial or (SHARE, WHOLE)
        base, share = number(asked, self.theta, 10000.0), number(asked, name, usual)
        for other, value in (("rope_theta", base), (SHARE, share)):
            if number(asked, other, value) != value:
                raise asked.refused(other, f"must be {value:g}, as {self.theta} and {name} have it")
        return base, share

    def write(self, our: Flat) -> dict[str, Any]:
        said = write(our)
        if said is None:
            return {}
        if not self.partial and said["rope_type"] != "proportional":
            said.pop(SHARE)  # a part would come back as the whole, and be seen to differ
        length = {LENGTH: our["position.original"]} if said["rope_type"] == "dynamic" else {}
        return {"rope_parameters": said, **length}


def read(said: Asked, asked: Asked, kind: str, base: float) -> Settings:
    """The parameters of a scheme; `asked` has the lengths."""
    choice, keys = TYPES[kind]
    found: Settings = {"position": choice, "position.base": float(base)}
    length = number(asked, LENGTH, 2048)
    original = number(asked, ORIGINAL, number(said, ORIGINAL, length))  # that beside the parameters wins
    if original < 1:
        raise (asked if asked.get(ORIGINAL) else said).refused(ORIGINAL, "must be at least 1")
    for own, name in keys.items():
        value = original if name == ORIGINAL else parameter(said, kind, name, length / original)
        found[f"position.{own}"] = value
    if kind == "dynamic":
        found["position.original"] = length
    Free("finetuned").read(said)  # a note that some have among the parameters
    said.refuse_rest()
    return found


def parameter(said: Asked, kind: str, name: str, ratio: float) -> Any:
    """One parameter; ratio: how much longer than at first texts have become."""
    if name in LISTS:
        return numbers(said, kind, name)
    if name == "truncate":
        truncate = said.get(name, USUAL[name])
        if not isinstance(truncate, bool):
            raise said.refused(name, "must be true or false")
        return truncate
    value = number(said, name, USUAL.get(name))
    if value is None and name == "factor":
        value = {"yarn": ratio, "longrope": ratio, "proportional": 1.0}.get(kind)
    if value is None and name not in MAY_LACK:
        raise said.refused(name, f"rope_type={kind} needs it")
    return None if value is None else float(value)


def number(asked: Asked, name: str, usual: float | None) -> Any:
    """A number, or what is usual where there is none."""
    value = asked.get(name, usual)
    if value is not None and not is_number(value):
        raise asked.refused(name, "must be a number")
    return value


def numbers(said: Asked, kind: str, name: str) -> list[float]:
    """A list of numbers."""
    values = said.get(name)
    if values is None:
        raise said.refused(name, f"rope_type={kind} needs it")
    if not isinstance(values, list) or not all(map(is_number, values)):
        raise said.refused(name, "must be a list of numbers")
    return [float(value) for value in values]


def write(our: Flat) -> dict[str, Any] | None:
    """The parameters of our scheme; None: it is no rotary one."""
    for kind, (choice, keys) in TYPES.items():
        if our.get("position._target_") == choices.target("position", choice):
            values = {name: our[f"position.{own}"] for own, name in keys.items()}
            if kind == "longrope":
                values |= {name: values[name] or [alike] * pairs(our)
                           for name, alike in zip(LISTS, (1.0, values["factor"]))}  # fmt: skip
            values |= {"rope_theta": our["position.base"], SHARE: our["position.partial"]}
            return {"rope_type": kind} | {name: value for name, value in values.items() if value is not None}
    return None


def pairs(our: Flat) -> int:
    """How many pairs of a head's features are turned."""
    width = our.get("size.head_dim") or our["size.d_model"] // our["size.n_heads"]
    return int(width * our["position.partial"]) // 2
