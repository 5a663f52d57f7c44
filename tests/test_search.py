"""Beam search against all texts there are, and a search that never stops early."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from model import published
from stubs import Scripted, chaotic
from torch import Tensor, nn

from tfcli.batch import Batch
from tfcli.constraints import Constraints
from tfcli.opening import Opening
from tfcli.reader import evaluating
from tfcli.search import Hypothesis, Ranking, search

EOS, V, MORE = 1, 4, 4  # of the tiny vocabulary, and how many new tokens
ALPHAS = [-1.0, 0.0, 0.6, 1.0, 2.0]
MEAN, ENDS, FREE = Ranking(), Constraints(ends=(EOS,)), Constraints()
RANKINGS = [Ranking(alpha, norm) for alpha in ALPHAS for norm in ("length", "gnmt")]
Scores = Callable[[list[int]], Tensor]  # what was read -> log-probabilities of what follows, (V,)


def norm(ranking: Ranking, n: int) -> float:
    """The formulas of the paper and the brief, written once more."""
    return n**ranking.alpha if ranking.norm == "length" else ((5 + n) / 6) ** ranking.alpha


def every_text(scores: Scores, prompt: list[int], eos: int | None) -> dict[tuple[int, ...], float]:
    """log p of every text that ends with EOS or is MORE tokens long."""
    totals, open_ = {}, {(): 0.0}
    for length in range(1, MORE + 1):
        grown = {}
        for ids, total in open_.items():
            gains = scores([*prompt, *ids]).tolist()
            for token in range(V):
                ended = token == eos or length == MORE
                (totals if ended else grown)[(*ids, token)] = total + gains[token]
        open_ = grown
    return totals


def plain_search(
    scores: Scores, prompt: list[int], width: int, n_best: int, ranking: Ranking, limit: int, eos: int | None
) -> list[tuple[float, list[int]]]:
    """The same search without haste: it never stops before the limit, and keeps all that ended."""
    running, ended = [(0.0, [])], []
    for length in range(1, limit + 1):
        steps = [
            (total + gain, [*ids, token])
            for total, ids in running
            for token, gain in enumerate(scores([*prompt, *ids]).tolist())
        ]
        steps = sorted(steps, key=lambda step: -step[0])[: 2 * width]
        ended += [
            (total / norm(ranking, length), ids)
            for total, ids in steps[:width]
            if ids[-1] == eos or length == limit
        ]
        running = [step for step in steps if step[1][-1] != eos][:width]
    return sorted(ended, key=lambda text: -text[0])[:n_best]


def of_rule(model: Scripted) -> Scores:
    return cache_of(lambda ids: torch.tensor(model.rule(list(ids))).double().log_softmax(-1))


def cache_of(scores: Callable[[tuple[int, ...]], Tensor]) -> Scores:
    kept = cache(scores)
    return lambda ids: kept(tuple(ids))


def found(
    model: nn.Module, openings: list[Opening], width: int, n_best: int, ranking: Ranking = MEAN, *,
    rules: Constraints = ENDS, vocab_size: int = V, cache: bool = True,
) -> list[list[Hypothesis]]:  # fmt: skip
    with torch.inference_mode(), evaluating(model):
        return search(model, openings, width, n_best, ranking, rules, vocab_size, cache)


def same(ours: list[Hypothesis], right: list[tuple[float, list[int]]], tolerance: float = 1e-5) -> None:
    assert [text.ids for text in ours] == [ids for _, ids in right]
    assert [text.score for text in ours] == pytest.approx([score for score, _ in right], abs=tolerance)


# --- all texts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
@pytest.mark.parametrize("eos", [EOS, None])
def test_with_enough_beams_the_best_of_all_texts_are_found(ranking: Ranking, eos: int | None) -> None:
    for seed in range(3):
        model, prompt = chaotic(V), [0] * seed + [2]
        totals = every_text(of_rule(model), prompt, eos)
        assert len(totals) == (256 if eos is None else 121)
        ranked = sorted((-total / norm(ranking, len(ids)), ids) for ids, total in totals.items())
        right = [(-score, list(ids)) for score, ids in ranked[:6]]
        (ours,) = found(
            model,
            [Opening(prompt, MORE)],
            256,
            6,
            ranking,
            rules=Constraints(ends=() if eos is None else (eos,)),
        )
        same(ours, right)


@pytest.mark.parametrize("ranking", RANKINGS, ids=str)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 16, 64])
def test_stopping_early_loses_nothing(ranking: Ranking, width: int) -> None:
    for vocab_size, start in itertools.product((4, 9), (2, 3)):
        model, n_best = chaotic(vocab_size), min(5, width)
        prompt, limit = [start, 0, 2], 9
        right = plain_search(of_rule(model), prompt, width, n_best, ranking, limit, EOS)
        one, best = (
            found(model, [Opening(prompt, limit)], width, n, ranking, vocab_size=vocab_size)[0]
            for n in (1, n_best)
        )
        same(best, right)
        same(one, right[:1])


def test_a_search_stops_as_soon_as_no_beam_can_win() -> None:
    model = Scripted(V, lambda row: [0.0, 2.0, -1.0, -2.0])  # EOS is likely at once
    read = []
    for alpha in (0.0, 1.0):
        model.tokens = 0
        found(model, [Opening([2], 50)], 3, 1, Ranking(alpha))
        read.append(model.tokens)
    assert read[0] == 0  # nothing beats what has ended, as texts only become less likely
    assert 3 < read[1] < 3 * 49  # a long text might, until it is too unlikely for any length


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_text_of_the_best_length_is_never_passed_over(alpha: float) -> None:
    """A short text that is likelier as a whole, and a long one that is likelier by the token."""

    def rule(row: list[int]) -> list[float]:
        if len(row) == 1:
            return [math.log(p) for p in (1e-9, 0.5, 0.49, 0.01)]
        return [
            math.log(p) for p in (1e-9, 1e-9 if len(row) < 9 else 0.98, 0.98 if len(row) < 9 else 1e-9, 0.01)
        ]

    for n_best in (1, 2):
        (texts,) = found(Scripted(V, rule), [Opening([3], 12)], 2, n_best, Ranking(alpha))
        assert len(texts[0].ids) == (9 if alpha > 0.5 else 1), (alpha, texts)


# --- company, caches, kinds of models --------------------------------------------------------------------

MODELS: dict[str, Callable[[], nn.Module]] = {
    "sliding": lambda: published.cases.model_of({"attention": "sliding"}),
    "gqa_learned": lambda: published.cases.model_of({"attention": "gqa", "position": "learned"}),
    "dynamic": lambda: published.cases.model_of({"position": "rope_dynamic"}),
    "t5": lambda: published.t5()[0],
    "marian": lambda: published.marian()[0],
}
RAGGED = [
    [5, 6, 7, 8, 9, 10, 11],
    [4],
    [3, 9],
    [12, 4, 4, 4, 18],
    [20, 21, 22, 3, 3, 3, 3, 8, 9],
    [6, 7],
    [8],
]


def openings(model: nn.Module, limit: int = 10) -> list[Opening]:
    """Seven ragged prompts or sources."""
    if model.family == "decoder":
        return [Opening(ids, limit) for ids in RAGGED]
    return [Opening([0], limit, source=ids) for ids in RAGGED]


def midway(model: nn.Module, opening: Opening, rules: Constraints = FREE) -> int:
    """A token that beams come by before the limit: as EOS it ends some of them, some early and some late."""
    (texts,) = found(model, [opening], 4, 1, rules=rules, vocab_size=published.V)
    return texts[0].ids[3]


def alike(some: list[list[Hypothesis]], others: list[list[Hypothesis]]) -> bool:
    """Whether the texts of sentences are the same, but for the rounding of scores."""
    said, right = ([[text[1:] for text in its] for its in texts] for texts in (some, others))
    scores, wanted = ([text.score for its in texts for text in its] for texts in (some, others))
    return said == right and scores == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_found_depends_on_no_batch_no_order_and_no_cache(name: str) -> None:
    model = MODELS[name]()
    given = [one._replace(limit=4 + i % 4) for i, one in enumerate(openings(model))]
    rules = Constraints(ends=(3,), no_repeat=2)

    def texts(some: list[Opening], cache: bool = True) -> list[list[Hypothesis]]:
        return found(model, some, 4, 3, rules=rules, vocab_size=published.V, cache=cache)

    together, order = texts(given), [3, 6, 0, 5, 1, 4, 2]
    assert len({str(its) for its in together}) == 7 and all(len(its) == 3 for its in together)
    assert len({len(its[0].ids) for its in together}) > 1  # they end at different steps
    shuffled = texts([given[i] for i in order])
    assert alike(together, [text for one in given for text in texts([one])])
    assert alike(together, [text for i in range(0, 7, 2) for text in texts(given[i : i + 2])])
    assert alike(together, [shuffled[order.index(i)] for i in range(7)])
    assert alike(together, texts(given, cache=False))


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name != "dynamic"]
)  # whose longer texts say other
@pytest.mark.parametrize(
    "rules", [Constraints(ends=(EOS,)), Constraints(ends=(EOS,), start=7, end=9, no_repeat=2)]
)
def test_a_score_is_what_one_pass_over_the_text_gives(name: str, rules: Constraints) -> None:
    model, ranking = MODELS[name](), Ranking(0.6, "gnmt")
    given = openings(model)
    for opening, texts in zip(given, found(model, given, 3, 3, ranking, rules=rules, vocab_size=published.V)):
        for text in texts:
            read = torch.tensor([[*opening.ids, *text.ids[:-1]]])
            source = None if opening.source is None else torch.tensor([opening.source])
            with torch.no_grad():
                logp = model(Batch(read, source=source))[0].double().log_softmax(-1)
            steps = logp[len(opening.ids) - 1 :]
            total = sum(steps[i, token].item() for i, token in enumerate(text.ids))
            assert text.score == pytest.approx(total / norm(ranking, len(text.ids)), abs=1e-4)


def test_each_sentence_has_a_limit_of_its_own() -> None:
    model = chaotic(9)
    given = [Opening([2, 3], 3), Opening([4], 7), Opening([5], 1)]
    texts = found(model, given, 3, 2, rules=Constraints(), vocab_size=9)
    assert [[len(text.ids) for text in its] for its in texts] == [[3, 3], [7, 7], [1, 1]]
    assert all(text.finish == "length" for its in texts for text in its)
    assert texts == [found(model, [one], 3, 2, rules=Constraints(), vocab_size=9)[0] for one in given]


def test_a_sentence_that_is_done_costs_nothing_more() -> None:
    model = Scripted(V, lambda row: [0.0, 9.0 if row[0] == 2 else -9.0, 1.0, 0.5])
    found(model, [Opening([2], 6), Opening([3], 6)], 2, 1, Ranking(0.0))
    assert model.tokens == 5 * 2  # the first was done at once, the second went on alone


def test_equals_are_told_apart_by_who_came_first_and_by_their_ids() -> None:
    flat = Scripted(6, lambda row: [0.0] * 6)
    texts = [found(flat, [Opening([2], 2)] * n, 3, 3, rules=Constraints(), vocab_size=6) for n in (1, 4)]
    assert texts[1] == texts[0] * 4
    assert [text.ids for text in texts[0][0]] == sorted(text.ids for text in texts[0][0])


def test_a_tiny_vocabulary_has_fewer_texts_than_beams() -> None:
    (texts,) = found(chaotic(2), [Opening([0], 3)], 8, 8, vocab_size=2)
    assert sorted(tuple(text.ids) for text in texts) == [(0, 0, 0), (0, 0, 1), (0, 1), (1,)]


def test_a_prefix_sees_itself_whole() -> None:
    model = published.cases.model_of({})
    prompts = [[5, 6, 7, 8], [9, 3]]
    given = [Opening(ids, 6, prefix=True) for ids in prompts]
    cached, whole = (found(model, given, 3, 2, vocab_size=published.V, cache=c) for c in (True, False))
    assert alike(cached, whole)
    causal = found(model, [Opening(ids, 6) for ids in prompts], 3, 2, vocab_size=published.V)
    assert not alike(causal, cached)


def test_an_encoder_reads_its_sources_once() -> None:
    model, calls = published.marian()[0], []
    encode = model.encode
    model.encode = lambda *args: calls.append(args[0].shape) or encode(*args)
    found(model, openings(model), 4, 2, vocab_size=published.V)
    assert calls == [(7, 9)]
