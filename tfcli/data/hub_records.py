"""Pairs, labelled texts, tagged sentences and questions out of data sets of the Hugging Face hub."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tfcli.data import Document, Kind, Labelled, Question, Record, Tagged
from tfcli.data.columns import named, text, value
from tfcli.data.files import PartName, Records
from tfcli.data.formats import normal
from tfcli.data.hub import Loaded
from tfcli.data.labelled import LabelSource
from tfcli.data.pairs import PairSource
from tfcli.data.squad import QuestionSource, question
from tfcli.errors import ConfigError

Names = dict[str, list[str] | None]  # of a column's numbers


@dataclass(kw_only=True)
class HubRecords(Records, Loaded):
    """The rows of a split, one record each (see Loaded)."""

    places: ClassVar[frozenset[str]] = frozenset({"name"})

    def __post_init__(self) -> None:
        Records.__post_init__(self)
        Loaded.__post_init__(self)

    @property
    def names_validation(self) -> bool:
        return self.validation_split is not None

    def records(self, part: PartName) -> Iterator[Record]:
        split = self.split if part == "train" else self.validation_split
        names = {column: _names(feature) for column, feature in self.rows(split).features.items()}
        return (self.record(row, where, names) for row, where in self.placed(split))

    def record(self, row: dict[str, Any], where: str, names: Names) -> Record:
        """A row as a record."""
        raise NotImplementedError


@dataclass(kw_only=True)
class HubPairs(PairSource, HubRecords):
    """A row has two columns, or one of several languages: {"translation": {"en": ..., "de": ...}}.

    source_column, target_column: `a.b` is b within a; a name that is no column is one within translation.
    """

    source_column: str = "source"
    target_column: str = "target"

    def columns(self, known: Sequence[str]) -> dict[str, str]:
        keys = ("source_column", "target_column")
        return {f"data.{key}": _within_translation(getattr(self, key), known) for key in keys}

    def record(self, row: dict[str, Any], where: str, names: Names) -> Document:
        columns = self.columns(list(row))
        return self.pair(*(text(row, column, where, key) for key, column in columns.items()))


@dataclass(kw_only=True)
class HubLabelled(LabelSource, HubRecords):
    """A row has a text, or two, and a label: a text, a number, or a number that has a name."""

    text_column: str = "text"
    second_column: str | None = None
    label_column: str = "label"

    def columns(self, known: Sequence[str]) -> dict[str, str]:
        return {key: column for key, column in self.by_key().items() if column is not None}

    def record(self, row: dict[str, Any], where: str, names: Names) -> Labelled:
        return self.labelled(row, where, names.get(self.label_column))


@dataclass(kw_only=True)
class HubConll(HubRecords):
    """A row has a list of words, and a list of their tags: texts, or numbers that have names."""

    gives: ClassVar[frozenset[Kind]] = frozenset({"tags"})
    words_column: str = "tokens"
    tags_column: str = "ner_tags"

    def columns(self, known: Sequence[str]) -> dict[str, str]:
        return {"data.words_column": self.words_column, "data.tags_column": self.tags_column}

    def record(self, row: dict[str, Any], where: str, names: Names) -> Tagged:
        words, tags = (_list(row, column, where, key) for key, column in self.columns(()).items())
        if len(words) != len(tags):
            raise ConfigError(f"{where}: has {len(words)} words and {len(tags)} tags; they must be as many")
        wrong = next((word for word in words if not isinstance(word, str)), None)
        if wrong is not None or None in words:
            raise ConfigError(f"{where}: '{self.words_column}' holds {wrong}, each must be text")
        known = names.get(self.tags_column)
        said = tuple(named(tag, self.tags_column, where, known) for tag in tags)
        return Tagged(tuple(map(normal, words)), said, where)


@dataclass(kw_only=True)
class HubSquad(QuestionSource, HubRecords):
    """A row has a question, its context, and answers {"text": [...], "answer_start": [...]}; or no answer."""

    question_column: str = "question"
    context_column: str = "context"
    answers_column: str = "answers"

    def columns(self, known: Sequence[str]) -> dict[str, str]:
        keys = ("question_column", "context_column", "answers_column")
        found = {f"data.{key}": getattr(self, key) for key in keys}
        return found | ({"id": "id"} if "id" in known else {})

    def record(self, row: dict[str, Any], where: str, names: Names) -> Question:
        asked = text(row, self.question_column, where, "data.question_column")
        context = text(row, self.context_column, where, "data.context_column")
        answers = value(row, self.answers_column, where, "data.answers_column")
        return question(asked, context, _each(answers, where), str(row.get("id", "")), where)


def _names(feature: Any) -> list[str] | None:
    """The names of a column of numbers, or of lists of them; None if they have none."""
    feature = getattr(feature, "feature", feature)  # of a list, that of its items
    return getattr(feature, "names", None)


def _within_translation(column: str, known: Sequence[str]) -> str:
    """Where a column is: by itself, or within `translation`."""
    first = column.partition(".")[0]
    return column if {column, first} & set(known) or "translation" not in known else f"translation.{column}"


def _list(row: dict[str, Any], column: str, where: str, key: str) -> list[Any]:
    found = value(row, column, where, key)
    if not isinstance(found, list):
        raise ConfigError(f"{where}: {key}={column} holds {type(found).__name__}, it must be a list")
    return found


def _each(answers: Any, where: str) -> list[dict[str, Any]]:
    """Answers one by one: they come as a list of objects or as an object of lists."""
    if isinstance(answers, list):
        return answers
    lists = [answers.get(key) for key in ("text", "answer_start")] if isinstance(answers, dict) else [None]
    if None in lists or len(lists[0]) != len(lists[1]):
        raise ConfigError(f"{where}: its answers must be as many 'text' as 'answer_start'")
    return [{"text": said, "answer_start": start} for said, start in zip(*lists)]
