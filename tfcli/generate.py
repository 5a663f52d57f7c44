"""Prompts or sources in, completions out, of any model that has `begin`, `step`, `context` and `vocab_size`.

A completion depends on its prompt or source, the settings, the seed and its own number, and never on its
company in a batch: a row that is done leaves, and every row has its own source of chance.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from tfcli.constraints import Constraints
from tfcli.decode import Finish, Row, decode, split
from tfcli.detokenize import OnText, Transcript
from tfcli.errors import ConfigError
from tfcli.opening import Opening, of_prompts, of_sources
from tfcli.reader import evaluating
from tfcli.search import search
from tfcli.writing import Settings, constraints

Prompt = str | Sequence[int]  # a text to go on from, or its ids, which are read as they are


@dataclass(frozen=True)
class Completion:
    """What was written after a prompt, or of a source."""

    source: str | None  # None: of a decoder
    prompt: str | None  # None: it was given as ids, or an encoder-decoder was given none
    text: str  # only what is new; prompt + text is the whole
    ids: list[
        int
    ]  # what is new, its end included; where a stop string cut, those whose text stands before it
    finish_reason: Finish
    score: float | None = None  # by which beams are ranked; None: there were none
    seed: int | None = None  # None: chance had no say


def generate(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[Prompt] | None = None,
    on_text: OnText | None = None,
    *,
    sources: Sequence[str] | None = None,
    start_id: int | None = None,
    prefix: bool = False,
    special: Sequence[str] = (),
    **settings: Any,
) -> list[Completion]:
    """Completions in the order of the prompts or sources, those of one together, the best first.

    on_text(number, piece) hears of each completion's text as it comes. sources, start_id: what an
    encoder-decoder reads, and its decoder's first token, as its objective says; prompts beside them are what
    its texts are to begin with. special: names that are special tokens in sources. prefix: a prompt's tokens
    all see each other. Both as the objective says. settings: the fields of `Settings`.
    """
    how = Settings(**settings)
    facts = {"sources": sources, "start_id": start_id, "prefix": prefix, "special": special}
    return list(completions(model, tokenizer, prompts, how, on_text, **facts))


def completions(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[Prompt] | None,
    how: Settings,
    on_text: OnText | None = None,
    *,
    sources: Sequence[str] | None = None,
    start_id: int | None = None,
    prefix: bool = False,
    special: Sequence[str] = (),
) -> Iterator[Completion]:
    """The same, each batch as soon as it is done. Raises ConfigError before anything is written."""
    refuse_misfits(model, tokenizer, prompts, how, on_text, sources)
    if sources is None:
        openings = of_prompts(model, tokenizer, prompts, how.most, how.bos, prefix)
    else:
        ends = (how.bos is not False, how.eos is not False)
        openings = of_sources(model, tokenizer, sources, prompts, how.most, ends, start_id, special)
    refuse_sizes(len(openings), how, model)
    rules = constraints(tokenizer, how, starts=sources is not None)
    rules.fit([opening.limit for opening in openings], tokenizer.vocab_size)
    texts = [{"source": None, "prompt": None} for _ in openings]
    for name, given in (("source", sources), ("prompt", prompts)):
        for text, one in zip(texts, given or ()):
            text[name] = one if isinstance(one, str) else None
    if how.num_beams > 1:
        return searched(model, tokenizer, openings, texts, how, rules)
    return written(model, tokenizer, openings, texts, how, rules, on_text)


def written(
    model: nn.Module,
    tokenizer: Any,
    openings: list[Opening],
    texts: list[dict],
    how: Settings,
    rules: Constraints,
    on_text: OnText | None,
) -> Iterator[Completion]:
    """Completions a token at a time."""
    seed = fresh_seed() if how.seed is None else how.seed
    told = seed if how.sampler.draws else None
    total = len(openings) * how.n_samples

    def row(number: int) -> Row:
        which, sample = divmod(number, how.n_samples)
        hear = on_text and partial(on_text, number)
        opening = openings[which]
        transcript = Transcript(tokenizer, opening.ids, how.stop, hear, opening.shown)
        chance = random.Random(f"{seed} {which} {sample}").random
        return Row(which, opening, transcript, rules.ends, chance)

    for first in range(0, total, how.batch_size):
        rows = [row(number) for number in range(first, min(first + how.batch_size, total))]
        with torch.inference_mode(), evaluating(model), in_memory(how):
            decode(model, rows, how.sampler, rules, tokenizer.vocab_size, how.cache)
        for r in rows:
            yield Completion(
                **texts[r.which], text=r.transcript.text, ids=r.ids, finish_reason=r.finish, seed=told
            )


def searched(
    model: nn.Module,
    tokenizer: Any,
    openings: list[Opening],
    texts: list[dict],
    how: Settings,
    rules: Constraints,
) -> Iterator[Completion]:
    """Completions by beam search."""
    for first in range(0, len(openings), how.batch_size):
        some = openings[first : first + how.batch_size]
        with torch.inference_mode(), evaluating(model), in_memory(how):
            found = search(
                model, some, how.num_beams, how.n_best, how.ranking, rules, tokenizer.vocab_size, how.cache
            )
        for opening, text, hypotheses in zip(some, texts[first:], found):
            for score, ids, finish in hypotheses:
                transcript = Transcript(tokenizer, opening.ids, (), None, opening.shown)
                transcript.close(split(ids, finish)[0])
                yield Completion(**text, text=transcript.text, ids=ids, finish_reason=finish, score=score)


def fresh_seed() -> int:
    """A seed that nobody chose; torch's and Python's own sources of chance are left alone."""
    return secrets.randbits(32)


def refuse_misfits(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[Prompt] | None,
    how: Settings,
    on_text: OnText | None,
    sources: Sequence[str] | None,
) -> None:
    """Raises ConfigError where model, tokenizer and what is given do not go together."""
    if tokenizer.vocab_size > model.vocab_size:
        sizes = f"{tokenizer.vocab_size} tokens, and the model {model.vocab_size}"
        raise ConfigError(f"the tokenizer has {sizes}: they are no pair")
    if model.family == "encoder":
        raise ConfigError("an encoder writes no text")
    if model.family == "encoder_decoder" and sources is None:
        raise ConfigError("an encoder-decoder writes from sources; give them")
    if model.family == "decoder" and (sources is not None or prompts is None):
        raise ConfigError("a decoder goes on from prompts and reads no sources; give prompts")
    if None not in (sources, prompts) and len(sources) != len(prompts):
        raise ConfigError(f"{len(sources)} sources and {len(prompts)} prompts: must be equally many")
    if on_text is not None and how.num_beams > 1:
        no = "no text is sure before the end, so none can be streamed"
        raise ConfigError(f"num_beams={how.num_beams}: {no}")


def refuse_sizes(n: int, how: Settings, model: nn.Module) -> None:
    """Raises ConfigError where the scores of one step, (rows, V) in float32, are more than all memory."""
    if how.num_beams > model.vocab_size:
        why = f"must be at most {model.vocab_size}, the tokens of which each may be the next"
        raise ConfigError(f"num_beams={how.num_beams}: {why}")
    rows = (
        min(n, how.batch_size) * how.num_beams
        if how.num_beams > 1
        else min(n * how.n_samples, how.batch_size)
    )
    needs, has = 4 * rows * model.vocab_size, memory()
    if has is not None and needs > has:
        sizes = f"the scores of {rows} texts at once take {needs >> 30} GiB, and there are {has >> 30}"
        raise ConfigError(f"{asked(how)}: {sizes}; set less")


def memory() -> int | None:
    """The bytes of this machine, where it tells them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


@contextmanager
def in_memory(how: Settings) -> Iterator[None]:
    """Where memory does not suffice, the user is told so, and for what."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        said = (str(error) or "out of memory").splitlines()[0]
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "alloc" not in said:
            raise
        raise ConfigError(f"{asked(how)}: no memory for so many texts at once ({said})") from None


def asked(how: Settings) -> str:
    """What makes many rows."""
    return f"num_beams={how.num_beams}, batch_size={how.batch_size}"
