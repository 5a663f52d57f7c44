"""Tokenizers of published models, whichever form of them lies in a folder."""

from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer, marian
from tfcli.tokenizer.ends import put
from tfcli.tokenizer.published import from_pieces
from tfcli.tokenizer.said import (
    add,
    added_tokens,
    chat_template,
    described,
    ends_of,
    find_special,
    input_names,
    kind_of,
    special_is_text,
)
from tfcli.tokenizer.tried import guarded, try_out
from tfcli.tokenizer.words import bert, either, gpt2

PIECES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
WANTED = (
    "tokenizer.json, vocab.json with merges.txt, vocab.txt, vocab.json with source.spm and target.spm, "
    "or " + ", ".join(PIECES)
)


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
        self.path = Path(path).expanduser()
        if not self.path.exists():
            raise ConfigError(f"tokenizer.path={self.path}: no such file or folder")
        self.read = reader(self.path, lowercase, allow_special)
        if self.read is None:
            raise ConfigError(f"tokenizer.path={self.path}: has no {WANTED}")

    def train(self, texts: Iterable[str] = ()) -> Tokenizer:
        """Reads the files; the texts change nothing."""
        return self.read()


def read(folder: Path | str, allow_special: bool | None = None) -> Tokenizer:
    """The tokenizer of a model's folder, by the fullest description there. Raises ConfigError."""
    found = reader(Path(folder), None, allow_special)
    if found is None:
        raise ConfigError(f"{folder}: has no {WANTED}")
    return found()


def reader(path: Path, lowercase: bool | None, allow_special: bool | None) -> Callable[[], Tokenizer] | None:
    """How to read what is there: a file of that name, or of a folder the fullest description."""
    folder, name = (path, "") if path.is_dir() else (path.parent, path.name.removesuffix(".gz"))
    whole = path if name else folder / "tokenizer.json"
    if whole.suffix == ".json" and whole.name != "vocab.json" and whole.is_file():
        return lambda: Tokenizer.load(whole, allow_special=allow_special)
    if name in ("", "vocab.json", *marian.FILES) and all((folder / n).is_file() for n in marian.FILES):
        return lambda: marian.read(folder, allow_special=allow_special)
    pair = [either(folder, n) for n in ("vocab.json", "merges.txt")]
    if all(pair) and name in ("", "vocab.json", "merges.txt"):
        return lambda: finished(folder, lambda kind, said: gpt2(*pair, kind, said), allow_special)
    words = path if name.endswith(".txt") and name != "merges.txt" else None
    words = words or (None if name else either(folder, "vocab.txt"))
    if words:
        return lambda: finished(folder, lambda kind, said: bert(words, kind, said, lowercase), allow_special)
    models = [path] if name.endswith((".model", ".spm")) else [folder / n for n in PIECES if not name]
    model = next((m for m in models if m.is_file()), None)
    return model and (
        lambda: finished(folder, lambda kind, said: from_pieces(model, kind, said), allow_special)
    )


def finished(folder: Path, made: Callable[[str, dict], Backend], allow_special: bool | None) -> Tokenizer:
    """A backend with the tokens that the files beside it add and with what belongs around a text."""
    with guarded(folder):
        tokenizer = _finished(folder, made, allow_special)
        try_out(tokenizer.backend, folder)
    return tokenizer


def _finished(folder: Path, made: Callable[[str, dict], Backend], allow_special: bool | None) -> Tokenizer:
    said = described(folder)
    backend, said, kind = made(kind_of(folder, said), said)
    tokens = [
        (i, t) for i, t in added_tokens(folder, said) if backend.token_to_id(t.content) != i or t.special
    ]
    special = find_special(backend, said)
    backend.add_special_tokens(sorted(set(special.values()), key=backend.token_to_id))
    add(backend, tokens, folder / "tokenizer_config.json")
    special = find_special(backend, said)
    puts = ends_of(kind, said)
    if any(puts):
        ends = [special.get(role) if p else None for role, p in zip(("bos", "eos"), puts)]
        backend = put(backend, *ends, segments=kind == "bert", twice=kind in ("roberta", "xlmroberta"))
    if allow_special is None:
        allow_special = not special_is_text(said)
    template, said["model_input_names"] = chat_template(folder, said), input_names(folder, said)
    return Tokenizer(backend, special, allow_special=allow_special, said=said, chat_template=template)
