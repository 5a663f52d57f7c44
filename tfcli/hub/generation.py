"""What a folder's generation_config.json says, as overrides of configs/generate.yaml: exactly, or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tfcli.compose import override
from tfcli.errors import ConfigError
from tfcli.hub.fields import Asked, short
from tfcli.search import Alpha, Early
from tfcli.tokenizer import Tokenizer
from tfcli.values import Count, Fraction, Index, Positive, check

TOP_K = 50  # what transformers draws from where nothing is said
NO_SAY = {  # where the file comes from, what is returned beside the text, how fast it comes
    "transformers_version", "_from_model_config", "_commit_hash", "pad_token_id", "output_scores",
    "output_logits", "output_attentions", "output_hidden_states", "return_dict_in_generate", "max_cache_len",
    "disable_compile", "compile_config", "prefill_chunk_size", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind",
    "target_lookbehind", "max_matching_ngram_size",
}  # fmt: skip
OFF = {  # values with which a field that is not carried out does nothing
    "typical_p": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0, "num_beam_groups": 1, "diversity_penalty": 0, "guidance_scale": 1,
    "penalty_alpha": 0, "top_h": 1,
}  # fmt: skip
CACHES = ("dynamic", "static", "hybrid", "sliding_window", "offloaded", "offloaded_static")  # all keep all
LENGTHS, LEAST = ("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")
WAYS = {  # of draws, of beams; what is drawn, or likeliest, does not change with the size of scores
    "temperature", "top_k", "top_p", "min_p", "length_penalty", "early_stopping", "renormalize_logits",
}  # fmt: skip


class User(NamedTuple):
    """What the user said, who wins."""

    keys: Collection[str] = ()  # of configs/generate.yaml
    draws: bool = False  # whether they ask for draws
    num_beams: int = 1
    n_samples: int = 1

    @property
    def way(self) -> Literal["beams", "tokens"] | None:
        """How texts are to be written; None: as the folder says."""
        if "num_beams" in self.keys:
            return "beams" if self.num_beams > 1 else "tokens"
        return "tokens" if self.draws or self.n_samples > 1 else None


class Fields:
    """The fields of one file."""

    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer, file: Path | str) -> None:
        self.asked, self.tokenizer, self.file = Asked(said, file), tokenizer, file

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """A value, of that kind; null is as good as not there."""
        value = self.asked.get(name)
        try:
            return default if value is None else check(kind, value, name)
        except ConfigError as error:
            raise self.refused(name, str(error).partition(": ")[2]) from None

    def token(self, name: str) -> int | None:
        """The id of a token that there is."""
        value = self.get(name, Index)
        return None if value is None else self.known(name, [value])[0]

    def tokens(self, name: str) -> list[int] | None:
        """The ids of tokens: one, or a list."""
        value = self.get(name, Index | list[Index])
        return None if value is None else self.known(name, value if isinstance(value, list) else [value])

    def known(self, name: str, ids: list[int]) -> list[int]:
        """The same ids. Raises ConfigError where the tokenizer has no such token."""
        if any(i >= self.tokenizer.vocab_size for i in ids):
            raise self.refused(name, f"the tokenizer has {self.tokenizer.vocab_size} tokens, numbered from 0")
        return ids

    def refused(self, name: str, why: str) -> ConfigError:
        """What to raise for a field that is not carried out."""
        error = self.asked.refused(name, why)
        return ConfigError(f"{error}; generation_config=false leaves out what this file says")


def overrides(
    said: Mapping[str, Any],
    tokenizer: Tokenizer,
    file: Path | str,
    start_id: int | None = None,
    user: User | None = None,
) -> list[str]:
    """What is to stand before the user's own overrides, less what these replace; {}: nothing.

    start_id: the first token that the decoder of an encoder-decoder reads; None: of a decoder.
    Raises ConfigError, by file, field and value, for what is not carried out exactly as transformers does.
    """
    user, fields = user or User(), Fields(said, tokenizer, file)
    refuse_start(fields, start_id)
    found = ends(fields) | lengths(fields, user) | rules(fields, start_id)
    found |= manner(fields, user) | repetition(fields, start_id, user)
    if not fields.get("use_cache", bool, True):
        found["cache"] = False
    refuse_rest(fields)
    taken = {
        *user.keys,
        *([key for key in found if key.startswith("sampler.")] if "sampler" in user.keys else ()),
    }
    return [override(key, value) for key, value in found.items() if key not in taken]


def ends(fields: Fields) -> dict[str, Any]:
    """The tokens that end a text."""
    ids = fields.tokens("eos_token_id")
    return {} if ids is None else {"ends": ids}


def lengths(fields: Fields, user: User) -> dict[str, Any]:
    """How long a text may be and must be; of two limits the number of new tokens counts."""
    most = {name: fields.get(name, Count) for name in LENGTHS}
    least = {name: fields.get(name, Index) for name in LEAST}
    found = {}
    for its, names in ((most, LENGTHS), (least, LEAST)):
        name = next((name for name in names if its[name]), None)
        if name is not None and not set(names) & set(user.keys):
            found[name] = its[name]
    return found


def rules(fields: Fields, start_id: int | None) -> dict[str, Any]:
    """What may be written, and what must be."""
    found: dict[str, Any] = {}
    if size := fields.get("no_repeat_ngram_size", Index):
        found["no_repeat_ngram_size"] = size
    if never := [*(fields.tokens("suppress_tokens") or ()), *bad_words(fields)]:
        found["suppress"] = never
    if (first := fields.token("forced_bos_token_id")) is not None:
        if start_id is None:
            raise fields.refused("forced_bos_token_id", "is only for encoder-decoders")
        found["forced_start"] = first
    if last := fields.tokens("forced_eos_token_id"):
        if len(last) > 1:
            raise fields.refused("forced_eos_token_id", "must be one token, as the last one can be one only")
        found["forced_end"] = last[0]
    return found


def bad_words(fields: Fields) -> list[int]:
    """Tokens that are never written; an end may be, though it be named there."""
    words = fields.get("bad_words_ids", list[list[Index]], [])
    if any(len(word) != 1 for word in words):
        raise fields.refused("bad_words_ids", "only single tokens can be forbidden, as in [[5], [7]]")
    may = fields.tokens("eos_token_id") or ()
    return [i for i in fields.known("bad_words_ids", [word[0] for word in words]) if i not in may]


def searches(fields: Fields, user: User) -> bool:
    """Whether beams are searched."""
    return fields.get("num_beams", Count, 1) > 1 if user.way is None else user.way == "beams"


def manner(fields: Fields, user: User) -> dict[str, Any]:
    """Beams, draws, or the likeliest token, and how many texts."""
    beams, draws = fields.get("num_beams", Count, 1), fields.get("do_sample", bool, False)
    if beams > (size := fields.tokenizer.vocab_size):
        raise fields.refused("num_beams", f"must be at most {size}, the tokens of which each may be the next")
    if beams > 1 and draws and user.way is None and "sampler" not in user.keys:
        why = f"with num_beams={beams} is not carried out; say num_beams=1 or sampler=greedy"
        raise fields.refused("do_sample", why)
    n = fields.get("num_return_sequences", Count, 1)
    if n > 1 and (n > beams if beams > 1 else not draws):
        raise fields.refused("num_return_sequences", "must be at most num_beams, or do_sample must be true")
    if searches(fields, user):
        width = beams if user.way is None else user.num_beams
        best = {"n_best": n} if 1 < n <= width else {}
        return {"num_beams": width, **best, **ranking(fields)}
    drawn = drawing(fields) if draws else {}
    samples = user.draws or (drawn and "sampler" not in user.keys)
    return drawn | ({"n_samples": n} if n > 1 and samples else {})


def ranking(fields: Fields) -> dict[str, Any]:
    """By what beams are ranked and when a search ends: as in transformers, where nothing is said."""
    alpha, early = fields.get("length_penalty", Alpha), fields.get("early_stopping", Early)
    forced = [fields.tokens(name) for name in ("forced_bos_token_id", "forced_eos_token_id")]
    found: dict[str, Any] = {} if alpha is None else {"length_penalty": alpha}
    found["early_stopping"] = False if early is None else early
    if any(forced):
        found["count_forced"] = False
    if fields.get("renormalize_logits", bool, False):
        found["renormalise"] = True
    return found


def drawing(fields: Fields) -> dict[str, Any]:
    """What a token is drawn from."""
    found = {
        "temperature": fields.get("temperature", Positive, 1.0),
        "top_k": fields.get("top_k", Index, TOP_K),
        "top_p": fields.get("top_p", Fraction),
        "min_p": fields.get("min_p", Fraction),
    }
    return {f"sampler.{name}": value for name, value in found.items() if value is not None}


def repetition(fields: Fields, start_id: int | None, user: User) -> dict[str, Any]:
    """The penalty of tokens that a text holds already."""
    name = "repetition_penalty"
    penalty = fields.get(name, Positive, 1.0)
    if penalty == 1 or {"sampler", f"sampler.{name}"} & set(user.keys):
        return {}
    if searches(fields, user):
        raise fields.refused(name, f"is not carried out with beams; say num_beams=1 or sampler.{name}=null")
    if start_id is not None and start_id in (fields.tokens("eos_token_id") or (fields.tokenizer.eos_id,)):
        why = f"would hold the start token against the end of a text; say sampler.{name}=null"
        raise fields.refused(name, why)
    return {f"sampler.{name}": penalty}


def refuse_start(fields: Fields, start_id: int | None) -> None:
    """Raises ConfigError for a start token that is not the model's."""
    name, begins = "decoder_start_token_id", fields.asked.get("decoder_start_token_id")
    bos, own = fields.token("bos_token_id"), fields.tokenizer.bos_id
    if start_id is None and None not in (bos, own) and bos != own:
        raise fields.refused("bos_token_id", f"the tokenizer's is {own}")
    if start_id is not None and begins is None and bos not in (None, start_id):
        raise fields.refused("bos_token_id", f"texts of this model begin with token {start_id}")
    if start_id is not None and begins not in (None, start_id):
        raise fields.refused(name, f"texts of this model begin with token {start_id}")


def refuse_rest(fields: Fields) -> None:
    """Raises ConfigError for a field that is not carried out, unless it asks for nothing."""
    heard = fields.asked.heard | NO_SAY | WAYS
    for name, value in fields.asked.said.items():
        if name in heard or value is None or value is False:
            continue
        if name == "cache_implementation" and value in CACHES:
            continue
        if name in OFF and isinstance(value, int | float) and value == OFF[name]:
            continue
        usual = f"must be {short(OFF[name])}" if name in OFF else "must be left out"
        raise fields.refused(name, f"is not carried out, so the text would not be as this file says; {usual}")
