"""Tokenizers and rows for the tests of objectives."""

from __future__ import annotations

from functools import cache

import numpy as np

from tfcli.data import Example
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Bpe, Byte, Char, WordPiece

SENTINELS = tuple(f"<extra_id_{k}>" for k in range(100))
EXTRA = ("<mask>", *SENTINELS)
RECIPES = {
    "char": lambda extra: Char(extra=extra),
    "byte": lambda extra: Byte(extra=extra),
    "bpe": lambda extra: Bpe(vocab_size=620, extra=extra),
    "wordpiece": lambda extra: WordPiece(vocab_size=900, extra=extra),
}
TALE = "the old man walked slowly home and nobody (not even she) said: 'unbelievable' 12.5 times"
WORDS = TALE.split()
TEXTS = [
    "Hello world. How are you today? I'm fine!  Thanks (really).\nNobody walked home...",
    "你好。再见！ The unbelievable old man said nothing, and walked on.",
]


@cache
def tokenizer(kind: str, extra: tuple[str, ...] = EXTRA) -> Tokenizer:
    return RECIPES[kind](extra).train([*TEXTS, *WORDS, sentences(np.random.default_rng(0), 40)])


def sentences(luck: np.random.Generator, n: int) -> str:
    """n sentences of 1 to 8 words."""
    made = (luck.choice(WORDS, luck.integers(1, 9)) for _ in range(n))
    return " ".join(" ".join(words).capitalize() + luck.choice([".", "!", "?", "..."]) for words in made)


def document(tokens: Tokenizer, text: str) -> np.ndarray:
    return np.array([tokens.bos_id, *tokens.encode(text), tokens.eos_id])


def row(tokens: Tokenizer, index: int, length: int | None = None) -> Example:
    """A row of several documents, as a stream has them; length None: of some length."""
    luck = np.random.default_rng([7, index])
    n = luck.integers(1, 400) if length is None else length
    stream: np.ndarray = np.zeros(0, dtype=np.int64)
    while len(stream) < n + 30:
        stream = np.append(stream, document(tokens, sentences(luck, luck.integers(1, 6))))
    start = luck.integers(0, 30)
    return Example(stream[start : start + n], place=(0, 1, index))


def rows(tokens: Tokenizer, n: int, length: int | None = None) -> list[Example]:
    return [row(tokens, i, length) for i in range(n)]
