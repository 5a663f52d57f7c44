import numpy as np
import pytest
import torch
from objective import made

from tfcli.batch import IGNORE, PAD, Batch
from tfcli.data import Example
from tfcli.model.visibility import Causal, visible
from tfcli.objective.causal_lm import CausalLM
from tfcli.objective.prefix_lm import PrefixLM

FIRST = 200  # an id of no special token


def bound() -> PrefixLM:
    objective = PrefixLM()
    objective.bind(made.tokenizer("bpe"))
    return objective


def distinct(n: int, index: int = 0, **fields: np.ndarray) -> Example:
    """A row whose tokens say where in it they stand."""
    return Example(np.arange(n) + FIRST, place=(0, 1, index), **fields)


def packed(lengths: list[int], index: int = 0, score: np.ndarray | None = None) -> Example:
    return distinct(
        sum(lengths),
        index,
        documents=np.repeat(np.arange(len(lengths)), lengths),
        positions=np.concatenate([np.arange(n) for n in lengths]),
        score=score,
    )


def seen(batch: Batch) -> torch.Tensor:
    """(B, T, T) which inputs reach the output at each place, through any number of layers."""
    positions = batch.positions
    if positions is None:
        positions = torch.arange(batch.inputs.shape[1])[None].expand_as(batch.inputs)
    docs = batch.documents
    direct = visible((Causal(),), positions, positions, docs, docs, batch.horizon)
    reach, before = direct, None
    while before is None or (reach != before).any():
        before, reach = reach, reach | ((reach.float() @ direct.float()) > 0)
    return reach


def check(example: Example, batch: Batch, row: int) -> list[int]:
    """That no label can be seen, and all behind the prefix are labels; the size of each document's prefix."""
    reach, inputs, labels = seen(batch)[row].numpy(), batch.inputs[row].numpy(), batch.labels[row].numpy()
    labelled = set()
    for t in np.flatnonzero(labels != IGNORE):
        assert labels[t] == inputs[t] + 1  # the next token
        assert labels[t] not in inputs[reach[t]]
        assert labels[t] not in labelled
        labelled.add(int(labels[t]))
    documents = example.documents if example.documents is not None else np.zeros(len(example.tokens), int)
    sizes = []
    for document in np.unique(documents):
        tokens = example.tokens[documents == document]
        prefix = [int(i) for i in tokens if int(i) not in labelled]
        assert prefix == tokens[: len(prefix)].tolist()  # they lead
        places = [int(np.flatnonzero(inputs == i)[0]) for i in prefix if i in inputs]
        assert reach[np.ix_(places, places)].all()  # and see each other
        for i in tokens[len(prefix) : -1]:  # while those behind are seen by none before
            place = int(np.flatnonzero(inputs == i)[0])
            assert not reach[:place, place].any()
        sizes.append(len(prefix))
    return sizes


def test_without_a_prompt_a_row_is_split_anywhere_with_a_token_on_each_side() -> None:
    found = []
    for index in range(1200):
        example = distinct(7, index)
        batch = bound()([example])
        (size,) = check(example, batch, 0)
        assert batch.horizon.tolist() == [[size - 1]] and batch.positions is None
        found.append(size)
    counts = np.bincount(found, minlength=8)
    assert counts[0] == counts[7] == 0 and (abs(counts[1:7] - 200) < 4 * np.sqrt(200)).all()


def test_each_packed_document_has_a_prefix_of_its_own() -> None:
    lengths = [2, 5, 9, 3]
    found = []
    for index in range(300):
        example = packed(lengths, index)
        batch = bound()([example, packed([4], index)])
        found.append(check(example, batch, 0))
        check(packed([4], index), batch, 1)
        horizon = np.repeat(np.array(found[-1]) - 1, np.array(lengths) - 1)
        assert batch.horizon[0].tolist() == horizon.tolist()
        assert batch.horizon[1, 3:].tolist() == [PAD] * (len(horizon) - 3)
    sizes = np.array(found)
    assert sizes.min(0).tolist() == [1, 1, 1, 1] and sizes.max(0).tolist() == [1, 4, 8, 2]


@pytest.mark.parametrize("n_prompt", [1, 3, 6])
def test_a_prompt_is_the_prefix(n_prompt: int) -> None:
    example = distinct(7, score=np.arange(7) >= n_prompt)
    batch = bound()([example])
    assert check(example, batch, 0) == [n_prompt]
    assert batch.horizon.tolist() == [[n_prompt - 1]]
    assert batch.labels[0].tolist() == [IGNORE] * (n_prompt - 1) + [*range(FIRST + n_prompt, FIRST + 7)]


def test_prompts_of_packed_documents_are_their_prefixes() -> None:
    score = np.array([0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1], bool)
    example = packed([5, 4, 2], score=score)
    batch = bound()([example])
    assert check(example, batch, 0) == [2, 3, 1]  # the last has no prompt
    assert batch.horizon[0].tolist() == [1, 1, 1, 1, 2, 2, 2, 0]


def test_a_start_token_alone_is_no_prompt() -> None:
    bos = made.tokenizer("bpe").bos_id
    tokens = np.append(bos, np.arange(9) + FIRST)
    rows = [Example(tokens, score=np.arange(10) > 0, place=(0, 1, i)) for i in range(50)]
    assert len(set(bound()(rows).horizon[:, 0].tolist())) > 5


def test_a_later_token_that_may_be_no_label_is_none() -> None:
    score = np.array([0, 0, 1, 1, 0, 1], bool)
    batch = bound()([distinct(6, score=score)])
    assert batch.labels[0].tolist() == [IGNORE, FIRST + 2, FIRST + 3, IGNORE, FIRST + 5]


def test_inputs_are_those_of_next_token_prediction() -> None:
    rows = [distinct(n, n) for n in (3, 8, 2, 5)]
    batch, plain = bound()(rows), CausalLM()(rows)
    assert (batch.inputs == plain.inputs).all() and (batch.positions == plain.positions).all()
    assert all(check(row, batch, i) for i, row in enumerate(rows))


def test_a_prompt_that_fills_its_row_leaves_nothing_to_predict() -> None:
    batch = bound()([distinct(5, score=np.zeros(5, bool)), distinct(1), packed([3])._replace(documents=None)])
    assert (batch.labels[:2] == IGNORE).all() and batch.labels[2].tolist().count(IGNORE) < 4
    assert batch.horizon[:2].tolist() == [[3], [PAD]]
    assert bound()([distinct(5, score=np.zeros(5, bool))]).targets == 0
