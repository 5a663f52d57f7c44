"""What a tokenizer's files put around a text: found, said, and read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer import published
from tokenizers import processors

from tfcli.data.records import text_row
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer, ends, proof
from tfcli.tokenizer.files import read
from tfcli.tokenizer.trained import Bpe, Char


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return Bpe(vocab_size=400).train(["\n".join(published.LINES)])


def test_our_own_tokenizers_put_nothing_around_a_text(trained: Tokenizer) -> None:
    assert not trained.adds_bos and not trained.adds_eos and trained.reads is trained
    assert trained.chat_template is None and trained.with_ends(False, False) is trained


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
@pytest.mark.parametrize("segments", [True, False])
def test_a_run_s_ends_are_said_to_transformers_and_read_back(
    bos: bool, eos: bool, segments: bool, trained: Tokenizer, tmp_path: Path
) -> None:
    it = trained.with_ends(bos, eos, segments=segments)
    it.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    head, tail = [it.bos_id] * bos, [it.eos_id] * eos
    for one in (it, again):
        assert (one.adds_bos, one.adds_eos) == (bos, eos)
        assert one.encode("a b <eos>") == trained.encode("a b <eos>")
    auto = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert auto.encode("hello") == [*head, *trained.encode("hello"), *tail]
    assert auto.encode("") == [*head, *tail] and proof.differs(tmp_path, it) is None
    first, second = [*head, *trained.encode("one"), *tail], [*trained.encode("two"), *tail]
    two = auto("one", "two")
    assert two["input_ids"] == first + second and ("token_type_ids" in two) is segments
    if segments:
        assert two["token_type_ids"] == [0] * len(first) + [1] * len(second)


def test_two_texts_stand_as_the_data_puts_them(trained: Tokenizer) -> None:
    it = trained.with_ends(True, True, segments=True)
    tokens, border = text_row(it, it.encode("one"), it.encode("two"), 99)
    found = it.backend.encode("one", "two")
    assert found.ids == tokens and found.type_ids == [0] * border + [1] * (len(tokens) - border)


def test_a_token_that_is_not_there_is_not_put_there(tmp_path: Path) -> None:
    files = {"spiece.model": published.t5(), "tokenizer_config.json": {"tokenizer_class": "T5Tokenizer"}}
    it = read(published.write(tmp_path, files))
    assert it.with_ends(True, True) is not None and not it.with_ends(True, True).adds_bos


def test_ends_are_found_in_any_post_processor(trained: Tokenizer) -> None:
    backend = trained.backend.from_str(trained.backend.to_str())
    backend.post_processor = processors.BertProcessing(("<eos>", 2), ("<bos>", 1))
    assert ends.around(backend) == ([1], [2])
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    assert ends.around(backend) == ([], [])
    backend.post_processor = processors.TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 2)])
    odd = Tokenizer(backend, trained.special)
    with pytest.raises(ConfigError, match="puts <eos> before a text; must be the bos_token alone, <bos>"):
        _ = odd.adds_bos
    assert not odd.adds_eos


def test_a_text_that_a_vocabulary_cannot_read_hides_no_end() -> None:
    it = Char().train(["日"]).with_ends(True, True)
    assert it.adds_bos and it.adds_eos


def folder_of(kind: str, folder: Path) -> Tokenizer:
    """A tokenizer of that kind of vocabulary, saved in a folder as a tokenizer.json."""
    if kind == "bytes":
        it = Bpe(vocab_size=400).train(["\n".join(published.LINES)])
    else:
        files = {"bert": {"vocab.txt": published.word_pieces()}, "roberta": published.pair(published.ROBERTA),
                 "t5": {"spiece.model": published.t5()}}[kind]  # fmt: skip
        it = read(published.write(folder / "in", files | {"config.json": {"model_type": kind}}))
    it.save(folder)
    return it


CLASSES = {  # of tokenizer_config.json -> vocabulary
    "PreTrainedTokenizerFast": "bytes", "TokenizersBackend": "bytes", "LlamaTokenizer": "bytes",
    "LlamaTokenizerFast": "bytes", "GemmaTokenizer": "bytes", "GPT2Tokenizer": "bytes",
    "GPTNeoXTokenizer": "bytes", "GPTNeoXTokenizerFast": "bytes", "BertTokenizer": "bert",
    "RobertaTokenizerFast": "roberta", "BartTokenizer": "roberta", "T5Tokenizer": "t5",
}  # fmt: skip
NAMED = [(name, None, kind) for name, kind in CLASSES.items()]
BY_MODEL = [(None, "gpt_neox", "bytes"), ("GPTNeoXTokenizer", "olmo2", "bytes"), (None, "gpt2", "bytes"),
            ("PreTrainedTokenizerFast", "gpt_neox", "bytes"), (None, "bert", "bert"), (None, None, "bytes"),
            ("GPTNeoXTokenizer", "llama", "bytes"), ("GPTNeoXTokenizer", "gpt_neox", "bytes")]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "model", "kind"), [*NAMED, *BY_MODEL])
def test_ends_are_those_of_transformers(
    name: str | None, model: str | None, kind: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    it = folder_of(kind, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    said = json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": name}
    if kind == "roberta":  # whose class does without neither
        said |= {"cls_token": "<s>", "sep_token": "</s>"}
    if model is not None:
        published.write(tmp_path, {"config.json": {"model_type": model}})
    (bos, first), (eos, last) = ((it.special.get(role), getattr(it, f"{role}_id")) for role in ("bos", "eos"))
    bos, first = (bos, first) if bos else (eos, last)  # T5 has none: its end may stand there
    made = {
        "nothing": None,
        "bytes": processors.ByteLevel(trim_offsets=False),
        "begins": processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, first)]),
        "both": processors.TemplateProcessing(
            single=f"{bos} $A {eos}", special_tokens=[(bos, first), (eos, last)]
        ),
    }
    spec = json.loads(it.backend.to_str())
    for what, processor in made.items():
        spec["post_processor"] = None if processor is None else json.loads(processor.__getstate__())
        for flags in ({}, {"add_bos_token": True}, {"add_bos_token": False, "add_eos_token": True}):
            published.write(tmp_path, {"tokenizer.json": spec, path.name: said | flags})
            ids = transformers.AutoTokenizer.from_pretrained(tmp_path).encode("hello world")
            right = ids[:1] == [first], ids[-1:] == [last]
            found = Tokenizer.load(tmp_path)
            if kind == "t5" and right[0]:
                continue
            assert (found.adds_bos, found.adds_eos) == right, (what, flags)


def test_what_a_class_of_the_files_puts_is_kept(trained: Tokenizer, tmp_path: Path) -> None:
    folder_of("bert", tmp_path)
    path = tmp_path / "tokenizer_config.json"
    said = json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": "BertTokenizer"}
    spec = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    published.write(tmp_path, {path.name: said, "tokenizer.json": spec | {"post_processor": None}})
    it = Tokenizer.load(tmp_path)
    assert it.adds_bos and it.adds_eos
    it.save(tmp_path / "out")
    again = Tokenizer.load(tmp_path / "out")
    assert again.adds_bos and again.adds_eos and again.hash == it.hash


def test_a_checkpoint_s_tokenizer_keeps_its_text_and_hash(trained: Tokenizer, tmp_path: Path) -> None:
    published.write(tmp_path, {  # as runs of earlier versions wrote them
        "tokenizer.json": trained.text, "config.json": {"model_type": "llama"},
        "tokenizer_config.json": {
            "pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": None,
            "cls_token": None, "sep_token": None, "mask_token": None, "split_special_tokens": True,
            "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        },
    })  # fmt: skip
    it = Tokenizer.load(tmp_path)
    assert it.hash == trained.hash and it.text == trained.text and not it.adds_bos


def test_a_class_that_reads_a_saved_tokenizer_otherwise_is_told(trained: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    it = Bpe(vocab_size=700).train(["\n".join(published.LINES)])
    it.save(tmp_path)
    assert proof.differs(tmp_path, it) is None
    published.write(tmp_path, {"config.json": {"model_type": "qwen2"}})
    assert "Qwen2Tokenizer of transformers reads" in proof.differs(tmp_path, it)
