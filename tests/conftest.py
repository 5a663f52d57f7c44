"""What many tests share: tiny runs, made through the command itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TINY_RUN = [
    "data=text", "data.sample_by=line", "data.packing=documents", "data.validation_fraction=0.2",
    "tokenizer=char", "precision=fp32",
    "size.d_model=16", "size.n_layers=2", "size.n_heads=2", "size.n_kv_heads=1", "size.d_ff=32",
    "size.context=24",
    "train.steps=6", "train.batch_size=4", "train.log_every=1", "train.eval_every=3", "schedule.warmup=2",
]  # fmt: skip
WORDS = (
    "ash birch cedar elm fir hazel larch lime maple oak pine poplar rowan spruce willow yew " * 4
).split()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or leaves anything in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of short documents, one a line, of different lengths."""
    path = tmp_path / "trees.txt"
    lines = [" ".join(WORDS[i : i + 1 + i % 4]) for i in range(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def train(corpus: Path) -> Callable[..., None]:
    """tf-train on the corpus, in this process."""
    from tfcli.cli.train import command

    def run(*overrides: str, tiny: bool = True) -> None:
        command([*(TINY_RUN if tiny else ()), *([f"data.path={corpus}"] if tiny else ()), *overrides])

    return run


def metrics(run: Path) -> list[dict]:
    """The lines of metrics.jsonl without what depends on the clock."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "tokens_per_second"} for row in rows]
