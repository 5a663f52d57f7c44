"""Tokenizers as GGUF's metadata holds them, read and written.

Byte-level BPE (`tokenizer.ggml.model` gpt2) comes with its merges and the name of the way in which words are
cut; SentencePiece's BPE (llama) with scores, from which its merges follow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.ends import put
from tfcli.tokenizer.sentencepiece import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Model,
    Piece,
)
from tfcli.tokenizer.spm import SPACE
from tfcli.tokenizer.spm import backend as of_pieces

ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator", "cls": "cls",
         "mask": "mask"}  # fmt: skip
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PLAIN = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]  # one after the other
DIGIT = r"\p{N}"
CUTS = {  # how words are cut, one expression after the other, by the names that files have for it
    "gpt-2": [GPT2], "phi-2": [GPT2], "smollm": [DIGIT, GPT2], "starcoder": [DIGIT, GPT2],
    "refact": [DIGIT, GPT2], "llama-bpe": [LLAMA3], "llama3": [LLAMA3], "llama-v3": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")], "default": PLAIN,
}  # fmt: skip
WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3")  # a word that is a token is one, whatever the merges say
COMPOSED = ("qwen2",)  # texts are composed (NFC) first
TEXTS = ("", "The cat sat on the mat.", "def f(x):\n    return x + 12345", " two  blanks ", "naïve 日本語 😀",
         "A's\t\n\nb", "I'LL pay $1,234.50 for 3½ pies!!", "x" * 40)  # fmt: skip
PREFIX = "tokenizer.ggml."

Said = Mapping[str, Any]  # metadata by key


def read(said: Said, file: Path) -> Tokenizer:
    """The tokenizer of a file's metadata. Raises ConfigError, by key and value, for one that is not known."""
    kind = said.get(PREFIX + "model")
    if kind not in ("gpt2", "llama"):
        raise ConfigError(f"{file}: {PREFIX}model={kind}: must be gpt2 or llama")
    tokens, kinds = vocabulary(said, file)
    made = byte_level(said, tokens, file) if kind == "gpt2" else by_scores(said, tokens, kinds, file)
    add_special(made, tokens, kinds)
    special = {role: token(said, name, tokens, file) for role, name in ROLES.items()}
    special = {role: text for role, text in special.items() if text is not None}
    begins = said.get(PREFIX + "add_bos_token", kind == "llama" or said.get(PREFIX + "pre") in WHOLE_FIRST)
    ends = [special.get(role) if on else None for role, on in (("bos", begins), ("eos", adds_eos(said)))]
    made = put(made, *ends) if any(ends) else made
    return Tokenizer(made, special, chat_template=said.get("tokenizer.chat_template"))


def adds_eos(said: Said) -> bool:
    """Whether EOS stands after a text."""
    return bool(said.get(PREFIX + "add_eos_token", False))


def vocabulary(said: Said, file: Path) -> tuple[list[str], list[int]]:
    """Tokens and their kinds, without the unused ones at the end, which only fill up the table."""
    tokens = said.get(PREFIX + "tokens") or []
    kinds = said.get(PREFIX + "token_type") or [NORMAL] * len(tokens)
    if not tokens or len(kinds) != len(tokens) or len(set(tokens)) != len(tokens):
        raise ConfigError(
            f"{file}: {PREFIX}tokens: must be tokens, each once, and {PREFIX}token_type their kinds"
        )
    while kinds and kinds[-1] == UNUSED:
        kinds = kinds[:-1]
    return tokens[: len(kinds)], kinds


def byte_level(said: Said, tokens: list[str], file: Path) -> Backend:
    """Byte-level BPE  (Radford et al. 2019)."""
    cut = said.get(PREFIX + "pre")
    if cut not in CUTS:
        raise ConfigError(
            f"{file}: {PREFIX}pre={cut}: how it cuts words is not known here, only {', '.join(CUTS)}"
        )
    if said.get(PREFIX + "add_space_prefix"):
        raise ConfigError(f"{file}: {PREFIX}add_space_prefix=true: must be false with {PREFIX}model=gpt2")
    ids = {text: i for i, text in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in said.get(PREFIX + "merges") or []]
    for pair in pairs:  # the backend would not survive one
        if len(pair) != 2 or not {*pair, "".join(pair)} <= ids.keys():
            raise ConfigError(f"{file}: {PREFIX}merges: '{' '.join(pair)}' is no merge of its tokens")
    made = Backend(models.BPE(vocab=ids, merges=pairs, ignore_merges=cut in WHOLE_FIRST))
    if cut in COMPOSED:
        made.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in CUTS[cut]]
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([*steps, bytes_only])
    made.decoder = decoders.ByteLevel()
    return made


def by_scores(said: Said, tokens: list[str], kinds: list[int], file: Path) -> Backend:
    """SentencePiece's BPE  (Kudo & Richardson 2018), as Llama has it."""
    scores = said.get(PREFIX + "scores") or []
    if len(scores) < len(tokens) or kinds.count(UNKNOWN) != 1 or not all(tokens):
        raise ConfigError(f"{file}: {PREFIX}scores: must be a score for each token, one of which is unknown")
    pieces = tuple(Piece(*one) for one in zip(tokens, scores, kinds))
    fallback, prefix = BYTE in kinds, bool(said.get(PREFIX + "add_space_prefix", True))
    return of_pieces(Model(pieces, BPE, byte_fallback=fallback, dummy_prefix=prefix, tidy=False))


def add_special(made: Backend, tokens: list[str], kinds: list[int]) -> None:
    """Tokens that are no text, and those that stand whole."""
    for text, kind in zip(tokens, kinds):
        if kind in (CONTROL, UNKNOWN):
            made.add_special_tokens([AddedToken(text, normalized=False, special=True)])
        elif kind == USER_DEFINED:
            made.add_tokens([AddedToken(text, normalized=False)])


def token(said: Said, name: str, tokens: list[str], file: Path) -> str | None:
    """The token of a role; None: there is none."""
    key = f"{PREFIX}{name}_token_id"
    i = said.get(key)
    if i is not None and not 0 <= i < len(tokens):
        raise ConfigError(f"{file}: {key}={i}: there are {len(tokens)} tokens")
    return None if i is None else tokens[i]


# --- out ----------------------------------------------------------------------------------------------------


def write(tokenizer: Tokenizer, rows: int, bos: bool, eos: bool) -> dict[str, Any]:
    """The metadata of a tokenizer; rows: how many tokens the model knows.

    Raises ConfigError for one that GGUF has no form for.
    """
    if tokenizer.reads is not tokenizer:
        raise ConfigError("tokenizer: GGUF holds one, and sources have their own here")
    shared = shared_facts(tokenizer, rows, bos, eos)
    for form in forms(tokenizer):
        said = {**form, **shared}
        with suppress(ConfigError):  # a form that this vocabulary does not have
            if alike(tokenizer, read(said, Path("model.gguf"))):
                return said
    raise ConfigError(
        "tokenizer: GGUF has no form for it; it has byte-level BPE, as tokenizer=bpe, and Llama's"
    )


def forms(tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """What may be written of its algorithm."""
    model = json.loads(tokenizer.backend.to_str())["model"]
    if model["type"] != "BPE":
        return
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    if isinstance(tokenizer.backend.decoder, decoders.ByteLevel):
        for cut in CUTS:
            yield {PREFIX + "model": "gpt2", PREFIX + "pre": cut, PREFIX + "merges": merges}
        return
    order: dict[str, int] = {}
    for merge in merges:
        order.setdefault(merge.replace(" ", ""), len(order) + 1)
    texts = tokenizer.pieces_of_vocabulary()
    scores = [float(-order.get(text, len(order) + 1)) for text in texts]
    for prefix in (True, False):
        yield {PREFIX + "model": "llama", PREFIX + "pre": "default", PREFIX + "scores": scores,
               PREFIX + "add_space_prefix": prefix}  # fmt: skip


def shared_facts(tokenizer: Tokenizer, rows: int, bos: bool, eos: bool) -> dict[str, Any]:
    """Tokens, their kinds and roles, and what stands around a text."""
    texts, kinds = tokenizer.pieces_of_vocabulary(), token_kinds(tokenizer)
    texts = [text or f"[PAD{i}]" for i, text in enumerate(texts)]
    texts += [f"[PAD{i}]" for i in range(len(texts), rows)]
    kinds += [UNUSED] * (rows - len(kinds))
    found: dict[str, Any] = {PREFIX + "tokens": texts, PREFIX + "token_type": kinds}
    for role, name in ROLES.items():
        if role in tokenizer.special:
            found[f"{PREFIX}{name}_token_id"] = tokenizer.id_of(tokenizer.special[role])
    found |= {PREFIX + "add_bos_token": bos, PREFIX + "add_eos_token": eos}
    return (
        found
        if tokenizer.chat_template is None
        else found | {"tokenizer.chat_template": tokenizer.chat_template}
    )


def token_kinds(tokenizer: Tokenizer) -> list[int]:
    """The kind of each token."""
    added = tokenizer.backend.get_added_tokens_decoder()
    fallback = json.loads(tokenizer.backend.to_str())["model"].get("byte_fallback")

    def kind(i: int, text: str) -> int:
        if i == tokenizer.unk_id:
            return UNKNOWN
        if i in added:
            return CONTROL if added[i].special else USER_DEFINED
        if fallback and len(text) == 6 and text.startswith("<0x"):
            return BYTE
        return NORMAL if text else UNUSED

    return [kind(i, text) for i, text in enumerate(tokenizer.pieces_of_vocabulary())]


def alike(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers make the same ids: the same vocabulary and merges, and of texts that cut words
    in every way.
    """
    merges = [json.loads(t.backend.to_str())["model"].get("merges") for t in (one, other)]
    if merges[0] != merges[1] or one.pieces_of_vocabulary() != other.pieces_of_vocabulary():
        return False
    texts = [*TEXTS, *(f"{SPACE} {text}" for text in TEXTS)]
    return [one.encode(t) for t in texts] == [other.encode(t) for t in texts]
