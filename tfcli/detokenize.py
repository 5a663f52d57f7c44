"""Text out of ids as they come: no half characters, nothing from a stop string on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

OnText = Callable[[int, str], None]  # hears (number of the completion, next piece of its text)

HALF = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet one
LONGEST = 3  # so many ids at most are the beginning of a character: UTF-8 has four bytes
WINDOW = 16  # ids that are decoded together; more are cut down to those of the last piece


class Detokenizer:
    """The text that ids add to a prompt, in amortised O(1) per id.

    Decoders look back (a first word loses its space, a character may take several ids), so an id's text is
    what it adds to the decoded window of ids before it. A piece that ends in a broken character waits for the
    rest of it; a character that is never finished is left out. shown: special tokens that are text here.
    """

    def __init__(self, tokenizer: Any, prompt: list[int], shown: Collection[int] = ()) -> None:
        self._silent = tokenizer.special_ids - set(shown)
        self._decode = partial(tokenizer.decode, skip_special=False) if shown else tokenizer.decode
        self._window = self._context([i for i in prompt if i not in self._silent])
        self._said = len(self._decode(self._window))  # how much of the window's text is out
        self._piece = 0  # where in the window the last piece began ...
        self._settled = len(self._window)  # ... and ended: what follows is held back
        self.ends: list[int] = []  # for each id, the length of the text with it, held-back ids excepted
        self._n_ids = self._n_characters = 0

    def _context(self, prompt: list[int]) -> list[int]:
        """The last ids of the prompt, enough of them not to begin within a character."""
        size = WINDOW // 2
        while size < len(prompt) and HALF in self._decode(prompt[-size:]):
            size *= 2
        return prompt[-size:]

    def push(self, token: int) -> str:
        """The text that is certain now and was not before."""
        self._n_ids += 1
        if token not in self._silent:
            self._window.append(token)
            text = self._decode(self._window)
            if text.endswith(HALF):
                return self._overdue(text) if self.held > 2 * LONGEST else ""
            return self._settle(text)
        return "" if self.held else self._out("")

    def read(self, ids: list[int]) -> str:
        """What pushing each and closing gives, at once."""
        text = self._decode(self._window + [i for i in ids if i not in self._silent])
        return "".join([*map(self.push, ids), self.close()]) if text.endswith(HALF) else text[self._said :]

    @property
    def held(self) -> int:
        """How many ids wait for the rest of a character."""
        return len(self._window) - self._settled

    def close(self) -> str:
        """What was held back, less a character that was begun and not finished."""
        text = self._decode(self._window)[self._said :]
        return self._out(text.rstrip(HALF) if self.held <= LONGEST else text)

    def _settle(self, text: str) -> str:
        piece, self._said = text[self._said :], len(text)
        if piece:
            self._piece, self._settled = self._settled, len(self._window)
        if len(self._window) > WINDOW and self._piece:
            self._window = self._window[self._piece :]
            self._said = len(self._decode(self._window))
            self._piece, self._settled = 0, len(self._window)
        return self._out(piece)

    def _overdue(self, text: str) -> str:
        """Too many broken bytes for a character: out with all but the last, which may still become one."""
        piece = text[self._said : -1]
        self._window = self._window[-LONGEST - 1 :]
        self._said = len(self._decode(self._window)) - 1
        self._piece, self._settled = 0, len(self._window) - LONGEST
        return self._out(piece)

    def _out(self, piece: str) -> str:
        self._n_characters += len(piece)
        self.ends += [self._n_characters] * (self._n_ids - len(self.ends))
        return piece


class StopStrings:
    """Passes text on up to the stop string that is complete first, which is searched in that text only."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops, self._held = stops, ""
        self.found = False

    def push(self, text: str) -> str:
        """What is certain to stand before any stop string."""
        held = self._held + text
        hits = [(at + len(stop), at) for stop in self._stops if (at := held.find(stop)) >= 0]
        if hits:
            self.found = True
            self._held, out = "", held[: min(hits)[1]]
        else:
            cut = len(held) - self._begun(held)
            self._held, out = held[cut:], held[:cut]
        return out

    def _begun(self, text: str) -> int:
        """How long an end of the text may be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stops), default=1) - 1)
        sizes = range(longest, 0, -1)
        return next((n for n in sizes if any(stop.startswith(text[-n:]) for stop in self._stops)), 0)

    def close(self) -> str:
        """What was held back as the beginning of a stop string that never came."""
        held, self._held = self._held, ""
        return held


class Transcript:
    """The text of one completion, followed token by token only where somebody wants to know."""

    def __init__(
        self,
        tokenizer: Any,
        prompt: list[int],
        stop: tuple[str, ...],
        hear: Callable[[str], None] | None,
        shown: Collection[int] = (),
    ) -> None:
        self._detokenizer, self._stops = Detokenizer(tokenizer, prompt, shown), StopStrings(stop)
        self._hear = hear
        self.followed = bool(stop) or hear is not None
        self.text = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string came."""
        return self._stops.found

    def push(self, token: int) -> bool:
        """Takes the next id; whether that completes a stop string."""
        self._out(self._stops.push(self._detokenizer.push(token)))
        return self._stops.found

    def close(self, ids: list[int]) -> list[int]:
        """Ends the text of these ids; returns those that stand in it whole."""
        if not self.followed:
            self.text = self._detokenizer.read(ids)
            return ids
        if not self._stops.found:
            self._out(self._stops.push(self._detokenizer.close()))
        if not self._stops.found:
            self._out(self._stops.close())
            return ids
        return ids[: bisect_right(self._detokenizer.ends, len(self.text))]

    def _out(self, piece: str) -> None:
        if piece:
            self.text += piece
            if self._hear:
                self._hear(piece)
