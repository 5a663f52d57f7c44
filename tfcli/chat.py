"""Conversations as a model's chat template writes them, in text and in ids."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfcli import templates
from tfcli.errors import ConfigError, one_line
from tfcli.tokenizer import Tokenizer, valid

Messages = Sequence[dict[str, Any]]
STANDING_IN = range(0xF0000, 0x10FFFE)  # private characters that stand for special tokens in contents
BREAK = "\n"  # before a text that does not begin the conversation


def render(tokenizer: Tokenizer, messages: Messages, add_generation_prompt: bool = True) -> str:
    """The text of a conversation. Raises ConfigError, in one line, where the template refuses it."""
    _check(messages)
    if tokenizer.chat_template is None:
        raise ConfigError("chat template: this tokenizer has none; give the prompt as plain text")
    named = {f"{role}_token": token for role, token in tokenizer.special.items()}
    given = [{key: value for key, value in message.items() if value is not None} for message in messages]
    facts = {"tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
    with _in_one_line():
        return templates.render(tokenizer.chat_template, given, **facts, **named)


def encode(tokenizer: Tokenizer, messages: Messages, add_generation_prompt: bool = True) -> list[int]:
    """The ids of a conversation, all of them: the template says where BOS stands, and nothing is added to it.

    A special token is what the template writes; one that a message spells is text, unless the tokenizer has
    `allow_special`.
    """
    _check(messages)
    back = {} if tokenizer.allow_special else _standing_in(tokenizer, messages)
    hidden = [_replaced(message, back) for message in messages]
    rendered = valid(render(tokenizer, hidden, add_generation_prompt))
    return [i for ids in _parts(tokenizer, rendered, back) for i in ids]


def _check(messages: Messages) -> None:
    if not isinstance(messages, (list, tuple)) or not messages:
        raise ConfigError("messages: must be a list of messages, each with a role and a content")
    for i, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ConfigError(f"message {i}: must have a role, such as user, and a content")


def _standing_in(tokenizer: Tokenizer, messages: Messages) -> dict[str, str]:
    """Special tokens that the messages spell, the longest first, by characters that stand nowhere else."""
    said = [text for message in messages for text in _texts(message)]
    tokens = {tokenizer.pieces_of_vocabulary()[i] for i in tokenizer.special_ids}
    spelled = sorted((t for t in tokens if any(t in text for text in said)), key=len, reverse=True)
    taken = {*"".join(said), *(tokenizer.chat_template or "")}
    free = (chr(code) for code in STANDING_IN if chr(code) not in taken)
    return dict(zip(free, spelled))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _replaced(value: Any, back: dict[str, str]) -> Any:
    """A message whose texts spell no special token."""
    if isinstance(value, str):
        for stand_in, token in back.items():
            value = value.replace(token, stand_in)
    elif isinstance(value, dict):
        return {key: _replaced(one, back) for key, one in value.items()}
    elif isinstance(value, (list, tuple)):
        return [_replaced(one, back) for one in value]
    return value


def _parts(tokenizer: Tokenizer, rendered: str, back: dict[str, str]) -> Iterator[list[int]]:
    """The ids of the special tokens that the template wrote, and of the texts between them.

    A user who writes `a</s>` is seen as `aX`, X standing in for `</s>`: the template gives `<s>user: aX</s>`.
    Read as a whole that is [<s>] [user] [:] [a] [X] [</s>]. `<s>` and the last `</s>` are the template's, and
    are yielded as they are. Between them, `user: aX` holds a stand-in, so its ids are not used: the text is
    put back, `user: a</s>`, and encoded as text, which gives [user] [:] [a] [<] [/] [s] [>].
    """
    found, spans = _read(tokenizer, rendered)
    begin = start = 0
    marks = [n for n, i in enumerate(found) if _is_written(tokenizer, rendered, i, spans[n])]
    for n in [*marks, len(found)]:
        first, last = spans[n] if n < len(found) else (len(rendered), 0)
        text = rendered[start:first]
        if any(stand_in in text for stand_in in back):
            yield _text(tokenizer, _restored(text, back), start == 0)
        else:
            yield found[begin:n]
        yield found[n : n + 1]
        begin, start = n + 1, last


def _read(tokenizer: Tokenizer, rendered: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Ids and spans of a text in which special tokens are such."""
    backend = tokenizer.backend
    usual, backend.encode_special_tokens = backend.encode_special_tokens, False
    try:
        return tokenizer.encode_offsets(rendered)
    finally:
        backend.encode_special_tokens = usual


def _is_written(tokenizer: Tokenizer, rendered: str, i: int, span: tuple[int, int]) -> bool:
    """Whether an id is a special token that stands there, not one for a character that is not known."""
    spelled = rendered[slice(*span)].strip()
    return i in tokenizer.special_ids and tokenizer.id_of(spelled) == i


def _restored(text: str, back: dict[str, str]) -> str:
    for stand_in, token in back.items():
        text = text.replace(stand_in, token)
    return text


def _text(tokenizer: Tokenizer, text: str, begins: bool) -> list[int]:
    """The ids of text as text; one that does not begin the conversation gets no blank for a beginning.

    Llama's tokenizer puts a blank before a beginning: `hi` alone is [_hi], and after `<s>` it is [hi]. A line
    end and `hi` are [_] [LF] [hi]; less the ids of the line end alone, [_] [LF], that leaves [hi]. Tokenizers
    that put a blank before every text ([_hi] both times), or before none, encode it as it is.
    """
    words = tokenizer.backend.pre_tokenizer
    if begins or words is None or b'"first"' not in words.__getstate__():
        return tokenizer.encode(text)
    head, ids = tokenizer.encode(BREAK), tokenizer.encode(BREAK + text)
    return ids[len(head) :] if ids[: len(head)] == head else tokenizer.encode(text)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """What goes wrong within a template, which is anybody's, as the user's error."""
    try:
        yield
    except ConfigError:
        raise
    except MemoryError:
        raise ConfigError("chat template: takes more memory than there is") from None
    except Exception as error:  # whatever its own expressions raise
        line = getattr(error, "lineno", None)
        where = f"chat template, line {line}" if line else "chat template"
        raise ConfigError(f"{where}: {one_line(error)}") from None
