"""Marian's pair of tokenizers: pieces by a SentencePiece model for each side, ids by one vocab.json."""

import hashlib
import json
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.cut import valid
from tfcli.tokenizer.said import ROLES, chat_template, content, described, read_json, special_is_text
from tfcli.tokenizer.sentencepiece import load
from tfcli.tokenizer.spm import backend
from tfcli.tokenizer.tried import guarded, try_out

FILES = ("vocab.json", "source.spm", "target.spm")
USUAL = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
_CODE = re.compile(r">>.*?<<", re.DOTALL)  # at the beginning of a source: the language to write


class Side(Tokenizer):
    """One side's tokenizer. Its pieces are the model's, its ids the vocabulary's, which both sides share.

    A piece that the vocabulary lacks is <unk>. A text may begin with a language code, as >>fr<<, which is one
    token.
    """

    def __init__(
        self,
        model: Backend,
        vocabulary: dict[str, int],
        special: dict[str, str],
        *,
        allow_special: bool = False,
        said: dict[str, Any] | None = None,
        chat_template: str | None = None,
    ) -> None:
        more = {"allow_special": allow_special, "said": said, "chat_template": chat_template}
        model.add_special_tokens([t for t in special.values() if model.token_to_id(t) is None])
        super().__init__(model, special, **more)
        self.vocabulary = vocabulary
        self.vocab_size = max(vocabulary.values()) + 1
        ids = {role: vocabulary[special[role]] if role in special else None for role in ROLES}
        self.eos_id, self.unk_id, self.bos_id = ids["eos"], ids["unk"], ids["bos"]
        self.cls_id, self.sep_id, self.mask_id = ids["cls"], ids["sep"], ids["mask"]
        self.has_pad, self.pad_id = ids["pad"] is not None, ids["pad"] or 0
        spelled = sorted(model.get_vocab(with_added_tokens=True).items(), key=lambda pair: pair[1])
        self._shared = [vocabulary.get(piece, self.unk_id) for piece, _ in spelled]
        self._source: Side | None = None
        self.files: dict[str, bytes] = {}

    @property
    def reads(self) -> Tokenizer:
        """The tokenizer of sources."""
        return self if self._source is None else self._source

    adds_bos, adds_eos = False, True

    def encode(self, text: str) -> list[int]:
        return self.encode_offsets(text)[0]

    def encode_many(self, texts: Iterable[str]) -> list[list[int]]:
        return [ids for ids, _ in self.encode_many_offsets(texts)]

    def encode_many_offsets(self, texts: Iterable[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        codes, rest = zip(*found) if (found := [_parted(valid(text)) for text in texts]) else ((), ())
        encoded = self.backend.encode_batch(list(rest), add_special_tokens=False)
        return [self._joined(code, encoding.ids, encoding.offsets) for code, encoding in zip(codes, encoded)]

    def _joined(self, code: str, ids: list[int], spans: list[tuple[int, int]]) -> tuple[list, list]:
        head = [self.vocabulary.get(code, self.unk_id)] if code else []
        moved = [(first + len(code), last + len(code)) for first, last in spans]
        return head + [self._shared[i] for i in ids], [(0, len(code))] * len(head) + moved

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        kept = [int(i) for i in ids if not (skip_special and int(i) in self.special_ids)]
        return self.backend.decoder.decode([self._spelled[i] for i in kept])

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self.vocabulary[token] for token in self.special.values())

    def id_of(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def pieces_of_vocabulary(self) -> list[str]:
        return [self._spelled.get(i, "") for i in range(self.vocab_size)]

    @cached_property
    def _spelled(self) -> dict[int, str]:
        return {i: token for token, i in self.vocabulary.items()}

    @cached_property
    def hash(self) -> str:
        said = json.dumps([self.special, self.allow_special], sort_keys=True).encode()
        files = b"".join(hashlib.sha256(self.files[name]).digest() for name in FILES)
        return hashlib.sha256(files + said).hexdigest()[:16]

    def with_ends(self, bos: bool, eos: bool, *, segments: bool = False) -> Tokenizer:
        if (bos and self.bos_id is not None) or not eos or segments:
            raise ConfigError(
                f"data.eos={str(eos).lower()}: Marian's tokenizers end every text with EOS; must be true"
            )
        return self

    def save(self, folder: Path | str) -> None:
        """Writes the files as they were read, and tokenizer_config.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        self._save_said(folder, {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False})


def read(folder: Path, *, allow_special: bool | None = None) -> Side:
    """The tokenizer of targets, whose `reads` is that of sources."""
    said = described(folder)
    if said.get("separate_vocabs"):
        raise ConfigError(
            f"{folder / 'tokenizer_config.json'}: separate_vocabs={json.dumps(said['separate_vocabs'])}: "
            "must be false, both sides share one vocabulary here"
        )
    vocabulary = shared_vocabulary(folder / "vocab.json")
    special = roles(folder, said, vocabulary)
    if allow_special is None:
        allow_special = not special_is_text(said)
    more = {"allow_special": allow_special, "said": said, "chat_template": chat_template(folder, said)}
    sides = [_side(folder / name, vocabulary, special, more) for name in ("source.spm", "target.spm")]
    source, target = sides
    target._source = source
    target.files = source.files = {name: (folder / name).read_bytes() for name in FILES}
    return target


def shared_vocabulary(path: Path) -> dict[str, int]:
    """Token to id. Raises ConfigError if it is not one."""
    found = read_json(path)
    ids = list(found.values())
    if not found or not all(isinstance(i, int) and 0 <= i < 1 << 24 for i in ids) or len({*ids}) < len(ids):
        raise ConfigError(f"{path}: must give every token an id of its own, from 0 on")
    return found


def roles(folder: Path, said: dict[str, Any], vocabulary: dict[str, int]) -> dict[str, str]:
    """Role to token; the end and the unknown token are needed."""
    named = {role: content(said.get(f"{role}_token", USUAL.get(role)), f"{role}_token") for role in ROLES}
    found = {role: token for role, token in named.items() if token in vocabulary}
    for role in ("eos", "unk"):
        if role not in found:
            raise ConfigError(f"{folder / 'vocab.json'}: has no {role}_token, '{named[role]}'")
    return found


def _side(path: Path, vocabulary: dict[str, int], special: dict[str, str], more: dict[str, Any]) -> Side:
    with guarded(path):
        side = Side(backend(load(path)), vocabulary, special, **more)
        try_out(side.backend, path)
    return side


def _parted(text: str) -> tuple[str, str]:
    """The language code at the beginning of a text, and the rest."""
    code = _CODE.match(text)
    return (code[0], text[code.end() :]) if code else ("", text)
