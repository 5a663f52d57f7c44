"""What build does beside constructing: see the laws for the models it builds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tfcli import build
from tfcli.batch import Batch
from tfcli.cli import door
from tfcli.errors import ConfigError


def test_a_module_first_imported_by_a_rehearsal_makes_real_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_init.py").write_text(
        "import torch\nTABLE = torch.ones(3)\ndef build():\n    return lambda model, n_layers: None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = door.compose("train", [])
    config.init = {"_target_": "own_init.build"}
    build.rehearse(config)
    assert torch.equal(sys.modules.pop("own_init").TABLE, torch.ones(3))


def test_targets_are_found_at_every_depth() -> None:
    node = {"_target_": "a.B", "x": [{"_target_": "c.D"}, 1], "y": {"z": {"_target_": "e.F"}}}
    assert list(build.targets(node)) == ["a.B", "c.D", "e.F"]


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("head", ["tied", "untied", "bart"])
def test_a_model_may_have_more_rows_than_its_tokenizer(family: str, head: str) -> None:
    words = ["embedding.vocab_size=30", f"head={head}", f"family={family}", "size.d_model=16"]
    model = build.model(door.compose("train", words), 23)
    assert model.vocab_size == model.head.vocab_size == 30
    assert model.embedding.table.weight.shape == model.head.map.weight.shape == (30, 16)
    tables = [module for name, module in model.named_modules() if name.endswith("embedding.table")]
    assert {len(table.weight) for table in tables} == {30}
    ids = torch.tensor([[3, 29]])
    more = {"source": ids} if family == "encoder_decoder" else {}
    assert model(Batch(ids, **more)).shape == (1, 2, 30)


def test_rows_are_padded_beyond_those_that_have_a_score() -> None:
    words = ["embedding.vocab_size=30", "embedding.pad_to_multiple=16", "size.d_model=16"]
    model = build.model(door.compose("train", words), 23)
    assert len(model.embedding.table.weight) == 32
    assert model(Batch(torch.tensor([[1]]))).shape == (1, 1, 30)


def test_fewer_rows_than_the_tokenizer_has_are_refused_with_both_numbers() -> None:
    said = r"embedding.vocab_size=22: must be at least the 23 tokens of the tokenizer"
    with pytest.raises(ConfigError, match=said):
        build.model(door.compose("train", ["embedding.vocab_size=22"]), 23)
    assert build.model(door.compose("train", ["embedding.vocab_size=23"]), 23).vocab_size == 23
    assert build.model(door.compose("train", []), 23).vocab_size == 23


@pytest.mark.parametrize("wrong", ["0", "many", "2.5", "-1"])
def test_a_number_of_rows_that_is_none_is_refused_before_data_is_touched(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"embedding.vocab_size='?{wrong}'?: must be a whole number"):
        build.rehearse(door.compose("train", [f"embedding.vocab_size={wrong}"]))


@pytest.mark.parametrize("size", [5, 100])
def test_a_rehearsal_takes_the_number_of_rows_that_is_set(size: int) -> None:
    assert build.rehearse(door.compose("train", [f"embedding.vocab_size={size}"])).vocab_size == size


@pytest.mark.parametrize("preset", ["gemma", "qwen2", "olmo2", "gpt_neox", "roberta"])
def test_a_preset_alone_is_a_model(preset: str) -> None:
    assert build.rehearse(door.compose("train", [f"preset={preset}"]))


@pytest.mark.parametrize("name", ["short_factor", "long_factor"])
def test_a_list_of_numbers_is_checked_number_by_number(name: str) -> None:
    for value in ("[1.0,0.0]", "[1.0,x]", "3.0"):
        with pytest.raises(
            ConfigError, match=f"position.{name}=.*: must be a list, each a number above 0 or null"
        ):
            build.rehearse(door.compose("train", ["position=rope_longrope", f"position.{name}={value}"]))
