from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tfcli.data.corpus import prepare
from tfcli.data.text import Text
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer


@pytest.fixture
def text(tmp_path: Path) -> Callable[..., Text]:
    def made(content: str, **settings) -> Text:
        (tmp_path / "corpus.txt").write_text(content, encoding="utf-8")
        (tmp_path / "held.txt").write_text("held out", encoding="utf-8")
        return Text(path=str(tmp_path / "corpus.txt"), **settings)

    return made


def bare(text: Callable, n: int, tmp_path: Path, **settings) -> Text:
    """n characters to train on, which are n tokens."""
    return text("x" * n, bos=False, eos=False, validation_path=str(tmp_path / "held.txt"), **settings)


def test_a_stream_shorter_than_a_row_is_refused_with_both_numbers(
    text: Callable, ready: Callable, tmp_path: Path
) -> None:
    for n in (5, 16):
        match = f"corpus.txt: there are {n} tokens to train on, need at least 17 for one row"
        with pytest.raises(ConfigError, match=match):
            ready(bare(text, n, tmp_path), seq_len=16)
    corpus = ready(bare(text, 17, tmp_path), seq_len=16)
    assert len(corpus.train.blocks) == 1 and corpus.facts["train"]["labels"] == 16
    assert len(corpus.train.draw(3)) == 3


def test_a_row_that_is_not_shifted_needs_no_token_more(
    text: Callable, ready: Callable, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="there are 15 tokens to train on, need at least 16 for one row"):
        ready(bare(text, 15, tmp_path), seq_len=16, shifted=False)
    corpus = ready(bare(text, 16, tmp_path), seq_len=16, shifted=False)
    assert len(corpus.train.blocks) == 1 and corpus.facts["train"]["labels"] == 16
    state = ready(bare(text, 32, tmp_path), seq_len=16).train.state_dict()
    with pytest.raises(ConfigError, match="the run learned from 2 rows, these are 2 others"):
        ready(bare(text, 32, tmp_path), seq_len=16, shifted=False).train.load_state_dict(state)


def test_text_is_sorted_by_length_where_a_batch_has_a_budget_of_tokens(listed: type, ready: Callable) -> None:
    source = listed(["w" * (1 + i % 30) for i in range(400)], packing="none")
    corpus = ready(source, seq_len=40, batch_tokens=120)
    rows = corpus.train.draw(1)
    assert len(rows) * max(len(row.tokens) - 1 for row in rows) <= 120
    facts = corpus.facts["train"]
    assert facts["padding"] < 0.05 < 0.2 < facts["padding if unsorted"]
    with pytest.raises(ConfigError, match="train.batch_tokens=29: the longest row has 30 tokens"):
        ready(source, seq_len=40, batch_tokens=29)
    straight = ready(source, seq_len=40)
    assert "padding" not in straight.facts["train"] and straight.train.batches_per_epoch == 360
    with pytest.raises(ConfigError, match=r"train\.batch_tokens"):
        straight.train.load_state_dict(corpus.train.state_dict())


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_a_budget_of_tokens_has_room_for_what_is_written_of_text(
    packing: str, listed: type, ready: Callable
) -> None:
    source = listed(["w" * (1 + i % 30) for i in range(400)], packing=packing, bos=False, eos=False)
    how = {"seq_len": 40, "shifted": False, "batch_tokens": 200}
    corpus = ready(source, written=lambda n: n + 1, **how)
    sizes = []
    while corpus.train.epoch < 1:
        rows = corpus.train.draw(1)
        longest = max(len(row.tokens) for row in rows)
        sizes.append(len(rows) * (longest + longest + 1))
    assert max(sizes) <= 200 < 2 * max(sizes)
    lengths = [len(corpus.train.blocks[i].tokens) for i in range(len(corpus.train.blocks))]
    assert corpus.train.sizes.tolist() == [[n, n + 1] for n in lengths]
    with pytest.raises(
        ConfigError, match="train.batch_tokens=40: the longest row has [0-9]+ tokens, source and target"
    ):
        ready(source, written=lambda n: n + 1, **how | {"batch_tokens": 40})
    with pytest.raises(ConfigError, match="in other batches"):
        ready(source, **how).train.load_state_dict(corpus.train.state_dict())


@pytest.mark.parametrize("packing", ["documents", "none"])
def test_a_document_of_two_tokens_is_enough_where_rows_are_padded(
    packing: str, text: Callable, ready: Callable, tmp_path: Path
) -> None:
    assert len(ready(bare(text, 2, tmp_path, packing=packing), seq_len=16).train.blocks) == 1
    with pytest.raises(ConfigError, match="nothing to predict in the 1 tokens"):
        ready(bare(text, 1, tmp_path, packing=packing), seq_len=16)


@pytest.mark.parametrize("content", ["", "\n \n\n", "\ufeff", "\ufeff\r\n"])
def test_a_file_without_text_is_named(content: str, text: Callable, ready: Callable) -> None:
    with pytest.raises(ConfigError, match="corpus.txt: there is no text"):
        ready(text(content))


def test_an_empty_validation_part_is_refused(text: Callable, ready: Callable, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="nothing to predict in the validation part, 0 documents of 0 tokens"
    ):
        ready(text("x", packing="none"))
    source = text("x" * 99, bos=False, eos=False, validation_path=str(tmp_path / "held.txt"))
    (tmp_path / "held.txt").write_text("h")
    with pytest.raises(ConfigError, match="validation part, 1 documents of 1 tokens"):
        ready(source)
    (tmp_path / "held.txt").write_text("hi")
    assert len(ready(source).validation) == 1


def test_a_text_is_split_at_nine_tenths_of_its_characters(
    text: Callable, ready: Callable, char: Tokenizer
) -> None:
    content = "".join(chr(33 + i % 90) for i in range(1005))
    corpus = ready(text(content))
    train, held = (part.tokens.ids for part in (corpus.train.blocks, corpus.validation))
    assert char.decode(train) == content[:904] and char.decode(held) == content[904:]
    assert (train[0], train[-1], held[0], held[-1]) == (char.bos_id, char.eos_id, char.bos_id, char.eos_id)


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_there_are_as_many_eos_as_documents(
    packing: str, listed: type, ready: Callable, char: Tokenizer
) -> None:
    texts = [f"<eos> {i} <pad><bos>" for i in range(30)] + ["", " "]
    corpus = ready(listed(texts, packing=packing))
    parts = (corpus.train.blocks, corpus.validation)
    assert sum(int((part.tokens.ids == char.eos_id).sum()) for part in parts) == 30
    assert [corpus.facts[part]["documents"] for part in ("train", "validation")] == [27, 3]
    assert sum(corpus.facts[part]["blank"] for part in corpus.facts) == 2
    assert "data: 2 blank documents were left out" in corpus.notices


def test_bos_and_eos_can_be_left_out(listed: type, ready: Callable, char: Tokenizer) -> None:
    for bos in (True, False):
        for eos in (True, False):
            ids = ready(listed(["some words"] * 20, bos=bos, eos=eos)).train.blocks.tokens.ids
            assert (char.bos_id in ids, char.eos_id in ids) == (bos, eos)


def test_documents_that_nothing_ends_are_told(
    listed: type, ready: Callable, char: Tokenizer, monkeypatch
) -> None:
    monkeypatch.setattr(char, "eos_id", None)
    told = "tokenizer: has no token that ends a document, so none is put there"
    assert told in ready(listed(["some words"] * 20)).notices
    assert told not in ready(listed(["some words" * 20])).notices


def test_facts_count_tokens_bytes_rows_labels_and_what_is_unknown(listed: type, ready: Callable) -> None:
    corpus = ready(listed(["日本 é!"] * 18 + ["abc"], held=["xy"], bos=False, eos=False))
    assert corpus.facts["train"] == {
        "documents": 19, "tokens": 18 * 5 + 3, "bytes": 18 * 10 + 3, "blank": 0, "unknown": 18 * 3,
        "rows": 12, "labels": 92,
    }  # fmt: skip
    assert corpus.facts["validation"]["bytes"] == 2
    assert "tokenizer: 54 of 95 tokens of the data are <unk>" in corpus.notices


def test_fewer_rows_than_a_batch_are_trained_on_with_a_notice(listed: type, ready: Callable) -> None:
    corpus = ready(listed(["some words"] * 4, packing="none"), seq_len=16, batch_size=8)
    assert "data: 3 rows to train on, fewer than a batch of 8; it holds some twice" in corpus.notices
    assert len(corpus.train.draw(8)) == 8


def test_ids_that_are_not_in_the_vocabulary_are_refused(
    listed: type, ready: Callable, char: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(listed(["some words"] * 20))
    monkeypatch.setattr(char, "vocab_size", 50)
    with pytest.raises(ConfigError, match="the token 9[0-9] is not in the vocabulary of 50"):
        ready(listed(["some words"] * 20))


def test_line_ends_and_byte_order_marks_change_no_ids(tmp_path: Path, char: Tokenizer) -> None:
    ids = []
    for end in ("\n", "\r\n", "\r"):
        for mark in ("", "\ufeff"):
            path = tmp_path / "a.txt"
            path.write_bytes((mark + "one two" + end + end + "three" + end).encode() * 1)
            corpus = prepare(Text(path=str(path)), char, seq_len=4, cache_dir=tmp_path / "cache")
            ids.append(
                np.concatenate([corpus.train.blocks.tokens.ids, corpus.validation.tokens.ids]).tolist()
            )
    assert len({tuple(i) for i in ids}) == 1
