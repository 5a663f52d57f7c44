"""Text to ids and back: the tokenizer that a run trains or reads, and that travels in its checkpoints."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path

from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError

ROLES = ("pad", "bos", "eos", "unk", "cls", "sep", "mask")
NAMES = {  # what files that do not say it call their special tokens, the likeliest first
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "bos": ("<bos>", "<s>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": ("<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}
CUT = 1 << 16  # characters; longer texts are encoded in pieces, which several cores share
_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


class Tokenizer:
    """A tokenizer of the `tokenizers` package that knows the ids of its special tokens.

    `encode` adds no BOS or EOS, and text that spells a special token stays text unless `allow_special`.
    Where a file has no padding token, `pad_id` is the EOS id (or 0): padding is told by length, never by id.
    """

    def __init__(self, backend: Backend, special: dict[str, str], *, allow_special: bool = False) -> None:
        backend.no_truncation()  # files of published models may cut at 128 tokens, or pad to it
        backend.no_padding()
        backend.encode_special_tokens = not allow_special  # the backend's name for "special tokens are text"
        self.backend = backend
        self._read: str | None = None  # the tokenizer.json it came from
        self.special = special
        self.allow_special = allow_special
        self.vocab_size: int = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        ids = {role: backend.token_to_id(special[role]) if role in special else None for role in ROLES}
        self.bos_id, self.eos_id, self.unk_id = ids["bos"], ids["eos"], ids["unk"]
        self.cls_id, self.sep_id, self.mask_id = ids["cls"], ids["sep"], ids["mask"]
        self.has_pad = ids["pad"] is not None
        self.pad_id: int = ids["pad"] if ids["pad"] is not None else self.eos_id or 0

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
    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text."""
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def sentinel_ids(self) -> tuple[int, ...]:
        """The ids of <extra_id_0>, <extra_id_1> ... as far as they go."""
        ids = (self.backend.token_to_id(f"<extra_id_{k}>") for k in count())
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

    def save(self, folder: Path | str) -> None:
        """Writes tokenizer.json and tokenizer_config.json, which `transformers` reads as well."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        said = {f"{role}_token": self.special.get(role) for role in ROLES}
        said |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        said |= {"split_special_tokens": not self.allow_special}
        (folder / "tokenizer.json").write_text(self.text, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, where: Path | str, *, allow_special: bool | None = None) -> "Tokenizer":
        """Reads a tokenizer.json or the folder it lies in; `allow_special` None: as the files say."""
        path = Path(where)
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            text = path.read_text(encoding="utf-8")
            backend = Backend.from_str(text)
        except OSError:
            raise ConfigError(f"{path}: no such tokenizer file") from None
        except Exception as error:  # the backend raises plain Exception
            raise ConfigError(f"{path}: not a tokenizer.json ({_line(error)})") from None
        said = described(path.parent)
        if allow_special is None:
            allow_special = not said.get("split_special_tokens", True)
        cuts = backend.truncation or backend.padding  # which are not kept
        tokenizer = cls(backend, find_special(backend, said), allow_special=allow_special)
        tokenizer._read = None if cuts else text
        return tokenizer


def find_special(backend: Backend, said: dict | None = None) -> dict[str, str]:
    """Role to token, e.g. {"eos": "</s>"}: as said, else by the usual names.

    A vocabulary that has [CLS] and [SEP] only (BERT's) begins and ends documents with them.
    """
    said, found = said or {}, {}
    for role in ROLES:
        names = NAMES[role]
        if f"{role}_token" in said:
            name = said[f"{role}_token"]
            names = () if name is None else (name["content"] if isinstance(name, dict) else name,)
        known = [name for name in names if backend.token_to_id(name) is not None]
        if known:
            found[role] = known[0]
    for role, stand_in in (("bos", "cls"), ("eos", "sep")):
        if role not in found and stand_in in found:
            found[role] = found[stand_in]
    return found


def pieces(text: str, size: int = CUT) -> Iterator[str]:
    """A long text in pieces of at least `size` characters, each but the last ending in a single line end.

    A line end between two other characters is a word of its own in every splitting by white space.
    """
    start = 0
    while len(text) - start > 2 * size and (cut := _LINE_END.search(text, start + size)):
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]


def valid(text: str) -> str:
    """The text with lone surrogates, which no encoding can hold, replaced by U+FFFD."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def described(folder: Path) -> dict:
    """What the files beside a vocabulary say of it."""
    said = {}
    for path in (folder / "special_tokens_map.json", folder / "tokenizer_config.json"):
        try:
            said |= json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{path}: cannot be read ({_line(error)})") from None
    return said


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
