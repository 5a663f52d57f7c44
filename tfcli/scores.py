"""How good answers are that a model gave: texts, classes, entities, spans. Pure functions, no model."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tfcli.bootstrap import interval, of_kinds, of_mean, ratio
from tfcli.errors import ConfigError

BleuTokenizer = Literal["13a", "zh", "char", "intl", "none"]  # of sacrebleu; those that need no download
Words = Literal["words", "characters"]

# --- texts --------------------------------------------------------------------------------------------------


class TextScore(NamedTuple):
    """A score of texts from 0 to 100, how sure it is, and how it was computed."""

    value: float
    ci: list[float]
    signature: str


def bleu(found: Sequence[str], wanted: Sequence[str], tokenizer: BleuTokenizer = "13a") -> TextScore:
    """Corpus BLEU, as sacrebleu computes it  (Papineni et al. 2002; Post 2018, arXiv 1804.08771)"""
    return _of_texts(sacrebleu_metrics().BLEU(tokenize=tokenizer, force=True), found, wanted)


def chrf(found: Sequence[str], wanted: Sequence[str]) -> TextScore:
    """chrF2: F of the n-grams of 1 to 6 characters, recall counted double  (Popovic 2015)"""
    return _of_texts(sacrebleu_metrics().CHRF(), found, wanted)


def _of_texts(metric: Any, found: Sequence[str], wanted: Sequence[str]) -> TextScore:
    whole = metric.corpus_score(list(found), [list(wanted)])
    # as sacrebleu's own resampling does, which needs more memory, and fails where some resamples score 0
    statistics = metric._extract_corpus_statistics(list(found), [list(wanted)])

    def score(sums: np.ndarray) -> np.ndarray:
        return np.array([metric._compute_score_from_stats(row).score for row in sums.tolist()])

    signature = f"{whole.name}|{metric.get_signature()}"
    return TextScore(float(whole.score), interval(statistics, score), signature)


def sacrebleu_metrics() -> Any:
    """What BLEU and chrF are computed by. Raises ConfigError where it is not installed."""
    try:
        import sacrebleu.metrics
    except ImportError:
        raise ConfigError("BLEU and chrF need the package sacrebleu: pip install sacrebleu") from None
    return sacrebleu.metrics


def exact(found: Sequence[str], wanted: Sequence[str]) -> np.ndarray:
    """1 where two texts are the same but for white space around them, (N,)."""
    return np.array([float(f.strip() == w.strip()) for f, w in zip(found, wanted)])


# --- classes ------------------------------------------------------------------------------------------------


def of_classes(found: Sequence[int], wanted: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """Accuracy and macro F1 with their intervals, and precision, recall and F1 of each class.

    Macro F1 is the plain mean over the classes that occur, among what was wanted or found; F1 is 0 where
    nothing is right.
    """
    pairs, counts = np.unique(np.stack((found, wanted), 1), axis=0, return_counts=True)
    f, w = pairs.T  # (U,) each
    one = np.eye(len(names))
    kinds = np.concatenate((one[w] * (f == w)[:, None], one[w], one[f]), axis=1)  # (U, 3C)
    right, there, said = (counts @ kinds).reshape(3, -1)
    per_class = {
        name: rates(right[i], said[i], there[i]) for i, name in enumerate(names) if there[i] or said[i]
    }
    return {
        "accuracy": float(right.sum() / counts.sum()),
        "accuracy_ci": of_kinds(kinds, counts, accuracy),
        "macro_f1": float(macro_f1((counts @ kinds)[None])[0]),
        "macro_f1_ci": of_kinds(kinds, counts, macro_f1),
        "per_class": per_class,
    }


def accuracy(sums: np.ndarray) -> np.ndarray:
    """(R, 3C) as of `macro_f1` -> (R,)"""
    right, there, _ = sums.reshape(len(sums), 3, -1).sum(-1).T
    return right / there


def macro_f1(sums: np.ndarray) -> np.ndarray:
    """(R, 3C) how often a class was right, wanted, found -> (R,)"""
    right, there, said = sums.reshape(len(sums), 3, -1).transpose(1, 0, 2)
    occurs = there + said > 0
    f1 = np.divide(2 * right, there + said, out=np.zeros_like(right), where=occurs)
    return f1.sum(1) / occurs.sum(1)


def rates(right: float, said: float, there: float) -> dict[str, Any]:
    """Precision, recall and F1 of what was found; 0 where there is nothing to divide by."""
    return {
        "precision": float(right / said) if said else 0.0,
        "recall": float(right / there) if there else 0.0,
        "f1": float(2 * right / (said + there)) if said + there else 0.0,
        "n": int(there),
    }


# --- entities -----------------------------------------------------------------------------------------------


class Entity(NamedTuple):
    """The words first to last, and what they are."""

    kind: str
    first: int
    last: int


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence's tags (B-x, I-x, O; also E-x, S-x), read as conlleval and seqeval do.

    B and S begin one; so does a tag that would go on where nothing of its kind went before: no tag is void.
    A tag without such a mark (NOUN) is a kind, and each word that has it an entity.
    """
    found: list[Entity] = []
    before, kind_before = "O", ""
    for i, tag in enumerate(tags):
        mark, kind = tag[:1], tag[1:].removeprefix("-") or "_"
        if tag[1:2] not in ("", "-"):
            mark, kind = "S", tag
        if mark != "O":
            if mark in "BS" or before in "OES" or kind != kind_before:
                found.append(Entity(kind, i, i))
            else:
                found[-1] = found[-1]._replace(last=i)
        before, kind_before = mark, kind
    return found


def of_entities(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Micro precision, recall and F1 of entities with the interval of F1, each kind's, and word accuracy.

    An entity is right if its kind and both its ends are  (Tjong Kim Sang & De Meulder 2003)
    """
    right, said, there = Counter(), Counter(), Counter()
    statistics = []
    for f, w in zip(found, wanted):
        f, w = set(entities(f)), set(entities(w))
        statistics.append((2 * len(f & w), len(f) + len(w)))
        for counter, those in ((right, f & w), (said, f), (there, w)):
            counter.update(entity.kind for entity in those)
    words = [f == w for fs, ws in zip(found, wanted) for f, w in zip(fs, ws)]
    overall = rates(right.total(), said.total(), there.total())
    return {
        "precision": overall["precision"],
        "recall": overall["recall"],
        "f1": overall["f1"],
        "f1_ci": interval(statistics, ratio),
        "entities": overall["n"],
        "word_accuracy": sum(words) / len(words),
        "words": len(words),
        "per_type": {kind: rates(right[kind], said[kind], there[kind]) for kind in sorted(said | there)},
    }


# --- answers ------------------------------------------------------------------------------------------------

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)
# characters that are words by themselves: CJK ideographs, kana
_ALONE = re.compile(r"[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
                    r"\U00020000-\U0003ffff]")  # fmt: skip


def normal(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and doubled blanks  (SQuAD, Rajpurkar et al.
    2016)
    """
    text = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def normal_anywhere(text: str) -> str:
    """The same without the punctuation of any script, each Chinese or Japanese character a word  (MLQA, Lewis
    et al. 2020, arXiv 1910.07475)
    """
    text = "".join(" " if unicodedata.category(c)[0] == "P" else c for c in text)
    return _ALONE.sub(lambda character: f" {character[0]} ", text)


def of_answer(found: str, answers: Sequence[str], by: Words = "words") -> tuple[float, float]:
    """(exact match, F1) of an answer, the best over those that count as right; none: "" is right.

    F1 is that of the bag of words. by: `characters` counts Chinese and Japanese characters as words; else
    words are what stands between blanks, so that Chinese is right as a whole or not at all.
    """
    said = _words(found, by)
    right = [words for answer in answers if (words := _words(answer, by))] or [[]]
    return max(float(said == words) for words in right), max(_f1(said, words) for words in right)


def _words(text: str, by: Words) -> list[str]:
    return normal(text if by == "words" else normal_anywhere(text)).split()


def _f1(said: list[str], words: list[str]) -> float:
    if not said or not words:
        return float(said == words)
    same = (Counter(said) & Counter(words)).total()
    return 2 * same / (len(said) + len(words))


def of_answers(pairs: Iterable[tuple[str, Sequence[str]]], by: Words = "words") -> dict[str, Any]:
    """Exact match and F1 of all questions, as shares, with their intervals."""
    em, f1 = zip(*_each(pairs, by))
    return {
        "exact_match": float(np.mean(em)),
        "exact_match_ci": of_mean(em),
        "f1": float(np.mean(f1)),
        "f1_ci": of_mean(f1),
        "questions": len(em),
    }


def _each(pairs: Iterable[tuple[str, Sequence[str]]], by: Words) -> Iterator[tuple[float, float]]:
    for found, answers in pairs:
        yield of_answer(found, answers, by)
