import numpy as np
import pytest
import torch
from objective import made
from tokenizers import Tokenizer as Backend
from tokenizers import models

from tfcli.batch import IGNORE, PAD
from tfcli.data import Example
from tfcli.errors import ConfigError
from tfcli.objective.seq2seq import Seq2Seq
from tfcli.tokenizer import Tokenizer

PAD_ID, BOS, EOS = 0, 1, 2


def pair(source: list[int], target: list[int]) -> Example:
    return Example(np.array(source, dtype=np.int64), target=np.array(target, dtype=np.int64))


def bound(**settings: str) -> Seq2Seq:
    objective = Seq2Seq(**settings)
    objective.bind(made.tokenizer("char"))
    return objective


@pytest.mark.parametrize(("start", "first"), [("bos", BOS), ("pad", PAD_ID), ("eos", EOS)])
def test_the_decoder_reads_the_start_and_all_but_the_last_and_is_to_say_the_target(
    start: str, first: int
) -> None:
    objective = bound(start=start)
    batch = objective([pair([BOS, 10, 11, EOS], [20, 21, EOS])])
    assert objective.start_id == first
    assert batch.inputs.tolist() == [[first, 20, 21]] and batch.labels.tolist() == [[20, 21, EOS]]
    assert batch.source.tolist() == [[BOS, 10, 11, EOS]]
    assert batch.positions is None and batch.source_positions is None
    assert batch.inputs.dtype == batch.labels.dtype == batch.source.dtype == torch.long


def test_both_sides_are_padded_by_length_and_never_by_id() -> None:
    batch = bound(start="pad")([pair([10, PAD_ID], [PAD_ID, EOS]), pair([10, 11, 12], [EOS])])
    assert batch.source.tolist() == [[10, PAD_ID, PAD_ID], [10, 11, 12]]
    assert batch.source_positions.tolist() == [[0, 1, PAD], [0, 1, 2]]
    assert batch.inputs.tolist() == [[PAD_ID, PAD_ID], [PAD_ID, PAD_ID]]
    assert batch.positions.tolist() == [[0, 1], [0, PAD]]
    assert batch.labels.tolist() == [[PAD_ID, EOS], [EOS, IGNORE]]


def test_only_the_side_that_has_padding_has_positions() -> None:
    batch = bound()([pair([10, 11], [20, EOS]), pair([12], [21, EOS])])
    assert batch.positions is None and batch.source_positions.tolist() == [[0, 1], [0, PAD]]


def test_an_empty_source_is_a_column_of_padding() -> None:
    batch = bound()([pair([], [20, EOS])])
    assert batch.source.tolist() == [[PAD_ID]] and batch.source_positions.tolist() == [[PAD]]
    beside = bound()([pair([], [20, EOS]), pair([10, 11], [EOS])])
    assert beside.source_positions.tolist() == [[PAD, PAD], [0, 1]]


def test_every_eos_is_a_label() -> None:
    batch = bound(start="eos")([pair([10], [20] * n + [EOS]) for n in range(20)])
    assert int((batch.labels == EOS).sum()) == 20 and batch.targets == sum(range(1, 21))


def test_a_batch_without_a_target_is_a_batch() -> None:
    batch = bound()([pair([10], []), pair([11], [])])
    assert batch.targets == 0 and batch.inputs.shape == (2, 1) and batch.positions.tolist() == [[PAD], [PAD]]


def test_a_start_that_the_tokenizer_lacks_is_refused() -> None:
    backend = Backend(models.WordLevel({"<unk>": 0, "<eos>": 1}, "<unk>"))
    tokenizer = Tokenizer(backend, {"eos": "<eos>"})  # as GPT-2's: what pads is the EOS
    for start in ("bos", "pad"):
        with pytest.raises(ConfigError, match=f"objective.start={start}: .* no such token; choose eos"):
            Seq2Seq(start=start).bind(tokenizer)
    Seq2Seq(start="eos").bind(tokenizer)
