"""Completions and predictions on standard output, as text to read or as JSON lines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tfcli.generate import Completion
    from tfcli.predict import Answered, Classified, Filled, Tagged

BETWEEN = "-" * 20 + "\n"  # stands between completions
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
            print((BETWEEN if number else "") + completion.prompt + completion.text, end="")
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
    """One object a line."""

    piece = None  # an object is shown whole

    def done(self, number: int, completion: Completion) -> None:
        as_json({name: value for name, value in vars(completion).items() if value is not None})


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
