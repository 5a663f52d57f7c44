"""GGUF files of the Llama family, read and written; made here, so that every form of them is there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub.made import run_of
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from tfcli import origin
from tfcli.batch import Batch
from tfcli.errors import ConfigError, RunError
from tfcli.hub import gguf_out, gguf_words, verify
from tfcli.hub.gguf import GgufFile
from tfcli.hub.gguf_out import export
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.sentencepiece import BPE, BYTE, CONTROL, UNKNOWN, Model, Piece
from tfcli.tokenizer.spm import backend as of_pieces
from tfcli.tokenizer.trained import Bpe

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

V, D, H, K, FF, L = 40, 16, 4, 2, 24, 2


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of Llama's kind."""
    return run_of(tmp_path / "run", "preset=llama3")


def scores(loaded: Any, ids: torch.Tensor) -> torch.Tensor:
    """What ours says."""
    with torch.no_grad():
        return loaded.model(Batch(ids))


def theirs_of(file: Path) -> torch.nn.Module:
    """What `transformers` makes of a file."""
    with verify.silent():
        return verify.loaded(file.parent, "LlamaForCausalLM", gguf_file=file.name)


def tokens() -> list[str]:
    """A small vocabulary."""
    return [
        "<unk>",
        "<s>",
        "</s>",
        *(chr(97 + i) for i in range(26)),
        *(chr(0x4E00 + i) for i in range(V - 29)),
    ]


def made(file: Path, quantised: str = "F32", leave: tuple[str, ...] = (), **facts: Any) -> Path:
    """A file that is made by the writer of the format's own package; a fact that is None is left out."""
    from gguf import GGMLQuantizationType, quants

    generator = torch.Generator().manual_seed(4)
    writer = gguf.GGUFWriter(file, "llama")
    usual: dict[str, Any] = {
        "llama.block_count": L, "llama.context_length": 64, "llama.embedding_length": 32,
        "llama.feed_forward_length": 64, "llama.attention.head_count": H, "llama.attention.head_count_kv": K,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": 8, "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens(),
        "tokenizer.ggml.scores": [0.0] * V, "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (V - 3),
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    for key, value in (usual | facts).items():
        if value is not None:
            gguf_out.put(writer, key, value)
    matrices = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32),
                "ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}  # fmt: skip
    shapes = {f"blk.{i}.{name}.weight": shape for i in range(L) for name, shape in matrices.items()}
    shapes |= {f"blk.{i}.{name}.weight": (32,) for i in range(L) for name in ("attn_norm", "ffn_norm")}
    shapes |= {"token_embd.weight": (V, 32), "output.weight": (V, 32), "output_norm.weight": (32,)}
    for name, shape in shapes.items():
        drawn = torch.randn(shape, generator=generator)
        if name in leave:
            continue
        array = (0.15 * drawn if drawn.ndim > 1 else 1 + 0.3 * drawn).numpy()
        kind = GGMLQuantizationType[quantised if drawn.ndim > 1 else "F32"]
        packed = quants.quantize(array, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


# --- in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantised", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_a_file_says_what_transformers_reads_in_it(quantised: str, tmp_path: Path) -> None:
    file = made(tmp_path / "model.gguf", quantised)
    loaded = origin.load(file)
    assert loaded.config.size.n_kv_heads == K and loaded.config.norm.eps == 1e-5
    ids = torch.arange(3, 33)[None]
    with torch.no_grad():
        right = theirs_of(file)(input_ids=ids).logits
    assert (scores(loaded, ids) - right).abs().max() < 1e-4


def test_without_a_head_of_its_own_it_is_tied(tmp_path: Path) -> None:
    file = made(tmp_path / "model.gguf", leave=("output.weight",))
    loaded = origin.load(file)
    assert loaded.model.head.map.weight is loaded.model.embedding.table.weight
    ids = torch.arange(3, 33)[None]
    with torch.no_grad():
        assert (scores(loaded, ids) - theirs_of(file)(input_ids=ids).logits).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"llama.expert_count": 8}, r"llama.expert_count=8: is not carried out"),
        ({"llama.attention.sliding_window": 32}, r"llama.attention.sliding_window=32: is not carried out"),
        ({"llama.rope.dimension_count": 4}, r"llama.rope.dimension_count=4: must be 8"),
        ({"llama.attention.value_length": 4}, r"llama.attention.value_length=4: must be 8"),
        ({"llama.rope.scaling.type": "yarn"}, r"llama.rope.scaling.type='yarn': must be none or linear"),
        ({"llama.vocab_size": 50}, r"llama.vocab_size=50: token_embd.weight has 40 rows"),
        ({"llama.block_count": None}, r"llama.block_count=None: must be a number"),
        ({"llama.block_count": 3}, r"missing blk.2.attn_k.weight"),
        ({"tokenizer.ggml.model": "bert"}, r"tokenizer.ggml.model=bert: must be gpt2 or llama"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "tekken"}, r"tokenizer.ggml.pre=tekken: how"),
        ({"tokenizer.ggml.model": "gpt2"}, r"tokenizer.ggml.pre=None: how"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": ["a z"]},
         r"merges: 'a z' is no merge"),
        ({"tokenizer.ggml.bos_token_id": 77}, r"bos_token_id=77: there are 40 tokens"),
        ({"tokenizer.ggml.tokens": ["a"] * V}, r"tokens: must be tokens, each once"),
        ({"tokenizer.ggml.scores": None}, r"scores: must be a score for each token"),
        ({"general.architecture": "gemma"}, r"general.architecture=gemma: must be llama or qwen2"),
    ],
)  # fmt: skip
def test_what_is_not_carried_out_exactly_is_refused(facts: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        origin.load(made(tmp_path / "model.gguf", **facts))
    assert "\n" not in str(error.value)


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"GGUF", b"not one at all" * 9, made(tmp_path / "a.gguf").read_bytes()[:4000]):
        (tmp_path / "model.gguf").write_bytes(content)
        with pytest.raises(ConfigError, match="is no GGUF file, or is damaged"):
            GgufFile(tmp_path / "model.gguf")


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"pip install 'tfcli\[gguf\]'"):
        origin.load(file)


def test_linear_scaling_is_carried_out(tmp_path: Path) -> None:
    plain = origin.load(made(tmp_path / "a.gguf"))
    facts = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    loaded = origin.load(made(tmp_path / "b.gguf", **facts))
    ids = torch.arange(3, 33)[None]
    with torch.no_grad():
        twice = plain.model(Batch(ids, positions=torch.arange(0, 30)[None]))
    assert loaded.config.position.factor == 2.0 and (scores(loaded, ids) - twice).abs().max() > 1e-2


def test_frequencies_of_their_own_are_carried_out(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", "position=rope_llama3", "position.original=16",
                 "size.head_dim=8")  # fmt: skip
    assert export(run, tmp_path / "model.gguf").checked.largest is None
    mine, back = origin.load(run), origin.load(tmp_path / "model.gguf")
    ids = torch.arange(3, 43)[None]
    assert (scores(mine, ids) - scores(back, ids)).abs().max() < 1e-4
    assert back.config.choices.position == "rope_longrope"  # in texts of the length that the model knows


def test_those_of_llama_3_come_back_as_theirs(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", "position=rope_llama3", "size.head_dim=32")
    export(run, tmp_path / "model.gguf")
    position = origin.load(tmp_path / "model.gguf").config.position
    assert position == origin.load(run).config.position


def test_the_end_of_a_turn_ends_a_text_too(tmp_path: Path) -> None:
    file = made(tmp_path / "model.gguf", **{"tokenizer.ggml.eot_token_id": 7})
    assert origin.load(file).generation == {"eos_token_id": [2, 7]}
    assert origin.load(made(tmp_path / "b.gguf")).generation == {}


# --- tokenizers ---------------------------------------------------------------------------------------------


TEXTS = [
    "The cat's on 12345 mats!!  ",
    "I'LL pay $1,234.50",
    "naïve 日本語 😀\n\n  x",
    "tabs\t\tand\r\nlines",
    " 3½pies",
]


def trained(pre: Any) -> Backend:
    """A byte-level BPE that cuts words in some way."""
    made = Bpe(vocab_size=300).train(TEXTS * 3).backend
    made.pre_tokenizer = pre
    return made


@pytest.mark.parametrize(
    ("cut", "pre"),
    [
        ("gpt-2", pre_tokenizers.ByteLevel(add_prefix_space=False)),
        ("smollm", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    ],
)  # fmt: skip
def test_words_are_cut_as_the_published_tokenizers_cut_them(cut: str, pre: Any) -> None:
    right = trained(pre)
    vocabulary = right.get_vocab()
    merges = json.loads(right.to_str())["model"]["merges"]
    said = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": cut,
            "tokenizer.ggml.tokens": sorted(vocabulary, key=vocabulary.get),
            "tokenizer.ggml.merges": [" ".join(pair) for pair in merges]}  # fmt: skip
    mine = gguf_words.read(said, Path("model.gguf"))
    assert [mine.encode(text) for text in TEXTS] == [right.encode(text).ids for text in TEXTS]


CUT = {  # by hand, from the expressions that the models' own files have
    "gpt-2": ["it", "'s", " 12345", "!!", " ", " x"],
    "smollm": ["it", "'s", " ", "1", "2", "3", "4", "5", "!!", " ", " x"],
    "llama-bpe": ["it", "'s", " ", "123", "45", "!!", " ", " x"],
    "qwen2": ["it", "'s", " ", "1", "2", "3", "4", "5", "!!", " ", " x"],
    "default": ["it", "'", "s", " ", "123", "45", "!!", " ", " x"],
}


@pytest.mark.parametrize("cut", CUT)
def test_each_way_to_cut_words_is_its_own(cut: str) -> None:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    said = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": sorted(alphabet),
    }
    words = gguf_words.read(said, Path("model.gguf")).backend.pre_tokenizer.pre_tokenize_str(
        "it's 12345!!  x"
    )
    assert [word.replace("Ġ", " ") for word, _ in words] == CUT[cut]


@pytest.mark.parametrize(("cut", "ids"), [("llama-bpe", [256]), ("gpt-2", None)])
def test_a_word_that_is_a_token_is_one_in_llama_3(cut: str, ids: list[int] | None) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    said = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": [*alphabet, "abc"],
    }
    right = ids or [alphabet.index(letter) for letter in "abc"]
    assert gguf_words.read(said, Path("model.gguf")).encode("abc") == right


def pieces() -> Tokenizer:
    """Llama's kind: SentencePiece's BPE that falls back to bytes."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    merged = ["▁t", "he", "▁the", "in", "at", "▁c", "▁cat", "on", "ing", "▁s"]
    single = [*"▁abcdefghijklmnopqrstuvwxyz"]
    listed = [Piece(text, 0.0, kind) for text, kind in zip(texts, kinds)]
    listed += [Piece(text, -float(i)) for i, text in enumerate(merged)]
    listed += [Piece(text, -float(100 + i)) for i, text in enumerate(single)]
    made = of_pieces(Model(tuple(listed), BPE, byte_fallback=True, tidy=False))
    return Tokenizer(made, {"unk": "<unk>", "bos": "<s>", "eos": "</s>"})


@pytest.mark.parametrize("make", [pieces, lambda: Bpe(vocab_size=300).train(TEXTS * 3)])
def test_a_tokenizer_comes_back_as_it_was(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    tokenizer = make()
    run = run_of(tmp_path / "run", "preset=llama3", "embedding.vocab_size=330", tokenizer=tokenizer)
    assert export(run, tmp_path / "model.gguf").checked.largest < 1e-4
    back = origin.load(tmp_path / "model.gguf")
    assert [back.tokenizer.encode(t) for t in TEXTS] == [tokenizer.encode(t) for t in TEXTS]
    assert back.tokenizer.special == tokenizer.special and back.tokenizer.vocab_size == tokenizer.vocab_size
    assert back.model.vocab_size == 330 and (back.config.data.bos, back.config.data.eos) == (True, False)


def test_the_reader_of_llama_files_finds_the_same_ids(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", tokenizer=pieces())
    export(run, tmp_path / "model.gguf")
    with verify.silent():
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    for text in ("the cat in the thing", "x 日 y"):
        assert theirs(text)["input_ids"] == [1, *pieces().encode(text)]


def test_a_chat_template_travels(tmp_path: Path) -> None:
    tokenizer = pieces()
    tokenizer.chat_template = "{{ messages }}"
    run = run_of(tmp_path / "run", "preset=llama3", tokenizer=tokenizer)
    export(run, tmp_path / "model.gguf")
    assert origin.load(tmp_path / "model.gguf").tokenizer.chat_template == "{{ messages }}"


def test_a_tokenizer_without_a_form_is_refused(tmp_path: Path) -> None:
    made = Backend(models.BPE(vocab={"<unk>": 0, "a": 1, "b": 2}, merges=[], unk_token="<unk>"))
    run = run_of(tmp_path / "run", "preset=llama3", tokenizer=Tokenizer(made, {"unk": "<unk>"}))
    with pytest.raises(ConfigError, match="tokenizer: GGUF has no form for it"):
        export(run, tmp_path / "model.gguf")


# --- out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "said", ["", "head=tied", "position.interleaved=true", "attention=mha size.head_dim=6"]
)
def test_what_leaves_says_the_same_in_transformers(said: str, dtype: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", *said.split())
    written = export(run, tmp_path / "model.gguf", dtype)
    assert written.kind == "LlamaForCausalLM" and written.checked.largest < 1e-5
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    kinds = {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1}
    assert kinds == {{"float32": "F32", "float16": "F16"}[dtype]}
    assert {t.tensor_type.name for t in reader.tensors if len(t.shape) == 1} == {"F32"}
    before, after = origin.load(run), origin.load(tmp_path / "model.gguf")
    ids = torch.arange(3, 43)[None]
    near = 1e-6 if dtype == "float32" else 3e-2
    assert (scores(before, ids) - scores(after, ids)).abs().max() < near


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("preset=gpt2", r": a GGUF file holds the Llama family here; name a folder instead$"),
        ("preset=mistral attention.rule.size=5", r"^attention=mistral: a GGUF file holds the Llama family"),
        ("preset=llama3 position=rope_yarn", r"position=rope_yarn: GGUF is written with rope, "),
        ("preset=llama3 ffn=geglu", r"ffn=geglu: a GGUF file of the Llama family has swiglu"),
    ],
)
def test_what_the_format_does_not_hold_is_refused(said: str, why: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", *said.split())
    with pytest.raises(ConfigError, match=why):
        export(run, tmp_path / "model.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_file_that_is_there_stays_as_it_is(run: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        export(run, tmp_path / "model.gguf")
    assert (tmp_path / "model.gguf").read_text() == "mine"


FAULTS: dict[str, Callable[[dict, list], None]] = {  # what may go wrong in writing
    "a number": lambda facts, pieces: pieces[3].view.__setitem__((0, 0), 3.0),
    "the base": lambda facts, pieces: facts.__setitem__("llama.rope.freq_base", 2.0),
    "the eps": lambda facts, pieces: facts.__setitem__("llama.attention.layer_norm_rms_epsilon", 0.1),
    "two tensors": lambda facts, pieces: pieces.__setitem__(
        slice(1, 3), [pieces[2]._replace(name=pieces[1].name), pieces[1]._replace(name=pieces[2].name)]
    ),
}


@pytest.mark.parametrize(
    ("fault", "position"), [*((fault, "llama3") for fault in FAULTS), ("a number", "rope_llama3")]
)
def test_the_check_bites(fault: str, position: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", f"position={position}")  # of which others read one
    writes = gguf_out.write

    def wrong(file: Path, facts: dict, pieces: list, dtype: torch.dtype) -> None:
        copies = [piece._replace(view=piece.view.clone()) for piece in pieces]
        FAULTS[fault](facts, copies)
        writes(file, facts, copies, dtype)

    monkeypatch.setattr(gguf_out, "write", wrong)
    with pytest.raises((RunError, ConfigError)):
        export(run, tmp_path / "model.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_full_disk_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with pytest.raises(RunError, match="cannot be written .*nothing is left"):
        export(run, tmp_path / "model.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_biases_lie_as_their_matrices(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "preset=llama3", "attention.bias=true", "ffn.bias=true")
    checked = export(run, tmp_path / "model.gguf").checked
    assert (
        checked.largest is None and "transformers reads no such file with attention_bias" in checked.left_out
    )
    ids = torch.arange(3, 43)[None]
    assert torch.equal(*(scores(origin.load(at), ids) for at in (run, tmp_path / "model.gguf")))


def test_queries_and_keys_lie_in_pairs(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "model.gguf")
    tensors = {
        tensor.name: torch.tensor(tensor.data) for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors
    }
    q, k, v = origin.load(run).model.stack.layers[0].attention.branch.qkv.weight.detach().split([16, 8, 8])
    for heads, mine, name in ((4, q, "q"), (2, k, "k")):
        paired = mine.unflatten(0, (heads, 2, 2)).transpose(1, 2).reshape(mine.shape)
        assert torch.equal(tensors[f"blk.0.attn_{name}.weight"], paired) and not torch.equal(paired, mine)
    assert torch.equal(tensors["blk.0.attn_v.weight"], v)
