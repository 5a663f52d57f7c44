"""From a source and a tokenizer to a corpus: what a run learns from and what it is evaluated on."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfcli.data import Blocks, Corpus, Feed, Kind, Source
from tfcli.data.buckets import Bucketed
from tfcli.data.cache import tokenise, trained
from tfcli.data.encoding import read
from tfcli.data.feed import Shuffled
from tfcli.data.packing import Written, pack
from tfcli.data.parts import PARTS, held_for_streaming, training_texts
from tfcli.data.streaming import Streamed
from tfcli.data.tokens import Encoder, Totals
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer


def prepare(
    source: Source,
    tokenizer: Tokenizer,
    *,
    seq_len: int,
    seed: int = 0,
    batch_size: int = 1,
    batch_tokens: int | None = None,
    kind: Kind = "text",
    shifted: bool = True,
    labels: Sequence[str] | None = None,
    written: Written | None = None,
    cache_dir: Path | str | None = None,
    rank: int = 0,
    world: int = 1,
) -> Corpus:
    """Encodes both parts of a source as rows to learn from.

    batch_size, over all ranks: how many rows a batch has, or batch_tokens: how many tokens, padding included,
    a batch has room for. kind: what the records are to teach. shifted: whether labels are the next tokens, of
    text. labels: the classes or tags; None: those of the training part. written: how many tokens the target
    has, at most, that an objective makes of a row of n tokens of text, for batch_tokens; None: there is none.
    facts: for each part its documents, tokens, bytes, blank, unknown (see `tokens.Totals`), rows and labels,
    and the share of padding where rows are sorted by length. cache_dir: None is the source's own, or tfcli in
    the user's cache folder. Raises ConfigError if there is too little to learn from or to evaluate on.
    """
    _check_kind(source, kind, batch_tokens)
    how = {"seed": seed, "rank": rank, "world": world}
    if source.streaming:
        return _streamed(source, tokenizer, seq_len, shifted, how)
    how |= {"batch_size": batch_size, "batch_tokens": batch_tokens}
    if kind == "text":
        folder = cache_folder(source, cache_dir) / "tokens"
        return _text(source, tokenizer, seq_len, shifted, written, folder, how)
    return _records(source, tokenizer, kind, seq_len, labels, how)


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


def _text(
    source: Source,
    tokenizer: Tokenizer,
    seq_len: int,
    shifted: bool,
    written: Written | None,
    folder: Path,
    how: dict[str, Any],
) -> Corpus:
    tokens, notices = tokenise(source, tokenizer, folder)
    blocks = [pack(part, source.packing, seq_len, shifted, written) for part in tokens]
    totals = [part.totals for part in tokens]
    _check_train(source, totals[0], blocks[0], seq_len + shifted if source.packing == "stream" else 0)
    _check_validation(source, totals[1], blocks[1])
    _check_ids(source, [part.ids for part in tokens], tokenizer)
    key = f"{tokens[0].check:08x} {source.packing} {seq_len}" + ("" if shifted else " not shifted")
    budget = how.pop("batch_tokens")
    if budget is None:
        train = Shuffled(blocks[0], key=key, **how)
    else:
        key += "" if written is None else " and targets"
        train = Bucketed(blocks[0], key=key, batch_tokens=budget, **how)
    notices += [*tokens[0].notices, *_left_out(totals), *_odd_rows(train, how["batch_size"])]
    if source.eos and tokenizer.eos_id is None and len(tokens[0].starts) > 2:
        notices.append("tokenizer: has no token that ends a document, so none is put there")
    return Corpus(train, blocks[1], _facts(totals, blocks, train), notices)


def _records(
    source: Source,
    tokenizer: Tokenizer,
    kind: Kind,
    seq_len: int,
    labels: Sequence[str] | None,
    how: dict[str, Any],
) -> Corpus:
    rows, totals, names, notices = read(source, tokenizer, kind, seq_len, labels)
    for part, total, name in zip(rows, totals, ("train on", "evaluate on")):
        if total.documents and not len(part):
            raise ConfigError(f"{source.where}: nothing is left to {name}; {'; '.join(notices)}")
    _check_train(source, totals[0], rows[0])
    _check_validation(source, totals[1], rows[1])
    _check_ids(source, [ids for part in rows for ids in part.ids()], tokenizer)
    train = Bucketed(rows[0], key=f"{rows[0].check:08x} {kind} {seq_len}", **how)
    notices += [*_left_out(totals), *_odd_rows(train, how["batch_size"])]
    return Corpus(train, rows[1], _facts(totals, rows, train), notices, names)


def _streamed(
    source: Source, tokenizer: Tokenizer, seq_len: int, shifted: bool, how: dict[str, int]
) -> Corpus:
    encoder = Encoder.of(source, tokenizer)
    held, skip = held_for_streaming(source)
    tokens = encoder.gather(held)
    blocks = pack(tokens, source.packing, seq_len, shifted)
    _check_validation(source, tokens.totals, blocks)
    train = Streamed(source, encoder, seq_len=seq_len, skip=skip, shifted=shifted, **how)
    train.peek()  # what is wrong with the data is said now, not in the first step
    facts = _facts([None, tokens.totals], [None, blocks], train)
    return Corpus(train, blocks, facts, list(_left_out([tokens.totals])))


def _facts(
    totals: list[Totals | None], blocks: list[Blocks | None], train: Feed
) -> dict[str, dict[str, Any]]:
    known = {}
    for part, total, rows in zip(PARTS, totals, blocks):
        if total is None:
            known[part] = {"documents": "read while training"}
        else:
            known[part] = vars(total) | {"rows": len(rows), "labels": int(rows.labels().sum())}
    if isinstance(train, Bucketed):
        known["train"] |= {"padding": train.padding, "padding if unsorted": train.padding_unsorted}
    return known


def _left_out(parts: list[Totals]) -> Iterator[str]:
    blank, unknown, total = (sum(getattr(t, name) for t in parts) for name in ("blank", "unknown", "tokens"))
    if blank:
        yield f"data: {blank} blank documents were left out"
    if unknown:
        yield f"tokenizer: {unknown} of {total} tokens of the data are <unk>"


def _odd_rows(train: Shuffled | Bucketed, batch_size: int) -> Iterator[str]:
    rows = train.blocks
    vain = int((rows.labels() == 0).sum())
    if vain:
        yield f"data: {vain} of {len(rows)} rows hold nothing to predict; a longer train.seq_len may help"
    if len(rows) < batch_size and isinstance(train, Shuffled):
        yield f"data: {len(rows)} rows to train on, fewer than a batch of {batch_size}; it holds some twice"
    elif len(rows) < batch_size and train.batch_tokens is None:
        yield f"data: {len(rows)} rows to train on, fewer than a batch of {batch_size}; each step takes all"


def _check_kind(source: Source, kind: Kind, batch_tokens: int | None) -> None:
    if kind not in source.gives:
        given = ", ".join(sorted(source.gives))
        raise ConfigError(f"{source.where}: its records are for {given}, and the objective needs {kind}")
    if source.streaming and kind != "text":
        raise ConfigError(
            f"data.streaming=true: is for text, and the objective needs {kind}; set it to false"
        )
    if source.streaming and batch_tokens is not None:
        raise ConfigError(
            f"train.batch_tokens={batch_tokens}: data that are read while training cannot be sorted by "
            "length; set it to null, or data.streaming=false"
        )
    if kind not in ("text", "pair") and not (source.bos and source.eos):
        key = "eos" if source.bos else "bos"
        raise ConfigError(f"data.{key}=false: is for text and pairs; records of {kind} always have it")


def _check_train(source: Source, totals: Totals, rows: Blocks, least: int = 0) -> None:
    """There must be `least` tokens, those of a whole row of a stream, and something to predict."""
    n = totals.tokens
    if not totals.documents:
        raise ConfigError(f"{source.where}: there is no text to train on")
    if n < least:
        need = f"need at least {least} for one row; lower train.seq_len"
        raise ConfigError(f"{source.where}: there are {n} tokens to train on, {need}")
    if not rows.labels().sum():
        raise ConfigError(f"{source.where}: there is nothing to predict in the {n} tokens to train on")


def _check_validation(source: Source, totals: Totals, rows: Blocks) -> None:
    if not rows.labels().sum():
        raise ConfigError(
            f"{source.where}: there is nothing to predict in the validation part, {totals.documents} "
            f"documents of {totals.tokens} tokens; hold out more, or name another"
        )


def _check_ids(source: Source, parts: list[np.ndarray], tokenizer: Tokenizer) -> None:
    for ids in parts:
        largest, size = int(np.max(ids, initial=0)), tokenizer.vocab_size
        if largest >= size:
            raise ConfigError(f"{source.where}: the token {largest} is not in the vocabulary of {size}")
