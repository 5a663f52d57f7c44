"""What an encoder says of texts: tokens behind masks, classes, the tags of words, answers to questions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tfcli.data import Example
from tfcli.data.records import Window, encode_question, encode_text, encode_words, ends
from tfcli.errors import ConfigError
from tfcli.examine import plain, read, refuse_long
from tfcli.opening import MASK, without_blank
from tfcli.said import Answered, Candidate, Classified, Embedded, Filled, Named, Span, Tagged
from tfcli.scores import entities
from tfcli.values import Count

NO_LIMIT = 1 << 30  # tokens


@dataclass(frozen=True)
class Settings:
    """How texts are read; the keys of `configs/generate.yaml` that have a say in it."""

    top_n: Count = 5  # candidates for a mask
    batch_size: Count = 16  # texts read at once


# --- masks --------------------------------------------------------------------------------------------------


def fill(
    model: nn.Module, tokenizer: Any, texts: Sequence[str], how: Settings, bos: bool = True, eos: bool = True
) -> Iterator[Filled]:
    """What stands at each [MASK]. bos, eos: around each text, as in training.

    Raises ConfigError, before any is read, for a text without a mask or longer than the model knows.
    """
    if tokenizer.mask_id is None:
        raise ConfigError("this tokenizer has no mask token, so there is nothing that could be filled")
    head, tail = ends(tokenizer, bos, eos)
    rows = [[*head, *masked(tokenizer, text, number), *tail] for number, text in enumerate(texts)]
    examples = [plain(row) for row in rows]
    refuse_long(model, examples)

    def say(text: str, row: list[int], logits: list[Tensor]) -> Filled:
        places = [i for i, token in enumerate(row) if token == tokenizer.mask_id]
        probabilities = logits[0][places].softmax(-1)[:, : tokenizer.vocab_size]  # (masks, V)
        best, ids = probabilities.topk(min(how.top_n, tokenizer.vocab_size), dim=-1)
        slots = [
            [Candidate(shown(tokenizer, i), i, p) for i, p in zip(*slot)]
            for slot in zip(ids.tolist(), best.tolist())
        ]
        firsts = iter(ids[:, 0].tolist())
        whole = [next(firsts) if token == tokenizer.mask_id else token for token in row]
        return Filled(text, slots, tokenizer.decode(whole))

    said = read(model, tokenizer.pad_id, [[example] for example in examples], how.batch_size)
    return (say(text, row, logits) for text, row, logits in zip(texts, rows, said))


def masked(tokenizer: Any, text: str, number: int) -> list[int]:
    """The ids of a text with masks. Raises ConfigError where it has none."""
    names = {MASK, *([tokenizer.special["mask"]] if "mask" in tokenizer.special else [])}
    *before, last = re.split("|".join(map(re.escape, sorted(names))), text)
    if not before:
        raise ConfigError(
            f"text {number + 1} has no {MASK}: write {MASK} for each token that is to be filled"
        )
    ids: list[int] = []
    for part in before:
        ids += [*tokenizer.encode(without_blank(tokenizer, part)), tokenizer.mask_id]
    return ids + tokenizer.encode(last)


def shown(tokenizer: Any, token: int) -> str:
    """A token's text, or its name where it has none."""
    return tokenizer.decode([token]) or tokenizer.decode([token], skip_special=False)


# --- classes and tags ---------------------------------------------------------------------------------------


def classify(
    model: nn.Module,
    tokenizer: Any,
    labels: Sequence[str],
    texts: Sequence[tuple[str, str | None]],
    how: Settings,
    bos: bool = True,
    eos: bool = True,
) -> Iterator[Classified]:
    """The class of each text, or pair of texts. Raises ConfigError for one longer than the model knows."""
    encoded = (encode_text(tokenizer, *pair, NO_LIMIT, bos, eos) for pair in texts)
    examples = [Example(tokens, segments=segments) for tokens, segments in encoded]
    refuse_long(model, examples)
    said = read(model, tokenizer.pad_id, [[example] for example in examples], how.batch_size)
    return (_classified(pair, labels, logits) for pair, (logits,) in zip(texts, said))


def _classified(pair: tuple[str, str | None], labels: Sequence[str], logits: Tensor) -> Classified:
    probabilities, order = logits.softmax(-1).sort(descending=True, stable=True)  # (C,)
    by_label = {labels[i]: p for p, i in zip(probabilities.tolist(), order.tolist())}
    return Classified(*pair, next(iter(by_label)), by_label)


def tag(
    model: nn.Module,
    tokenizer: Any,
    labels: Sequence[str],
    sentences: Sequence[list[str]],
    how: Settings,
    limit: int,
    bos: bool = True,
    eos: bool = True,
) -> Iterator[Tagged]:
    """The tags of each sentence's words, which are read in rows of at most `limit` tokens.

    Raises ConfigError, before any is read, for a sentence without words.
    """
    for i, words in enumerate(sentences):
        if not words:
            raise ConfigError(f"text {i + 1} has no words")
    named_ = [(words, f"text {i + 1}") for i, words in enumerate(sentences)]
    rows = [encode_words(tokenizer, words, limit, where, bos, eos) for words, where in named_]
    examples = [[plain(tokens) for tokens, _ in its] for its in rows]
    for words, its, said in zip(sentences, rows, read(model, tokenizer.pad_id, examples, how.batch_size)):
        scores, tags = [0.0] * len(words), [0] * len(words)
        for (_, owners), logits in zip(its, said):
            best = logits.softmax(-1).max(-1)  # (L,)
            for place in np.flatnonzero(owners >= 0).tolist():
                word = int(owners[place])
                scores[word], tags[word] = best.values[place].item(), best.indices[place].item()
        names = [labels[i] for i in tags]
        yield Tagged(list(words), names, scores, named(words, names, scores))


def named(words: Sequence[str], tags: Sequence[str], scores: Sequence[float]) -> list[Named]:
    """The entities that tags make of words."""
    return [
        Named(kind, " ".join(words[a : b + 1]), a, b, float(np.mean(scores[a : b + 1])))
        for kind, a, b in entities(tags)
    ]


# --- vectors ------------------------------------------------------------------------------------------------


def vectors(
    model: nn.Module, tokenizer: Any, texts: Sequence[str], how: Settings, bos: bool = True, eos: bool = True
) -> Iterator[Embedded]:
    """The vector of each text. Raises ConfigError for one longer than the model knows."""
    head, tail = ends(tokenizer, bos, eos)
    examples = [plain([*head, *tokenizer.encode(text), *tail]) for text in texts]
    refuse_long(model, examples)
    said = read(model, tokenizer.pad_id, [[example] for example in examples], how.batch_size)
    return (Embedded(text, vector.tolist()) for text, (vector,) in zip(texts, said))


# --- answers ------------------------------------------------------------------------------------------------


def answer(
    model: nn.Module,
    tokenizer: Any,
    questions: Sequence[tuple[str, str]],
    how: Settings,
    limit: int,
    bos: bool = True,
    eos: bool = True,
) -> Iterator[Answered]:
    """The best piece of each question's context, which is read in windows of at most `limit` tokens.

    Always a piece, also where the model would rather say that there is no answer: who asks wants the place,
    and tf-eval weighs the two where the data have questions without an answer.

    Raises ConfigError, before any is read, for a context without text and a question that leaves it no room.
    """
    windows = []
    for i, (question, context) in enumerate(questions):
        its = encode_question(tokenizer, question, context, limit, None, f"question {i + 1}", bos, eos)
        if not any(speaking(window, context).any() for window in its):
            raise ConfigError(f"context {i + 1} has no text, and the answer must stand in it")
        windows.append(its)
    examples = [[Example(w.tokens, segments=w.segments) for w in its] for its in windows]
    said = read(model, tokenizer.pad_id, examples, how.batch_size)
    for (question, context), its, scores in zip(questions, windows, said):
        best = best_span(its, context, scores)
        yield Answered(question, context[best.start : best.end], best.start, best.end, best.share)


def speaking(window: Window, context: str) -> np.ndarray:
    """Which tokens stand for text of the context, (L,)."""
    return np.array([bool(context[max(a, 0) : max(b, 0)].strip()) for a, b in window.spans])


def best_span(windows: Sequence[Window], context: str, scores: Sequence[Tensor]) -> Span:
    """The piece with the highest start + end score, and its share in the sum of exp(start + end) over all
    pieces, in all windows. A piece begins and ends at tokens that stand for text of the context, in this
    order; a context without text has the piece (0, 0), of score -inf.

    scores: (2, L) of each window.
    """
    best, found, sums = -torch.inf, (0, 0), []
    for window, (starts, ends_) in zip(windows, scores):
        inside = torch.from_numpy(speaking(window, context))
        allowed = (inside[:, None] & inside).triu()  # (L, L)
        pieces = (starts[:, None] + ends_).double().masked_fill(~allowed, -torch.inf).flatten()
        sums.append(pieces.logsumexp(0))
        first, last = divmod(int(pieces.argmax()), len(starts))
        if pieces.max() > best:
            best = pieces.max().item()
            found = int(window.spans[first, 0]), int(window.spans[last, 1])
    return Span(*found, float(best), float((best - torch.stack(sums).logsumexp(0)).exp()))
