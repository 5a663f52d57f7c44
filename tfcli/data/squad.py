"""Questions about a text that holds the answer (SQuAD: Rajpurkar et al. 2016, arXiv 1606.05250)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tfcli.data import Answer, Kind, Question
from tfcli.data.files import Files, Records
from tfcli.data.formats import normal, whole_json
from tfcli.errors import ConfigError


@dataclass(kw_only=True)
class QuestionSource(Records):
    """Questions; those of one context are held out together."""

    gives: ClassVar[frozenset[Kind]] = frozenset({"answer"})

    def together(self, record: Question) -> str:
        return record.context


@dataclass(kw_only=True)
class Squad(QuestionSource, Files):
    """SQuAD's JSON: articles, their paragraphs, and questions with answers; in version 2 also without."""

    example: ClassVar[str] = "train-v1.1.json"

    def records_of(self, file: Path) -> Iterator[Question]:
        for article in _items(whole_json(file), "data", str(file)):
            for paragraph in _items(article, "paragraphs", str(file)):
                context = _text(paragraph, "context", str(file))
                for asked in _items(paragraph, "qas", f"{file}: a paragraph"):
                    yield _question(asked, context, str(file))


def question(asked: str, context: str, answers: Sequence[Any], name: str, where: str) -> Question:
    """A record, whose answers are checked to stand in the context. answers: {text, answer_start} each."""
    place = f"{where}: question {name}"
    found = tuple(dict.fromkeys(_answer(one, context, place) for one in answers))  # many are given twice
    return Question(normal(asked), normal(context), found, name, where)


def _question(node: Any, context: str, where: str) -> Question:
    name = str(node.get("id", "")) if isinstance(node, dict) else ""
    place = f"{where}: question {name}"
    asked, answers = _text(node, "question", place), _items(node, "answers", place)
    without = node.get("is_impossible", False)
    if not isinstance(without, bool):
        raise ConfigError(f"{place}: 'is_impossible' must be true or false")
    if without == bool(answers):
        odd = (
            "is_impossible, and yet it has answers" if without else "has no answer, and is not is_impossible"
        )
        raise ConfigError(f"{place}: {odd}")
    return question(asked, context, answers, name, where)


def _answer(node: Any, context: str, where: str) -> Answer:
    text, start = _text(node, "text", where), node.get("answer_start")
    if isinstance(start, bool) or not isinstance(start, int):
        raise ConfigError(f"{where}: an answer's 'answer_start' must be a whole number")
    if not text or start < 0 or context[start : start + len(text)] != text:
        at = context.find(text) if text else -1
        other = f"; it stands at {at}" if at >= 0 else ""
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise ConfigError(
            f"{where}: its answer {shown!r} is not in its context at answer_start={start}{other}"
        )
    return Answer(normal(text), len(normal(context[:start])))


def _items(node: Any, key: str, where: str) -> list[Any]:
    found = node.get(key) if isinstance(node, dict) else None
    if not isinstance(found, list):
        raise ConfigError(f"{where}: has no list '{key}'; SQuAD's JSON has data, paragraphs, qas and answers")
    return found


def _text(node: Any, key: str, where: str) -> str:
    found = node.get(key) if isinstance(node, dict) else None
    if not isinstance(found, str):
        raise ConfigError(f"{where}: has no text '{key}'")
    return found
