import json
from collections.abc import Callable
from pathlib import Path

import pytest
from data.made import make, parts, refused, shared, write

from tfcli.data import Answer

CONTEXT = "Ada wrote it.\r\nBob read\u2028it."


def squad(folder: Path, *questions: dict, context: str = CONTEXT, name: str = "a.json") -> str:
    """A file with one article."""
    asked = [{"id": f"q{i}", "question": f"Who {i}?"} | question for i, question in enumerate(questions)]
    said = {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": asked}]}]}
    return write(folder / name, json.dumps(said))


def answer(text: str, start: int) -> dict:
    return {"text": text, "answer_start": start}


def many(folder: Path, contexts: int = 20) -> str:
    """Texts with three questions each."""
    said = [
        {"context": f"text {i:02}", "qas": [
            {"id": f"{i}-{j}", "question": "Which?", "answers": [answer(f"{i:02}", 5)]} for j in range(3)]}
        for i in range(contexts)
    ]  # fmt: skip
    return write(
        folder / "many.json", json.dumps({"data": [{"paragraphs": said[:7]}, {"paragraphs": said[7:]}]})
    )


def test_a_question_comes_with_its_text_and_every_answer(tmp_path: Path) -> None:
    path = squad(tmp_path, {"answers": [answer("Ada", 0), answer("Bob", 15), answer("Ada", 0)]})
    (found,) = make("squad", path=path, validation_path=path).documents()
    assert (found.question, found.id, found.where) == ("Who 0?", "q0", path)
    assert found.answers == (Answer("Ada", 0), Answer("Bob", 14))  # the line end is one character now
    assert all(found.context[a.start :].startswith(a.text) for a in found.answers)


def test_in_version_2_a_question_may_have_no_answer(tmp_path: Path) -> None:
    none = {"answers": [], "is_impossible": True, "plausible_answers": [answer("Ada", 0)]}
    path = squad(tmp_path, none, {"answers": [answer("Ada", 0)], "is_impossible": False})
    found = make("squad", path=path, validation_path=path).documents()
    assert [len(record.answers) for record in found] == [0, 1]


def test_an_answer_that_is_not_in_its_text_is_refused_with_its_question(tmp_path: Path) -> None:
    fine = {"answers": [answer("Ada", 0)]}
    for question, match in [
        ({"answers": [answer("Ada", 1)]}, "a.json: question q1: .* 'Ada' .* answer_start=1; it .* at 0"),
        ({"answers": [answer("Eve", 0)]}, "a.json: question q1: its answer 'Eve' is not .* answer_start=0$"),
        ({"answers": [answer("it.", -3)]}, "question q1: .* answer_start=-3; it stands at 10"),
        ({"answers": [answer("", 0)]}, "question q1: its answer '' is not in its context"),
        ({"answers": [{"text": "Ada"}]}, "question q1: an answer's 'answer_start' must be a whole number"),
        ({"answers": []}, "question q1: has no answer, and is not is_impossible"),
        ({"answers": [answer("Ada", 0)], "is_impossible": True}, "question q1: is_impossible, and yet"),
        ({}, "question q1: has no list 'answers'"),
        ({"answers": [], "question": None}, "question q1: has no text 'question'"),
    ]:  # fmt: skip
        refused("squad", match, path=squad(tmp_path, fine, question))


def test_what_is_no_squad_is_refused(tmp_path: Path) -> None:
    for text, match in [
        ("[]", "a.json: has no list 'data'; SQuAD's JSON has data, paragraphs, qas and answers"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "a.json: has no text 'context'"),
        ('{"data": [', "a.json: not JSON"),
    ]:
        refused("squad", match, path=write(tmp_path / "a.json", text))
    refused(
        "squad", "holds 3 records that belong together, of which nothing", path=many(tmp_path, contexts=1)
    )


def test_no_text_is_learned_with_one_question_and_asked_another(tmp_path: Path) -> None:
    path = many(tmp_path)
    train, held = parts(make("squad", path=path), "answer")
    assert (len(train), len(held)) == (54, 6)
    assert not {r.context for r in train} & {r.context for r in held}
    few = parts(make("squad", path=path, max_documents=9), "answer")
    assert [len(part) for part in few] == [6, 3]


def test_questions_are_learned(tmp_path: Path, ready: Callable) -> None:
    corpus = ready(make("squad", path=many(tmp_path)), seq_len=24, kind="answer")
    assert corpus.facts["train"]["documents"] == 54
    example = corpus.validation[0]
    assert example.target.tolist() == [13, 14]  # [bos] Which? [eos] text 09 [eos]


@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_the_real_questions_all_find_their_answers(language: str) -> None:
    train, held = parts(make("squad", path=shared(f"xquad/xquad.{language}.json.gz")), "answer")
    assert len(train) + len(held) == 1_190 and 80 < len(held) < 160
    for record in train + held:
        (found,) = record.answers
        assert record.context[found.start :].startswith(found.text)


def test_one_text_alone_can_be_scored_though_nothing_of_it_can_be_held_out(tmp_path: Path) -> None:
    from tfcli.data.squad import Squad
    from tfcli.evaluate import documents_of

    answers = [{"text": "fir", "answer_start": 2}]
    asked = [{"id": str(i), "question": "?", "answers": answers} for i in range(3)]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a fir", "qas": asked}]}]}))
    assert len(list(documents_of(Squad(path=str(path)), "all", "answer"))) == 3
