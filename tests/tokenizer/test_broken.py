"""Files that break the backend, or are none, are refused in one line that names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tokenizer import published
from tokenizer.published import ROBERTA, pair, write

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer, tried
from tfcli.tokenizer.files import read
from tfcli.tokenizer.trained import Bpe

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
UNIGRAM = {"type": "Unigram", "unk_id": None, "vocab": [["<unk>", 0.0], ["a", -1.0]], "byte_fallback": False}
PIECES = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
          "max_input_chars_per_word": 100}  # fmt: skip


def spec(model: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A tokenizer.json of that model."""
    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(parts), "model": model} | more


def begins(name: str, i: int | None) -> dict[str, Any]:
    """A post-processor that puts a token before a text; None: and does not say which."""
    a, b = ({"Sequence": {"id": one, "type_id": 0}} for one in "AB")
    known = {} if i is None else {name: {"id": name, "ids": [i], "tokens": [name]}}
    head = {"SpecialToken": {"id": name, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [head, a], "pair": [a, b], "special_tokens": known}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (spec(BPE, post_processor=begins("<x>", None)), "cannot be used as a tokenizer"),
        (spec(BPE, post_processor=begins("<x>", 999)), "puts token 999, and the vocabulary has 3"),
        (spec(BPE | {"continuing_subword_prefix": "é"}), "not a tokenizer.json"),
        (spec(BPE | {"unk_token": "<q>"}), "cannot be used as a tokenizer .*<q>"),
        (spec(PIECES), "cannot be used as a tokenizer .*UNK"),
        (spec(UNIGRAM), "cannot be used as a tokenizer .*unk_id"),
        ("{", "not a tokenizer.json"),
    ],
)
def test_what_breaks_the_backend_is_one_line(
    said: Any, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        read(write(tmp_path, {"tokenizer.json": said}))
    assert "\n" not in str(error.value) and str(tmp_path / "tokenizer.json") in str(error.value)
    assert capfd.readouterr().err == ""


def test_a_panic_while_a_text_is_read_is_told_when_the_file_is_read(tmp_path: Path) -> None:
    class Panic(BaseException):
        """As the backend raises it."""

    with (
        pytest.raises(ConfigError, match="x.json: cannot be used as a tokenizer .Panic.$"),
        tried.guarded("x.json"),
    ):
        raise Panic
    with pytest.raises(KeyboardInterrupt), tried.guarded("x.json"):
        raise KeyboardInterrupt


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    Bpe(vocab_size=300).train(["hello"]).save(tmp_path)
    names = ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json")
    for name in (*names, "config.json"):
        path = tmp_path / name
        kept = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(ConfigError, match=f"{name}: cannot be read .it is no regular file") as error:
            Tokenizer.load(tmp_path)
        assert "\n" not in str(error.value)
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    it = Bpe(vocab_size=300).train(["hello"]).with_ends(True, False)
    it.save(tmp_path / "one")
    roberta = read(write(tmp_path / "two", pair(ROBERTA) | {"config.json": {"model_type": "roberta"}}))
    for folder, right in (("one", it), ("two", roberta)):
        for path in (tmp_path / folder).glob("*.json"):
            path.write_bytes(mark + path.read_bytes())
        found = read(tmp_path / folder)
        assert found.hash == right.hash and found.encode("hello é") == right.encode("hello é")
    assert published.ROBERTA[0] == roberta.special["bos"]
