"""Models and a tokenizer whose every answer is known: what decoding is tested with."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tfcli.batch import PAD, Batch

Rule = Callable[[list[int]], list[float]]


class State:
    """What each row has read."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def reorder(self, rows: Tensor) -> None:
        self.rows = [list(self.rows[i]) for i in rows.tolist()]


class Scripted(nn.Module):
    """The contract of a model, by a rule of what a row has read; counts what it is asked."""

    def __init__(self, vocab_size: int, rule: Rule, context: int | None = None) -> None:
        super().__init__()
        self.vocab_size, self.rule, self.context = vocab_size, rule, context
        self.family = "decoder"
        self.weight = nn.Parameter(torch.zeros(1))
        self.prompts = self.tokens = 0  # rows of prompt passes, and tokens read after them

    def forward(self, batch: Batch) -> Tensor:
        there = torch.ones_like(batch.inputs) if batch.positions is None else batch.positions != PAD
        rows = [row[keep.bool()].tolist() for row, keep in zip(batch.inputs, there)]
        return self.scores(rows, batch.inputs.shape[1])

    def begin(self) -> State:
        return State()

    def step(self, ids: Tensor, state: State, present: Tensor | None = None, last: bool = False) -> Tensor:
        if state.rows:
            assert present is None and len(state.rows) == len(ids)
            self.tokens += len(ids)
        else:
            self.prompts += len(ids)
            state.rows = [[] for _ in ids]
        for i, row in enumerate(ids):
            state.rows[i] += row.tolist() if present is None else row[present[i]].tolist()
        return self.scores(state.rows, 1 if last else ids.shape[1])

    def scores(self, rows: list[list[int]], length: int) -> Tensor:
        last = torch.tensor([self.rule(row) for row in rows])  # (B, V)
        assert not self.training
        return last[:, None].expand(-1, length, -1)


class Pieces:
    """A tokenizer of given pieces, the longest first; id 0 is BOS, 1 is EOS."""

    bos_id, eos_id, special_ids = 0, 1, frozenset({0, 1})

    def __init__(self, *pieces: str) -> None:
        self.pieces = ["<bos>", "<eos>", *pieces]
        self.vocab_size = len(self.pieces)
        self.pattern = re.compile("|".join(map(re.escape, sorted(pieces, key=len, reverse=True))))

    def encode(self, text: str) -> list[int]:
        return [self.pieces.index(piece) for piece in self.pattern.findall(text)]

    @property
    def reads(self) -> Pieces:
        """Encodes sources itself."""
        return self

    def id_of(self, token: str) -> int | None:
        return self.pieces.index(token) if token in self.pieces else None

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[i] for i in ids if i > 1)


def says(tokenizer: Pieces, scripts: dict[str, list[str]]) -> Scripted:
    """A model that goes on from each prompt by its script, then EOS for ever."""
    after = {}
    for prompt, script in scripts.items():
        ids = [0, *tokenizer.encode(prompt)]
        for piece in [*script, *["<eos>"] * 50]:
            after[tuple(ids)] = tokenizer.pieces.index(piece)
            ids.append(after[tuple(ids)])
    n = tokenizer.vocab_size
    return Scripted(n, lambda row: [9.0 * (i == after[tuple(row)]) for i in range(n)])


def chaotic(vocab_size: int, context: int | None = None) -> Scripted:
    """A model whose scores depend on everything that was read, and are spread out."""

    def rule(row: list[int]) -> list[float]:
        seed = sum((i + 1) * (token + 7) for i, token in enumerate(row)) * 7919
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(vocab_size, generator=generator) * 2).tolist()

    return Scripted(vocab_size, rule, context)
