"""The tokenizers of published model folders give the ids of `transformers`, also when they are saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizer import published
from tokenizer.published import ROBERTA, pair, spiece, write

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.files import read
from tfcli.tokenizer.sentencepiece import parse
from tfcli.tokenizer.spm import merges

transformers = pytest.importorskip("transformers")


def bert(**said: Any) -> dict[str, Any]:
    return {
        "vocab.txt": published.word_pieces(),
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"} | said,
    }


# the class there, the files, whether BOS and EOS are put around a text
FOLDERS: dict[str, tuple[str, Callable[[], dict[str, Any]], tuple[bool, bool]]] = {
    "t5": ("T5", lambda: spiece("spiece.model", published.t5(), "T5", extra_ids=20), (False, True)),
    "llama": (
        "Llama",
        lambda: spiece("tokenizer.model", published.llama(), "Llama", legacy=False, add_bos_token=True),
        (True, False),
    ),
    "llama, ends": (
        "Llama",
        lambda: spiece("tokenizer.model", published.llama(), "Llama", legacy=False, add_bos_token=False,
                       add_eos_token=True),
        (False, True),
    ),
    "xlm-roberta": (
        "XLMRoberta",
        lambda: spiece("sentencepiece.bpe.model", published.spm(vocab_size=600), "XLMRoberta"),
        (True, True),
    ),
    "gpt2": ("GPT2", lambda: pair(("<|endoftext|>",)), (False, False)),
    "gpt2, blank": (
        "GPT2",
        lambda: pair(("<|endoftext|>",)) | {"tokenizer_config.json": {"add_prefix_space": True}},
        (False, False),
    ),
    "roberta": ("Roberta", lambda: pair(ROBERTA) | {"config.json": {"model_type": "roberta"}}, (True, True)),
    "bart": (
        "Roberta",
        lambda: pair(ROBERTA) | {"tokenizer_config.json": {"tokenizer_class": "BartTokenizer"}},
        (True, True),
    ),
    "qwen2": (
        "Qwen2",
        lambda: pair(("<|endoftext|>", "<|im_end|>")) | {"config.json": {"model_type": "qwen2"}},
        (False, False),
    ),
    "bert uncased": ("Bert", lambda: bert(do_lower_case=True), (True, True)),
    "bert cased": ("Bert", lambda: bert(do_lower_case=False), (True, True)),
    "bert with accents": ("Bert", lambda: bert(do_lower_case=True, strip_accents=False), (True, True)),
    "bert cased, no accents": ("Bert", lambda: bert(do_lower_case=False, strip_accents=True), (True, True)),
    "bert, Chinese words": (
        "Bert", lambda: bert(do_lower_case=True, tokenize_chinese_chars=False), (True, True)
    ),
}  # fmt: skip
CONTROLS = ("</s>", "<s>", "<unk>", "<pad>", "<extra_id_")  # which their Unigram model takes from any text


def kept(name: str, folder: Path) -> tuple[Tokenizer, Any]:
    kind, files, _ = FOLDERS[name]
    write(folder, files())
    return read(folder), getattr(transformers, f"{kind}Tokenizer").from_pretrained(folder)


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    it, theirs = kept(name, tmp_path)
    unigram = name in ("t5", "xlm-roberta")
    for text in published.texts():
        if not (unigram and any(control in text for control in CONTROLS)):
            assert it.encode(text) == theirs.encode(
                text, add_special_tokens=False, split_special_tokens=True
            ), text
    assert it.vocab_size == len(theirs)
    for role in it.special:
        mine = getattr(it, f"{role}_id") if role != "pad" or it.has_pad else None
        other = getattr(theirs, f"{role}_token_id")
        assert mine == other or (name.startswith("bert") and role in ("bos", "eos"))


@pytest.mark.parametrize("name", FOLDERS)
def test_what_stands_around_a_text_is_what_transformers_puts_there(name: str, tmp_path: Path) -> None:
    it, theirs = kept(name, tmp_path)
    assert (it.adds_bos, it.adds_eos) == FOLDERS[name][2]
    head, tail = [it.bos_id] * it.adds_bos, [it.eos_id] * it.adds_eos
    assert theirs.encode("hello") == [*head, *it.encode("hello"), *tail]
    if not name.startswith("llama"):
        assert it.backend.encode("a", "b").ids == theirs("a", "b")["input_ids"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_saved_tokenizer_is_the_same_here_and_in_transformers(name: str, tmp_path: Path) -> None:
    it, theirs = kept(name, tmp_path / "in")
    it.save(tmp_path / "out")
    again, auto = (
        Tokenizer.load(tmp_path / "out"),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out"),
    )
    for text in published.texts():
        ids = it.encode(text)
        assert again.encode(text) == ids and auto.encode(text, add_special_tokens=False) == ids
    assert auto.encode("hello") == theirs.encode("hello")
    for attribute in (
        "hash",
        "special",
        "adds_bos",
        "adds_eos",
        "special_ids",
        "sentinel_ids",
        "chat_template",
    ):
        assert getattr(again, attribute) == getattr(it, attribute)
    assert auto.model_input_names == theirs.model_input_names or set(auto.model_input_names) == set(
        theirs.model_input_names
    )


def test_sentinels_have_the_last_ids_in_reverse(tmp_path: Path) -> None:
    it, _ = kept("t5", tmp_path)
    assert it.vocab_size == 620 and it.sentinel_ids == tuple(range(619, 599, -1))
    assert set(it.sentinel_ids) <= it.special_ids and it.bos_id is None and (it.pad_id, it.eos_id) == (0, 1)
    write(tmp_path / "none", spiece("spiece.model", published.t5(), "T5", extra_ids=0))
    assert read(tmp_path / "none").sentinel_ids == ()
    own = published.t5(control_symbols=("<extra_id_0>", "<extra_id_1>"))
    write(tmp_path / "own", spiece("spiece.model", own, "T5"))
    assert read(tmp_path / "own").vocab_size == 600
    write(tmp_path / "bad", spiece("spiece.model", published.t5(), "T5", extra_ids="many"))
    with pytest.raises(ConfigError, match="extra_ids=many"):
        read(tmp_path / "bad")


def test_a_gemma_vocabulary_gives_the_ids_of_its_class(tmp_path: Path) -> None:
    data = published.llama(add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3)
    model = parse(data)
    vocabulary = {piece.text: i for i, piece in enumerate(model.pieces)}
    roles = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    theirs = transformers.GemmaTokenizer(vocab=vocabulary, merges=merges(model.pieces), **roles)
    theirs.save_pretrained(tmp_path / "json")
    whole = read(tmp_path / "json")
    pieces = read(write(tmp_path / "spm", spiece("tokenizer.model", data, "Gemma")))
    for text in published.texts():
        ids = theirs.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert whole.encode(text) == ids and pieces.encode(text) == ids, text
    assert (pieces.adds_bos, pieces.adds_eos) == (whole.adds_bos, whole.adds_eos) == (True, False)


def test_llamas_legacy_is_as_the_files_say(tmp_path: Path) -> None:
    ids = {}
    for legacy in (True, False):
        folder = write(
            tmp_path / str(legacy), spiece("tokenizer.model", published.llama(), "Llama", legacy=legacy)
        )
        theirs = transformers.LlamaTokenizer.from_pretrained(folder)
        it = read(folder, allow_special=True)
        ids[legacy] = it.encode("hello</s>hello")
        assert ids[legacy] == theirs.encode("hello</s>hello", add_special_tokens=False)
        for text in published.HARD:
            if not text.startswith((" ", "▁")) and "<" not in text:
                expected = theirs.encode(text, add_special_tokens=False)
                assert it.encode(text) == expected
    assert ids[True] != ids[False]
