"""Published models have as many parameters here as they were published with."""

from __future__ import annotations

import pytest
import torch

from tfcli import build
from tfcli.cli.door import compose

PUBLISHED = {  # vocabulary, parameters
    ("gemma", "gemma_2b"): (256000, 2_506_172_416),
    ("gemma", "gemma_7b"): (256000, 8_537_680_896),
    ("qwen2", "qwen2_0_5b", "head=tied"): (151936, 494_032_768),
    ("qwen2", "qwen2_7b"): (152064, 7_615_616_512),
    ("olmo2", "olmo2_1b"): (100352, 1_484_916_736),
    ("olmo2", "olmo2_7b"): (100352, 7_298_617_344),
    ("gpt_neox", "pythia_70m"): (50304, 70_426_624),
    ("gpt_neox", "pythia_160m"): (50304, 162_322_944),
    ("roberta", "roberta_base"): (50265, 124_697_433),
    ("llama3", "smollm2_135m", "head=tied", "position.base=100000"): (49152, 134_515_008),
}


@pytest.mark.parametrize("model", PUBLISHED, ids=" ".join)
def test_a_published_size_has_the_published_number_of_parameters(model: tuple[str, ...]) -> None:
    preset, size, *more = model
    vocab_size, right = PUBLISHED[model]
    config = compose("train", [f"preset={preset}", f"size={size}", *more])
    with torch.device("meta"):
        built = build.model(config, vocab_size, fill=False)
    assert sum(p.numel() for p in built.parameters()) == right
