from pathlib import Path

import numpy as np
import pytest
from objective import made
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from tfcli.objective.words import Vocabulary
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.files import File

TEXT = "Hello world. I'm\nthe  man"


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The text as words, by what the vocabulary says."""
    ids = np.array(tokenizer.encode(text))
    begins = Vocabulary(tokenizer).begins_word(ids)
    return [tokenizer.decode(part) for part in np.split(ids, np.flatnonzero(begins)[1:])]


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_words_of_characters_begin_behind_white_space(kind: str) -> None:
    assert words(made.tokenizer(kind), TEXT) == ["Hello ", "world. ", "I'm\n", "the  ", "man"]


def test_words_of_byte_pairs_begin_with_their_blank() -> None:
    found = words(made.tokenizer("bpe"), TEXT)
    assert [word.strip() for word in found] == ["Hello", "world.", "I'm", "the", "man"]


def test_words_of_word_pieces_are_what_is_no_continuation() -> None:
    found = words(made.tokenizer("wordpiece"), TEXT)
    assert [word.strip() for word in found] == ["Hello", "world", ".", "I", "'m", "the", "man"]


def test_a_word_of_word_pieces_may_begin_behind_a_blank_of_its_own() -> None:
    tokenizer = made.tokenizer("wordpiece")
    text = "so Wx Xw"
    assert len(tokenizer.encode(text)) > 5  # the vocabulary has the words in pieces only
    assert [word.strip() for word in words(tokenizer, text)] == text.split()


def test_the_pieces_of_bert_begin_words_without_a_blank(tmp_path: Path) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "chess", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = File(path=str(tmp_path / "vocab.txt")).train()
    ids = np.array([2, 5, 6, 7, 8, 3])  # [CLS] play ##ing chess . [SEP]
    seen = Vocabulary(tokenizer)
    assert seen.begins_word(ids).tolist() == [True, True, False, True, True, True]
    assert np.flatnonzero(seen.special).tolist() == [0, 2, 3, 4]  # <unk> stands for text
    assert seen.ordinary.tolist() == [5, 6, 7, 8]


def test_words_of_sentence_pieces_begin_with_the_marker_of_a_blank() -> None:
    pieces = ["<unk>", "▁a", "b", "▁c", "."]
    backend = Backend(models.Unigram([(piece, 0.0) for piece in pieces], 0, False))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    seen = Vocabulary(Tokenizer(backend, {"unk": "<unk>"}))
    assert seen.begins_word(np.array([2, 1, 2, 3, 4])).tolist() == [True, True, False, True, False]


def test_ideographs_are_words() -> None:
    assert words(made.tokenizer("char"), "你好。再见") == ["你", "好。", "再", "见"]


@pytest.mark.parametrize("kind", made.RECIPES)
def test_words_begin_at_special_tokens_behind_them_and_at_another_document(kind: str) -> None:
    tokenizer = made.tokenizer(kind)
    inner, eos = tokenizer.encode("xxbxx")[2:3], tokenizer.eos_id
    ids = np.array([*inner, *inner, eos, *inner, *inner, *inner])
    seen = Vocabulary(tokenizer)
    begins = seen.begins_word(ids, np.array([0, 0, 0, 0, 0, 1]))
    assert begins[[0, 2, 3, 5]].all() and seen.special[eos]
    if kind != "wordpiece":  # whose every character may begin a word
        assert not begins[[1, 4]].any()


@pytest.mark.parametrize("kind", made.RECIPES)
def test_sentences_end_in_their_marks(kind: str) -> None:
    tokenizer = made.tokenizer(kind)
    text = "Hello world. How are you? Fine!" + ("" if kind == "byte" else " 你好。再见！")
    ids = tokenizer.encode(text)
    ends = Vocabulary(tokenizer).ends_sentence[ids]
    marks = [tokenizer.decode([i]).strip() for i in np.array(ids)[ends]]
    assert marks == list(".?!" + ("" if kind == "byte" else "。！"))


@pytest.mark.parametrize("kind", made.RECIPES)
def test_sentences_begin_at_words(kind: str) -> None:
    tokenizer = made.tokenizer(kind)
    text = "It was... 12 times.  Why?! \nSo.so she said. nobody"
    ids = np.array(tokenizer.encode(text))
    begins = np.flatnonzero(Vocabulary(tokenizer).begins_sentence(ids))
    found = [tokenizer.decode(part).strip() for part in np.split(ids, begins)]
    so = ["So.", "so she said."] if kind == "wordpiece" else ["So.so she said."]
    assert found == ["It was...", "12 times.", "Why?!", *so, "nobody"]


def test_several_marks_end_one_sentence() -> None:
    tokenizer = made.tokenizer("wordpiece")
    (dot,), (what,), word = tokenizer.encode("."), tokenizer.encode("?"), tokenizer.encode("old")
    ids = np.array([*word, dot, dot, what, *word])
    begins = np.flatnonzero(Vocabulary(tokenizer).begins_sentence(ids))
    assert begins.tolist() == [len(word) + 3]


def test_sentences_of_ideographs_need_no_blank() -> None:
    tokenizer = made.tokenizer("char")
    ids = np.array(tokenizer.encode("你好。再见！好"))
    assert np.flatnonzero(Vocabulary(tokenizer).begins_sentence(ids)).tolist() == [3, 6]


def test_a_text_behind_a_special_token_begins_no_further_sentence() -> None:
    tokenizer = made.tokenizer("char")
    (dot, x), eos = tokenizer.encode(".x"), tokenizer.eos_id
    ids = np.array([*tokenizer.encode(" "), x, dot, eos, *tokenizer.encode(" "), x, dot])
    assert not Vocabulary(tokenizer).begins_sentence(ids).any()


def test_an_empty_row_has_no_words() -> None:
    assert Vocabulary(made.tokenizer("char")).begins_word(np.zeros(0, dtype=np.int64)).tolist() == []
    assert Vocabulary(made.tokenizer("char")).begins_sentence(np.zeros(0, dtype=np.int64)).tolist() == []
