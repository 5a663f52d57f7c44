"""Prompts or sources in, completions out, of any model that has `begin`, `step`, `context` and `vocab_size`.

A completion depends on its prompt or source, the settings, the seed and its own number, and never on its
company in a batch: a row that is done leaves, and every row has its own source of chance.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from tfcli.constraints import Constraints, token_id
from tfcli.decode import Finish, Row, decode
from tfcli.detokenize import OnText, Transcript
from tfcli.errors import ConfigError
from tfcli.opening import Opening, of_prompts, of_sources
from tfcli.reader import evaluating
from tfcli.sampler import Sampler
from tfcli.search import Alpha, Norm, Ranking, search
from tfcli.values import Count, Index


@dataclass(frozen=True)
class Settings:
    """How completions are written; the keys of `configs/generate.yaml`."""

    sampler: Sampler = field(default_factory=Sampler)
    max_new_tokens: Count | None = None  # None: opening.DEFAULT_LENGTH, or what the model's positions leave
    n_samples: Count = 1
    num_beams: Count = 1  # 1: no search, a token at a time by the sampler
    n_best: Count = 1
    length_penalty: Alpha = 1.0
    length_norm: Norm = "length"
    no_repeat_ngram_size: Count | None = None
    min_new_tokens: Index = 0  # before EOS
    forced_start: Index | str | None = None  # a token, by id or by text
    forced_end: Index | str | None = None
    suppress: tuple[Index | str, ...] = ()  # tokens that are never written
    stop: tuple[str, ...] = ()  # a text ends before the first of these
    bos: bool | None = None  # whether texts begin with BOS, as in training; None: where the tokenizer has one
    eos: bool | None = None  # whether sources end with EOS, as in training; None: where the tokenizer has one
    ignore_eos: bool = False
    seed: Index | None = None  # None: a fresh one
    cache: bool = True  # False: the whole text is read again for every token
    batch_size: Count = 16  # completions that are written at once; of beams, prompts

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise ConfigError("stop='': must hold at least one character; leave it out not to stop")
        if self.n_best > self.num_beams:
            raise ConfigError(f"n_best={self.n_best}: must be at most num_beams={self.num_beams}")
        ranked = (self.length_penalty, self.length_norm) != (Settings.length_penalty, Settings.length_norm)
        if self.num_beams == 1 and ranked:
            raise ConfigError("length_penalty, length_norm: rank beams, and num_beams=1; set it to 2 or more")
        if self.num_beams > 1:
            self._refuse_beside_beams()

    def _refuse_beside_beams(self) -> None:
        beams = f"num_beams={self.num_beams}: "
        if self.sampler.draws:
            raise ConfigError(beams + "beams are not drawn; choose sampler=greedy, or num_beams=1")
        if self.sampler.penalises:
            why = "sampler.repetition_penalty would change what beams are ranked by; leave it out, and set "
            raise ConfigError(f"{beams}{why}no_repeat_ngram_size instead")
        if self.n_samples > 1:
            raise ConfigError(beams + f"n_samples={self.n_samples} is for draws; set n_best instead")
        if self.stop:
            raise ConfigError(beams + "stop would end beams that are not comparable; leave it out")

    @property
    def each(self) -> int:
        """How many completions there are of each prompt, at most."""
        return self.n_best if self.num_beams > 1 else self.n_samples


@dataclass(frozen=True)
class Completion:
    """What was written after a prompt, or of a source."""

    source: str | None  # None: of a decoder
    prompt: str | None  # None: of an encoder-decoder that was given none
    text: str  # only what is new; prompt + text is the whole
    ids: list[int]  # what is new, EOS included; where a stop string cut, those whose text stands before it
    finish_reason: Finish
    score: float | None = None  # by which beams are ranked; None: there were none
    seed: int | None = None  # None: chance had no say


def generate(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str] | None = None,
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
    prompts: Sequence[str] | None,
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
        openings = of_prompts(model, tokenizer, prompts, how.max_new_tokens, how.bos, prefix)
    else:
        ends = (how.bos is not False, how.eos is not False)
        most = how.max_new_tokens
        openings = of_sources(model, tokenizer, sources, prompts, most, ends, start_id, special)
    rules = constraints(tokenizer, how)
    rules.fit([opening.limit for opening in openings], tokenizer.vocab_size)
    texts = [{"source": None, "prompt": None} for _ in openings]
    for name, given in (("source", sources), ("prompt", prompts)):
        for text, one in zip(texts, given or ()):
            text[name] = one
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
        return Row(which, opening, transcript, rules.eos, chance)

    for first in range(0, total, how.batch_size):
        rows = [row(number) for number in range(first, min(first + how.batch_size, total))]
        with torch.inference_mode(), evaluating(model):
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
    ranking = Ranking(how.length_penalty, how.length_norm)
    for first in range(0, len(openings), how.batch_size):
        some = openings[first : first + how.batch_size]
        with torch.inference_mode(), evaluating(model):
            found = search(
                model, some, how.num_beams, how.n_best, ranking, rules, tokenizer.vocab_size, how.cache
            )
        for opening, text, hypotheses in zip(some, texts[first:], found):
            for score, ids, finish in hypotheses:
                transcript = Transcript(tokenizer, opening.ids, (), None, opening.shown)
                transcript.close(ids)
                yield Completion(**text, text=transcript.text, ids=ids, finish_reason=finish, score=score)


def fresh_seed() -> int:
    """A seed that nobody chose; torch's and Python's own sources of chance are left alone."""
    return secrets.randbits(32)


def refuse_misfits(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str] | None,
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


def constraints(tokenizer: Any, how: Settings) -> Constraints:
    """The rules that the settings ask for, by the tokenizer's ids."""

    def id_of(key: str) -> int | None:
        said = getattr(how, key)
        return None if said is None else token_id(tokenizer, said, key)

    return Constraints(
        no_repeat=how.no_repeat_ngram_size,
        least=how.min_new_tokens,
        start=id_of("forced_start"),
        end=id_of("forced_end"),
        suppress=tuple(token_id(tokenizer, said, "suppress") for said in how.suppress),
        eos=None if how.ignore_eos else tokenizer.eos_id,
    )
