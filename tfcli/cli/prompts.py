"""What a command is given to read: from the command line, from files and from standard input."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tfcli.errors import ConfigError

Item = dict[str, Any]  # of a given text: its parts by name


class Form(NamedTuple):
    """How one of a kind of text is given."""

    option: str  # that takes it as it stands; with -file, from a file
    parts: tuple[str, ...]  # what an object of JSON lines must hold
    more: tuple[str, ...] = ()  # and may hold
    words: bool = False  # a list of words may stand for it
    messages: bool = False  # its part is no text, but a list of messages

    @property
    def plain(self) -> bool:
        """Whether a line may be the whole."""
        return len(self.parts) == 1 and not self.messages

    def item(self, value: Any) -> Item | None:
        """What a JSON value says; None: it is none of this kind."""
        if isinstance(value, str) and self.plain:
            return {self.parts[0]: valid(value)}
        if self.words and isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            return {"words": [valid(word) for word in value]}
        if not isinstance(value, dict):
            return None
        if self.words and "words" in value:
            return self.item(value["words"])
        if self.messages:
            return conversation(value.get("messages"))
        found = {name: value[name] for name in (*self.parts, *self.more) if value.get(name) is not None}
        fits = all(isinstance(text, str) for text in found.values()) and set(self.parts) <= set(found)
        return {name: valid(text) for name, text in found.items()} if fits else None

    def __str__(self) -> str:
        if self.messages:
            return '{"messages": [{"role": "user", "content": "text"}, ...]}, the last of them the user\'s'
        named = ", ".join(f'"{name}": "text"' for name in self.parts)
        either = [
            f"{{{named}}}",
            *(['"text"'] if self.plain else []),
            *(['["a", "word"]'] if self.words else []),
        ]
        return " or ".join(either)


CHAT = Form("--chat", ("messages",), messages=True)
PROMPT, SOURCE = Form("--prompt", ("prompt",)), Form("--source", ("source",))
MASKED, CLASSED = Form("--text", ("text",)), Form("--text", ("text",), more=("second",))
WORDS, QUESTION = Form("--text", ("text",), words=True), Form("--text", ("question", "context"))
ASKING = "--question and --context"
TURNS = ("user", "assistant")


def conversation(messages: Any) -> Item | None:
    """Messages of which the user's is the last, each with its role and its content; None: they are none."""
    fits = isinstance(messages, list) and messages and all(isinstance(m, dict) for m in messages)
    texts = fits and all(isinstance(m.get(key), str) for m in messages for key in ("role", "content"))
    if not texts or messages[-1]["role"] != "user":
        return None
    return {"messages": [{**m, "content": valid(m["content"])} for m in messages]}


def chats(options: dict[str, Any]) -> list[Item]:
    """The conversation of the command line, then those of a file.

    Raises ConfigError where the last message is not the user's, and for two ways to say what stands first.
    """
    turns = options["--chat"]
    if turns and len(turns) % 2 == 0:
        raise ConfigError(
            f"--chat: {len(turns)} messages, the user's and the assistant's in turn, end with the "
            "assistant's; the last must be the user's"
        )
    messages = [{"role": TURNS[i % 2], "content": valid(text)} for i, text in enumerate(turns)]
    found = gather(CHAT, [{"messages": messages}] if turns else [], options["--chat-file"])
    return [with_system(item, options["--system"]) for item in found]


def with_system(item: Item, system: str | None) -> Item:
    """A conversation that begins with what --system says, if it says something."""
    if system is None:
        return item
    if item["messages"][0]["role"] == "system":
        raise ConfigError("--system: a conversation of --chat-file begins with a system message of its own")
    return {"messages": [{"role": "system", "content": valid(system)}, *item["messages"]]}


def gather(form: Form, items: list[Item], file: str | None) -> list[Item]:
    """Those given as options, then those of a file; without either, those that standard input is fed.

    Raises ConfigError where there is none.
    """
    if file is None and not items and not sys.stdin.isatty():
        file = "-"
    found = items + (read(form, file) if file else [])
    if not found:
        where = {None: "", "-": "standard input is empty: "}.get(file, f"{file} is empty: ")
        name, option = (form.parts[0], form.option) if form is not QUESTION else ("question", ASKING)
        raise ConfigError(f"{where}no {name}; give {option} TEXT or {form.option}-file FILE, or pipe text in")
    return found


def valid(text: str) -> str:
    """The text with what is no character (bytes of another encoding on the command line) as U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read(form: Form, file: str) -> list[Item]:
    """What a file holds ('-': standard input), one a line; an empty line is an empty text."""
    name = "standard input" if file == "-" else file
    text = decoded(file, name, f"{form.option}-file")
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    if lines and (not form.plain or holds_json(form, lines, file)):
        return from_json(form, lines, name)
    return [{form.parts[0]: line} for line in lines]


def decoded(file: str, name: str, option: str) -> str:
    """The text of a file ('-': standard input). Raises ConfigError where it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{option} {file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}: line {line} is not UTF-8 text") from None


def holds_json(form: Form, lines: list[str], file: str) -> bool:
    """Whether these are JSON lines: by the file's name, a first object of this kind, or all of them so."""
    if file.endswith((".jsonl", ".ndjson", ".json")):
        return True
    values = [parsed(line) for line in lines if line.strip()]
    if not values:
        return False
    if isinstance(values[0], dict):
        return form.parts[0] in values[0] or (form.words and "words" in values[0])
    return all(form.item(value) is not None for value in values)


def parsed(line: str) -> Any:
    """The JSON value of a line, None where it is none."""
    try:
        return json.loads(line) if line.lstrip()[:1] in ("{", '"', "[") else None
    except ValueError:
        return None


def from_json(form: Form, lines: list[str], name: str) -> list[Item]:
    """What each line says; blank lines hold nothing."""
    items = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            item = form.item(parsed(line))
            if item is None:
                raise ConfigError(f"{name}: line {number} must be {form}")
            items.append(item)
    return items
