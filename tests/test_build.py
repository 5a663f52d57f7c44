"""What build does beside constructing: see the laws for the models it builds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tfcli import build
from tfcli.cli import door


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
