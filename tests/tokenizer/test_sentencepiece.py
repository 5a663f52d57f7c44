"""SentencePiece files give the ids of the sentencepiece package, and damaged ones are refused."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizer import published
from tokenizers import normalizers

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer, charsmap, sentencepiece, spm
from tfcli.tokenizer.files import read

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"vocab_size": 600},
    "unigram, bytes": {"vocab_size": 900, "byte_fallback": True},
    "unigram, across words": {
        "vocab_size": 600, "split_by_whitespace": False, "normalization_rule_name": "nfkc",
    },
    "unigram, plain": {"vocab_size": 600, "add_dummy_prefix": False, "normalization_rule_name": "identity"},
    "unigram, own pieces": {"vocab_size": 600, "user_defined_symbols": ("<x>", "hello")},
    "bpe": {"vocab_size": 600, "model_type": "bpe"},
    "llama": {
        "vocab_size": 900, "model_type": "bpe", "byte_fallback": True, "split_digits": True,
        "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
    },
    "gemma": {
        "vocab_size": 900, "model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False, "pad_id": 0,
        "eos_id": 1, "bos_id": 2, "unk_id": 3, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ("<mask>", "\n", "\n\n", "▁▁", "▁▁▁", "<x>"),
    },
}  # fmt: skip


def ours(data: bytes, folder: Path) -> Tokenizer:
    return read(published.write(folder, {"tokenizer.model": data}))


def theirs(data: bytes) -> Any:
    package = pytest.importorskip("sentencepiece")
    return package.SentencePieceProcessor(model_proto=data)


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_the_sentencepiece_package(name: str, tmp_path: Path) -> None:
    data = published.spm(**MODELS[name])
    it, reference = ours(data, tmp_path), theirs(data)
    for text in published.texts():
        assert it.encode(text) == reference.encode(text), text
    assert it.encode_many(published.HARD) == reference.encode(published.HARD)
    assert it.vocab_size == reference.get_piece_size()
    assert (it.unk_id, it.eos_id) == (reference.unk_id(), reference.eos_id())


@pytest.mark.parametrize("name", MODELS)
def test_texts_come_back_as_the_package_gives_them(name: str, tmp_path: Path) -> None:
    data = published.spm(**MODELS[name])
    it, reference = ours(data, tmp_path), theirs(data)
    known = [ids for ids in map(it.encode, published.texts()) if it.unk_id not in ids]
    assert len(known) > 30
    for ids in known:
        assert it.decode(ids).lstrip(" ") == reference.decode(ids).lstrip(" ")


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_a_model_with_bytes_and_no_table_gives_back_every_text(name: str, tmp_path: Path) -> None:
    it = ours(published.spm(**MODELS[name]), tmp_path)
    for text in published.texts():
        assert it.decode(it.encode(text)) == text.replace("▁", " ")


def test_text_that_spells_a_control_piece_or_a_byte_is_text(tmp_path: Path) -> None:
    for name in MODELS:
        it = ours(published.spm(**MODELS[name]), tmp_path / name)
        for text in ("</s>", "a</s>b", "<s>", "<unk>", "<0x41>", "<pad>"):
            pieces = {it.pieces_of_vocabulary()[i] for i in it.encode(text)}
            assert not pieces & {"<s>", "</s>", "<0x41>", "<pad>"}
        if name == "llama":
            assert it.unk_id not in it.encode("<unk>")


def test_allowed_special_text_is_the_special_token(tmp_path: Path) -> None:
    folder = published.write(tmp_path, {"tokenizer.model": published.llama()})
    assert read(folder, allow_special=True).encode("a</s>")[-1] == read(folder).eos_id


def test_fields_are_read_as_the_format_says() -> None:
    message = b"\x0a\x02hi" + b"\x18\x96\x01" + b"\x15" + struct.pack("<f", 1.5) + b"\x0a\x00"
    assert sentencepiece.fields(message) == {1: [b"hi", b""], 3: [150], 2: [struct.pack("<f", 1.5)]}
    assert sentencepiece.fields(b"\x18" + b"\xff" * 9 + b"\x01") == {3: [(1 << 64) - 1]}


def test_what_a_model_says_is_read() -> None:
    model = sentencepiece.parse(published.spm(**MODELS["gemma"]))
    assert model.algorithm == "bpe" and model.byte_fallback and not model.dummy_prefix and not model.tidy
    assert model.roles == {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>"} and model.escape
    kinds = [piece.kind for piece in model.pieces[:10]]
    assert kinds == [3, 3, 3, 2, 4, 4, 4, 4, 4, 4]
    assert sum(piece.kind == sentencepiece.BYTE for piece in model.pieces) == 256
    assert model.pieces[-1].score < model.pieces[300].score < 0


def test_a_damaged_model_is_refused_in_one_line_or_is_a_model(tmp_path: Path) -> None:
    data, draw = published.spm(vocab_size=600), random.Random(0)
    cuts = [data[: draw.randrange(len(data))] for _ in range(40)]
    flips = []
    for _ in range(120):
        at = draw.choice([draw.randrange(len(data)), len(data) - 1 - draw.randrange(400)])
        flips.append(data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :])
    refused = 0
    for i, bad in enumerate([b"", b"hello world\n", b"\x80" * 20, *cuts, *flips]):
        try:
            ours(bad, tmp_path / str(i)).encode("hello ﬁ é")
        except ConfigError as error:
            refused += 1
            assert "\n" not in str(error) and "tokenizer.model" in str(error)
    assert refused > 60


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"model_type": "word"}, "model_type=word: must be unigram or bpe"),
        ({"model_type": "char"}, "model_type=char: must be unigram or bpe"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix=true"),
    ],
)
def test_a_kind_that_is_not_built_is_refused_by_name(settings: dict, match: str, tmp_path: Path) -> None:
    data = published.spm(**({"vocab_size": 300} | settings), hard_vocab_limit=False)
    with pytest.raises(ConfigError, match=match):
        ours(data, tmp_path)


def test_a_table_is_checked_before_it_is_followed() -> None:
    good = sentencepiece.parse(published.spm(vocab_size=600)).charsmap
    assert charsmap.fault(good) is None and normalizers.Precompiled(good).normalize_str("①") == "1"
    size = int.from_bytes(good[:4], "little")
    units = np.frombuffer(good, "<u4", size // 4, 4).copy()
    units[0] = 0xFFFFFC00
    assert "out of itself" in charsmap.fault(good[:4] + units.tobytes() + good[4 + size :])
    assert "beyond its texts" in charsmap.fault(good[: 4 + size] + b"short\0")
    inside = ("é" * len(good)).encode()[
        : 2 * (len(good) // 2)
    ] + b"\0"  # every second byte is within a character
    assert "into a character" in charsmap.fault(good[: 4 + size] + inside)
    assert "does not fit" in charsmap.fault(good[:20])
    assert "UTF-8" in charsmap.fault(good[:-1] + b"\xff")


def test_a_cut_is_where_no_piece_and_no_unknown_run_would_span_it() -> None:
    texts = ["▁", "<", "s", ">", "</", "a", "s>"]
    pieces = (
        *(sentencepiece.Piece(t) for t in texts),
        sentencepiece.Piece("<unk>", 0.0, sentencepiece.UNKNOWN),
    )
    places = spm._places(sentencepiece.Model(pieces), ["</s>", "<pad>", "<0>"])
    assert places == {"</s>": 2, "<pad>": 1, "<0>": 1}


def test_merges_are_in_the_order_of_scores() -> None:
    scores = {"a": -1.0, "b": -2.0, "ab": -9.0, "abb": -5.0, "bb": -7.0}
    pieces = [sentencepiece.Piece(text, score) for text, score in scores.items()]
    assert spm.merges(pieces) == [("a", "bb"), ("ab", "b"), ("b", "b"), ("a", "b")]
