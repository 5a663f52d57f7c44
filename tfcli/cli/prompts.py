"""Prompts from the command line, from files and from standard input."""

import json
import sys
from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError


def gather(texts: list[str], file: str | None) -> list[str]:
    """The prompts given as text, then those of a file; without either, those that standard input is fed.

    Raises ConfigError where there is none.
    """
    if file is None and not texts and not sys.stdin.isatty():
        file = "-"
    prompts = texts + (read(file) if file else [])
    if not prompts:
        where = {None: "", "-": "standard input is empty: "}.get(file, f"{file} is empty: ")
        raise ConfigError(f"{where}no prompt; give --prompt TEXT or --prompt-file FILE, or pipe text in")
    return [valid(prompt) for prompt in prompts]


def valid(text: str) -> str:
    """The text with what is no character (bytes of another encoding on the command line) as U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read(file: str) -> list[str]:
    """The prompts of a file ('-': standard input), one a line; an empty line is an empty prompt."""
    name = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"--prompt-file {file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}: line {line} is not UTF-8 text") from None
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    return from_json(lines, name) if holds_json(lines, file) else lines


def holds_json(lines: list[str], file: str) -> bool:
    """Whether these are JSON lines: by the file's name, a first line {"prompt": ...}, or strings only."""
    if file.endswith((".jsonl", ".ndjson", ".json")):
        return True
    values = [parsed(line) for line in lines if line.strip()]
    if not values:
        return False
    return "prompt" in values[0] if isinstance(values[0], dict) else all(isinstance(v, str) for v in values)


def parsed(line: str) -> Any:
    """The JSON value of a line, None where it is none."""
    try:
        return json.loads(line) if line.lstrip()[:1] in ("{", '"') else None
    except ValueError:
        return None


def from_json(lines: list[str], name: str) -> list[str]:
    """Of each line, the string or the object's "prompt"; blank lines hold nothing."""
    prompts = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            value = parsed(line)
            prompt = value.get("prompt") if isinstance(value, dict) else value
            if not isinstance(prompt, str):
                raise ConfigError(f'{name}: line {number} must be {{"prompt": "text"}} or "text"')
            prompts.append(prompt)
    return prompts
