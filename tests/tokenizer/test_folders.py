"""What else lies in a published model's folder: added tokens, templates, settings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer import published
from tokenizer.published import ROBERTA, pair, spiece, write

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.files import File, read
from tfcli.tokenizer.trained import Bpe


def test_added_tokens_get_the_ids_that_are_said(tmp_path: Path) -> None:
    n = 800
    token = {"content": "<tool>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    said = {"pad_token": "<pad>", "added_tokens_decoder": {str(n + 1): token | {"special": False}}}
    files = spiece("tokenizer.model", published.llama(), "Llama", **said) | {
        "added_tokens.json": {"<pad>": n}
    }
    it = read(write(tmp_path, files))
    assert it.vocab_size == n + 2 and it.pad_id == n and it.has_pad
    assert it.encode("<tool>")[-1] == n + 1 and n not in it.encode("<pad>") and n in it.special_ids
    write(tmp_path, {"added_tokens.json": {"<pad>": n, "<more>": n + 7}})
    with pytest.raises(ConfigError, match=f"'<more>' has id {n + 7}, and would get {n + 2}"):
        read(tmp_path)


def test_the_fullest_description_is_taken(tmp_path: Path) -> None:
    trained = Bpe(vocab_size=300).train(["hello world"])
    write(tmp_path, pair(ROBERTA) | {"vocab.txt": published.word_pieces()})
    assert read(tmp_path).vocab_size == 700
    trained.save(tmp_path)
    assert read(tmp_path).hash == trained.hash == File(path=str(tmp_path)).train().hash


def test_a_model_folder_is_a_recipe(tmp_path: Path) -> None:
    t5 = spiece("spiece.model", published.t5(), "T5", extra_ids=20)
    roberta = pair(ROBERTA) | {"config.json": {"model_type": "roberta"}}
    for name, files in (("t5", t5), ("roberta", roberta)):
        it = read(write(tmp_path / name, files))
        assert File(path=str(tmp_path / name)).train().hash == it.hash
    assert File(path=str(tmp_path / "t5" / "spiece.model")).train().vocab_size == 620


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": {"auto_map": ["m.T", None]}},
         "auto_map=.*never is"),
        ({"vocab.json": "{}", "merges.txt": "", "tokenizer_config.json": {"tokenizer_class": "CLIP"}},
         "merges.txt of CLIP: must be"),
        ({"vocab.txt": "[UNK]\n", "config.json": {"model_type": "mpnet"}}, "vocab.txt of mpnet"),
        ({"spiece.model": b"\x0a", "config.json": {"model_type": "albert"}}, "SentencePiece model of albert"),
        ({"tokenizer.model": "IQ== 0\nIg== 1\n"}, "not a SentencePiece model"),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": "[1]"}, "must be an object"),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": {"eos_token": 7}}, "eos_token=7"),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": {"chat_template": 7}},
         "chat_template: must be text"),
        ({"README.md": ""}, "has no tokenizer.json"),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": {"added_tokens_decoder": {"x": {}}}},
         "added tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_line(files: dict, match: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=match) as error:
        read(write(tmp_path, files))
    assert "\n" not in str(error.value)


def test_the_golden_ids_of_published_vocabularies(tmp_path: Path) -> None:
    for name, golden in (("gpt2", "gpt-2"), ("bert-base-uncased", "bert-bge")):
        it = read(write(tmp_path / name, dict(published.unpacked(name))))
        path = published.SHARED / "golden" / f"ggml-vocab-{golden}.gguf"
        strings = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
        rows = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
        assert len(strings) == 47
        assert [it.encode(text) for text in strings] == [
            [*map(int, row.split())] for row, _ in zip(rows, strings)
        ]


def test_templates_are_found_where_they_are(tmp_path: Path) -> None:
    files = {"vocab.txt": published.word_pieces()}
    one = read(write(tmp_path / "1", files | {"tokenizer_config.json": {"chat_template": "one"}}))
    many = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    two = read(write(tmp_path / "2", files | {"tokenizer_config.json": {"chat_template": many}}))
    own = {"chat_template.jinja": "j", "tokenizer_config.json": {"chat_template": "one"}}
    three = read(write(tmp_path / "3", files | own))
    assert [it.chat_template for it in (one, two, three)] == ["one", "d", "j"]
    assert read(write(tmp_path / "4", files)).chat_template is None
    for allow in (False, True):
        it = read(tmp_path / "1", allow_special=allow)
        it.save(tmp_path / "5")
        again = Tokenizer.load(tmp_path / "5")
        assert again.chat_template == "one" and again.allow_special is allow and again.hash == it.hash


def test_what_was_said_of_a_model_is_kept(tmp_path: Path) -> None:
    said = {"tokenizer_class": "BertTokenizer", "model_max_length": 77, "padding_side": "left"}
    read(write(tmp_path, {"vocab.txt": published.word_pieces(), "tokenizer_config.json": said})).save(
        tmp_path / "o"
    )
    again = json.loads((tmp_path / "o" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (again["model_max_length"], again["padding_side"]) == (77, "left")
    Tokenizer.load(tmp_path / "o").save(tmp_path / "p")
    assert json.loads((tmp_path / "p" / "tokenizer_config.json").read_text(encoding="utf-8")) == again
