import numpy as np
import torch

from tfcli.batch import IGNORE, PAD
from tfcli.data import Example
from tfcli.objective.causal_lm import CausalLM


def example(*tokens: int, **fields: list) -> Example:
    return Example(np.array(tokens), **{name: np.array(field) for name, field in fields.items()})


def test_labels_are_the_next_inputs_and_full_rows_are_said_to_be_full() -> None:
    batch = CausalLM()([example(*range(5)), example(*range(10, 15))])
    assert batch.inputs.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert batch.labels.tolist() == [[1, 2, 3, 4], [11, 12, 13, 14]]
    assert batch.positions is None and batch.documents is None
    assert batch.inputs.dtype == batch.labels.dtype == torch.long and batch.targets == 8


def test_short_rows_are_padded_on_the_right_and_not_scored_there() -> None:
    batch = CausalLM(pad_id=7)([example(1, 2), example(3, 4, 5, 6)])
    assert batch.inputs.tolist() == [[1, 7, 7], [3, 4, 5]]
    assert batch.labels.tolist() == [[2, IGNORE, IGNORE], [4, 5, 6]]
    assert batch.positions.tolist() == [[0, PAD, PAD], [0, 1, 2]]
    assert batch.documents is None


def test_an_eos_that_serves_as_padding_is_still_learned() -> None:
    eos = 2
    batch = CausalLM(pad_id=eos)([example(5, 6, eos), example(5, eos), example(5, 6, 7, eos)])
    assert int((batch.labels == eos).sum()) == 3
    assert batch.targets == 2 + 1 + 3


def test_in_a_row_of_documents_nothing_predicts_the_next_document() -> None:
    row = example(1, 2, 3, 4, 5, 6, documents=[0, 0, 0, 1, 1, 2], positions=[0, 1, 2, 0, 1, 0])
    batch = CausalLM()([row, example(8, 9, documents=[0, 0], positions=[0, 1])])
    assert batch.inputs.tolist() == [[1, 2, 4], [8, 0, 0]]
    assert batch.labels.tolist() == [[2, 3, 5], [9, IGNORE, IGNORE]]
    assert batch.positions.tolist() == [[0, 1, 0], [0, PAD, PAD]]
    assert batch.documents.tolist() == [[0, 0, 1], [0, PAD, PAD]]


def test_what_may_be_no_label_is_read_and_not_scored() -> None:
    batch = CausalLM()([example(1, 2, 3, 4, score=[False, False, True, True])])
    assert batch.inputs.tolist() == [[1, 2, 3]]
    assert batch.labels.tolist() == [[IGNORE, 3, 4]]


def test_a_batch_without_a_target_is_a_batch() -> None:
    rows = [example(1, 2, 3, score=[False] * 3), example(1, 2, score=[False] * 2)]
    assert CausalLM()(rows).targets == 0
    alone = CausalLM()([example(4, documents=[0], positions=[0])])
    assert alone.targets == 0 and alone.inputs.shape == (1, 0)


def test_the_family_is_the_decoder() -> None:
    assert CausalLM.family == "decoder"
