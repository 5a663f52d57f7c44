import argparse
import gzip
import inspect
import json
import random
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer, find_special, pieces
from tfcli.tokenizer.files import File
from tfcli.tokenizer.trained import Byte, Char, byte_symbols
from tfcli.values import check_arguments

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
CHOICES = sorted((ROOT / "configs" / "tokenizer").glob("[!_]*.yaml"))
TRAINED = [path.stem for path in CHOICES if path.stem != "file"]
LOSSLESS = [name for name in TRAINED if name != "char"]

TEXT = inspect.getsource(argparse)[:50_000]
HARD = [
    "", " ", "hello", " hello", "a  b", "a b ", "\n", "\n\n x\n", "\t\r\n", "zebra 日本", "👩‍👩‍👧 é e\u0301",
    "# a## ###b#c\n#\n##", "<eos><pad> <unk><bos>", "\x00\x01\x7f\x85\u2028\ufeff", "▁ ##x Ġ Ċ", "don't",
    "x" * 300, " " * 300, "#" * 70, "日" * 100,
]  # fmt: skip


def make(name: str, **changes):
    """The recipe of configs/tokenizer/<name>.yaml."""
    node = OmegaConf.to_container(OmegaConf.load(ROOT / "configs" / "tokenizer" / f"{name}.yaml"))
    place, _, kind = node.pop("_target_").rpartition(".")
    recipe = getattr(import_module(place), kind)
    return recipe(**check_arguments(recipe, node | changes, "tokenizer"))


def shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    return path


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {name: make(name).train([TEXT]) for name in TRAINED}


def noise(seed: int, length: int = 200) -> str:
    """Text of any characters that are no surrogates."""
    draw = random.Random(seed)
    return "".join(
        chr(draw.choice([draw.randrange(128), draw.randrange(0xD800), 0x1F600])) for _ in range(length)
    )


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_byte_tokenizer_gives_back_every_text(name: str, trained: dict[str, Tokenizer]) -> None:
    for text in [*HARD, TEXT, *map(noise, range(20))]:
        assert trained[name].decode(trained[name].encode(text)) == text


def test_a_character_unseen_in_training_is_unk_and_is_not_lost(trained: dict[str, Tokenizer]) -> None:
    ids = trained["char"].encode("hello 日本é")
    assert len(ids) == len("hello 日本é")
    assert ids.count(trained["char"].unk_id) == 3
    assert trained["char"].decode(ids) == "hello <unk><unk><unk>"
    assert trained["char"].decode(trained["char"].encode(TEXT)) == TEXT


def test_byte_b_has_the_id_3_plus_b(trained: dict[str, Tokenizer]) -> None:
    assert trained["byte"].encode("aé\n") == [3 + b for b in "aé\n".encode()]
    assert trained["byte"].vocab_size == 259


@pytest.mark.parametrize("name", TRAINED)
def test_special_tokens_have_ids_of_their_own(name: str, trained: dict[str, Tokenizer]) -> None:
    it = trained[name]
    ids = [i for i in (it.pad_id, it.bos_id, it.eos_id, it.unk_id) if i is not None]
    assert ids == list(range(len(ids)))
    assert it.has_pad and it.vocab_size == it.backend.get_vocab_size(True)


@pytest.mark.parametrize("name", TRAINED)
def test_text_that_spells_a_special_token_is_text_unless_allowed(name: str, tmp_path: Path) -> None:
    for allow in (False, True):
        it = make(name, allow_special=allow).train([TEXT])
        it.save(tmp_path / str(allow))
        for one in (it, Tokenizer.load(tmp_path / str(allow))):
            assert (one.eos_id in one.encode("a<eos>b")) is allow
            assert (one.eos_id in one.encode_many(["a<eos>b"])[0]) is allow
            assert one.decode(one.encode("a<eos>b")) == ("ab" if allow else "a<eos>b")
            assert one.decode([one.eos_id], skip_special=False) == "<eos>"
            assert one.decode([one.eos_id]) == ""


@pytest.mark.parametrize("name", TRAINED)
def test_a_saved_tokenizer_is_loaded_as_it_was(
    name: str, trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    trained[name].save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.hash == trained[name].hash
    assert loaded.special == trained[name].special and loaded.special_ids == trained[name].special_ids
    assert [loaded.encode(text) for text in HARD] == [trained[name].encode(text) for text in HARD]


def test_a_hash_is_of_the_file_whatever_this_version_would_write(tmp_path: Path) -> None:
    make("byte").train([]).save(tmp_path / "a")
    file = tmp_path / "a" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=1))
    first = Tokenizer.load(tmp_path / "a")
    first.save(tmp_path / "b")
    assert (tmp_path / "b" / "tokenizer.json").read_text() == file.read_text()
    assert Tokenizer.load(tmp_path / "b").hash == first.hash


def test_tokenizers_that_differ_have_different_hashes(trained: dict[str, Tokenizer]) -> None:
    others = [make("bpe").train([TEXT + "Zz" * 9]), make("bpe", allow_special=True).train([TEXT])]
    assert len({it.hash for it in [*trained.values(), *others]}) == len(TRAINED) + 2


@pytest.mark.parametrize("name", TRAINED)
def test_a_text_cut_into_pieces_has_the_same_ids(
    name: str, trained: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"{word}{end}" for word in HARD for end in ("\n", "\n\n", " \n", "\n a\n"))
    whole = trained[name].encode(text)
    monkeypatch.setattr(Tokenizer.pieces, "__defaults__", (8,))
    assert len(list(trained[name].pieces(text))) > 20
    assert trained[name].encode_many([text, "a"]) == [whole, trained[name].encode("a")]


def test_pieces_are_all_of_the_text() -> None:
    text = "ab\ncd\n\nef \ngh\nij" * 50
    assert "".join(pieces(text, 10)) == text and len(list(pieces(text, 10))) > 10
    assert list(pieces("no end of line " * 99, 10)) == ["no end of line " * 99]


def test_the_same_text_trains_the_same_tokenizer_in_every_process(trained: dict[str, Tokenizer]) -> None:
    code = "import test_tokenizer as t; print(*(t.make(n).train([t.TEXT]).hash for n in t.TRAINED))"
    for threads in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "RAYON_NUM_THREADS": threads},
        )  # fmt: skip
        assert run.stdout.split() == [trained[name].hash for name in TRAINED]


@pytest.mark.parametrize(("name", "least"), [("bpe", 259), ("unigram", 260), ("wordpiece", 516)])
def test_a_vocabulary_is_as_large_as_asked_and_holds_the_bytes(name: str, least: int) -> None:
    assert make(name, vocab_size=least + 20).train([TEXT]).vocab_size == least + 20
    assert make(name, vocab_size=least).train([TEXT]).vocab_size == least
    with pytest.raises(ConfigError, match=f"tokenizer.vocab_size={least - 1}: must be at least {least}"):
        make(name, vocab_size=least - 1)


EXTRA = ("<mask>", "<extra_id_0>", "<extra_id_1>", "<cls>")


@pytest.mark.parametrize("name", TRAINED)
def test_extra_special_tokens_have_the_ids_after_the_others(name: str, tmp_path: Path) -> None:
    plain, it = make(name).train([TEXT]), make(name, extra=EXTRA).train([TEXT])
    first = len(plain.special)
    ids = list(range(first, first + len(EXTRA)))
    assert [it.backend.token_to_id(token) for token in EXTRA] == ids
    assert (it.pad_id, it.bos_id, it.eos_id, it.unk_id) == (
        plain.pad_id,
        plain.bos_id,
        plain.eos_id,
        plain.unk_id,
    )
    it.save(tmp_path)
    for one in (it, Tokenizer.load(tmp_path)):
        assert (one.mask_id, one.cls_id, one.sep_id) == (ids[0], ids[3], None)
        assert one.sentinel_ids == (ids[1], ids[2]) and set(ids) <= one.special_ids
        assert not set(ids) & set(one.encode("a<mask> <extra_id_0>")) and one.decode(ids) == ""
        assert one.decode(ids[:2], skip_special=False).replace(" ", "") == "<mask><extra_id_0>"
        assert one.decode(one.encode(TEXT)) == TEXT and one.decode(one.encode("<mask>")) == "<mask>"
    grown = it.vocab_size - plain.vocab_size
    assert grown == len(EXTRA) if name in ("char", "byte") else it.vocab_size <= make(name).vocab_size
    assert plain.mask_id is None and plain.sentinel_ids == () and plain.hash != it.hash


@pytest.mark.parametrize(("name", "least"), [("bpe", 263), ("unigram", 264), ("wordpiece", 520)])
def test_the_least_vocabulary_grows_with_the_extra_tokens(name: str, least: int) -> None:
    assert make(name, vocab_size=least, extra=EXTRA).train([TEXT]).vocab_size == least
    with pytest.raises(ConfigError, match=f"vocab_size={least - 1}: must be at least {least}"):
        make(name, vocab_size=least - 1, extra=EXTRA)


def test_a_token_that_is_there_anyway_is_not_added_twice() -> None:
    it = make("char", extra=("<eos>", "<mask>", "<mask>")).train(["ab"])
    assert it.vocab_size == 7 and (it.eos_id, it.mask_id) == (2, 4)


@pytest.mark.parametrize("name", TRAINED)
def test_offsets_say_which_characters_a_token_stands_for(name: str, trained: dict[str, Tokenizer]) -> None:
    it = trained[name]
    for text in ["", "a line # of text\nand  one", "é 日本 👩‍👩‍👧!", *HARD[2:8]]:
        ids, spans = it.encode_offsets(text)
        assert ids == it.encode(text) and len(ids) == len(spans)
        assert {i for a, b in spans for i in range(a, b)} == set(range(len(text)))
        assert list(spans) == sorted(spans)
    assert it.encode_many_offsets(["ab", "日"]) == [it.encode_offsets("ab"), it.encode_offsets("日")]


@pytest.mark.parametrize("name", TRAINED)
def test_the_vocabulary_spells_every_id(name: str, trained: dict[str, Tokenizer]) -> None:
    it = trained[name]
    pieces = it.pieces_of_vocabulary()
    assert len(pieces) == it.vocab_size and pieces[:3] == ["<pad>", "<bos>", "<eos>"]
    assert [it.backend.token_to_id(token) for token in pieces] == list(range(it.vocab_size))


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (["<pad>", "</s>", "<unk>", "<extra_id_0>", "<extra_id_1>"], {"pad", "eos", "unk"}),  # T5
        (["<s>", "<pad>", "</s>", "<unk>", "<mask>"], {"bos", "pad", "eos", "unk", "mask"}),  # BART, RoBERTa
        # BERT
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], {"pad", "unk", "cls", "sep", "mask", "bos", "eos"}),
    ],
)
def test_the_tokens_of_published_families_have_their_roles(names: list[str], roles: set[str]) -> None:
    backend = Backend(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[0]))
    found = find_special(backend)
    assert set(found) == roles
    assert Tokenizer(backend, found).sentinel_ids == ((3, 4) if "<extra_id_0>" in names else ())


@pytest.mark.parametrize("name", [n for n in TRAINED if n != "byte"])
def test_training_on_nothing_is_refused(name: str) -> None:
    for texts in ([], [""]):
        with pytest.raises(ConfigError, match="no text"):
            make(name).train(texts)


def test_a_lone_surrogate_is_replaced(trained: dict[str, Tokenizer]) -> None:
    assert trained["bpe"].decode(trained["bpe"].encode("a\ud800b")) == "a\ufffdb"
    assert Char().train(["a\ud800b"]).encode("\ufffd") != [3]


def test_the_byte_symbols_are_those_of_the_backend() -> None:
    assert sorted(byte_symbols()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert byte_symbols()[ord("a")] == "a" and byte_symbols()[ord(" ")] == "Ġ"


def golden(name: str) -> list[tuple[str, list[int]]]:
    texts = shared("tokenizers", "golden", f"ggml-vocab-{name}.gguf.inp").read_bytes().decode()
    ids = shared("tokenizers", "golden", f"ggml-vocab-{name}.gguf.out").read_text(encoding="utf-8")
    return list(
        zip(texts.split("\n__ggml_vocab_test__\n"), (list(map(int, x.split())) for x in ids.split("\n")))
    )


@pytest.mark.parametrize(
    ("name", "files"),
    [("gpt-2", "gpt2"), ("bert-bge", "bert-base-uncased"), ("bert-bge", "bert-base-uncased/vocab.txt")],
)
def test_published_vocabularies_give_the_golden_ids(name: str, files: str, tmp_path: Path) -> None:
    it = make("file", path=str(shared("tokenizers", files))).train()
    it.save(tmp_path)
    texts, ids = zip(*golden(name))
    assert len(texts) == 47
    assert [it.encode(text) for text in texts] == list(ids)
    assert Tokenizer.load(tmp_path).encode_many(texts) == list(ids)


def test_gpt2_has_one_special_token_and_pads_with_it() -> None:
    it = File(path=str(shared("tokenizers", "gpt2"))).train()
    assert it.bos_id == it.eos_id == it.pad_id == 50256 and not it.has_pad
    assert it.special_ids == {50256} and it.vocab_size == 50257
    assert 50256 not in it.encode("<|endoftext|>")
    assert it.decode(it.encode(" a <|endoftext|>\n日")) == " a <|endoftext|>\n日"


def write_bert(folder: Path, *words: str) -> Path:
    path = folder / "vocab.txt"
    path.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n", encoding="utf-8"
    )
    return path


def test_a_bert_vocabulary_lowers_case_unless_it_has_capitals(tmp_path: Path) -> None:
    path = write_bert(tmp_path, "hello", "##s", ",")
    it = File(path=str(path)).train()
    assert it.encode("Hellos, HÉLLO") == [5, 6, 7, 5]
    assert (it.pad_id, it.unk_id, it.cls_id, it.sep_id, it.mask_id, it.bos_id, it.eos_id) == (
        0,
        1,
        2,
        3,
        4,
        2,
        3,
    )
    assert File(path=str(path), lowercase=False).train().encode("Hello") == [1]
    write_bert(tmp_path, "hello", "Hello")
    assert File(path=str(tmp_path)).train().encode("Hello hello") == [6, 5]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    assert File(path=str(tmp_path)).train().encode("Hello hello") == [5, 5]


def test_a_tokenizer_file_cuts_and_pads_nothing_and_says_its_special_tokens(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"<|a|>": 0, "x": 1, "y": 2, "<unk>": 9}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.enable_truncation(1)
    backend.enable_padding(length=5)
    backend.add_special_tokens(["<|a|>"])
    backend.save(str(tmp_path / "other.json"))
    said = {"eos_token": {"content": "<|a|>"}, "bos_token": None, "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
    it = File(path=str(tmp_path / "other.json")).train()
    assert it.special == {"eos": "<|a|>", "unk": "<unk>"} and it.bos_id is None
    assert it.vocab_size == 10  # the largest id decides, not the number of tokens
    assert it.encode_many(["x y x", "q"]) == [[1, 2, 1], [9]]


def test_special_tokens_are_found_by_their_usual_names() -> None:
    for names, found in [
        (["<s>", "</s>", "<unk>"], {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}),
        (["<|endoftext|>"], {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}),
        (["<pad>", "<eos>", "<mask>"], {"pad": "<pad>", "eos": "<eos>", "mask": "<mask>"}),
    ]:
        backend = Backend(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[0]))
        assert find_special(backend) == found


def test_files_that_are_none_are_refused_in_one_line(tmp_path: Path) -> None:
    def refused(match: str, path: Path | None) -> None:
        with pytest.raises(ConfigError, match=match) as error:
            File(path=path and str(path)).train()
        assert "\n" not in str(error.value)

    refused("tokenizer.path: missing", None)
    refused("no such file or folder", tmp_path / "none")
    refused("has no tokenizer.json", tmp_path)
    (tmp_path / "vocab.txt").write_text("just\nwords\n", encoding="utf-8")
    refused("no \\[UNK\\]", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    refused("not a tokenizer.json", tmp_path)
    pair = tmp_path / "pair"
    pair.mkdir()
    (pair / "vocab.json").write_text('{"a": 0, "b": 1}', encoding="utf-8")
    refused("has no tokenizer.json", pair)
    (pair / "merges.txt").write_text("#version: 0.2\na b\n", encoding="utf-8")
    refused("is no merge", pair)
    (pair / "merges.txt").unlink()
    (pair / "merges.txt.gz").write_bytes(gzip.compress(b"#version: 0.2\na b\n" * 50)[:-20])
    refused("cannot be read", pair)


def test_a_saved_tokenizer_is_read_by_transformers(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for name, it in trained.items():
        it.save(tmp_path / name)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        for text in ("hello <eos> # x\n", TEXT):
            assert theirs.encode(text, add_special_tokens=False) == it.encode(text)
        assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == (
            it.pad_id,
            it.bos_id,
            it.eos_id,
        )


def test_the_byte_recipe_needs_no_text() -> None:
    assert not Byte.needs_text and Byte().train().vocab_size == 259
