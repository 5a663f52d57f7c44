"""What decoding starts from: a prompt, or a source and a start token, and how many tokens may follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tfcli.batch import PAD
from tfcli.data.records import encode_source
from tfcli.errors import ConfigError

DEFAULT_LENGTH = 128  # new tokens where nobody said how many


class Opening(NamedTuple):
    """What is read before the first token is written."""

    ids: list[
        int
    ]  # the prompt's, BOS included, or an encoder-decoder's start token and what is forced to follow
    limit: int  # how many tokens may follow
    source: list[int] | None = None  # what an encoder-decoder's encoder reads
    prefix: bool = False  # the ids see each other

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
    prompts: Sequence[str],
    max_new_tokens: int | None,
    bos: bool | None,
    prefix: bool,
) -> list[Opening]:
    """What a decoder reads of each prompt."""
    starts = [beginning(tokenizer, prompt, i, bos) for i, prompt in enumerate(prompts)]
    if starts:
        longest = max(map(len, starts))  # what fits it fits all
        limit(f"a prompt of {longest} tokens", longest, max_new_tokens, model.context)
    rooms = [limit("a prompt", len(start), max_new_tokens, model.context) for start in starts]
    return [Opening(start, room, prefix=prefix) for start, room in zip(starts, rooms)]


def of_sources(
    model: nn.Module,
    tokenizer: Any,
    sources: Sequence[str],
    prompts: Sequence[str] | None,
    max_new_tokens: int | None,
    ends: tuple[bool, bool],
    start_id: int | None,
) -> list[Opening]:
    """What an encoder reads of each source, with BOS and EOS as `ends` says, and its decoder first."""
    if start_id is None:
        raise ConfigError(
            "an encoder-decoder begins with a start token; give start_id, as its objective says"
        )
    openings = []
    for i, text in enumerate(sources):
        source = encode_source(tokenizer, text, *ends)
        room = model.source_context
        if room is not None and len(source) > room:
            raise ConfigError(
                f"source {i + 1} has {len(source)} tokens, and this model has {room} positions; shorten it"
            )
        ids = [start_id, *tokenizer.encode(prompts[i])] if prompts else [start_id]
        what = (
            "the start token" if len(ids) == 1 else f"the start token and a prompt of {len(ids) - 1} tokens"
        )
        openings.append(Opening(ids, limit(what, len(ids), max_new_tokens, model.context), source))
    return openings


def beginning(tokenizer: Any, prompt: str, number: int, bos: bool | None = None) -> list[int]:
    """The ids that are read for a prompt: BOS once, if there is one and texts begin with it, and the text's.

    A prompt without ids begins with BOS in any case. Raises ConfigError where there is none.
    """
    ids, first = tokenizer.encode(prompt), tokenizer.bos_id
    if first is not None and ids[:1] != [first] and (bos is not False or not ids):
        ids = [first, *ids]
    if not ids:
        what = "is empty" if not prompt else f"({prompt!r:.40}) gives no token"
        raise ConfigError(f"prompt {number + 1} {what}, and this tokenizer has no BOS token to start from")
    return ids


def limit(what: str, n_read: int, max_new_tokens: int | None, context: int | None) -> int:
    """How many tokens may follow. Raises ConfigError where the model's positions do not suffice."""
    if context is None:
        return max_new_tokens or DEFAULT_LENGTH
    left = context - n_read
    if left < 1:
        raise ConfigError(f"{what} is too long: this model has {context} positions")
    if max_new_tokens and max_new_tokens > left:
        raise ConfigError(
            f"max_new_tokens={max_new_tokens}: with {what} that is "
            f"{n_read + max_new_tokens} positions, and this model has {context}; must be at most {left}"
        )
    return max_new_tokens or min(DEFAULT_LENGTH, left)
