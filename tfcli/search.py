"""Beam search: of all texts the best that is found by going on with the few best beginnings at every step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tfcli.constraints import Constraints
from tfcli.decode import Finish, begin
from tfcli.errors import ConfigError
from tfcli.opening import Opening, held
from tfcli.reader import Cached, Uncached
from tfcli.sampler import NEVER
from tfcli.values import Range

Alpha = Annotated[float, Range(low=-10, high=10)]
Norm = Literal["length", "gnmt"]
Early = bool | Literal["never"]


@dataclass(frozen=True)
class Ranking:
    """score = log p(text) / norm(n), of n new tokens, the end included.

    length: n^alpha. gnmt: ((5 + n) / 6)^alpha  (Wu et al. 2016, arXiv 1609.08144). No rule has a say in p: it
    is the model's, of forced tokens as well, or, count_forced=False, they are certain. renormalise=True: p is
    among the tokens that the rules leave.

    early: when a sentence is done. "never": when no beam can still come among its best. True: when as many
    texts have ended as there are beams. False: when so many have, and no beam is better as it is now than the
    worst of them. The last two are those of transformers, and may miss a longer text that is better.
    """

    alpha: float = 1.0
    norm: Norm = "length"
    early: Early = "never"
    count_forced: bool = True
    renormalise: bool = False

    def size(self, n: int) -> float:
        """norm(n)"""
        return float(max(n, 1) if self.norm == "length" else (5 + n) / 6) ** self.alpha

    def bound(self, total: float, n: int, limit: int) -> float:
        """What a text of n tokens and log p = total may score at most when it ends, of up to `limit` tokens.

        log p only falls, and norm is monotone: the best is to lose nothing more, and either to end at once or
        to be as long as can be.
        """
        return total / max(self.size(n), self.size(limit))

    def kept(self, width: int, n_best: int) -> int:
        """How many texts of a sentence have a say in when it is done."""
        return n_best if self.early == "never" else width

    def done(self, sentence: Found, best: float, n: int) -> bool:
        """Whether a sentence is, whose best beam has n tokens and log p = best."""
        if self.early is True:
            return sentence.full or best == NEVER
        bound = self.bound(best, n, sentence.limit) if self.early == "never" else best / self.size(n)
        return not bound > sentence.worst


class Hypothesis(NamedTuple):
    """A text that has ended."""

    score: float
    ids: list[int]  # new ones, EOS included
    finish: Finish


@dataclass
class Found:
    """The best texts of one sentence that have ended, the best first; of equals, who came first."""

    which: int
    limit: int
    size: int  # how many there are, at most
    texts: list[Hypothesis] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether there are so many."""
        return len(self.texts) == self.size

    @property
    def worst(self) -> float:
        """What a text must beat to be among them."""
        return self.texts[-1].score if self.full else NEVER

    def add(self, text: Hypothesis) -> None:
        """Keeps it, if it is good enough."""
        place = bisect_right(self.texts, -text.score, key=lambda t: -t.score)
        self.texts.insert(place, text)
        del self.texts[self.size :]


class Steps(NamedTuple):
    """The best ways to go on, for each sentence, the best first."""

    totals: Tensor  # (S, C) log p in float64, -inf where there is none
    rows: Tensor  # (S, C) which row of the batch is gone on from
    tokens: Tensor  # (S, C)


class Search:
    """S sentences of W beams each: S * W rows; before the first step one row a sentence.

    In a step each row offers its C best tokens, and the C best of a sentence are looked at. Where E tokens
    end a text, C = (E + 1) W: at most E W of them end, so W go on. An end counts where it is among the W
    best.
    """

    def __init__(
        self, openings: Sequence[Opening], width: int, n_best: int, ranking: Ranking, rules: Constraints,
        device: torch.device,
    ) -> None:  # fmt: skip
        size = ranking.kept(width, n_best)
        self.found = [Found(i, opening.limit, size) for i, opening in enumerate(openings)]
        self.limits = torch.tensor([opening.limit for opening in openings], device=device)  # (S,)
        self.width, self.ranking, self.rules, self.ruled = width, ranking, rules, bool(rules)
        self.wanted = max(2, len(rules.ends) + 1) * width  # C
        self.ends = torch.tensor(rules.ends, dtype=torch.long, device=device)  # (E,)
        self.totals = torch.zeros(len(openings), 1, dtype=torch.float64, device=device)  # (S, W)
        self.text = held(openings, device)  # (S * W, T), the prompt and what was written
        self.n_prompt, self.n_new = self.text.shape[1], 0

    def step(self, logits: Tensor, vocab_size: int) -> tuple[Tensor, Tensor] | None:
        """(S * W, V) scores of what follows -> the rows that are gone on from and their tokens, (S * W,)
        each, of the sentences that are not done; None: all are.
        """
        steps = self.candidates(logits, vocab_size)
        last = self.limits == self.n_new + 1  # (S,)
        ends = (steps.tokens[..., None] == self.ends).any(-1)  # (S, C)
        self.collect(steps, ends | last[:, None])
        going_on = ends.byte().argsort(dim=1, stable=True)[:, : self.width]
        totals = steps.totals.masked_fill(ends, NEVER).gather(1, going_on)  # (S, W)
        self.n_new += 1
        active = [
            i
            for i, (sentence, best) in enumerate(zip(self.found, totals[:, 0].tolist()))
            if self.n_new < sentence.limit and not self.ranking.done(sentence, best, self.n_new)
        ]
        if not active:
            return None
        if len(active) < len(self.found):
            self.found = [self.found[i] for i in active]
            some = torch.tensor(active, device=totals.device)
            totals, going_on, self.limits = totals[some], going_on[some], self.limits[some]
            steps = Steps(*(tensor[some] for tensor in steps))
        rows, tokens = (t.gather(1, going_on).flatten() for t in (steps.rows, steps.tokens))
        self.totals = totals
        self.text = torch.cat((self.text[rows], tokens[:, None]), dim=1)
        return rows, tokens

    def candidates(self, logits: Tensor, vocab_size: int) -> Steps:
        """The C best ways to go on of each sentence."""
        n_beams = self.totals.shape[1]
        logits = logits.float()
        allowed = logits[:, :vocab_size]
        if self.ruled:
            last = (self.limits == self.n_new + 1).repeat_interleave(n_beams)
            allowed = self.rules(allowed, self.n_new, last, self.text)
        wanted = self.wanted
        top, ids = allowed.topk(min(wanted, vocab_size), dim=1)  # (S * W, k)
        ids, order = ids.sort(dim=1)  # of equals, the lower id comes first
        total = (allowed if self.ranking.renormalise else logits).logsumexp(1, keepdim=True)
        total = total.masked_fill(total == NEVER, 0.0)  # nothing is left
        gains = (top.gather(1, order) - total).clamp(max=0)
        if self.ruled:
            self.end_stuck(top[:, 0] == NEVER)
            if not self.ranking.count_forced:
                certain = self.rules.forces(self.n_new, last)[:, None] & (gains > NEVER)
                gains = gains.masked_fill(certain, 0.0)
        k = ids.shape[1]
        totals = (self.totals.view(-1, 1) + gains).view(len(self.found), -1)  # (S, W * k)
        short = max(0, wanted - totals.shape[1])  # so few ways are there only in a tiny vocabulary
        totals, ids = pad(totals, (0, short), value=NEVER), pad(ids.view(len(self.found), -1), (0, short))
        totals, order = totals.sort(dim=1, descending=True, stable=True)
        totals, order = totals[:, :wanted], order[:, :wanted]
        first = torch.arange(0, len(self.text), n_beams, device=ids.device)[:, None]
        return Steps(totals, first + (order // k).clamp(max=n_beams - 1), ids.gather(1, order))

    def end_stuck(self, nothing: Tensor) -> None:
        """Ends the beams for which the rules left no token, (S * W,)."""
        stuck = nothing.view_as(self.totals) & (self.totals > NEVER)
        for i, beam in stuck.nonzero().tolist():
            row = i * self.totals.shape[1] + beam
            score = self.totals[i, beam].item() / self.ranking.size(self.n_new)
            self.found[i].add(Hypothesis(score, self.text[row, self.n_prompt :].tolist(), "constraints"))

    def collect(self, steps: Steps, ended: Tensor) -> None:
        """Keeps the texts that have ended, if they are good enough."""
        scores = steps.totals[:, : self.width] / self.ranking.size(self.n_new + 1)
        worst = torch.tensor([s.worst for s in self.found], dtype=torch.float64, device=scores.device)
        better = ended[:, : self.width] & (scores > worst[:, None])  # of -inf, none
        for i, rank in better.nonzero().tolist():
            token = steps.tokens[i, rank].item()
            ids = [*self.text[steps.rows[i, rank], self.n_prompt :].tolist(), token]
            finish = "eos" if token in self.rules.ends else "length"
            self.found[i].add(Hypothesis(scores[i, rank].item(), ids, finish))


def search(
    model: nn.Module,
    openings: Sequence[Opening],
    width: int,
    n_best: int,
    ranking: Ranking,
    rules: Constraints,
    vocab_size: int,
    cache: bool = True,
) -> list[list[Hypothesis]]:
    """Of each opening the `n_best` best texts that `width` beams find, the best first.

    A sentence is done as `ranking` says, and leaves the batch then.
    """
    device = next(model.parameters()).device
    reader, logits = begin(model, openings, device, cache)
    state = Search(openings, width, n_best, ranking, rules, device)
    found = state.found
    while (on := state.step(logits, vocab_size)) is not None:
        rows, tokens = on
        keep(reader, rows, n_rows=len(logits))
        logits = reader.read(tokens[:, None])
    if not all(sentence.texts for sentence in found):
        raise ConfigError("the model's scores are NaN: its weights are broken")
    return [sentence.texts[:n_best] for sentence in found]


def keep(reader: Cached | Uncached, rows: Tensor, n_rows: int) -> None:
    """Goes on with those of `n_rows` rows; where they are all of them in order, nothing needs to move."""
    if len(rows) != n_rows or not torch.equal(rows, torch.arange(n_rows, device=rows.device)):
        reader.keep(rows)
