"""Scores of documents and of prepared blocks, against a float64 recomputation token by token."""

import math
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tfcli.batch import IGNORE, PAD, Batch, pad
from tfcli.data import Document
from tfcli.data.tokens import Encoder
from tfcli.errors import ConfigError
from tfcli.evaluate import Encoded, encoded, score_batches, score_documents, validation_loss
from tfcli.tokenizer.trained import Bpe, Byte

VOCAB, STATES = 11, 97


class Table(nn.Module):
    """Logits looked up by all that was read so far, so a wrong, missing or extra token before one shows."""

    def __init__(self, context: int | None = None, scale: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.context, self.dropout = context, nn.Dropout(dropout)
        self.register_buffer("table", scale * torch.randn(STATES, VOCAB, generator=generator))
        self.batches: list[Batch] = []

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self(batch), batch.labels

    def forward(self, batch: Batch) -> torch.Tensor:
        self.batches.append(batch)
        unpadded = batch.positions is None
        present = torch.ones_like(batch.inputs) > 0 if unpadded else batch.positions != PAD
        state = torch.zeros(len(batch.inputs), dtype=torch.long)
        states = []
        for ids, real in zip(batch.inputs.T, present.T):
            state = torch.where(real, (31 * state + ids + 1) % STATES, state)
            states.append(state)
        logits = self.table[torch.stack(states, 1)]
        # what stands at padding is nobody's business: make it harmful
        return self.dropout(logits.masked_fill(~present[..., None], math.nan))


def nats_by_hand(model: Table, before: list[int], token: int) -> float:
    """-log p(token | before) in float64."""
    state = 0
    for i in before:
        state = (31 * state + i + 1) % STATES
    x = model.table[state].double().numpy()
    return float(np.log(np.exp(x).sum()) - x[token])


def context_by_hand(ids: list[int], i: int, window: int, stride: int) -> list[int]:
    """What token i is predicted from: the tokens before it in the first window that has it.

    Windows that do not overlap (stride = window) read the one token before them too, or their first had none.
    """
    begin = 0
    while begin + window <= i:
        begin += stride
    return ids[begin - (stride == window and begin > 0) : i]


def expected_nats(model: Table, documents: list[list[int]], window: int, stride: int) -> float:
    return sum(
        nats_by_hand(model, context_by_hand(ids, i, window, stride), ids[i])
        for ids in documents
        for i in range(1, len(ids))
    )


def random_ids(n: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=n)


def score(model: Table, documents: list[list[int]], **settings):
    settings = {"window": 10, "stride": 10, "batch_size": 4} | settings
    return score_documents(model.eval(), [Encoded(ids) for ids in documents], **settings)


@pytest.mark.parametrize("stride", [1, 3, 5, 9, 10])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_strided_score_is_that_of_numpy_token_by_token(stride, batch_size):
    model, ids = Table(), random_ids(100)
    result = score(model, [ids], stride=stride, batch_size=batch_size)
    assert result.tokens == 99
    assert result.nats == pytest.approx(expected_nats(model, [ids], 10, stride), rel=1e-6)
    assert result.perplexity == pytest.approx(math.exp(result.nats / 99))


def test_stride_1_scores_each_token_with_its_last_window_less_one_predecessors():
    model, ids = Table(), random_ids(100)
    by_hand = sum(nats_by_hand(model, ids[max(0, i - 9) : i], ids[i]) for i in range(1, 100))
    assert score(model, [ids], stride=1).nats == pytest.approx(by_hand, rel=1e-6)


def test_the_model_never_reads_more_than_the_window():
    model = Table(context=10)
    score(model, [random_ids(100)], stride=10)
    assert max(batch.inputs.shape[1] for batch in model.batches) == 10


def test_a_score_does_not_depend_on_batch_size_or_company():
    documents = [random_ids(n, seed=n) for n in (1, 30, 2, 7, 57, 3, 1, 100, 4)]
    results = [score(Table(), documents, batch_size=b, stride=4) for b in (1, 2, 5, 1000)]
    alone = [score(Table(), [ids], stride=4) for ids in documents if len(ids) > 1]
    for result in results:
        assert result.tokens == sum(len(ids) - 1 for ids in documents) == sum(s.tokens for s in alone)
        assert result.nats == pytest.approx(sum(s.nats for s in alone), rel=1e-12)
        assert result.documents == len(alone) == 7


def test_windows_of_many_documents_go_through_the_model_together():
    model = Table()
    score(model, [random_ids(5, seed=n) for n in range(12)], batch_size=6)
    assert [len(batch.inputs) for batch in model.batches] == [6, 6]


def test_who_watches_is_told_of_every_scored_token():
    told = []
    result = score(Table(), [random_ids(n) for n in (30, 1, 7)], batch_size=2, advance=told.append)
    assert sum(told) == result.tokens == 35 and len(told) > 1


def texts(*texts: str, prompt: str = "") -> list[Document]:
    return [Document(text, prompt) for text in texts]


def one(encoder: Encoder, text: str, prompt: str = "") -> Encoded:
    (found,) = encoded(texts(text, prompt=prompt), encoder)
    return found._replace(ids=found.ids.tolist())


def test_a_document_begins_with_bos_and_ends_with_eos_where_there_are_such_and_the_data_has_them():
    tokenizer = Byte().train()
    a, e, s = tokenizer.encode("aé")[0], tokenizer.bos_id, tokenizer.eos_id
    two = tokenizer.encode("é")
    assert one(Encoder(tokenizer), "aé") == Encoded([e, a, *two, s], n_given=1, n_bytes=3)
    assert one(Encoder(tokenizer, eos=False), "aé") == Encoded([e, a, *two], n_given=1, n_bytes=3)
    assert one(Encoder(tokenizer, bos=False), "aé") == Encoded([a, *two, s], n_given=1, n_bytes=2)
    tokenizer.bos_id = tokenizer.eos_id = None
    assert one(Encoder(tokenizer), "aé") == Encoded([a, *two], n_given=1, n_bytes=2)


def test_a_prompt_is_scored_or_given_as_the_data_has_it():
    tokenizer = Byte().train()
    ids = tokenizer.encode("1+1=2")
    whole = [tokenizer.bos_id, *ids, tokenizer.eos_id]
    assert one(Encoder(tokenizer), "2", "1+1=") == Encoded(whole, 1, 5)
    assert one(Encoder(tokenizer, score_prompt=False), "2", "1+1=") == Encoded(whole, 5, 1)
    assert one(Encoder(tokenizer, bos=False, score_prompt=False), "2", "1+1=") == Encoded(whole[1:], 4, 1)
    assert one(Encoder(tokenizer, bos=False), "2", "1+1=") == Encoded(whole[1:], 1, 4)


def test_documents_are_encoded_in_batches_and_keep_their_order(monkeypatch):
    monkeypatch.setattr("tfcli.evaluate.BATCH", 5)
    words = ["one", "two", "three", "", "a much longer one", "x"]
    tokenizer = Byte().train()
    found = [tokenizer.decode(document.ids) for document in encoded(texts(*words), Encoder(tokenizer))]
    assert found == words


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("aé", 2), ("日本", 5), ("👧", 3), ("a", 0), ("hello hello", 6), ("hello", 0), (" hello", 5), ("", 0)],
)
def test_without_bos_the_bytes_of_the_first_token_do_not_count_to_the_byte(text, n_bytes):
    tokenizer = Bpe(vocab_size=263).train(["hello"] * 50) if "hello" in text else Byte().train()
    assert one(Encoder(tokenizer, bos=False), text).n_bytes == n_bytes


def test_eos_is_scored_in_the_loss_and_left_out_of_the_bits_per_byte():
    bos, eos = 0, 1
    text = [5, 6, 7, 5]
    model = Table()
    documents = [Encoded([bos, *text, eos], n_bytes=9)] * 2
    how = {"window": 10, "stride": 10, "batch_size": 1}
    result = score_documents(model, documents, **how, special_ids={bos, eos})
    whole = expected_nats(model, [[bos, *text, eos]] * 2, 10, 10)
    of_text = expected_nats(model, [[bos, *text]] * 2, 10, 10)
    assert (result.tokens, result.bytes, result.documents) == (10, 18, 2)
    assert result.loss == pytest.approx(whole / 10, rel=1e-6)
    assert result.bits_per_byte == pytest.approx(of_text / (math.log(2) * 18), rel=1e-6)


def test_the_bytes_of_a_document_without_a_scored_token_do_not_count():
    documents = [Encoded([3], n_bytes=100), Encoded([3, 4], n_bytes=1)]
    result = score_documents(Table(), documents, window=4, stride=2, batch_size=2)
    assert (result.tokens, result.bytes, result.documents) == (1, 1, 1)


@pytest.mark.parametrize("documents", [[], [[]], [[3], [4]]])
def test_nothing_to_score_is_refused_and_not_0_over_0(documents):
    with pytest.raises(ConfigError, match="0 tokens to score"):
        score(Table(), documents)


def test_a_stride_beyond_the_window_and_a_window_beyond_the_context_are_refused_with_both_numbers():
    with pytest.raises(ConfigError, match="stride=11.*window=10"):
        score(Table(), [random_ids(30)], window=10, stride=11)
    with pytest.raises(ConfigError, match="window=33.*32 tokens"):
        score(Table(context=32), [random_ids(30)], window=33, stride=4)


def test_logits_a_thousand_times_too_large_give_an_infinite_perplexity_and_a_finite_loss():
    result = score(Table(scale=3000.0), [random_ids(100)])
    assert result.perplexity == math.inf and 700 < result.loss < math.inf


def test_dropout_is_off_and_neither_modes_nor_random_numbers_are_touched():
    dropping = Table(dropout=0.3).train()
    frozen = nn.Dropout(0.3).eval()
    dropping.extra = nn.Sequential(frozen)
    frozen.training = False
    documents = [Encoded(random_ids(50))]
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = score_documents(dropping, documents, window=10, stride=5, batch_size=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert dropping.training and dropping.dropout.training and not frozen.training
    torch.manual_seed(8)
    assert score_documents(dropping, documents, window=10, stride=5, batch_size=2) == first
    assert first.nats == pytest.approx(score(Table(), [documents[0].ids], stride=5).nats, rel=1e-12)


class Drawing(Table):
    """A model that draws random numbers even in eval mode, as some would."""

    def forward(self, batch: Batch) -> torch.Tensor:
        torch.rand(3)
        return super().forward(batch)


def shifted(rows: list[list[int]]) -> Batch:
    """A stand-in for an objective: predict the next token."""
    return Batch(
        inputs=pad([torch.tensor(r[:-1]) for r in rows], 0),
        labels=pad([torch.tensor(r[1:]) for r in rows], IGNORE),
        positions=pad([torch.arange(len(r) - 1) for r in rows], PAD),
    )


def test_validation_takes_the_mean_over_tokens_whatever_the_batches():
    model, blocks = Table().train(), [random_ids(n, seed=n) for n in (17, 17, 3, 40, 5, 2, 17)]
    expected = expected_nats(model, blocks, 100, 100) / sum(len(b) - 1 for b in blocks)
    for batch_size in (1, 2, 3, 7, 50):
        result = validation_loss(model, blocks, shifted, batch_size=batch_size)
        assert result.tokens == 94 and result.loss == pytest.approx(expected, rel=1e-6)


def test_a_limit_counts_blocks_whatever_the_batch_size_and_spreads_over_all_of_them():
    blocks = [random_ids(9, seed=n) for n in range(10)]
    chosen = [blocks[i] for i in (0, 2, 5, 7)]
    for batch_size in (1, 3, 16):
        result = validation_loss(Table(), blocks, shifted, batch_size=batch_size, limit=4)
        assert result.tokens == 32
        assert result.nats == pytest.approx(expected_nats(Table(), chosen, 100, 100), rel=1e-6)
    assert validation_loss(Table(), blocks, shifted, batch_size=4, limit=500).tokens == 80


def test_validation_leaves_no_trace_in_the_run_even_when_it_fails():
    model, blocks = Drawing(dropout=0.5).train(), [random_ids(9, seed=n) for n in range(10)]
    before = torch.get_rng_state()
    validation_loss(model, blocks, shifted, batch_size=3)
    assert torch.equal(torch.get_rng_state(), before) and model.training and torch.is_grad_enabled()
    with pytest.raises(IndexError):
        validation_loss(model, [[0, VOCAB]], shifted, batch_size=1)  # an id that there is not
    assert torch.equal(torch.get_rng_state(), before) and model.training and torch.is_grad_enabled()


def test_validation_that_is_told_to_stop_reads_no_further_and_gives_no_score():
    read = []

    def objective(rows: list[list[int]]) -> Batch:
        read.append(len(rows))
        return shifted(rows)

    blocks = [random_ids(9, seed=n) for n in range(10)]
    stop = {"should_stop": lambda: len(read) >= 2}
    assert validation_loss(Table(), blocks, objective, batch_size=2, **stop) is None
    assert read == [2, 2]


def test_validation_counts_what_is_right_only_if_asked():
    model, blocks = Table(), [random_ids(n, seed=n) for n in (17, 3, 40)]
    ends = [(ids[:i], ids[i]) for ids in blocks for i in range(1, len(ids))]
    states = [int(model.table[state_after(before)].argmax() == token) for before, token in ends]
    for batch_size in (1, 2, 3):
        result = validation_loss(model, blocks, shifted, batch_size=batch_size, count_correct=True)
        assert result.correct == sum(states) > 0 and result.accuracy == pytest.approx(sum(states) / 57)
    assert validation_loss(model, blocks, shifted, batch_size=2).accuracy is None


def state_after(ids: list[int]) -> int:
    state = 0
    for i in ids:
        state = (31 * state + i + 1) % STATES
    return state


def test_who_looks_is_shown_all_scores_in_order_those_of_rows_without_a_label_too():
    seen, rows = [], [random_ids(5, seed=n) for n in range(3)]
    batches = [shifted([row]) for row in rows]
    batches[1].labels[:] = IGNORE
    score_batches(Table(), iter(batches), device=torch.device("cpu"), see=seen.append)
    for found, row in zip(seen, rows):
        assert torch.equal(found[0, -1], Table().table[state_after(row[:-1])])
    assert len(seen) == 3


def test_special_tokens_are_left_out_of_the_nats_of_the_text():
    blocks = [[3, 4, 1]]
    result = validation_loss(Table(), blocks, shifted, batch_size=1, special_ids={1})
    assert result.text_nats == pytest.approx(nats_by_hand(Table(), [3], 4), rel=1e-6)
    assert result.text_nats < result.nats


def test_validation_without_a_target_is_refused():
    with pytest.raises(ConfigError, match="no token to score"):
        validation_loss(Table(), [[3], [4]], shifted, batch_size=2)
    with pytest.raises(ConfigError, match="no token to score"):
        validation_loss(Table(), [], shifted, batch_size=2)
