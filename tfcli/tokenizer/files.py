"""Tokenizers of published models: tokenizer.json, GPT-2's vocab.json and merges.txt, or BERT's vocab.txt."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from string import ascii_uppercase

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from tfcli.errors import ConfigError
from tfcli.tokenizer import NAMES, Tokenizer, described, find_special


class File:
    """The tokenizer at `path`: a file, or the folder that holds its files; vocabularies may be compressed.

    lowercase concerns a vocab.txt only: None lowers case, and drops accents, as the tokenizer_config.json
    beside it says, else unless the vocabulary has capitals.
    """

    needs_text = False

    def __init__(
        self, *, path: str | None = None, lowercase: bool | None = None, allow_special: bool = False
    ) -> None:
        if path is None:
            raise ConfigError("tokenizer.path: missing; give a tokenizer.json or the folder of a tokenizer")
        self.path, self.lowercase, self.allow_special = Path(path).expanduser(), lowercase, allow_special
        self.read = self._reader()

    def train(self, texts: Iterable[str] = ()) -> Tokenizer:
        """Reads the files; the texts change nothing."""
        return self.read()

    def _reader(self) -> Callable[[], Tokenizer]:
        """How to read what is there; of a folder the fullest description."""
        if not self.path.exists():
            raise ConfigError(f"tokenizer.path={self.path}: no such file or folder")
        folder = self.path if self.path.is_dir() else self.path.parent
        name = "" if self.path.is_dir() else self.path.name.removesuffix(".gz")
        of_two = name in ("vocab.json", "merges.txt")
        whole = self.path if name else folder / "tokenizer.json"
        pair = [_either(folder, n) for n in ("vocab.json", "merges.txt")]
        words = self.path if name.endswith(".txt") else _either(folder, "vocab.txt")
        if not of_two and whole.suffix == ".json" and whole.is_file():
            return lambda: Tokenizer.load(whole, allow_special=self.allow_special)
        if all(pair) and (of_two or not name):
            return lambda: self._finished(gpt2(*pair), described(folder))
        if words and not of_two:
            return lambda: self._finished(bert(words, self._lowercase(folder)), described(folder))
        raise ConfigError(
            f"tokenizer.path={self.path}: has no tokenizer.json, vocab.json with merges.txt, or vocab.txt"
        )

    def _lowercase(self, folder: Path) -> bool | None:
        return described(folder).get("do_lower_case") if self.lowercase is None else self.lowercase

    def _finished(self, backend: Backend, said: dict) -> Tokenizer:
        special = find_special(backend, said)
        backend.add_special_tokens(sorted(set(special.values()), key=backend.token_to_id))
        return Tokenizer(backend, special, allow_special=self.allow_special)


def gpt2(vocabulary: Path, merges: Path) -> Backend:
    """Byte-level BPE  (Radford et al. 2019)."""
    try:
        ids = json.loads(_text(vocabulary))
    except ValueError as error:
        raise ConfigError(f"{vocabulary}: not JSON ({error})") from None
    lines = (line for line in _text(merges).split("\n") if line and not line.startswith("#version"))
    pairs = [tuple(line.split(" ")) for line in lines]
    for pair in pairs:  # the backend would not survive one
        if len(pair) != 2 or not {*pair, "".join(pair)} <= ids.keys():
            raise ConfigError(f"{merges}: '{' '.join(pair)}' is no merge of tokens in {vocabulary}")
    backend = Backend(models.BPE(vocab=ids, merges=pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def bert(vocabulary: Path, lowercase: bool | None = None) -> Backend:
    """WordPiece over words without white space  (Devlin et al. 2018)."""
    lines = _text(vocabulary).removesuffix("\n").split("\n")
    ids = {line.removesuffix("\r"): i for i, line in enumerate(lines)}
    unknown = next((name for name in NAMES["unk"] if name in ids), None)
    if unknown is None:
        raise ConfigError(f"{vocabulary}: not a WordPiece vocabulary, it has no [UNK]")
    if lowercase is None:
        words = (token for token in ids if not token.startswith(("[", "<")))
        lowercase = not any(set(word) & set(ascii_uppercase) for word in words)
    backend = Backend(models.WordPiece(vocab=ids, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def _either(folder: Path, name: str) -> Path | None:
    return next((f for f in (folder / name, folder / f"{name}.gz") if f.is_file()), None)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
