"""Tokenised once, then read from a file: the cache of a source's tokens."""

import hashlib
import inspect
import io
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import tokenizers

import tfcli
from tfcli.data import Source
from tfcli.data.parts import PARTS, Parts, in_batches, progress, training_texts
from tfcli.data.tokens import MAGIC, Encoder, Tokens, Writer, load, parse
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer

VERSIONS = (tfcli.__version__, tokenizers.__version__, MAGIC)
BATCH = 1 << 21  # characters that are encoded together, so that all cores have work


def identity(source: Source, tokenizer: Tokenizer) -> str:
    """What changes with the content of a source, the tokenizer, the settings or the format of the cache."""
    settings = (source.bos, source.eos, source.score_prompt, source.max_documents, source.validation_fraction)
    separates = Encoder.of(source, tokenizer).separates
    said = (*VERSIONS, source.fingerprint(), tokenizer.hash, *settings, separates)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


def trained(recipe: Any, source: Source, folder: Path) -> Tokenizer:
    """The recipe's tokenizer, trained once on the training part of the source, then read from the folder."""
    code = inspect.getsource(sys.modules[type(recipe).__module__])  # a recipe may be the user's own
    settings = (source.tokenizer_characters, source.max_documents, source.validation_fraction)
    said = (*VERSIONS, code, type(recipe).__qualname__, vars(recipe), source.fingerprint(), *settings)
    path = folder / hashlib.sha256(repr(said).encode()).hexdigest()[:32]
    with suppress(ConfigError):  # there is none yet, or a damaged one
        return Tokenizer.load(path)
    tokenizer = recipe.train(training_texts(source))
    with suppress(OSError):  # who cannot write there trains again next time
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".", suffix=".tmp") as made:
            tokenizer.save(Path(made, "whole"))
            shutil.rmtree(path, ignore_errors=True)
            os.replace(Path(made, "whole"), path)
    return tokenizer


def tokenise(source: Source, tokenizer: Tokenizer, folder: Path) -> tuple[list[Tokens], list[str]]:
    """The tokens of both parts, and what the user should know; made once, then read from the folder.

    A run that cannot write there keeps the tokens in memory.
    """
    key = identity(source, tokenizer)
    names = [f"{key}-{part}.tokens" for part in PARTS]
    found = [load(folder / name) for name in names]
    if None not in found:
        return found, []
    encoder = Encoder.of(source, tokenizer)
    try:
        return _build(source, encoder, folder, names), []
    except OSError as error:
        notice = f"data.cache_dir={folder}: cannot be written ({error.strerror}); tokens are kept in memory"
        return _build(source, encoder, None, names), [notice]


def _build(source: Source, encoder: Encoder, folder: Path | None, names: list[str]) -> list[Tokens]:
    """Reads and encodes everything; no folder: into memory."""
    files = []
    try:
        files += [_create(folder) for _ in names]
        writers = [Writer(file, encoder) for file in files]
        parts = Parts(source)
        with progress("tokenise", source.n_bytes()) as bar:
            for batch in in_batches(((part, p) for part, d in parts for p in encoder.pieces(d)), BATCH):
                for part, writer in enumerate(writers):
                    writer.add([document for where, document in batch if where == part])
                bar.update(sum(document.size for _, document in batch))
        for writer, blank in zip(writers, parts.blank):
            writer.totals.blank = blank
            writer.finish(source.notices())
        return [_keep(file, folder, name) for file, name in zip(files, names)]
    finally:
        for file in files:
            _drop(file, folder)


def _create(folder: Path | None) -> BinaryIO:
    if folder is None:
        return io.BytesIO()
    folder.mkdir(parents=True, exist_ok=True)
    for forgotten in folder.glob(".*.tmp"):  # by a run that was killed
        with suppress(OSError):
            if time.time() - forgotten.stat().st_mtime > 24 * 3600:
                forgotten.unlink()
    return tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".tmp", delete=False)


def _keep(file: BinaryIO, folder: Path | None, name: str) -> Tokens:
    """The file under its name: whole or not at all, whoever else writes it at this moment."""
    if folder is None:
        return parse(file.getvalue())
    file.close()
    os.replace(file.name, folder / name)
    tokens = load(folder / name)
    if tokens is None:
        raise OSError(0, "what was written cannot be read back")
    return tokens


def _drop(file: BinaryIO, folder: Path | None) -> None:
    if folder is not None:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            os.unlink(file.name)
