"""From a source and a tokenizer to a corpus: what a run learns from and what it is evaluated on."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfcli.data import Blocks, Corpus, Source
from tfcli.data.cache import tokenise, trained
from tfcli.data.feed import Shuffled
from tfcli.data.packing import pack
from tfcli.data.parts import PARTS, held_for_streaming, training_texts
from tfcli.data.streaming import Streamed
from tfcli.data.tokens import Encoder, Tokens
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer


def prepare(
    source: Source,
    tokenizer: Tokenizer,
    *,
    seq_len: int,
    seed: int = 0,
    batch_size: int = 1,
    cache_dir: Path | str | None = None,
    rank: int = 0,
    world: int = 1,
) -> Corpus:
    """Encodes and packs both parts of a source.

    facts: for each part its documents, tokens, bytes, blank, unknown (see `tokens.Totals`), rows and labels.
    cache_dir: None is the source's own, or tfcli in the user's cache folder. batch_size, over all ranks, only
    serves a notice. Raises ConfigError if there is too little to learn from or to evaluate on.
    """
    if source.streaming:
        return _streamed(source, tokenizer, seq_len, seed, rank, world)
    tokens, notices = tokenise(source, tokenizer, cache_folder(source, cache_dir) / "tokens")
    blocks = [pack(part, source.packing, seq_len) for part in tokens]
    _check_train(source, tokens[0], blocks[0], seq_len)
    _check_validation(source, tokens[1], blocks[1])
    _check_ids(source, tokens, tokenizer)
    key = f"{tokens[0].check:08x} {source.packing} {seq_len}"
    train = Shuffled(blocks[0], seed=seed, key=key, rank=rank, world=world)
    notices += [*tokens[0].notices, *_left_out(tokens), *_odd_rows(blocks[0], batch_size)]
    if source.eos and tokenizer.eos_id is None and len(tokens[0].starts) > 2:
        notices.append("tokenizer: has no token that ends a document, so none is put there")
    return Corpus(train, blocks[1], _facts(tokens, blocks), notices)


def get_tokenizer(recipe: Any, source: Source, cache_dir: Path | str | None = None) -> Tokenizer:
    """The tokenizer of a recipe of the group `tokenizer`, which learns from the training part where it must.

    What was trained once is read from the cache, unless the source is streamed.
    """
    if not recipe.needs_text:
        return recipe.train(())
    if source.streaming:
        return recipe.train(training_texts(source))
    return trained(recipe, source, cache_folder(source, cache_dir) / "tokenizers")


def cache_folder(source: Source, cache_dir: Path | str | None = None) -> Path:
    """Where what was made of a source is kept: as said, as the source says, or in the user's cache folder."""
    users = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache_dir or source.cache_dir or Path(users, "tfcli")).expanduser()


def _streamed(source: Source, tokenizer: Tokenizer, seq_len: int, seed: int, rank: int, world: int) -> Corpus:
    encoder = Encoder.of(source, tokenizer)
    held, skip = held_for_streaming(source)
    tokens = encoder.gather(held)
    blocks = pack(tokens, source.packing, seq_len)
    _check_validation(source, tokens, blocks)
    train = Streamed(source, encoder, seq_len=seq_len, seed=seed, skip=skip, rank=rank, world=world)
    train.peek()  # what is wrong with the data is said now, not in the first step
    return Corpus(train, blocks, _facts([None, tokens], [None, blocks]), list(_left_out([tokens])))


def _facts(tokens: list[Tokens | None], blocks: list[Blocks | None]) -> dict[str, dict[str, Any]]:
    known = {}
    for part, t, b in zip(PARTS, tokens, blocks):
        if t is None:
            known[part] = {"documents": "read while training"}
        else:
            known[part] = vars(t.totals) | {"rows": len(b), "labels": int(b.labels().sum())}
    return known


def _left_out(tokens: list[Tokens]) -> Iterator[str]:
    names = ("blank", "unknown", "tokens")
    blank, unknown, total = (sum(getattr(part.totals, name) for part in tokens) for name in names)
    if blank:
        yield f"data: {blank} blank documents were left out"
    if unknown:
        yield f"tokenizer: {unknown} of {total} tokens of the data are <unk>"


def _odd_rows(blocks: Blocks, batch_size: int) -> Iterator[str]:
    vain = int((blocks.labels() == 0).sum())
    if vain:
        yield f"data: {vain} of {len(blocks)} rows hold nothing to predict; a longer train.seq_len may help"
    if len(blocks) < batch_size:
        yield f"data: {len(blocks)} rows to train on, fewer than a batch of {batch_size}; it holds some twice"


def _check_train(source: Source, tokens: Tokens, blocks: Blocks, seq_len: int) -> None:
    """There must be a whole row of a stream, or something to predict in any row."""
    n = tokens.totals.tokens
    if not tokens.totals.documents:
        raise ConfigError(f"{source.where}: there is no text to train on")
    if source.packing == "stream" and n < seq_len + 1:
        least = f"need at least {seq_len + 1} for train.seq_len={seq_len}"
        raise ConfigError(f"{source.where}: there are {n} tokens to train on, {least}")
    if not blocks.labels().sum():
        raise ConfigError(f"{source.where}: there is nothing to predict in the {n} tokens to train on")


def _check_validation(source: Source, tokens: Tokens, blocks: Blocks) -> None:
    if not blocks.labels().sum():
        raise ConfigError(
            f"{source.where}: there is nothing to predict in the validation part, {tokens.totals.documents} "
            f"documents of {tokens.totals.tokens} tokens; hold out more, or name another"
        )


def _check_ids(source: Source, tokens: list[Tokens], tokenizer: Tokenizer) -> None:
    for part in tokens:
        largest, size = int(np.max(part.ids, initial=0)), tokenizer.vocab_size
        if largest >= size:
            raise ConfigError(f"{source.where}: the token {largest} is not in the vocabulary of {size}")
