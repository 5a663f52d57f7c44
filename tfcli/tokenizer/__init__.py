"""Text to ids and back: the tokenizer that a run trains or reads, and that travels in its checkpoints."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError
from tfcli.tokenizer import ends as around
from tfcli.tokenizer.cut import CUT, pieces, valid
from tfcli.tokenizer.said import (
    AS_TEXT,
    KEPT,
    NAMES,
    ROLES,
    chat_template,
    class_of,
    described,
    find_special,
    input_names,
    special_is_text,
    text_if_any,
)
from tfcli.tokenizer.tried import guarded, try_out

__all__ = ["CUT", "NAMES", "ROLES", "Tokenizer", "described", "find_special", "pieces", "valid"]

INPUTS = ["input_ids", "attention_mask"]  # what a model reads that knows no segments


class Tokenizer:
    """A tokenizer of the `tokenizers` package that knows the ids of its special tokens.

    `encode` adds no BOS or EOS, and text that spells a special token stays text unless `allow_special`.
    Where a file has no padding token, `pad_id` is the EOS id (or 0): padding is told by length, never by id.
    said: what an imported tokenizer_config.json said; `chat_template` is the Jinja text of conversations.
    """

    def __init__(
        self,
        backend: Backend,
        special: dict[str, str],
        *,
        allow_special: bool = False,
        said: dict[str, Any] | None = None,
        chat_template: str | None = None,
    ) -> None:
        backend.no_truncation()  # files of published models may cut at 128 tokens, or pad to it
        backend.no_padding()
        backend.encode_special_tokens = not allow_special  # the backend's name for "special tokens are text"
        self.backend = backend
        self._read: str | None = None  # the tokenizer.json it came from
        self.special = special
        self.allow_special = allow_special
        self.chat_template = chat_template
        self.kept = {key: said[key] for key in KEPT if key in said} if said else {}
        self.vocab_size: int = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        ids = {role: backend.token_to_id(special[role]) if role in special else None for role in ROLES}
        self.bos_id, self.eos_id, self.unk_id = ids["bos"], ids["eos"], ids["unk"]
        self.cls_id, self.sep_id, self.mask_id = ids["cls"], ids["sep"], ids["mask"]
        self.has_pad = ids["pad"] is not None
        self.pad_id: int = ids["pad"] if ids["pad"] is not None else self.eos_id or 0

    @property
    def reads(self) -> "Tokenizer":
        """The tokenizer of what an encoder-decoder's encoder reads: this one, or sources' own."""
        return self

    @cached_property
    def adds_bos(self) -> bool:
        """Whether its own files put BOS before a text."""
        return self._put("before", self.bos_id)

    @cached_property
    def adds_eos(self) -> bool:
        """Whether its own files put EOS after a text."""
        return self._put("after", self.eos_id)

    def _put(self, where: str, known: int | None) -> bool:
        ids = around.around(self.backend)[where == "after"]
        if ids in ([], [known]):
            return bool(ids)
        names = " ".join(self.backend.id_to_token(i) for i in ids)
        role = "bos" if where == "before" else "eos"
        raise ConfigError(
            f"tokenizer: its post_processor puts {names} {where} a text; must be the {role}_token alone, "
            f"{self.special.get(role)}"
        )

    def id_of(self, token: str) -> int | None:
        """The id of a token by how the vocabulary spells it."""
        return self.backend.token_to_id(token)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.backend.encode(valid(text), add_special_tokens=False).ids

    def encode_many(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of each text, on all cores; a long text is cut where that cannot change its ids."""
        texts = [valid(text) for text in texts]
        parts = [list(self.pieces(text)) for text in texts]
        flat = [piece for group in parts for piece in group]
        encoded = iter(self.backend.encode_batch_fast(flat, add_special_tokens=False))
        return [[i for _ in group for i in next(encoded).ids] for group in parts]

    def pieces(self, text: str, size: int = CUT) -> Iterator[str]:
        """A text in pieces of about `size` characters that give the same ids, one after the other."""
        return pieces(text, size) if len(text) > size and self._separable else iter((text,))

    def encode_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and from which to before which of its characters each of them stands for.

        Tokens of the bytes of one character all stand for it.
        """
        return self.encode_many_offsets([text])[0]

    def encode_many_offsets(self, texts: Iterable[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """`encode_offsets` of each text, on all cores."""
        found = self.backend.encode_batch([valid(text) for text in texts], add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in found]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids, without the special tokens unless they are asked for."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=skip_special)

    @cached_property
    def parted(self) -> int:
        """How many EOS stand between two texts of a row: one, but two where its files put two (RoBERTa)."""
        return around.between(self.backend, self.eos_id)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def sentinel_ids(self) -> tuple[int, ...]:
        """The ids of <extra_id_0>, <extra_id_1> ... as far as they go."""
        ids = (self.id_of(f"<extra_id_{k}>") for k in count())
        return tuple(takewhile(lambda i: i is not None, ids))

    def pieces_of_vocabulary(self) -> list[str]:
        """The token of each id as the vocabulary spells it; "" where an id has none."""
        spelled = {i: token for token, i in self.backend.get_vocab(with_added_tokens=True).items()}
        return [spelled.get(i, "") for i in range(self.vocab_size)]

    @cached_property
    def text(self) -> str:
        """What `save` writes: the file it came from, which another version may write otherwise."""
        return self.backend.to_str(pretty=True) if self._read is None else self._read

    @cached_property
    def hash(self) -> str:
        """What two tokenizers share only if they give the same ids: 16 hex digits of a sha256."""
        said = json.dumps([self.special, self.allow_special], sort_keys=True)
        return hashlib.sha256((self.text + said).encode()).hexdigest()[:16]

    @cached_property
    def _separable(self) -> bool:
        """Whether no word spans a line end, so that a text may be encoded piece by piece."""
        spec = json.loads(self.backend.to_str())
        if spec["normalizer"] or any(not token["special"] for token in spec["added_tokens"]):
            return False
        if spec["model"]["type"] == "BPE" and not spec["model"]["merges"]:
            return spec["pre_tokenizer"] is None or spec["pre_tokenizer"]["type"] == "ByteLevel"
        words = spec["pre_tokenizer"] or {}
        steps = words.get("pretokenizers", [words])
        return any(s.get("use_regex") for s in steps) and not any(s.get("add_prefix_space") for s in steps)

    def with_ends(self, bos: bool, eos: bool, *, segments: bool = False) -> "Tokenizer":
        """The tokenizer whose files put BOS before and EOS after a text as a run did; it gives the same ids.

        Two texts become `[bos] a [eos] b [eos]`. segments: of which the second is segment 1.
        """
        roles = [role for role, put in (("bos", bos), ("eos", eos)) if put and role in self.special]
        if not roles and not segments and not any(around.around(self.backend)):
            return self
        tokens = (self.special[role] if role in roles else None for role in ("bos", "eos"))
        backend = around.put(self.backend, *tokens, segments=segments)
        if around.alike(backend, self.backend) and ("token_type_ids" in str(self.kept)) == segments:
            return self
        said = self.kept | {"model_input_names": [*INPUTS, "token_type_ids"] if segments else INPUTS}
        copy = {"allow_special": self.allow_special, "said": said, "chat_template": self.chat_template}
        return Tokenizer(backend, self.special, **copy)

    def save(self, folder: Path | str) -> None:
        """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja, as `transformers` reads them.

        The class there is the general one, which takes tokenizer.json as it is; others make their own of it.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self.text, encoding="utf-8")
        self._save_said(folder, {"tokenizer_class": "PreTrainedTokenizerFast"})

    def _save_said(self, folder: Path, more: dict[str, Any]) -> None:
        """Writes what stands beside a vocabulary."""
        said = {"model_input_names": INPUTS, "clean_up_tokenization_spaces": False} | self.kept
        said |= {f"{role}_token": self.special.get(role) for role in ROLES}
        said |= {"split_special_tokens": not self.allow_special} | more
        if self.chat_template is not None:  # which writes special tokens as text, and must get them as such
            said |= {"split_special_tokens": False, AS_TEXT: not self.allow_special}
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
        (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
        if self.chat_template is not None:
            (folder / "chat_template.jinja").write_text(self.chat_template, encoding="utf-8")

    @classmethod
    def load(cls, where: Path | str, *, allow_special: bool | None = None) -> "Tokenizer":
        """Reads a tokenizer.json, or the folder that `save` wrote; `allow_special` None: as the files say."""
        path = Path(where)
        if path.is_dir() and not (path / "tokenizer.json").exists() and (path / "source.spm").exists():
            from tfcli.tokenizer.marian import read

            return read(path, allow_special=allow_special)
        path = path / "tokenizer.json" if path.is_dir() else path
        text = text_if_any(path)
        if text is None:
            raise ConfigError(f"{path}: no such tokenizer file")
        with guarded(path, "not a tokenizer.json"):
            backend = Backend.from_str(text)
        with guarded(path):
            return cls._described(backend, text, path, allow_special)

    @classmethod
    def _described(cls, backend: Backend, text: str, path: Path, allow_special: bool | None) -> "Tokenizer":
        """A backend with what the files beside it say."""
        said = described(path.parent)
        special = find_special(backend, said)
        settled = around.of_class(backend, class_of(path.parent, said), special)
        if settled is not backend or backend.truncation or backend.padding:  # which are not kept
            text = None
        if allow_special is None:
            allow_special = not special_is_text(said)
        template = chat_template(path.parent, said)
        said["model_input_names"] = input_names(path.parent, said, by_model=False)
        tokenizer = cls(settled, special, allow_special=allow_special, said=said, chat_template=template)
        tokenizer._read = text
        try_out(settled, path)
        return tokenizer
