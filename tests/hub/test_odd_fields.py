"""What a config.json may hold beyond what it should: each value is carried out, or refused in one line."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hub import decoders, encoders, parity
from safetensors.torch import load_file

from tfcli import origin
from tfcli.errors import ConfigError
from tfcli.hub import Architecture, architecture, kind_of, model_types, sentence
from tfcli.hub.fields import Asked, Field, Only, Settings, names_of_classes
from tfcli.hub.layers import AT_MOST, shortest
from tfcli.hub.weights import found, read_object, unpickled, weight_map

ENCODERS = ("bert", "roberta", "distilbert", "modernbert")
BODIES = [(name, f"{decoders.NAMES[name]}Model") for name in decoders.NAMES]
ODD: list[Any] = [
    None, "x", "", -1, 0, 0.0, 2.5, float("nan"), float("inf"), 10**9, 10**30, 10**400, True, False, [],
    [[1]], [None], ["x"], {}, {"a": 1}, {"0": "a", "2": "b"}, {"rope_type": ["x"]},
    {"full_attention": {"rope_type": ["x"]}}, {"rope_type": "yarn", "factor": 10**400},
    {"rope_type": "longrope", "short_factor": [10**400], "long_factor": [1]},
]  # fmt: skip


def read(name: str, /, **said: Any) -> Settings:
    """The settings of a config.json with these fields."""
    asked = Asked({"model_type": name, **said}, "config.json")
    arch = architecture(name)
    return arch.read(kind_of(arch, asked), asked)


def refusal(name: str, /, **said: Any) -> str:
    """Why it is refused; "": it is not."""
    try:
        read(name, **said)
    except ConfigError as error:
        return str(error)
    return ""


def config_of(name: str) -> Any:
    """The class of transformers with an architecture's fields."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[name]


# --- any value in any field ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_types())
def test_any_value_in_any_field_is_read_or_refused_in_one_line(name: str) -> None:
    arch = architecture(name)
    for kind in arch.kinds:
        usual = Asked({"model_type": name, "architectures": [kind]}, "config.json")
        arch.read(kind, usual)
        for field in sorted(usual.heard):
            for value in ODD:
                said = {"architectures": [kind], "use_sliding_window": True, field: value}
                assert "\n" not in refusal(name, **said)


TYPED: list[tuple[str, str, Any]] = [
    ("t5", "feed_forward_proj", ["relu"]), ("t5", "feed_forward_proj", {"a": 1}),
    ("t5", "dense_act_fn", ["relu"]), ("t5", "num_layers", 10**9), ("t5", "num_decoder_layers", 0),
    ("bart", "decoder_layers", 10**9), ("qwen2", "layer_types", [[1]]), ("qwen2", "num_hidden_layers", 10**9),
    ("modernbert", "layer_types", [[1]]), ("modernbert", "num_hidden_layers", 0.0),
    ("modernbert", "num_hidden_layers", 10**9), ("llama", "num_hidden_layers", AT_MOST + 1),
    ("llama", "rope_theta", 10**400), ("llama", "rms_norm_eps", float("nan")),
    ("mistral", "hidden_size", 10**400), ("qwen2", "attention_dropout", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "field", "value"), TYPED)
def test_a_value_of_another_type_or_size_is_refused_by_name(name: str, field: str, value: Any) -> None:
    assert refusal(name, **{field: value}).startswith(f"config.json: {field}=")


@pytest.mark.parametrize("said", [
    {"id2label": 3}, {"id2label": True}, {"id2label": ["a", "b"]}, {"id2label": {"0": "a", "2": "b"}},
    {"id2label": {"x": "a"}}, {"id2label": {}}, {"id2label": {"0": "a", "1": "a"}}, {"num_labels": "x"},
    {"num_labels": 2.5}, {"num_labels": 10**9}, {"num_labels": 0}, {"num_labels": [2]},
])  # fmt: skip
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
def test_classes_are_named_0_1_2_or_refused(head: str, said: dict[str, Any]) -> None:
    for name, body in zip(ENCODERS, encoders.BODIES):
        message = refusal(name, architectures=[f"{body}For{head}"], **said)
        assert message.startswith(f"config.json: {next(iter(said))}=")
    with pytest.raises(ConfigError):
        names_of_classes(Asked(said, "config.json"))


def test_classes_have_the_names_of_the_folder_or_of_their_numbers() -> None:
    named = Asked({"id2label": {"1": "b", "0": "a"}}, "config.json")
    assert names_of_classes(named) == ["a", "b"]
    assert names_of_classes(Asked({"num_labels": 3}, "config.json")) == ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.mark.parametrize(("names", "right"), [("aba", "ab"), ("abab", "ab"), ("aaaa", "a"), ("aab", "aab"),
                                              ("a", "a"), ("abcab", "abc"), ("abba", "abb")])  # fmt: skip
def test_the_shortest_list_gives_the_whole(names: str, right: str) -> None:
    assert shortest(names) == list(right)


# --- what is not heard --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_types())
def test_a_field_that_nobody_hears_may_say_nothing_only(name: str) -> None:
    for value in (None, False, [], {}, ""):
        assert refusal(name, some_new_field=value) == ""
    for value in (0, 0.0, 1, True, "x", [0]):  # a 0 may be a factor
        assert "some_new_field" in refusal(name, some_new_field=value)
    assert refusal(name, some_new_dropout=0.0) == "" != refusal(name, some_new_dropout=0.1)


def asked_with_a_default(name: str) -> set[str]:
    """The fields that transformers takes for something where a config.json does not say them."""
    import transformers

    home = Path(transformers.__file__).parent
    shared = ["modeling_utils.py", "masking_utils.py", "modeling_rope_utils.py", "modeling_layers.py",
              "cache_utils.py", "integrations/sdpa_attention.py",
              "integrations/eager_attention.py"]  # fmt: skip
    files = [home / file for file in (*shared, f"models/{name}/modeling_{name}.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    pattern = r'getattr\(\s*[\w.]*config,\s*"(\w+)",\s*([^)]+)\)'
    return {field for field, usual in re.findall(pattern, text) if usual not in ("None", "False", "0")}


@pytest.mark.parametrize("name", model_types())
def test_no_field_that_means_something_unsaid_is_passed_over(name: str) -> None:
    pytest.importorskip("transformers")
    fields = asked_with_a_default(name)
    assert "is_causal" in fields
    usual = Asked({"model_type": name}, "config.json")
    architecture(name).read(kind_of(architecture(name), usual), usual)
    for field in fields - usual.heard:
        assert field in refusal(name, **{field: False}), field
        assert field in refusal(name, **{field: 0}), field


@pytest.mark.parametrize("name", model_types())
def test_every_field_of_a_class_is_heard(name: str) -> None:
    pytest.importorskip("transformers")
    kind = config_of(name)
    asked = Asked(kind().to_dict(), "config.json")
    arch = architecture(name)
    arch.read(next(iter(arch.kinds)), asked)
    assert {field.name for field in dataclasses.fields(kind)} | {*kind.attribute_map} <= asked.heard


@pytest.mark.parametrize("name", model_types())
def test_what_sees_ahead_or_not_is_as_said(name: str) -> None:
    there, here = (True, False) if name in ENCODERS else (False, True)
    assert "is_causal" in refusal(name, is_causal=there)
    assert refusal(name, is_causal=here) == refusal(name, is_causal=None) == ""


def test_transformers_lets_a_decoder_see_ahead_and_pays_no_heed_in_an_encoder() -> None:
    pytest.importorskip("transformers")
    tokens = parity.ids(1, 8)
    for theirs, seen in ((decoders.made("llama"), True), (encoders.made("BertForMaskedLM"), False)):
        before = parity.said(theirs, input_ids=tokens)
        theirs.config.is_causal = not seen
        moved = (parity.said(theirs, input_ids=tokens) - before).abs().max().item()
        assert moved > parity.FAR if seen else moved == 0


def test_notes_of_real_folders_are_passed_over() -> None:
    notes = {"unsloth_fixed": True, "unsloth_version": "2025.1", "language": "en", "name": "a",
             "eos_token_ids": 2, "model_max_length": 512, "max_sequence_length": 2048,
             "pretraining_tp": 1}  # fmt: skip
    for name in model_types():
        assert read(name, **notes) == read(name)
        assert not {*notes} & {*vars(config_of(name)())} - {"pretraining_tp"}
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
    assert read("llama", rope_scaling=yarn | {"finetuned": True}) == read("llama", rope_scaling=yarn)


# --- classes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "body"), BODIES)
def test_a_body_scores_by_its_table_or_is_refused(name: str, body: str) -> None:
    tied = {"architectures": [body], "tie_word_embeddings": True}
    assert read(name, **tied) == read(name, tie_word_embeddings=True)
    message = refusal(name, **tied | {"tie_word_embeddings": False})
    assert message.startswith(f"config.json: architectures=['{body}']: has no head")


def test_a_folder_of_a_body_is_the_decoder_with_its_head(tmp_path: Path) -> None:
    theirs = decoders.made("llama", tie_word_embeddings=True)
    folder = parity.folder_of(theirs, tmp_path / "whole")
    theirs.model.save_pretrained(tmp_path / "body")
    parity.tokenizer().save(tmp_path / "body")
    assert not any(name.startswith("model.") for name in load_file(tmp_path / "body" / "model.safetensors"))
    assert json.loads((tmp_path / "body" / "config.json").read_text())["architectures"] == ["LlamaModel"]
    body, whole = origin.load(tmp_path / "body").model.state_dict(), origin.load(folder).model.state_dict()
    assert all(torch.equal(body[key], tensor) for key, tensor in whole.items())


def test_a_class_is_known_by_its_older_name() -> None:
    assert read("t5", architectures=["T5WithLMHeadModel"]) == read("t5")


# --- what is written ----------------------------------------------------------------------------------------


def fields_of(arch: Architecture) -> list[Field]:
    return [*arch.fields, *(field for kind in arch.kinds.values() for field in kind.fields)]


@pytest.mark.parametrize("name", model_types())
def test_what_is_only_one_thing_is_not_written_as_transformers_takes_it_unsaid(name: str) -> None:
    pytest.importorskip("transformers")
    usual = config_of(name)().to_dict()
    for field in (field for field in fields_of(architecture(name)) if isinstance(field, Only)):
        assert field.write({}) == {}
        names = field.names if isinstance(field.names, tuple) else (field.names,)
        assert all(usual[key] == field.unsaid for key in names if usual.get(key) is not None)


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensor", [
    torch.eye(2).to_sparse(), torch.empty(2, 2, device="meta"),
], ids=["sparse", "meta"])  # fmt: skip
def test_a_pickle_of_tensors_that_are_not_dense_is_refused(tensor: torch.Tensor, tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({"fine": torch.eye(2), "odd": tensor}, file)
    with pytest.raises(ConfigError) as error:
        found(tmp_path).shapes()
    assert str(file) in str(error.value) and "\n" not in str(error.value)


def test_names_in_a_pickle_are_words(tmp_path: Path) -> None:
    torch.save({1: torch.eye(2)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="tensors by name"):
        unpickled(tmp_path / "pytorch_model.bin")


def test_a_byte_order_mark_is_no_part_of_json(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    for mark in ("", "\ufeff"):
        file.write_text(mark + '{"a": 1}', encoding="utf-8")
        assert read_object(file) == {"a": 1}
    marked = {"modules.json": [{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "1_Pooling"}],
              "1_Pooling/config.json": {"pooling_mode_max_tokens": True},
              "an.index.json": {"weight_map": {"a": "b.safetensors"}}}  # fmt: skip
    (tmp_path / "1_Pooling").mkdir()
    for name, said in marked.items():
        (tmp_path / name).write_text("\ufeff" + json.dumps(said), encoding="utf-8")
    assert sentence.read(tmp_path)["head.pool"] == "max"
    assert weight_map(tmp_path / "an.index.json") == {"a": "b.safetensors"}
    for text in ("\ufeff\ufeff{}", "[]", "\ufeff[1]", "{"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="some.json"):
            read_object(file)
