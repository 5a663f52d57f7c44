"""What an encoder says of texts, as it is told."""

from typing import NamedTuple


class Candidate(NamedTuple):
    """A token that may stand at a mask."""

    token: str
    id: int
    probability: float


class Filled(NamedTuple):
    """A text with masks, for each of them the likeliest tokens, and the text with the first of each."""

    text: str
    slots: list[list[Candidate]]
    filled: str


class Classified(NamedTuple):
    """A text or two, the likeliest class, and the probabilities of all, the likeliest first."""

    text: str
    second: str | None
    label: str
    probabilities: dict[str, float]


class Named(NamedTuple):
    """Words first to last of a sentence, what they are called, and the mean probability of their tags."""

    kind: str
    text: str
    first: int
    last: int
    score: float


class Tagged(NamedTuple):
    """The words of a sentence, the tag of each with its probability, and the entities that the tags make."""

    words: list[str]
    tags: list[str]
    scores: list[float]
    entities: list[Named]


class Span(NamedTuple):
    """The best piece of a context: its characters, start + end score, and share among all pieces."""

    start: int
    end: int
    score: float
    share: float


class Embedded(NamedTuple):
    """A text and what an encoder makes of it."""

    text: str
    vector: list[float]  # (D,)


class Answered(NamedTuple):
    """context[start:end] of a question's context, and how probable it is among all pieces of the context."""

    question: str
    answer: str
    start: int
    end: int
    score: float
