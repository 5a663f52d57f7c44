"""Model folders: the forms of their weights, and what is refused, in one line, before anything is run."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub import parity
from safetensors.torch import load_file, save_file

from tfcli import origin
from tfcli.errors import ConfigError

pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama of theirs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=parity.V, hidden_size=parity.D, num_hidden_layers=2, num_attention_heads=parity.H,
        num_key_value_heads=parity.K, intermediate_size=parity.FF, max_position_embeddings=parity.CONTEXT,
    )  # fmt: skip
    theirs = parity.shaken(LlamaForCausalLM(config))
    return parity.folder_of(theirs, tmp_path_factory.mktemp("llama") / "model")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def changed(folder: Path, **fields: Any) -> Path:
    """The folder with fields of its config.json changed."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    return folder


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """The folder with its weights changed."""
    held = load_file(folder / "model.safetensors")
    change(held)
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def sharded(folder: Path) -> dict[str, str]:
    """The folder's weights in two files; gives the map of its index."""
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, placed = sorted(held), {}
    for number, some in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: held[name] for name in some}, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(some, file)
    indexed(folder, placed)
    return placed


def indexed(folder: Path, placed: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return origin.load(folder).model.state_dict()


def refused(folder: Path, *says: str) -> None:
    """Loading is refused in one line that says all this, and leaves the folder as it was."""
    before = sorted((p, p.stat().st_mtime_ns) for p in folder.parent.rglob("*"))
    with pytest.raises(ConfigError) as error:
        origin.load(folder)
    assert "\n" not in str(error.value) and all(word in str(error.value) for word in says), error.value
    assert sorted((p, p.stat().st_mtime_ns) for p in folder.parent.rglob("*")) == before


# --- forms --------------------------------------------------------------------------------------------------


def test_shards_are_the_same_model(original: Path, folder: Path) -> None:
    sharded(folder)
    right = weights(original)
    assert all(torch.equal(tensor, right[name]) for name, tensor in weights(folder).items())


def test_a_pickle_of_tensors_is_the_same_model(original: Path, folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    right = weights(original)
    assert all(torch.equal(tensor, right[name]) for name, tensor in weights(folder).items())


def test_weights_of_16_bits_become_fp32_exactly(folder: Path) -> None:
    rewritten(folder, lambda held: held.update({name: t.bfloat16() for name, t in held.items()}))
    table = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    loaded = weights(folder)["embedding.table.weight"]
    assert loaded.dtype is torch.float32 and torch.equal(loaded, table.float())


def test_every_weight_comes_from_the_folder_whatever_the_seed(folder: Path) -> None:
    torch.manual_seed(1)
    first = weights(folder)
    torch.manual_seed(2)
    assert all(torch.equal(tensor, first[name]) for name, tensor in weights(folder).items())


def test_a_body_without_its_prefix_is_found(original: Path, folder: Path) -> None:
    def cut(held: dict[str, torch.Tensor]) -> None:
        for name in list(held):
            held[name.removeprefix("model.")] = held.pop(name)

    right = weights(original)
    assert all(torch.equal(tensor, right[name]) for name, tensor in weights(rewritten(folder, cut)).items())


def test_tied_weights_are_one_and_may_lie_there_twice(folder: Path) -> None:
    changed(folder, tie_word_embeddings=True)
    rewritten(folder, lambda held: held.update({"lm_head.weight": held["model.embed_tokens.weight"].clone()}))
    model = origin.load(folder).model
    assert model.head.map.weight is model.embedding.table.weight
    rewritten(folder, lambda held: held.pop("lm_head.weight"))
    assert torch.equal(origin.load(folder).model.embedding.table.weight, model.embedding.table.weight)


def test_untied_weights_stay_two(folder: Path) -> None:
    model = origin.load(folder).model
    assert not torch.equal(model.head.map.weight, model.embedding.table.weight)


def test_rows_beyond_the_tokenizer_are_kept_and_scored(folder: Path) -> None:
    parity.tokenizer(parity.V - 4).save(folder)
    loaded = origin.load(folder)
    assert loaded.tokenizer.vocab_size == parity.V - 4 and loaded.model.vocab_size == parity.V


# --- hostile ------------------------------------------------------------------------------------------------


def test_code_of_a_folders_own_is_refused(folder: Path) -> None:
    (folder / "modeling.py").write_text("raise SystemExit('was run')")
    refused(
        changed(folder, auto_map={"AutoModelForCausalLM": "modeling.Model"}), "auto_map=AutoModelForCausalLM"
    )


def test_code_of_a_tokenizers_own_is_refused(folder: Path) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(
        json.dumps({**json.loads(file.read_text()), "auto_map": {"AutoTokenizer": ["t.T", None]}})
    )
    refused(folder, "tokenizer_config.json", "auto_map")


class Marker:
    """What a hostile pickle does when it is read as one."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_not_run(folder: Path, tmp_path: Path, zipped: bool) -> None:
    (folder / "model.safetensors").unlink()
    hostile = {"model.embed_tokens.weight": Marker(tmp_path / "was-run")}
    if zipped:
        torch.save(hostile, folder / "pytorch_model.bin")
    else:
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(hostile))
    refused(folder, "pytorch_model.bin", "is not read")
    assert not (tmp_path / "was-run").exists()


def test_a_tensor_of_another_shape_is_refused(folder: Path) -> None:
    rewritten(folder, lambda held: held.update({"model.norm.weight": torch.ones(parity.D + 1)}))
    refused(folder, "model.norm.weight", f"({parity.D + 1},)", f"({parity.D},)")


def test_a_transposed_tensor_is_refused(folder: Path) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    rewritten(folder, lambda held: held.update({name: held[name].t().contiguous()}))
    refused(folder, name, "(16, 8)", "(8, 16)")


def test_a_missing_shard_is_refused(folder: Path) -> None:
    sharded(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "model-00002-of-00002.safetensors", "missing")


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/model.safetensors", "a/../../x.safetensors", ".."]
)
def test_an_index_that_names_what_is_outside_is_refused(folder: Path, name: str) -> None:
    placed = sharded(folder)
    shutil.copy(folder / "model-00002-of-00002.safetensors", folder.parent / "outside.safetensors")
    indexed(folder, {k: name if v.startswith("model-00002") else v for k, v in placed.items()})
    refused(folder, "model.safetensors.index.json", repr(name))


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"weight_map": {"a": 1}}', '{"weight_map": {}}', '{"weight_map": []}']
)
def test_a_damaged_index_is_refused(folder: Path, text: str) -> None:
    sharded(folder)
    (folder / "model.safetensors.index.json").write_text(text)
    refused(folder, "model.safetensors.index.json")


def test_a_tensor_in_two_shards_is_refused(folder: Path) -> None:
    sharded(folder)
    second = folder / "model-00002-of-00002.safetensors"
    save_file({**load_file(second), **load_file(folder / "model-00001-of-00002.safetensors")}, second)
    refused(folder, "another file of this folder")


def test_an_index_that_promises_more_than_its_files_hold_is_refused(folder: Path) -> None:
    placed = sharded(folder)
    indexed(folder, {**placed, "more.weight": "model-00001-of-00002.safetensors"})
    refused(folder, "more.weight")


def test_missing_and_unexpected_weights_are_named(folder: Path) -> None:
    rewritten(folder, lambda held: held.update({"model.other.weight": held.pop("model.norm.weight")}))
    refused(folder, "missing model.norm.weight", "unexpected model.other.weight")


def test_the_weights_of_another_architecture_are_named(folder: Path) -> None:
    rewritten(folder, lambda held: [held.update({f"x.{name}": held.pop(name)}) for name in list(held)])
    refused(folder, "missing lm_head.weight", "and 16 more", "unexpected x.lm_head.weight")


def test_a_weight_under_two_names_is_refused(folder: Path) -> None:
    rewritten(folder, lambda held: held.update({"norm.weight": held["model.norm.weight"].clone()}))
    refused(folder, "norm.weight", "are the same weight")


def test_tied_weights_that_differ_are_refused(folder: Path) -> None:
    refused(changed(folder, tie_word_embeddings=True), "lm_head.weight differs", "tie_word_embeddings")


def test_whole_numbers_are_no_weights(folder: Path) -> None:
    rewritten(folder, lambda held: held.update({"model.norm.weight": torch.ones(parity.D, dtype=torch.int8)}))
    refused(folder, "model.norm.weight is int8")


def test_a_damaged_file_is_refused(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    refused(folder, "model.safetensors", "cannot be read")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "has no weights")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("model_type", "lama", "did you mean 'llama'"),
        ("model_type", None, "model_type"),
        ("architectures", ["LlamaForTokenClassification"], "must be LlamaForCausalLM"),
        ("hidden_act", "xielu", "hidden_act='xielu'"),
        ("hidden_size", "16", "hidden_size='16'"),
        ("hidden_size", 16.5, "hidden_size=16.5"),
        ("num_hidden_layers", True, "num_hidden_layers=true"),
        ("quantization_config", {"bits": 4}, "quantization_config={'bits': 4}"),
        ("clip_qkv", 8.0, "clip_qkv=8.0"),
        ("use_something_new", True, "use_something_new=true"),
        ("vocab_size", 39, "the tokenizer has 40 tokens"),
        ("vocab_size", -1, "vocab_size=-1"),
        ("num_hidden_layers", 10**5, "100000 layers"),
        ("num_hidden_layers", 10**9, "num_hidden_layers=1000000000: must be"),
        ("intermediate_size", 10**12, "no room for a model of these sizes"),
        ("hidden_size", 10**9, "40 tokens of 1000000000 numbers"),
        ("num_attention_heads", 3, "n_heads=3"),
        ("pruned_heads", {"0": [1]}, "pruned_heads"),
    ],
)
def test_what_a_config_asks_for_beyond_us_is_refused_by_name_and_value(
    folder: Path, field: str, value: Any, says: str
) -> None:
    refused(changed(folder, **{field: value}), says)


def test_fields_that_ask_for_nothing_are_passed_over(folder: Path) -> None:
    changed(folder, use_something_new=False, another=None, more=[], _name_or_path="a/b", max_length=20)
    (folder / "generation_config.json").unlink()
    assert origin.load(folder).generation == {"max_length": 20, "bos_token_id": 1, "eos_token_id": 2}


@pytest.mark.parametrize("text", ["", "[]", '{"model_type": "llama"', "null"])
def test_a_config_that_is_no_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, "config.json")


# --- where --------------------------------------------------------------------------------------------------


def test_a_name_is_looked_up_on_the_hub(
    original: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub

    asked: list[str] = []

    def fetched(name: str, **patterns: Any) -> str:
        asked.append(name)
        assert "model*.safetensors" in patterns["allow_patterns"]
        return str(original)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    monkeypatch.chdir(tmp_path)
    assert origin.load("someone/a-model").model.vocab_size == parity.V and asked == ["someone/a-model"]


@pytest.mark.parametrize("where", ["runs/mistyped", "/no/such/folder", "./nothing", "a/b/c"])
def test_a_path_that_is_not_there_is_not_looked_up(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub

    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: pytest.fail("was looked up"))
    with pytest.raises(ConfigError, match="no such"):
        origin.load(where)
