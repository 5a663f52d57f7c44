from collections import Counter
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tfcli.data import Corpus, Example
from tfcli.data.corpus import prepare, training_texts
from tfcli.data.streaming import Streamed
from tfcli.data.tasks import Add
from tfcli.data.text import Text
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer

PACKINGS = ["stream", "documents", "none"]
LINES = [f"{i} " + "x" * (i * 7 % 23) for i in range(300)]


@pytest.fixture
def corpus(tmp_path: Path, char: Tokenizer) -> Callable[..., Corpus]:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES[:150]) + "\n\n \n" + "\n".join(LINES[150:]))

    def made(seed: int = 1, rank: int = 0, world: int = 1, shifted: bool = True, **settings) -> Corpus:
        settings = {"shuffle_buffer": 20, "validation_documents": 10} | settings
        source = Text(path=str(path), sample_by="line", streaming=True, **settings)
        return prepare(source, char, seq_len=16, seed=seed, rank=rank, world=world, shifted=shifted)

    return made


def one_pass(feed: Streamed) -> list[Example]:
    rows = []
    while True:
        row = feed.draw(1)
        if feed.passes:
            return rows
        rows += row


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_pass_holds_every_label_once(
    packing: str, corpus: Callable, char: Tokenizer, pairs: Callable
) -> None:
    feed = corpus(packing=packing).train
    ids = [[char.bos_id, *char.encode(line), char.eos_id] for line in LINES[10:]]
    if packing == "stream":
        ids = [[i for document in ids for i in document]]
    assert Counter(pairs(one_pass(feed))) == Counter(pair for d in ids for pair in pairwise(d))
    assert feed.epoch == 1.0 and feed.examples_per_epoch is None


@pytest.mark.parametrize("limit", [3, 256])
@pytest.mark.parametrize("packing", PACKINGS)
def test_a_pass_that_is_not_shifted_holds_every_token_once(
    packing: str, limit: int, corpus: Callable, char: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfcli.data.streaming.DOCUMENTS", limit)
    rows = one_pass(corpus(packing=packing, shifted=False).train)
    ids = [i for line in LINES[10:] for i in (char.bos_id, *char.encode(line), char.eos_id)]
    assert Counter(i for row in rows for i in row.tokens.tolist()) == Counter(ids)
    assert max(len(row.tokens) for row in rows) == 16
    if packing == "stream":
        assert len(rows) == -(-len(ids) // 16)


@pytest.mark.parametrize("shifted", [True, False])
def test_a_place_is_seed_pass_and_how_many_came_before(shifted: bool, corpus: Callable) -> None:
    feed = corpus(packing="none", shifted=shifted).train
    n = len(one_pass(corpus(packing="none", shifted=shifted).train))
    places = [row.place for row in feed.draw(n + 5)]
    assert places == [(1, 1 + (i >= n), i) for i in range(n + 5)]
    ranks = [corpus(packing="none", shifted=shifted, rank=rank, world=2).train.draw(50) for rank in range(2)]
    assert [row.place for pair in zip(*ranks) for row in pair] == places[:100]


def test_rows_are_shuffled_by_the_seed_and_differently_in_the_next_pass(
    corpus: Callable, same: Callable
) -> None:
    n = len(one_pass(corpus(packing="none").train))
    first = corpus(packing="none").train.draw(n * 2)
    assert same(first, corpus(packing="none").train.draw(n * 2))
    assert not same(first, corpus(packing="none", seed=2).train.draw(n * 2))
    texts = [tuple(example.tokens.tolist()) for example in first]
    assert Counter(texts[:n]) == Counter(texts[n:]) and texts[:n] != texts[n:]


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("packing", PACKINGS)
def test_a_stream_goes_on_exactly_where_it_stopped(
    packing: str, shifted: bool, corpus: Callable, same: Callable
) -> None:
    straight = corpus(packing=packing, shifted=shifted).train.draw(700)
    feed, found = corpus(packing=packing, shifted=shifted).train, []
    for n in (1, 30, 7, 250, 60, 100):
        found += feed.draw(n)
        file = BytesIO()
        torch.save(feed.state_dict(), file)
        feed.draw(5)  # a state is not changed by what comes after it
        file.seek(0)
        feed = corpus(packing=packing, seed=99, shifted=shifted).train
        feed.load_state_dict(torch.load(file, weights_only=True))
    assert same(found + feed.draw(700 - len(found)), straight)


def test_prompts_stay_unscored_in_a_stream_that_goes_on(char: Tokenizer, same: Callable) -> None:
    def made() -> Streamed:
        source = Add(n_train=100, n_validation=10, packing="stream")
        source.streaming, source.shuffle_buffer, source.validation_documents = True, 5, 5
        return prepare(source, char, seq_len=16).train

    straight, feed = made().draw(80), made()
    found, state = feed.draw(33), feed.state_dict()
    feed = made()
    feed.load_state_dict(state)
    assert same(found + feed.draw(47), straight)
    assert all(
        example.score.any() and not example.score.all() for example in straight if len(example.tokens) > 12
    )


def test_little_is_held_in_memory(corpus: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfcli.data.streaming.DOCUMENTS", 4)
    feed = corpus(packing="none").train
    assert feed.read <= 24
    for _ in range(600):
        feed.draw(1)
        assert len(feed.buffer) < 20 + 4 * 2  # a document of these is two rows at most


def test_ranks_share_out_what_one_would_draw(corpus: Callable) -> None:
    def texts(rows: list[Example]) -> list[tuple]:
        return [tuple(row.tokens.tolist()) for row in rows]

    one = corpus(packing="none").train
    ranks = [corpus(packing="none", rank=rank, world=2).train for rank in range(2)]
    for _ in range(200):
        together = texts(one.draw(4))
        shares = [texts(rank.draw(2)) for rank in ranks]
        assert [together[0::2], together[1::2]] == shares


def test_the_first_documents_are_held_out(corpus: Callable, char: Tokenizer) -> None:
    made = corpus(packing="none")
    held = [char.decode(made.validation[i].tokens) for i in range(len(made.validation))]
    seen = {char.decode(row.tokens) for row in made.train.draw(290)}
    assert "".join(held).startswith(LINES[0]) and not seen & set(LINES[:10])


def test_a_validation_file_of_its_own_takes_nothing_from_training(corpus: Callable, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("held\nout\n")
    made = corpus(packing="none", validation_path=str(tmp_path / "held.txt"))
    assert made.facts["validation"]["documents"] == 2
    assert len(one_pass(made.train)) == 300 + sum(len(line) + 1 > 16 for line in LINES)


def test_max_documents_limits_each_pass(corpus: Callable) -> None:
    feed = corpus(packing="none", max_documents=7).train
    assert len(one_pass(feed)) == 7 + sum(len(line) + 1 > 16 for line in LINES[10:17])


def test_the_tokenizer_learns_from_what_is_not_held_out(corpus: Callable) -> None:
    source = corpus(max_documents=3).train.source
    assert list(training_texts(source)) == LINES[10:13]


def test_never_more_than_a_tenth_is_held_out(corpus: Callable) -> None:
    made = corpus(packing="none", validation_documents=1000)
    assert made.facts["validation"]["documents"] == 30
    texts = LINES[30:]
    assert len(one_pass(made.train)) == len(texts) + sum(len(line) + 1 > 16 for line in texts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one document\nof two lines\n", "streaming holds nothing out; set data.validation_path"),
        ("\n", "no text"),
    ],
)
def test_what_cannot_be_shared_out_is_refused_at_once(
    text: str, said: str, tmp_path: Path, char: Tokenizer
) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(ConfigError, match=said):
        prepare(Text(path=str(tmp_path / "a.txt"), streaming=True), char, seq_len=4)


def test_a_broken_line_is_said_with_its_number_while_training(tmp_path: Path, char: Tokenizer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "some text"}\n' * 2000 + "{broken\n")
    feed = prepare(Text(path=str(path), streaming=True, shuffle_buffer=10), char, seq_len=16).train
    with pytest.raises(ConfigError, match="a.jsonl:2001: not JSON"):
        feed.draw(5000)


def test_going_on_with_another_packing_is_refused(corpus: Callable) -> None:
    with pytest.raises(ConfigError, match="data.packing"):
        corpus(packing="none").train.load_state_dict(corpus(packing="stream").train.state_dict())
    with pytest.raises(ConfigError, match="objective"):
        corpus(shifted=False).train.load_state_dict(corpus().train.state_dict())


def test_going_on_with_other_data_is_refused(corpus: Callable) -> None:
    state = corpus().train.state_dict()
    same = corpus(shuffle_buffer=7).train
    same.load_state_dict(state)
    path = same.source.files[0]
    path.write_text(path.read_text().replace("7", "8"))  # as long as before
    for other in (corpus(), corpus(bos=False), corpus(validation_documents=5), corpus(max_documents=50)):
        with pytest.raises(ConfigError, match="the run read other data"):
            other.train.load_state_dict(state)


@pytest.mark.parametrize("limit", [1, 256])
def test_a_stream_has_a_token_that_is_both_bos_and_eos_once_between_documents(
    limit: int, corpus: Callable, char: Tokenizer, pairs: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfcli.data.streaming.DOCUMENTS", limit)
    monkeypatch.setattr(char, "bos_id", char.eos_id)
    feed = corpus().train
    found = pairs(one_pass(feed))
    assert sum(label == char.eos_id for _, label in found) == 290
    assert (char.eos_id, char.eos_id) not in found
    assert sum(given == char.eos_id for given, _ in found) == 290  # one of them begins the stream
