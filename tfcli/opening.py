"""What decoding starts from: a prompt, or a source and a start token, and how many tokens may follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tfcli.batch import PAD
from tfcli.data.records import ends as ends_of
from tfcli.errors import ConfigError
from tfcli.tokenizer import NAMES

DEFAULT_LENGTH = 128  # new tokens where nobody said how many
MASK = "[MASK]"  # stands for the tokenizer's own in every text


class Most(NamedTuple):
    """How long texts may become."""

    new: int | None = None  # tokens that may follow
    whole: int | None = None  # tokens with those that are read first; None twice: DEFAULT_LENGTH new ones


class Opening(NamedTuple):
    """What is read before the first token is written."""

    ids: list[int]  # the prompt's with BOS, or an encoder-decoder's start token and what is forced to follow
    limit: int  # how many tokens may follow
    source: list[int] | None = None  # what an encoder-decoder's encoder reads
    prefix: bool = False  # the ids see each other
    shown: frozenset[int] = frozenset()  # special tokens that are shown in its text all the same

    @property
    def held(self) -> list[int]:
        """What the text holds already; an encoder-decoder's start token is no text."""
        return self.ids if self.source is None else [PAD, *self.ids[1:]]


def held(openings: Sequence[Opening], device: torch.device) -> Tensor:
    """(B, T): what each text holds before the first new token, PAD on the left."""
    longest = max(len(opening.ids) for opening in openings)
    rows = [[PAD] * (longest - len(opening.ids)) + opening.held for opening in openings]
    return torch.tensor(rows, device=device)


def of_prompts(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str | Sequence[int]],
    most: Most,
    bos: bool | None,
    prefix: bool,
) -> list[Opening]:
    """What a decoder reads of each prompt."""
    starts = [beginning(tokenizer, prompt, i, bos) for i, prompt in enumerate(prompts)]
    if starts:
        longest = max(map(len, starts))  # what fits it fits all
        limit(f"a prompt of {longest} tokens", longest, most, model.context)
    rooms = [limit("a prompt", len(start), most, model.context) for start in starts]
    return [Opening(start, room, prefix=prefix) for start, room in zip(starts, rooms)]


def of_sources(
    model: nn.Module,
    tokenizer: Any,
    sources: Sequence[str],
    prompts: Sequence[str] | None,
    most: Most,
    ends: tuple[bool, bool],
    start_id: int | None,
    special: Sequence[str] = (),
) -> list[Opening]:
    """What an encoder reads of each source, with BOS and EOS as `ends` says, and its decoder first.

    Sources are read by `tokenizer.reads`, which may be another than what writes, of the same ids.
    special: the tokens of the objective, which are no text in a source; those that name spans are shown.
    """
    if start_id is None:
        raise ConfigError(
            "an encoder-decoder begins with a start token; give start_id, as its objective says"
        )
    reads = tokenizer.reads
    head, tail = ends_of(reads, *ends)
    names = spelled(reads, special)
    shown = frozenset(names.values()) & frozenset(tokenizer.sentinel_ids if special else ())
    if special:
        refuse_masks(names, sources)
    openings = []
    for i, text in enumerate(sources):
        source = [*head, *with_names(reads, text, names), *tail]
        room = model.source_context
        if room is not None and len(source) > room:
            raise ConfigError(
                f"source {i + 1} has {len(source)} tokens, and this model has {room} positions; shorten it"
            )
        ids = [start_id, *tokenizer.encode(prompts[i])] if prompts else [start_id]
        what = (
            "the start token" if len(ids) == 1 else f"the start token and a prompt of {len(ids) - 1} tokens"
        )
        room = limit(what, len(ids), most, model.context)
        openings.append(Opening(ids, room, source, shown=shown))
    return openings


def spelled(tokenizer: Any, special: Sequence[str]) -> dict[str, int]:
    """The ids of an objective's special tokens by how texts spell them; [MASK] is any mask token."""
    ids = {name: tokenizer.id_of(name) for name in special}
    names = {name: i for name, i in ids.items() if i is not None}
    if set(special) & set(NAMES["mask"]) and tokenizer.mask_id is not None:
        names |= dict.fromkeys((MASK, tokenizer.special["mask"]), tokenizer.mask_id)
    return names


def refuse_masks(names: dict[str, int], sources: Sequence[str]) -> None:
    """Raises ConfigError for a [MASK] that a model of other special tokens would read as text."""
    number = next((i for i, text in enumerate(sources, 1) if MASK in text), None)
    if number is not None and MASK not in names:
        have = f"; write {', '.join([*names][:2])} and so on" if names else ""
        raise ConfigError(f"source {number} has {MASK}, and this model learned no mask token{have}")


def with_names(tokenizer: Any, text: str, names: dict[str, int]) -> list[int]:
    """The ids of a text in which these names stand for special tokens."""
    if not names:
        return tokenizer.encode(text)
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    *pieces, last = re.split(f"({pattern})", text)  # text and name in turn, and text
    ids: list[int] = []
    for before, name in zip(pieces[::2], pieces[1::2]):
        ids += [*tokenizer.encode(without_blank(tokenizer, before)), names[name]]
    return ids + tokenizer.encode(last)


def without_blank(tokenizer: Any, part: str) -> str:
    """What stands before a mask; where words hold the blank before them, that is the masked word's."""
    if not part.endswith(" "):
        return part
    n_ids = len(tokenizer.encode(part[:-1]))
    words = ("a", "t", "s", "c", "the")  # of which every vocabulary of words has one
    joins = any(len(tokenizer.encode(f"{part[:-1]} {word}")) == n_ids + 1 for word in words)
    return part[:-1] if joins else part


def beginning(tokenizer: Any, prompt: str | Sequence[int], number: int, bos: bool | None = None) -> list[int]:
    """The ids that are read for a prompt: BOS once, if there is one and texts begin with it, and the text's.

    A prompt without ids begins with BOS in any case. Raises ConfigError where there is none. A prompt of ids
    is read as it is.
    """
    if not isinstance(prompt, str):
        if not prompt:
            raise ConfigError(f"prompt {number + 1} has no token")
        return list(prompt)
    ids, first = tokenizer.encode(prompt), tokenizer.bos_id
    if first is not None and ids[:1] != [first] and (bos is not False or not ids):
        ids = [first, *ids]
    if not ids:
        what = "is empty" if not prompt else f"({prompt!r:.40}) gives no token"
        raise ConfigError(f"prompt {number + 1} {what}, and this tokenizer has no BOS token to start from")
    return ids


def limit(what: str, n_read: int, most: Most, context: int | None) -> int:
    """How many tokens may follow, of which the last is not read and needs no position.

    Raises ConfigError where the model's positions do not suffice, or nothing may follow.
    """
    new, key = most.new, f"max_new_tokens={most.new}"
    if most.whole is not None:
        new, key = most.whole - n_read, f"max_length={most.whole}"
        if new < 1:
            raise ConfigError(f"{key}: leaves no room after {what}; must be at least {n_read + 1}")
    if context is None:
        return new or DEFAULT_LENGTH
    left = context - n_read + 1
    if left < 1:
        raise ConfigError(f"{what} is too long: this model has {context} positions")
    if new and new > left:
        raise ConfigError(
            f"{key}: with {what} that is {n_read + new - 1} positions, and this model has {context}; must be "
            f"at most {left if most.whole is None else context + 1}"
        )
    return new or min(DEFAULT_LENGTH, left)
