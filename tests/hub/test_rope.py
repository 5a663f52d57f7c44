"""Every rotary scheme of a config.json is the one of `transformers`, and is written as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hub import decoders, parity

from tfcli import origin
from tfcli.batch import Batch
from tfcli.checkpoint import Loaded
from tfcli.compose import compose, flat
from tfcli.errors import ConfigError
from tfcli.hub.fields import Asked, Settings
from tfcli.hub.rope import ORIGINAL, Rope
from tfcli.start import of_the_run

pytest.importorskip("transformers")

# texts stay on one side of the `original` of longrope, as transformers chooses by the longest of a batch
SHORT, LONG = [1.0, 1.3, 1.7, 2.0], [1.5, 2.5, 4.0, 6.0]  # of heads of 8 features
TYPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0,
     ORIGINAL: 16},
    {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, ORIGINAL: 16},
    {"rope_type": "yarn", "rope_theta": 20.0, "factor": 4.0, ORIGINAL: 64,
     "truncate": False, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.3},
    {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 16, "mscale": 0.7, "mscale_all_dim": 1.2},
    {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, ORIGINAL: 128,
     "factor": 4.0},
    {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, ORIGINAL: 4},
    {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, ORIGINAL: 4,
     "attention_factor": 0.9, "factor": 2.0},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 100.0},
    {"rope_type": "proportional", "partial_rotary_factor": 0.75, "factor": 2.0, "rope_theta": 100.0},
]  # fmt: skip
NAMES = ("llama", "mistral", "gemma", "qwen2", "olmo2")


def kind(parameters: Any) -> str:
    return parameters["rope_type"] if isinstance(parameters, dict) else str(parameters)


def both(where: Path, name: str, **more: Any) -> tuple[Loaded, Any]:
    """A model in both forms, with heads of 8 features."""
    theirs = decoders.made(name, **({} if name == "gpt_neox" else {"head_dim": 8}), **more)
    return origin.load(parity.folder_of(theirs, where)), theirs


@pytest.mark.parametrize("parameters", TYPES, ids=kind)
def test_a_scheme_is_that_of_transformers(parameters: dict[str, Any], tmp_path: Path) -> None:
    loaded, theirs = both(tmp_path / "theirs", "llama", rope_parameters=parameters)
    assert parity.gap(loaded, theirs) < parity.NEAR
    assert parity.gap(loaded, theirs, left=True) < parity.NEAR
    parity.same_greedy(loaded, theirs, lengths=(9, 7))
    parity.same_when_written(loaded, theirs, tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.parametrize("parameters", TYPES[1:4], ids=kind)
@pytest.mark.parametrize("name", NAMES[1:])
def test_descendants_have_the_same_schemes(name: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    loaded, theirs = both(tmp_path, name, rope_parameters=parameters)
    assert parity.gap(loaded, theirs) < parity.NEAR


@pytest.mark.parametrize("parameters", [p for p in TYPES if p["rope_type"] != "proportional"], ids=kind)
def test_a_scheme_on_a_part_of_the_features_is_that_of_transformers(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    halved = {k: v[:2] if isinstance(v, list) else v for k, v in parameters.items()}
    loaded, theirs = both(tmp_path, "gpt_neox", rope_parameters=halved | {"partial_rotary_factor": 0.5})
    assert loaded.config.position.partial == 0.5
    assert parity.gap(loaded, theirs) < parity.NEAR
    parity.same_greedy(loaded, theirs, lengths=(9, 7))


def test_a_scheme_whose_base_grows_is_that_of_transformers(tmp_path: Path) -> None:
    more = {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 12}
    loaded, theirs = both(tmp_path / "theirs", "llama", **more)
    for width in (8, 12, 13, 24):  # of theirs the base grows with what it has seen, and never shrinks
        assert parity.gap(loaded, theirs, width, lengths=(width, width)) < parity.NEAR
    text = parity.ids(1, 5)
    mine = parity.greedy(loaded.model, text, torch.ones_like(text), 40)
    theirs = decoders.made("llama", head_dim=8, **more)
    for token in mine[0].tolist():  # read anew each time: what theirs remembers was turned otherwise
        assert parity.said(theirs, input_ids=text)[0, -1].argmax().item() == token
        text = torch.cat((text, torch.tensor([[token]])), dim=1)
    parity.same_when_written(loaded, theirs, tmp_path / "theirs", tmp_path / "ours")


def test_a_text_alone_is_turned_by_its_own_length(tmp_path: Path) -> None:
    parameters = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                  ORIGINAL: 12}  # fmt: skip
    loaded, theirs = both(tmp_path, "llama", rope_parameters=parameters)
    for length in (12, 13):
        tokens = parity.ids(1, length)
        with torch.no_grad():
            mine = loaded.model(Batch(tokens))
        assert (mine - parity.said(theirs, input_ids=tokens)).abs().max() < parity.NEAR


FLIPS: list[tuple[dict[str, Any], str]] = [
    (TYPES[0], "position.base=600"),
    (TYPES[1], "position.factor=2.5"),
    (TYPES[2], "position.factor=4"),
    (TYPES[2], "position.low=2"),
    (TYPES[2], "position.high=2"),
    (TYPES[2], "position.original=64"),
    (TYPES[3], "position.factor=8"),
    (TYPES[3], "position.attention_factor=1.0"),
    (TYPES[3], "position.original=32"),
    (TYPES[4], "position.truncate=true"),
    (TYPES[4], "position.beta_fast=8"),
    (TYPES[4], "position.beta_slow=0.3"),
    (TYPES[5], "position.mscale=null"),
    (TYPES[5], "position.mscale_all_dim=0.7"),
    (TYPES[6], "position.short_factor=[1.0,1.3,1.7,3.0]"),
    (TYPES[6], "position.factor=16"),
    (TYPES[6], "position.original=8"),
    (TYPES[7], "position.long_factor=[1.5,2.5,3.0,6.0]"),
    (TYPES[8], "position.attention_factor=null"),
    (TYPES[9], "position.partial=0.25"),
    (TYPES[10], "position.factor=1.0"),
]


@pytest.mark.parametrize(("parameters", "change"), FLIPS, ids=kind)
def test_another_number_is_seen(parameters: dict[str, Any], change: str, tmp_path: Path) -> None:
    loaded, theirs = both(tmp_path, "llama", rope_parameters=parameters)
    assert parity.gap(loaded, theirs) < parity.NEAR
    assert parity.gap(decoders.flipped(loaded, tmp_path, change), theirs) > parity.FAR


# --- how it is said -----------------------------------------------------------------------------------------

NEOX = Rope(theta="rotary_emb_base", partial=("rotary_pct", 0.25))
LINEAR = {"type": "linear", "factor": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}


def read(said: dict[str, Any], field: Rope | None = None) -> Settings:
    asked = Asked(said, "config.json")
    found = (field or Rope()).read(asked)
    asked.get("max_position_embeddings")
    asked.refuse_rest()
    return found


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    ({"rope_theta": 500}, {"rope_parameters": {"rope_theta": 500.0}}),
    ({"rope_theta": 500, "rope_parameters": {"rope_theta": 700}}, {"rope_theta": 700}),  # that inside wins
    ({"rope_scaling": None, "partial_rotary_factor": 1.0}, {"rope_parameters": {}}),
    ({"rope_scaling": LINEAR}, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}),
    ({"rope_scaling": LINEAR | {"rope_type": "linear"}}, {"rope_scaling": LINEAR}),
    ({"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default"}},
     {"rope_scaling": LINEAR}),  # the older one wins
    ({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2}},
     {"rope_scaling": LINEAR}),
    ({"max_position_embeddings": 64, "rope_scaling": LLAMA3},
     {"rope_scaling": LLAMA3 | {ORIGINAL: 64}}),
    ({ORIGINAL: 32, "rope_scaling": LLAMA3 | {ORIGINAL: 64}},
     {"rope_scaling": LLAMA3 | {ORIGINAL: 32}}),  # that beside wins
    ({"max_position_embeddings": 64, "rope_scaling": LONGROPE | {ORIGINAL: 16}},
     {"rope_scaling": LONGROPE | {ORIGINAL: 16, "factor": 4}}),
    ({"max_position_embeddings": 64,
      "rope_scaling": {"type": "yarn", "factor": None, ORIGINAL: 16}},
     {"rope_scaling": {"type": "yarn", "factor": 4, ORIGINAL: 16, "beta_fast": 32,
                       "beta_slow": 1, "truncate": True}}),
    ({"partial_rotary_factor": 0.5, "rope_parameters": {"rope_type": "proportional"}},
     {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_older_and_shorter_ways_to_say_a_scheme_are_read(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert read(one) == read(other)


@pytest.mark.parametrize(("one", "other"), [pair for pair in SAME if len(str(pair[0])) > 30])
def test_transformers_reads_those_ways_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    size = decoders.TOKENS | decoders.SIZES["llama"] | {"head_dim": 8}
    both = []
    for said in (one, other):
        try:
            model = LlamaForCausalLM(LlamaConfig(**size | said)).model
        except (KeyError, TypeError):
            pytest.skip("transformers reads one of them only")
        model.rotary_emb(torch.zeros(1), torch.arange(24)[None])
        both.append(model.rotary_emb.inv_freq)
    assert torch.equal(*both)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rope_theta": "big"}, "rope_theta='big'"),
    ({"rope_parameters": [1]}, "rope_parameters=[1]"),
    ({"rope_parameters": {"rope_theta": "big"}}, "rope_parameters.rope_theta='big'"),
    ({"rope_parameters": {"rope_type": "axial"}}, "rope_parameters.rope_type='axial'"),
    ({"rope_scaling": {"type": "su"}}, "rope_scaling.type='su'"),
    ({"rope_scaling": {"type": ["linear"]}}, "rope_scaling.type=['linear']"),
    ({"rope_scaling": {"type": "linear", "rope_type": "yarn"}}, "rope_scaling.type='linear'"),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor=None"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor='2'"),
    ({"rope_scaling": {"type": "linear", "factor": True}}, "rope_scaling.factor=true"),
    ({"rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 3}}, "rope_scaling.beta_fast=3"),
    ({"rope_scaling": {"mrope_section": [1, 1, 2]}}, "rope_scaling.mrope_section=[1, 1, 2]"),
    ({"rope_scaling": {"type": "llama3", "factor": 8}}, "rope_scaling.low_freq_factor=None"),
    ({"rope_scaling": {"type": "longrope", "long_factor": LONG}}, "rope_scaling.short_factor=None"),
    ({"rope_scaling": LONGROPE | {"long_factor": 2.0}}, "rope_scaling.long_factor=2.0"),
    ({"rope_scaling": LONGROPE | {"long_factor": [1, "2"]}}, "rope_scaling.long_factor=[1, '2']"),
    ({"rope_scaling": {"type": "yarn", "factor": 4, "truncate": "no"}}, "rope_scaling.truncate='no'"),
    ({"rope_scaling": {"type": "yarn", "factor": 4, ORIGINAL: 0}},
     "rope_scaling.original_max_position_embeddings=0"),
    ({ORIGINAL: -1, "rope_scaling": LLAMA3}, "original_max_position_embeddings=-1"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor=0.5"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters.full_attention="),
]  # fmt: skip


@pytest.mark.parametrize(("said", "named"), REFUSED)
def test_what_a_scheme_does_not_carry_out_is_refused(said: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(said)
    assert f"config.json: {named}" in str(refused.value) and "\n" not in str(refused.value)


def test_gpt_neox_has_names_of_its_own() -> None:
    assert read({}, NEOX) == {"position": "rope", "position.base": 10000.0, "position.partial": 0.25}
    found = read(
        {"rotary_pct": 0.5, "rotary_emb_base": 100, "rope_scaling": {"type": "linear", "factor": 2}}, NEOX
    )
    assert (found["position"], found["position.base"], found["position.partial"]) == (
        "rope_linear",
        100.0,
        0.5,
    )
    inside = {"rotary_pct": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0}}
    assert read(inside, NEOX)["position.partial"] == 1.0


OURS = ["position=rope position.base=500", "position=rope_linear",
"position=rope_dynamic position.original=48",
        "position=rope_llama3 position.original=16", "position=rope_yarn", "position=rope_proportional",
        "position=rope_yarn position.mscale=0.7 position.mscale_all_dim=1.2 position.truncate=false",
        "position=rope_yarn position.attention_factor=1.5 position.original=32 position.factor=3",
        "position=rope_longrope position.short_factor=[1.0,2.0] position.long_factor=[2.0,3.0]"]  # fmt: skip


@pytest.mark.parametrize("overrides", OURS)
@pytest.mark.parametrize("field", [Rope(), NEOX])
def test_what_is_written_is_read_as_it_was(field: Rope, overrides: str) -> None:
    part = ["position.partial=0.5"] if field is NEOX else []
    config = compose("train", [*overrides.split(), *part])
    said = {"max_position_embeddings": config.size.context} | field.write(of_the_run(config))
    found = compose("train", [f"{k}={v}".replace("None", "null") for k, v in read(said, field).items()])
    assert flat(dict(found.position)) == flat(dict(config.position))


def test_factors_that_are_not_named_are_written_as_what_they_are() -> None:
    config = compose("train", ["position=rope_longrope", "position.factor=3", "size.head_dim=8"])
    said = Rope().write(of_the_run(config))["rope_parameters"]
    assert said["short_factor"] == [1.0] * 4 and said["long_factor"] == [3.0] * 4


def test_what_turns_nothing_is_not_written() -> None:
    assert Rope().write(of_the_run(compose("train", ["position=alibi"]))) == {}
