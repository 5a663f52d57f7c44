import numpy as np
import torch
from objective import made

from tfcli.batch import IGNORE, PAD
from tfcli.data import Example
from tfcli.objective import Objective
from tfcli.objective.classification import Classification
from tfcli.objective.reading import Reading
from tfcli.objective.tagging import Tagging


def example(tokens: list[int], target: list[int], segments: list[int] | None = None) -> Example:
    second = None if segments is None else np.array(segments)
    return Example(np.array(tokens), target=np.array(target, dtype=np.int32), segments=second)


def bound(objective: Objective) -> Objective:
    objective.bind(made.tokenizer("char"))
    return objective


def test_a_class_is_one_label_of_a_row() -> None:
    rows = [example([1, 10, 2, 11, 2], [3], [0, 0, 0, 1, 1]), example([1, 10, 2], [0])]
    batch = bound(Classification())(rows)
    assert batch.labels.tolist() == [3, 0] and batch.labels.dtype == torch.long and batch.targets == 2
    assert batch.inputs.tolist() == [[1, 10, 2, 11, 2], [1, 10, 2, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, PAD, PAD]]
    assert batch.segments.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]


def test_tags_are_labels_where_words_begin() -> None:
    rows = [example([1, 10, 11, 2], [IGNORE, 4, IGNORE, IGNORE]), example([1, 2], [IGNORE, IGNORE])]
    batch = bound(Tagging())(rows)
    assert batch.labels.tolist() == [[IGNORE, 4, IGNORE, IGNORE], [IGNORE] * 4]
    assert batch.targets == 1 and batch.segments is None and batch.documents is None


def test_an_answer_is_its_first_and_last_token_in_the_padded_row() -> None:
    rows = [
        example([1, 10, 2, 11, 12, 2], [3, 4], [0, 0, 0, 1, 1, 1]),
        example([1, 10, 2], [0, 0], [0, 0, 0]),
    ]
    batch = bound(Reading())(rows)
    assert batch.labels.tolist() == [[3, 4], [0, 0]] and batch.labels.dtype == torch.long
    assert batch.inputs[0, 3:5].tolist() == [11, 12]
    assert batch.positions[1].tolist() == [0, 1, 2, PAD, PAD, PAD]


def test_rows_of_one_length_are_said_to_be_full() -> None:
    for objective, target in ((Classification(), [1]), (Tagging(), [1, 2]), (Reading(), [0, 1])):
        assert bound(objective)([example([5, 6], target)] * 2).positions is None
