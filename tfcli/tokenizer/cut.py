"""Texts on their way into a tokenizer: long ones in pieces, and none that no encoding can hold."""

import re
from collections.abc import Iterator

CUT = 1 << 16  # characters; longer texts are encoded in pieces, which several cores share
_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


def pieces(text: str, size: int = CUT) -> Iterator[str]:
    """A long text in pieces of at least `size` characters, each but the last ending in a single line end.

    A line end between two other characters is a word of its own in every splitting by white space.
    """
    start = 0
    while len(text) - start > 2 * size and (cut := _LINE_END.search(text, start + size)):
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]


def valid(text: str) -> str:
    """The text with lone surrogates, which no encoding can hold, replaced by U+FFFD."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
