"""A tokenizer is tried on a few characters when it is read, so that a broken file is told of there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError, one_line

TEXT = (
    "The cat's 12.5% x_y, café e\u0301 日本 ☃ 😀 \n\tab  "  # letters, accents, ideographs, and what few know
)


@contextmanager
def guarded(path: Path, what: str = "cannot be used as a tokenizer") -> Iterator[None]:
    """Whatever the backend raises is the user's error, in one line; a panic of it is no Exception."""
    try:
        with _quiet():
            yield
    except (ConfigError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        why = one_line(error)
        raise ConfigError(f"{path}: {what} ({why})") from None


def try_out(backend: Backend, path: Path) -> None:
    """Reads and writes `TEXT`, alone and beside another, with special tokens and without."""
    found = [backend.encode(TEXT, add_special_tokens=False), backend.encode(TEXT), backend.encode("a", "b")]
    ids = [i for encoding in found for i in encoding.ids]
    lost = next((i for i in ids if backend.id_to_token(i) is None), None)
    if lost is not None:
        size = backend.get_vocab_size()
        raise ConfigError(f"{path}: its post_processor puts token {lost}, and the vocabulary has {size}")
    for skip in (False, True):
        backend.decode(ids, skip_special_tokens=skip)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing comes out at the standard error output, where a panic would write all that it went through."""
    try:
        usual = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)
