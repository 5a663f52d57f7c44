"""Completions and predictions on standard output, as text to read or as JSON lines."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tfcli.generate import Completion
    from tfcli.said import Answered, Classified, Embedded, Filled, Tagged

BETWEEN = "-" * 20 + "\n"  # stands between completions
SOME = 8  # numbers of a vector that are shown
Said = TypeVar("Said")


class AsText:
    """Prompt and text as one, a line between completions; shown piece by piece where pieces come."""

    def __init__(self, prompts: Sequence[str], each: int) -> None:
        self._prompts, self._each = prompts, each  # completions of each prompt
        self._begun = -1

    def piece(self, number: int, text: str) -> None:
        """The next piece of completion `number`; each is shown from begin to end before the next."""
        if number != self._begun:
            self._begun = number
            text = (BETWEEN if number else "") + self._prompts[number // self._each] + text
        print(text, end="", flush=True)

    def done(self, number: int, completion: Completion) -> None:
        if number != self._begun:
            self._begun = number
            prompt = self._prompts[number // self._each]
            print((BETWEEN if number else "") + prompt + completion.text, end="")
        print(flush=True)


class AsLines:
    """What was written of each source, on lines of its own and nothing else, as translations are wanted."""

    def piece(self, number: int, text: str) -> None:
        print(text, end="", flush=True)
        self._begun = number

    _begun = -1

    def done(self, number: int, completion: Completion) -> None:
        print("" if number == self._begun else completion.text, flush=True)


class AsJson:
    """One object a line. more: what is shown beside each completion of each prompt."""

    piece = None  # an object is shown whole

    def __init__(self, more: Sequence[dict[str, Any]] | None = None, each: int = 1) -> None:
        self._more, self._each = more, each

    def done(self, number: int, completion: Completion) -> None:
        more = self._more[number // self._each] if self._more else {}
        as_json(more | {name: value for name, value in vars(completion).items() if value is not None})


def as_json(fields: dict[str, Any]) -> None:
    """An object on a line."""
    print(json.dumps(fields, ensure_ascii=False), flush=True)


# --- what encoders say: an object, or text ------------------------------------------------------------------


def filled(said: Filled, number: int, json: bool) -> None:
    """The candidates for each mask, the likeliest first."""
    if json:
        slots = [{"candidates": [c._asdict() for c in slot]} for slot in said.slots]
        return as_json({"text": said.text, "slots": slots, "filled": said.filled})
    print((BETWEEN if number else "") + said.filled)
    for i, slot in enumerate(said.slots):
        print(f"[MASK] {i + 1}" if len(said.slots) > 1 else "[MASK]")
        for token, _, probability in slot:
            print(f"  {probability:.4f}  {visible(token)}", flush=True)


def classified(said: Classified, number: int, json: bool) -> None:
    """The class, and the probabilities of all."""
    if json:
        fields = {"text": said.text, "second": said.second, "label": said.label}
        fields |= {"probability": said.probabilities[said.label], "probabilities": said.probabilities}
        return as_json({name: value for name, value in fields.items() if value is not None})
    shares = ", ".join(f"{label} {probability:.4f}" for label, probability in said.probabilities.items())
    print(f"{said.label}  ({shares})", flush=True)


def tagged(said: Tagged, number: int, json: bool) -> None:
    """A word a line with its tag and the tag's probability, and the entities."""
    if json:
        entities = [entity._asdict() for entity in said.entities]
        words = {"words": said.words, "tags": said.tags, "scores": said.scores}
        return as_json(words | {"entities": entities})
    if number:
        print()
    for word, tag, score in zip(said.words, said.tags, said.scores):
        print(f"{word}\t{tag}\t{score:.4f}")
    for kind, text, _, _, score in said.entities:
        print(f"# {kind}: {text} ({score:.4f})")
    sys.stdout.flush()


def answered(said: Answered, number: int, json: bool) -> None:
    """The answer, where it stands, and how probable it is."""
    if json:
        return as_json(said._asdict())
    print(f"{said.answer}  (characters {said.start} to {said.end}, probability {said.score:.4f})", flush=True)


def embedded(said: Embedded, number: int, json: bool) -> None:
    """The vector; as text its length and its first numbers."""
    if json:
        return as_json(said._asdict())
    first = " ".join(f"{x:.4f}" for x in said.vector[:SOME]) + (" ..." if len(said.vector) > SOME else "")
    print(f"{first}  ({len(said.vector)} numbers, length {math.hypot(*said.vector):.4f})", flush=True)


def compared(said: Sequence[Embedded]) -> None:
    """How near texts are to each other, as the cosines of their vectors; of one text, its vector."""
    if len(said) == 1:
        return embedded(said[0], 0, json=False)
    print(" " * 4 + "".join(f"{j + 1:8}" for j in range(len(said))))
    for i, one in enumerate(said):
        cosines = "".join(f"{cosine(one.vector, other.vector):8.4f}" for other in said)
        print(f"{i + 1:4}{cosines}  {visible(one.text)}", flush=True)


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """a b / |a| |b|; of a vector of zeros, 0."""
    sizes = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b)) / sizes if sizes else 0.0


def visible(token: str) -> str:
    """A token as it can be seen on a line: quoted where white space would not be."""
    return token if token == token.strip() and token.isprintable() and token else repr(token)


def show_anything() -> None:
    """Lets standard output take characters that its encoding lacks, as \\u escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def with_bar(said: Iterator[Said], total: int, unit: str = "completion") -> Iterator[Said]:
    """The same, with a progress bar for whoever waits at a terminal and sees nothing else."""
    if total == 1 or sys.stdout.isatty() or not sys.stderr.isatty():
        return said
    from tqdm import tqdm

    return iter(tqdm(said, total=total, unit=unit, dynamic_ncols=True))
