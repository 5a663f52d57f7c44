"""What may be written next, whatever the scores say; the same rules for single tokens and in beam search.

A rule maps scores (B, V) to scores (B, V), logits or log-probabilities alike: what it forbids becomes -inf,
and what it allows keeps its score, forced tokens too. A row for which nothing is left ends there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tfcli.batch import PAD
from tfcli.errors import ConfigError
from tfcli.sampler import NEVER


@dataclass(frozen=True)
class NoRepeat:
    """No n tokens in a row come twice in a text, its prompt included  (Paulus et al. 2017, arXiv 1705.04304).

    Its end is no repetition, though a prompt may hold such a token.
    """

    n: int
    ends: tuple[int, ...] = ()

    def __call__(self, text: Tensor, scores: Tensor) -> Tensor:
        """text (B, T): what each row holds, PAD where nothing is."""
        again = self.again(text, scores.shape[1])
        again[:, list(self.ends)] = False
        return scores.masked_fill(again, NEVER)

    def again(self, text: Tensor, vocab_size: int) -> Tensor:
        """(B, T) -> (B, V): the tokens that came after the row's last n - 1 before."""
        found = torch.zeros(len(text), vocab_size + 1, dtype=torch.bool, device=text.device)
        n, length = self.n, text.shape[1]
        if length >= n:
            following = text[:, n - 1 :]  # (B, T - n + 1), each behind a window of n - 1
            if n > 1:
                windows = text[:, :-1].unfold(1, n - 1, 1)  # (B, T - n + 1, n - 1)
                same = (windows == text[:, None, length - n + 1 :]).all(-1)
                following = following.where(same, PAD)
            found.scatter_(1, following.where(following != PAD, vocab_size), True)
        return found[:, :-1]


def only(scores: Tensor, token: int, rows: Tensor | None = None) -> Tensor:
    """The scores where nothing but that token may follow, in those rows (B,) (None: in all)."""
    forced = torch.full_like(scores, NEVER)
    forced[:, token] = scores[:, token]
    return forced if rows is None else torch.where(rows[:, None], forced, scores)


def without(scores: Tensor, tokens: tuple[int, ...]) -> Tensor:
    """The scores where none of those tokens may follow."""
    forbidden = torch.tensor(tokens, dtype=torch.long, device=scores.device)
    return scores.index_fill(1, forbidden, NEVER)


@dataclass(frozen=True)
class Constraints:
    """The rules that are in force, by token ids. What is forced comes in any case."""

    no_repeat: int | None = None  # this many tokens in a row come once
    least: int = 0  # new tokens before an end may come
    least_whole: int = 0  # and tokens that the text must hold then, its prompt included
    start: int | None = None  # the first new token
    end: int | None = None  # the last one of a text that is as long as it may be
    suppress: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()  # the tokens that end a text, each of them

    def __bool__(self) -> bool:
        return self != Constraints(ends=self.ends)

    @property
    def reads(self) -> bool:
        """Whether what a row holds has a say."""
        return self.no_repeat is not None or self.least_whole > 0

    def __call__(self, scores: Tensor, n_new: int, last: Tensor, text: Tensor | None = None) -> Tensor:
        """(B, V) -> (B, V). n_new: how many tokens were written; last (B,): where the next is the last that
        has room; text (B, T): where `reads`, what each row holds.
        """
        if self.start is not None and n_new == 0:
            return only(scores, self.start)
        free = scores
        if self.no_repeat is not None:
            scores = NoRepeat(self.no_repeat, self.ends)(text, scores)
        if self.suppress:
            scores = without(scores, self.suppress)
        if n_new < self.least:
            scores = without(scores, self.ends)
        elif self.least_whole:
            short = (text != PAD).sum(1) < self.least_whole  # (B,)
            scores = torch.where(short[:, None], without(scores, self.ends), scores)
        if self.end is not None and bool(last.any()):
            scores = torch.where(last[:, None], only(free, self.end), scores)
        return scores

    def forces(self, n_new: int, last: Tensor) -> Tensor:
        """(B,): in which rows nothing but one token may follow, as it is forced."""
        first = self.start is not None and n_new == 0
        return torch.full_like(last, first) if first or self.end is None else last

    def fit(self, limits: list[int], vocab_size: int) -> None:
        """Raises ConfigError where they contradict each other, or the room that texts have (`limits`)."""
        shortest = min(limits, default=self.least + 2)
        if self.least > shortest:
            raise ConfigError(
                f"min_new_tokens={self.least}: there is room for {shortest} tokens (max_new_tokens); must be "
                f"at most that"
            )
        if None not in (self.start, self.end) and self.start != self.end and shortest < 2:
            raise ConfigError("max_new_tokens=1: has no room for both forced_start and forced_end")
        if self.start in self.ends and self.least:
            raise ConfigError(
                f"forced_start: ends every text at once, and min_new_tokens={self.least} forbids it"
            )
        for key, token in (("forced_start", self.start), ("forced_end", self.end)):
            if token in self.suppress:
                raise ConfigError(f"{key}: is token {token}, which suppress forbids")
        if len(set(self.suppress)) >= vocab_size:
            raise ConfigError(f"suppress: names all {vocab_size} tokens and leaves none")


def token_id(tokenizer: Any, said: int | str, key: str) -> int:
    """The id of a token that is named by its id, by its text, or as the vocabulary spells it.

    Raises ConfigError where there is no such token, or the text takes several.
    """
    if isinstance(said, int):
        if said < tokenizer.vocab_size:
            return said
        raise ConfigError(
            f"{key}={said}: the tokenizer has {tokenizer.vocab_size} tokens, and ids must be below that"
        )
    known = tokenizer.id_of(said)
    ids = tokenizer.encode(said) if known is None else [known]
    if len(ids) != 1:
        raise ConfigError(
            f"{key}='{said}': must be one token of this tokenizer, or its id; it is {len(ids)} tokens"
        )
    return ids[0]
