"""Prompts in, completions out, of any model that has `begin`, `step`, `context` and `vocab_size`.

A completion depends on its prompt, the settings, the seed and its own number, and never on its company in a
batch: a row that is done leaves, and every row has its own source of chance.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tfcli.detokenize import OnText, Transcript
from tfcli.errors import ConfigError
from tfcli.reader import Cached, Uncached, evaluating, pad_left
from tfcli.sampler import Sampler
from tfcli.values import Count, Index

DEFAULT_LENGTH = 128  # new tokens where nobody said how many


@dataclass(frozen=True)
class Settings:
    """How completions are written; the keys of `configs/generate.yaml`."""

    sampler: Sampler = field(default_factory=Sampler)
    max_new_tokens: Count | None = None  # None: DEFAULT_LENGTH, or what the model's positions leave
    n_samples: Count = 1
    stop: tuple[str, ...] = ()  # a text ends before the first of these
    bos: bool | None = None  # whether texts begin with BOS, as in training; None: where the tokenizer has one
    ignore_eos: bool = False
    seed: Index | None = None  # None: a fresh one
    cache: bool = True  # False: the whole text is read again for every token
    batch_size: Count = 16  # completions that are written at once

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise ConfigError("stop='': must hold at least one character; leave it out not to stop")


@dataclass(frozen=True)
class Completion:
    """What was written after a prompt."""

    prompt: str
    text: str  # only what is new; prompt + text is the whole
    ids: list[int]  # what is new, EOS included; where a stop string cut, those whose text stands before it
    finish_reason: Literal["eos", "stop", "length"]
    seed: int | None  # None: chance had no say


def generate(
    model: nn.Module, tokenizer: Any, prompts: Sequence[str], on_text: OnText | None = None, **settings: Any
) -> list[Completion]:
    """Completions in the order of the prompts, those of one prompt together.

    settings: the fields of `Settings`. on_text(number, piece) hears of each completion's text as it comes.
    """
    return list(completions(model, tokenizer, prompts, Settings(**settings), on_text))


def completions(
    model: nn.Module, tokenizer: Any, prompts: Sequence[str], how: Settings, on_text: OnText | None = None
) -> Iterator[Completion]:
    """The same, each batch as soon as it is done. Raises ConfigError before anything is written."""
    if tokenizer.vocab_size > model.vocab_size:
        sizes = f"{tokenizer.vocab_size} tokens, and the model {model.vocab_size}"
        raise ConfigError(f"the tokenizer has {sizes}: they are no pair")
    seed = fresh_seed() if how.seed is None else how.seed
    starts = [beginning(tokenizer, prompt, i, how.bos) for i, prompt in enumerate(prompts)]
    longest = max(map(len, starts), default=1)
    limit(longest, how.max_new_tokens, model.context)  # what fits the longest fits all
    limits = [limit(len(start), how.max_new_tokens, model.context) for start in starts]
    eos = None if how.ignore_eos else tokenizer.eos_id

    def row(number: int) -> Row:
        which, sample = divmod(number, how.n_samples)
        hear = on_text and partial(on_text, number)
        transcript = Transcript(tokenizer, starts[which], how.stop, hear)
        chance = random.Random(f"{seed} {which} {sample}").random
        return Row(which, starts[which], transcript, limits[which], eos, chance)

    def batches() -> Iterator[Completion]:
        total = len(prompts) * how.n_samples
        for first in range(0, total, how.batch_size):
            rows = [row(number) for number in range(first, min(first + how.batch_size, total))]
            decode(model, rows, how.sampler, tokenizer.vocab_size, how.cache)
            for r in rows:
                told = seed if how.sampler.draws else None
                yield Completion(prompts[r.which], r.transcript.text, r.ids, r.finish, told)

    return batches()


def fresh_seed() -> int:
    """A seed that nobody chose; torch's and Python's own sources of chance are left alone."""
    return secrets.randbits(32)


def beginning(tokenizer: Any, prompt: str, number: int, bos: bool | None = None) -> list[int]:
    """The ids that are read for a prompt: BOS once, if there is one and texts begin with it, and the text's.

    A prompt without ids begins with BOS in any case. Raises ConfigError where there is none.
    """
    ids, first = tokenizer.encode(prompt), tokenizer.bos_id
    if first is not None and ids[:1] != [first] and (bos is not False or not ids):
        ids = [first, *ids]
    if not ids:
        what = "is empty" if not prompt else f"({prompt!r:.40}) gives no token"
        raise ConfigError(f"prompt {number + 1} {what}, and this tokenizer has no BOS token to start from")
    return ids


def limit(n_prompt: int, max_new_tokens: int | None, context: int | None) -> int:
    """How many tokens may follow a prompt. Raises ConfigError where the model's positions do not suffice."""
    if context is None:
        return max_new_tokens or DEFAULT_LENGTH
    left = context - n_prompt
    if left < 1:
        raise ConfigError(f"a prompt of {n_prompt} tokens is too long: this model has {context} positions")
    if max_new_tokens and max_new_tokens > left:
        raise ConfigError(
            f"max_new_tokens={max_new_tokens}: with a prompt of {n_prompt} tokens that is "
            f"{n_prompt + max_new_tokens} positions, and this model has {context}; must be at most {left}"
        )
    return max_new_tokens or min(DEFAULT_LENGTH, left)


@dataclass
class Row:
    """One completion while it is written."""

    which: int  # the number of its prompt
    prompt: list[int]
    transcript: Transcript
    limit: int
    eos: int | None
    chance: Callable[[], float]
    ids: list[int] = field(default_factory=list)
    finish: Literal["eos", "stop", "length"] | None = None

    def push(self, token: int) -> bool:
        """Takes the next token; whether the row goes on."""
        self.ids.append(token)
        if token == self.eos:
            self.finish = "eos"
        elif self.transcript.followed and self.transcript.push(token):
            self.finish = "stop"
        elif len(self.ids) == self.limit:
            self.finish = "length"
        else:
            return True
        self.ids = self.transcript.close(self.ids)
        if self.transcript.stopped:
            self.finish = "stop"
        return False


@torch.inference_mode()
def decode(model: nn.Module, rows: list[Row], sampler: Sampler, vocab_size: int, cache: bool = True) -> None:
    """Writes the rows to their ends, one token of each at a time."""
    reader = Cached(model) if cache else Uncached(model)
    device = next(model.parameters()).device
    with evaluating(model):
        logits = read_prompts(reader, rows, device)[:, :vocab_size]
        seen = seen_in(rows, vocab_size, device) if sampler.penalises else None
        while True:
            chance = chances(rows, device) if sampler.draws else None
            tokens = sampler(logits, chance=chance, seen=seen)  # (B,)
            going = [i for i, (row, token) in enumerate(zip(rows, tokens.tolist())) if row.push(token)]
            if not going:
                return
            if seen is not None:
                seen.scatter_(1, tokens[:, None], True)
            if len(going) < len(rows):
                rows = [rows[i] for i in going]
                kept = torch.tensor(going, device=device)
                reader.keep(kept)
                tokens, seen = tokens[kept], None if seen is None else seen[kept]
            logits = reader.read(tokens[:, None])[:, :vocab_size]


def read_prompts(reader: Cached | Uncached, rows: list[Row], device: torch.device) -> Tensor:
    """(B, V) scores of what follows each row's prompt; a prompt that rows share is read once."""
    prompts = {row.which: row.prompt for row in rows}
    ids, present = pad_left(list(prompts.values()))
    logits = reader.read(ids.to(device), None if present is None else present.to(device))
    if not bool((logits < torch.inf).all()):
        raise ConfigError("the model's scores are NaN or infinite: its weights are broken")
    if len(prompts) < len(rows):
        place = {which: i for i, which in enumerate(prompts)}
        repeats = torch.tensor([place[row.which] for row in rows], device=device)
        reader.keep(repeats)
        logits = logits[repeats]
    return logits


def chances(rows: list[Row], device: torch.device) -> Tensor:
    """(B,): the next number of each row's own source."""
    return torch.tensor([row.chance() for row in rows], dtype=torch.float64, device=device)


def seen_in(rows: list[Row], vocab_size: int, device: torch.device) -> Tensor:
    """(B, V): which tokens stand in each row's prompt."""
    seen = torch.zeros(len(rows), vocab_size, dtype=torch.bool)
    for i, row in enumerate(rows):
        seen[i, row.prompt] = True
    return seen.to(device)
