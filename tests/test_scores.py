"""Scores of answers, against the packages whose definitions they follow and a second implementation each."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from tfcli.bootstrap import interval, of_mean, ratio
from tfcli.errors import ConfigError
from tfcli.scores import (
    Entity,
    bleu,
    chrf,
    entities,
    exact,
    normal,
    of_answer,
    of_answers,
    of_classes,
    of_entities,
)

REFERENCES = ["The cat sat on the mat.", "A dog, which barked!", "Birds sing in the morning", "so it goes on"]
FOUND = ["The cat sat on a mat.", "a dog which barks", "Birds sing in the morning", "it goes"]


def test_bleu_and_chrf_are_sacrebleus_with_its_signature():
    sacrebleu = pytest.importorskip("sacrebleu")
    b, c = bleu(FOUND, REFERENCES), chrf(FOUND, REFERENCES)
    assert b.value == pytest.approx(sacrebleu.corpus_bleu(FOUND, [REFERENCES]).score)
    assert c.value == pytest.approx(sacrebleu.corpus_chrf(FOUND, [REFERENCES]).score)
    assert "tok:13a" in b.signature and "version:" in b.signature and "nc:6" in c.signature
    for score in (b, c):
        assert 0 <= score.ci[0] < score.value < score.ci[1]
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)


def test_chinese_is_cut_into_characters_by_the_tokenizer_zh_only():
    pytest.importorskip("sacrebleu")
    found, wanted = ["我 喜欢 吃苹果和梨。"], ["我喜欢吃苹果和桃。"]
    assert bleu(found, wanted, "zh").value > 50 > bleu(found, wanted, "13a").value
    assert "tok:zh" in bleu(found, wanted, "zh").signature


def test_texts_without_anything_right_score_0_and_their_interval_is_a_point():
    pytest.importorskip("sacrebleu")
    for score in (bleu([""], ["x"]), chrf([""], ["x"]), chrf(["a", "b"], ["x", "y"])):
        assert (score.value, score.ci) == (0, [0, 0])
    alone = chrf(FOUND[:1], REFERENCES[:1])
    assert alone.ci == pytest.approx([alone.value] * 2)


def test_the_interval_of_bleu_is_as_wide_as_that_of_sacrebleus_own_resampling():
    metrics = pytest.importorskip("sacrebleu.metrics")
    draw = random.Random(0)
    wanted = [" ".join(draw.choices("abcdefgh", k=12)) for _ in range(200)]
    found = [" ".join(w if draw.random() < 0.8 else "x" for w in text.split()) for text in wanted]
    theirs = metrics.BLEU(force=True).corpus_score(found, [wanted], n_bootstrap=1000)
    low, high = bleu(found, wanted).ci
    assert (high - low) / 2 == pytest.approx(theirs._ci, rel=0.1)
    assert (high + low) / 2 == pytest.approx(theirs._mean, rel=0.01)


def test_without_sacrebleu_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ConfigError, match="pip install sacrebleu"):
        bleu(FOUND, REFERENCES)


def test_texts_that_differ_in_outer_white_space_only_are_the_same():
    assert exact([" a b\n", "a  b", "A b"], ["a b", "a b", "a b"]).tolist() == [1, 0, 0]


# --- classes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_accuracy_and_macro_f1_are_those_of_sklearn(seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(seed)
    names = [f"class {i}" for i in range(7)]
    wanted, found = draw.integers(0, 5, 40), draw.integers(1, 6, 40)  # class 6 never occurs
    score = of_classes(found, wanted, names)
    assert score["accuracy"] == pytest.approx(sklearn.accuracy_score(wanted, found))
    assert score["macro_f1"] == pytest.approx(sklearn.f1_score(wanted, found, average="macro"))
    p, r, f1, n = sklearn.precision_recall_fscore_support(wanted, found, zero_division=0)
    assert list(score["per_class"]) == names[: len(p)]
    for got, *expected in zip(score["per_class"].values(), p, r, f1, n):
        assert list(got.values()) == pytest.approx(expected)


def test_a_class_that_nobody_wanted_but_was_found_counts_in_the_macro_f1_and_one_that_never_occurs_does_not():
    score = of_classes([0, 0, 1], [0, 0, 0], ["a", "b", "c"])
    assert score["accuracy"] == pytest.approx(2 / 3)
    assert score["macro_f1"] == pytest.approx((0.8 + 0) / 2)
    assert list(score["per_class"]) == ["a", "b"] and score["per_class"]["b"]["n"] == 0


# --- entities -----------------------------------------------------------------------------------------------


def by_pairs(tags: list[str]) -> set[Entity]:
    """Entities a second way: cut between two words unless the second goes on with the first."""
    found, i = set(), 0
    while i < len(tags):
        if tags[i] == "O":
            i += 1
            continue
        kind, end = tags[i][2:], i
        while end + 1 < len(tags) and tags[end + 1] == f"I-{kind}":
            end += 1
        found.add(Entity(kind, i, end))
        i = end + 1
    return found


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-A I-A O B-B", [("A", 0, 1), ("B", 3, 3)]),
        ("O I-A I-A", [("A", 1, 2)]),  # begins without B
        ("B-A I-B", [("A", 0, 0), ("B", 1, 1)]),  # goes on as another kind
        ("B-A B-A", [("A", 0, 0), ("A", 1, 1)]),
        ("I-A I-B I-B B-B", [("A", 0, 0), ("B", 1, 2), ("B", 3, 3)]),
        ("O O", []),
        ("B-x-y I-x-y", [("x-y", 0, 1)]),
        ("S-A B-A I-A E-A I-A", [("A", 0, 0), ("A", 1, 3), ("A", 4, 4)]),
        ("B I", [("_", 0, 1)]),
    ],
)
def test_entities_are_read_as_conlleval_reads_them(tags, expected):
    assert entities(tags.split()) == [Entity(*e) for e in expected]


def random_tags(draw: random.Random, marks: str = "BI") -> list[str]:
    tags = ["O", *(f"{mark}-{kind}" for mark in marks for kind in ("PER", "LOC"))]
    return draw.choices(tags, k=draw.randrange(1, 12))


def test_entities_of_random_tags_are_those_of_a_second_implementation_and_of_seqeval():
    draw = random.Random(0)
    for _ in range(500):
        tags = random_tags(draw)
        found = entities(tags)
        assert set(found) == by_pairs(tags) and len(found) == len(set(found))
    labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for _ in range(2000):
        tags = random_tags(draw, "BIES")
        assert [tuple(e) for e in entities(tags)] == labeling.get_entities(tags)


@pytest.mark.parametrize("seed", range(5))
def test_precision_recall_and_f1_of_entities_are_those_of_seqeval(seed):
    metrics = pytest.importorskip("seqeval.metrics")
    draw = random.Random(seed)
    wanted = [random_tags(draw) for _ in range(30)]
    found = [[tag if draw.random() < 0.6 else draw.choice(["O", "I-PER", "B-LOC"]) for tag in w]
             for w in wanted]  # fmt: skip
    score = of_entities(found, wanted)
    assert score["precision"] == pytest.approx(metrics.precision_score(wanted, found))
    assert score["recall"] == pytest.approx(metrics.recall_score(wanted, found))
    assert score["f1"] == pytest.approx(metrics.f1_score(wanted, found))
    assert score["word_accuracy"] == pytest.approx(metrics.accuracy_score(wanted, found))
    assert score["f1_ci"][0] < score["f1"] < score["f1_ci"][1]
    report = metrics.classification_report(wanted, found, output_dict=True)
    for kind, rates in score["per_type"].items():
        assert rates["f1"] == pytest.approx(report[kind]["f1-score"])
        assert rates["n"] == report[kind]["support"]


def test_without_any_entity_the_f1_is_0_and_nothing_is_divided_by_0():
    score = of_entities([["O"]], [["O"]])
    assert (score["f1"], score["precision"], score["recall"], score["word_accuracy"]) == (0, 0, 0, 1)
    assert score["f1_ci"] == [0, 0] and score["per_type"] == {}


# --- answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "answers", "expected"),
    [
        ("The  Cat!", ["cat"], (1, 1)),
        ("a cat sat", ["the cat", "dog"], (0, 2 / 3)),
        ("cat cat", ["cat"], (0, 2 / 3)),  # words are counted, not looked up
        ("cat cat", ["cat cat dog"], (0, 4 / 5)),
        ("dog", ["cat", "Dog."], (1, 1)),  # the best of several
        ("", ["cat"], (0, 0)),
        ("", [], (1, 1)),  # there is no answer, and none was given
        ("cat", [], (0, 0)),
        ("the", ["cat"], (0, 0)),
        ("U.S.A", ["USA"], (1, 1)),
        ("well-known", ["well known"], (0, 0)),  # "wellknown" is one word
        ("anthem", ["them"], (0, 0)),  # an article is a whole word
    ],
)
def test_an_answer_is_scored_as_squad_scores_it(found, answers, expected):
    assert of_answer(found, answers) == pytest.approx(expected)


def test_an_answer_of_which_nothing_is_left_is_no_answer_as_in_squad():
    assert normal("The!") == "" and of_answer("", ["The!"]) == (1, 1) and of_answer("x", ["a", "x"]) == (1, 1)


def test_chinese_counts_as_a_whole_by_words_and_by_characters_as_in_mlqa():
    assert of_answer("北京市", ["北京"]) == (0, 0)
    assert of_answer("北京市", ["北京"], "characters") == pytest.approx((0, 0.8))
    assert of_answer("《北京》。", ["北京"], "characters") == (1, 1) != of_answer("《北京》。", ["北京"])
    assert of_answer("1998 年", ["1998年"], "characters") == (1, 1)
    assert of_answer("the two dogs", ["two dogs"], "characters") == (1, 1)


def test_the_answers_of_all_questions_count_alike():
    score = of_answers([("cat", ["cat"]), ("a cat sat", ["cat"]), ("", ["x"])])
    assert score["exact_match"] == pytest.approx(1 / 3) and score["f1"] == pytest.approx((1 + 2 / 3) / 3)
    assert score["questions"] == 3 and score["f1_ci"][0] <= score["f1"] <= score["f1_ci"][1]


# --- intervals ----------------------------------------------------------------------------------------------


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_for_many_sentences():
    values = np.random.default_rng(3).random(4000) < 0.3
    low, high = of_mean(values)
    half = 1.96 * np.sqrt(values.mean() * (1 - values.mean()) / 4000)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.002)
    assert of_mean(values) == [low, high]  # the same every time


def test_an_interval_is_that_of_drawing_sentence_by_sentence():
    draw = np.random.default_rng(0)
    statistics = np.stack((draw.random(60), 1 + draw.random(60)), 1)
    chosen = draw.integers(0, 60, (20_000, 60))
    by_hand = np.percentile(ratio(statistics[chosen].sum(1)), [2.5, 97.5])
    assert interval(statistics, ratio) == pytest.approx(by_hand, abs=0.01)


def test_where_all_sentences_are_alike_the_interval_is_a_point():
    assert of_mean([1, 1, 1]) == [1, 1] and of_mean([0.5]) == [0.5, 0.5]


def test_the_intervals_of_classes_hold_their_scores_and_shrink_with_more_sentences():
    draw = np.random.default_rng(0)
    widths = []
    for n in (50, 5000):
        wanted = draw.integers(0, 3, n)
        found = np.where(draw.random(n) < 0.7, wanted, 0)
        score = of_classes(found, wanted, ["a", "b", "c"])
        for name in ("accuracy", "macro_f1"):
            low, high = score[f"{name}_ci"]
            assert low < score[name] < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 5


def test_a_tag_without_a_mark_is_a_kind_of_its_own() -> None:
    found = entities(["PERSON", "PERSON", "O", "B-x", "I-x"])
    assert found == [Entity("PERSON", 0, 0), Entity("PERSON", 1, 1), Entity("x", 3, 4)]
