"""Vocabularies of words and bytes as published: GPT-2's vocab.json and merges.txt, BERT's vocab.txt."""

import gzip
import json
import zlib
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError
from tfcli.tokenizer.said import NAMES

Read = tuple[Backend, dict[str, Any], str]  # a backend, what is said of it, and its kind
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_QWEN2 = "|".join(
    (_CONTRACTIONS, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*",
     r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+")
)  # fmt: skip


def gpt2(vocabulary: Path, merges: Path, kind: str, said: dict[str, Any]) -> Read:
    """Byte-level BPE  (Radford et al. 2019), also of RoBERTa, BART and Qwen 2."""
    if kind not in ("", "gpt2", "roberta", "qwen2"):
        raise ConfigError(
            f"{vocabulary.parent}: a vocab.json and merges.txt of {kind}: must be of GPT-2, RoBERTa, BART or "
            "Qwen 2, or have a tokenizer.json"
        )
    backend = Backend(models.BPE(vocab=(ids := _ids(vocabulary)), merges=_merges(merges, vocabulary, ids)))
    blank = bool(said.get("add_prefix_space"))
    words = pre_tokenizers.ByteLevel(add_prefix_space=blank, use_regex=kind != "qwen2")
    if kind == "qwen2":
        said = {"bos_token": None} | said  # <|endoftext|> is no beginning there
        backend.normalizer = normalizers.NFC()
        words = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_QWEN2), "isolated"), words])
    backend.pre_tokenizer = words
    backend.decoder = decoders.ByteLevel()
    return backend, said, kind or "gpt2"


def _ids(path: Path) -> dict[str, int]:
    try:
        ids = json.loads(text_of(path).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON ({error})") from None
    if isinstance(ids, dict) and all(isinstance(i, int) and i >= 0 for i in ids.values()):
        return ids
    raise ConfigError(f"{path}: must give every token an id, from 0 on")


def _merges(path: Path, vocabulary: Path, ids: dict[str, int]) -> list[tuple[str, str]]:
    lines = (line for line in text_of(path).split("\n") if line and not line.startswith("#version"))
    pairs = [tuple(line.split(" ")) for line in lines]
    for pair in pairs:  # the backend would not survive one
        if len(pair) != 2 or not {*pair, "".join(pair)} <= ids.keys():
            raise ConfigError(f"{path}: '{' '.join(pair)}' is no merge of tokens in {vocabulary}")
    return pairs


def bert(vocabulary: Path, kind: str, said: dict[str, Any], lowercase: bool | None = None) -> Read:
    """WordPiece over words without white space  (Devlin et al. 2018).

    Accents go with capitals unless strip_accents says otherwise; Chinese characters are words of their own
    unless tokenize_chinese_chars is false.
    """
    if kind not in ("", "bert"):
        raise ConfigError(f"{vocabulary}: a vocab.txt of {kind}: must be of BERT, or have a tokenizer.json")
    lines = text_of(vocabulary).removesuffix("\n").split("\n")
    ids = {line.removesuffix("\r"): i for i, line in enumerate(lines)}
    unknown = next((name for name in NAMES["unk"] if name in ids), None)
    if unknown is None:
        raise ConfigError(f"{vocabulary}: not a WordPiece vocabulary, it has no [UNK]")
    lowercase = said.get("do_lower_case") if lowercase is None else lowercase
    if lowercase is None:
        words = (token for token in ids if not token.startswith(("[", "<")))
        lowercase = not any(set(word) & set(ascii_uppercase) for word in words)
    backend = Backend(models.WordPiece(vocab=ids, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(lowercase),
        strip_accents=said.get("strip_accents"),
        handle_chinese_chars=said.get("tokenize_chinese_chars", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend, said, "bert"


def either(folder: Path, name: str) -> Path | None:
    """A file of that name, or of that name compressed."""
    return next((f for f in (folder / name, folder / f"{name}.gz") if f.is_file()), None)


def text_of(path: Path) -> str:
    """The text of a file, which may be compressed."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
