"""A few logits of every preset against small stored files: a change that moves numbers is seen (law 11).

To store them anew, on purpose and with the reason in the commit:

    GOLDEN=write scripts/test tests/test_golden.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from laws import cases, laws

from tfcli import choices

FOLDER = Path(__file__).parent / "golden"


def said_by(preset: str) -> list[float]:
    """Eight logits at the last of twelve places."""
    model = cases.model_of({"preset": preset})
    with torch.no_grad():
        return model(laws.batch(model, cases.ids(1, 12)))[0, -1, :8].tolist()


@pytest.mark.parametrize("preset", choices.choices("preset"))
def test_a_preset_says_what_it_always_said(preset: str) -> None:
    path = FOLDER / f"{preset}.json"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([round(x, 5) for x in said_by(preset)]) + "\n")
    assert said_by(preset) == pytest.approx(json.loads(path.read_text()), abs=1e-4)


def test_no_golden_file_is_left_of_a_preset_that_is_gone() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(choices.choices("preset"))
