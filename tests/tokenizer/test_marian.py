"""Marian's pair of vocabularies gives the ids and the texts of `transformers`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizer import published
from tokenizer.published import write

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.files import File, read
from tfcli.tokenizer.marian import FILES
from tfcli.tokenizer.sentencepiece import parse

LOST = ("▁self", "e", "=")  # pieces that the vocabulary has not
TEXTS = [">>fr<< hello world", ">>xx<<self", "self.e=1", ">>fr<<", "a >>fr<< b", "self e e e = self"]


@cache
def files() -> dict[str, Any]:
    sides = published.spm(vocab_size=500), published.spm(vocab_size=450, max_sentencepiece_length=6)
    pieces = [piece.text for side in sides for piece in parse(side).pieces]
    words = [p for p in dict.fromkeys(pieces) if p not in ("<s>", "</s>", "<unk>", *LOST)]
    ids = {token: i for i, token in enumerate(["</s>", "<unk>", *words, ">>fr<<", "<pad>"])}
    said = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "fr",
        "separate_vocabs": False,
    }
    return {"vocab.json": ids, "source.spm": sides[0], "target.spm": sides[1], "tokenizer_config.json": said}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "marian", files())


@pytest.mark.filterwarnings("ignore:Recommended")
def test_ids_and_texts_are_those_of_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    it, theirs = read(folder), transformers.MarianTokenizer.from_pretrained(folder)
    how = {"add_special_tokens": False, "split_special_tokens": True}
    for text in [*published.texts(), *TEXTS]:
        assert it.reads.encode(text) == theirs(text, **how)["input_ids"], text
        ids = it.encode(text)
        assert ids == theirs(text_target=text, **how)["input_ids"], text
        assert it.decode(ids).strip() == theirs.decode(ids, skip_special_tokens=True).strip()
    assert theirs("hello")["input_ids"] == [*it.reads.encode("hello"), it.eos_id]
    assert (it.eos_id, it.unk_id, it.pad_id, it.bos_id) == (0, 1, theirs.pad_token_id, None)
    assert it.vocab_size == it.reads.vocab_size == theirs.vocab_size


def test_the_two_sides_share_ids_and_not_pieces(folder: Path) -> None:
    it = read(folder)
    assert it.reads is not it and it.reads.reads is it.reads and it.hash == it.reads.hash
    assert it.encode("argument parser") != it.reads.encode("argument parser")
    assert it.adds_eos and not it.adds_bos and it.special_ids == {it.eos_id, it.unk_id, it.pad_id}
    spelled = it.pieces_of_vocabulary()
    assert [it.id_of(token) for token in spelled] == list(range(it.vocab_size))


def test_a_piece_that_the_vocabulary_lacks_is_unknown(folder: Path) -> None:
    it = read(folder)
    lost = it.reads.backend.token_to_id("▁self")
    assert lost in it.reads.backend.encode("self").ids and it.reads.encode("self") == [it.unk_id]


def test_offsets_point_into_the_text_behind_a_language_code(folder: Path) -> None:
    it = read(folder).reads
    text = ">>fr<< hello"
    ids, spans = it.encode_offsets(text)
    assert ids == it.encode(text) and ids[0] == it.id_of(">>fr<<") and spans[0] == (0, 6)
    assert "".join(text[a:b] for a, b in spans[1:]).strip() == "hello"


def test_special_text_is_text_unless_allowed(folder: Path) -> None:
    assert read(folder).eos_id not in read(folder).encode("a</s><pad>")
    ids = read(folder, allow_special=True).encode("a</s><pad>")
    assert {0, read(folder).pad_id} <= {*ids}


@pytest.mark.filterwarnings("ignore:Recommended")
def test_it_is_saved_byte_for_byte_and_loaded_as_it_was(folder: Path, tmp_path: Path) -> None:
    it = read(folder)
    it.save(tmp_path / "out")
    assert all((tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes() for name in FILES)
    again = Tokenizer.load(tmp_path / "out")
    assert again.hash == it.hash == File(path=str(tmp_path / "out")).train().hash
    for text in TEXTS:
        assert again.encode(text) == it.encode(text) and again.reads.encode(text) == it.reads.encode(text)
    transformers = pytest.importorskip("transformers")
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(auto).__name__ == "MarianTokenizer" and auto.encode("hello") == [*it.reads.encode("hello"), 0]


def test_another_vocabulary_or_model_has_another_hash(folder: Path) -> None:
    first = read(folder).hash
    write(folder, {"target.spm": published.spm(vocab_size=500)})
    assert read(folder).hash != first


def test_what_is_not_built_is_refused_by_name(folder: Path) -> None:
    def refused(match: str, **changed: Any) -> None:
        with pytest.raises(ConfigError, match=match) as error:
            read(
                write(
                    folder, files() | {name.replace("_json", ".json"): data for name, data in changed.items()}
                )
            )
        assert "\n" not in str(error.value)

    said = files()["tokenizer_config.json"] | {"separate_vocabs": True}
    refused("separate_vocabs=true: must be false", tokenizer_config_json=said)
    refused("has no unk_token", vocab_json={"</s>": 0, "a": 1})
    refused("an id of its own", vocab_json={"</s>": 0, "<unk>": 0})
    refused("an id of its own", vocab_json={"</s>": -1})
    it = read(write(folder, files()))
    assert it.with_ends(False, True) is it
    with pytest.raises(ConfigError, match="must be true"):
        it.with_ends(False, False)
