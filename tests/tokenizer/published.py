"""Model folders as they are published, with vocabularies that are trained here, and strings that are hard."""

from __future__ import annotations

import argparse
import gzip
import inspect
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "tokenizers"
CODE = inspect.getsource(argparse).split("\n")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
LINES = [*CODE, *("é 日本 hello  world ① ﬁ ½ café naïve Hello World" for _ in range(9))]
HARD = [
    "", " ", "  ", "hello", " hello", "a  b", "a b ", "\n", "\n\n x\n", "\t\r\n", "zebra 日本", "日" * 50,
    "👩‍👩‍👧 é e\u0301 café", "Hello WORLD naïve", "x" * 200, " " * 30, "a" * 17,
    "a</s>b <s> <unk><pad>", "</s>", "<s>", "[CLS] [MASK]", "<0x41>", "<0x0A>x", "▁a", "a▁", "▁",
    "\u00a0a\u3000b\u200b", "①½ﬁ", "don't", "\ufeffx", "<extra_id_0> <extra_id_1>x", "<x>",
    "def main(self):\n    return  x", "<|endoftext|><|im_end|>", "中文字符 mixed 中", "3.14159 1,000,000",
    "\x00\x01\x7f", "ẞß İı", "नमस्ते", "\u0301alone",
]  # fmt: skip


def texts() -> list[str]:
    """The hard strings, and the 47 of the shared data where they are."""
    return HARD + golden_texts()


@cache
def golden_texts() -> list[str]:
    path = SHARED / "golden" / "ggml-vocab-gpt-2.gguf.inp"
    return path.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n") if path.exists() else []


@cache
def spm(**settings: Any) -> bytes:
    """A SentencePiece model that is trained here; the package is needed for tests only."""
    package = pytest.importorskip("sentencepiece")
    out, settings = io.BytesIO(), {k: [*v] if isinstance(v, tuple) else v for k, v in settings.items()}
    package.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=out, minloglevel=2, num_threads=1, **settings
    )
    return out.getvalue()


def t5(**more: Any) -> bytes:
    return spm(vocab_size=600, bos_id=-1, pad_id=0, eos_id=1, unk_id=2, **more)


def llama(**more: Any) -> bytes:
    return spm(
        model_type="bpe", vocab_size=800, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, **more,
    )  # fmt: skip


def write(folder: Path, files: dict[str, Any]) -> Path:
    """A folder with these files; what is no text or bytes is written as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if not isinstance(data, (bytes, str)):
            data = json.dumps(data)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


@cache
def byte_bpe(special: tuple[str, ...]) -> tuple[str, str]:
    """vocab.json and merges.txt of byte-level BPE."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=[*special], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(LINES, trainer)
    spec = json.loads(backend.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["merges"]]
    return json.dumps(spec["vocab"]), "\n".join(["#version: 0.2", *merges, ""])


def word_pieces() -> str:
    """A vocab.txt of BERT's kind, with capitals and accents."""
    letters = sorted({c for line in LINES for c in line if not c.isspace()})
    words = [
        "hello",
        "Hello",
        "world",
        "café",
        "cafe",
        "naive",
        "def",
        "main",
        "##s",
        "##ing",
        "中文",
        "mixed",
    ]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters, *(f"##{c}" for c in letters)]
    return "\n".join([*dict.fromkeys(tokens), ""])


def unpacked(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of a shared vocabulary, unpacked."""
    if not (folder := SHARED / name).exists():
        pytest.skip(f"{folder} is not on this machine")
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        yield path.name.removesuffix(".gz"), gzip.decompress(data) if path.suffix == ".gz" else data


def pair(special: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(("vocab.json", "merges.txt"), byte_bpe(special)))


def spiece(name: str, data: bytes, kind: str, **said: Any) -> dict[str, Any]:
    return {name: data, "tokenizer_config.json": {"tokenizer_class": f"{kind}Tokenizer"} | said}
