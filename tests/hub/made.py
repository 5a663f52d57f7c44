"""Runs of random models that are written as training writes them, without training."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from tfcli import build, checkpoint
from tfcli.compose import compose
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Byte

SIZE = ["size.d_model=16", "size.n_layers=3", "size.n_heads=4", "size.n_kv_heads=2", "size.d_ff=24",
        "size.context=48", "data=text", "tokenizer=byte", "size.dropout=0.0"]  # fmt: skip
EXTRA = ("<mask>", "<extra_id_0>", "<extra_id_1>")


def shaken(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random numbers everywhere, so that nothing hides behind a 0 or a 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.state_dict(keep_vars=True).values():
            drawn = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(0.15 * drawn if tensor.ndim > 1 else 1 + 0.3 * drawn)
    return model


def run_of(where: Path, *overrides: str, tokenizer: Tokenizer | None = None, step: int = 7) -> Path:
    """A run folder with one checkpoint."""
    config = compose("train", [*SIZE, *overrides])
    tokenizer = tokenizer or Byte(extra=EXTRA).train()
    if "n_sentinels" in config.objective:
        config.objective.n_sentinels = 2
    checkpoint.save(where, step, shaken(build.model(config, tokenizer.vocab_size)), tokenizer, config, {})
    rows = [{"step": 5, "tokens": 900, "val_loss": 2.5}, {"step": 7, "tokens": 1234, "val_loss": 2.0},
            {"step": 9, "tokens": 9999, "val_loss": 0.1}]  # fmt: skip
    (where / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return where
