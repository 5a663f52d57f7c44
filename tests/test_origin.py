"""What WHERE names: one that is ours is looked for once, and what is wrong with it is said once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tfcli import checkpoint, origin
from tfcli.errors import ConfigError


def test_a_damaged_checkpoint_is_passed_over_and_said_once(
    train: Callable[..., None], tmp_path: Path
) -> None:
    run, said = tmp_path / "run", []
    train(f"out={run}", "train.save_every=3")
    newest = checkpoint.steps(run)[-1]
    (newest / "model.safetensors").write_bytes(b"")
    loaded = origin.load(run, say=said.append)
    assert loaded.step == 3 and len(said) == 1 and "going back to the checkpoint before it" in said[0]


def test_a_run_wins_over_a_config_json_that_lies_in_its_folder(
    train: Callable[..., None], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(f"out={run}")
    (run / "config.json").write_text("{}")
    assert isinstance(origin.find(run), checkpoint.Stored) and origin.load(run).step == 6


def test_an_empty_folder_is_told_what_would_be_in_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"checkpoints/step-.*config\.json"):
        origin.load(tmp_path)
    shutil.rmtree(tmp_path)
