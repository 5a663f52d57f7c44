"""How completions are written: the keys of `configs/generate.yaml`, and what they forbid and force."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from tfcli.constraints import Constraints, token_id
from tfcli.errors import ConfigError
from tfcli.opening import Most
from tfcli.sampler import Sampler
from tfcli.search import Alpha, Early, Norm, Ranking
from tfcli.values import Count, Index, Range

Length = Annotated[int, Range(low=1, high=1e12)]  # more than any machine writes
Least = Annotated[int, Range(low=0, high=1e12)]
Samples = Annotated[int, Range(low=1, high=1e6)]  # more than anybody reads
Token = Index | str  # by its id, or by its text


@dataclass(frozen=True)
class Settings:
    """How completions are written; the keys of `configs/generate.yaml`."""

    sampler: Sampler = field(default_factory=Sampler)
    max_new_tokens: Length | None = None  # None twice: opening.DEFAULT_LENGTH, or what the positions leave
    max_length: Length | None = None  # with what is read before the first new token
    n_samples: Samples = 1
    num_beams: Count = 1  # 1: no search, a token at a time by the sampler
    n_best: Count = 1
    length_penalty: Alpha = Ranking.alpha
    length_norm: Norm = Ranking.norm
    early_stopping: Early = Ranking.early
    count_forced: bool = Ranking.count_forced
    renormalise: bool = Ranking.renormalise
    no_repeat_ngram_size: Count | None = None
    min_new_tokens: Least = 0  # before an end
    min_length: Least = 0  # the same, counted as max_length
    forced_start: Token | None = None
    forced_end: Token | None = None
    suppress: tuple[Token, ...] = ()  # tokens that are never written
    ends: tuple[Token, ...] | None = None  # tokens that end a text; None: the tokenizer's EOS
    stop: tuple[str, ...] = ()  # a text ends before the first of these
    bos: bool | None = None  # whether texts begin with BOS, as in training; None: where the tokenizer has one
    eos: bool | None = None  # whether sources end with EOS, as in training; None: where the tokenizer has one
    ignore_eos: bool = False  # no token ends a text
    seed: Index | None = None  # None: a fresh one
    cache: bool = True  # False: the whole text is read again for every token
    batch_size: Count = 16  # completions that are written at once; of beams, prompts

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise ConfigError("stop='': must hold at least one character; leave it out not to stop")
        if self.n_best > self.num_beams:
            raise ConfigError(f"n_best={self.n_best}: must be at most num_beams={self.num_beams}")
        if self.num_beams == 1 and self.ranking != Ranking():
            keys = "length_penalty, length_norm, early_stopping, count_forced, renormalise"
            raise ConfigError(f"{keys}: rank beams, and num_beams=1; set it to 2 or more")
        if self.num_beams > 1:
            self._refuse_beside_beams()
        self._refuse_lengths()

    def _refuse_beside_beams(self) -> None:
        beams = f"num_beams={self.num_beams}: "
        if self.sampler.draws:
            raise ConfigError(beams + "beams are not drawn; choose sampler=greedy, or num_beams=1")
        if self.sampler.penalises:
            why = "sampler.repetition_penalty would change what beams are ranked by; leave it out, and set "
            raise ConfigError(f"{beams}{why}no_repeat_ngram_size instead")
        if self.n_samples > 1:
            raise ConfigError(beams + f"n_samples={self.n_samples} is for draws; set n_best instead")
        if self.stop:
            raise ConfigError(
                beams + "stop would end beams that are not comparable; leave it out, or set num_beams=1"
            )

    def _refuse_lengths(self) -> None:
        if self.max_new_tokens is not None and self.max_length is not None:
            raise ConfigError(
                f"max_new_tokens={self.max_new_tokens}, max_length={self.max_length}: say the same in two "
                "ways; leave one out"
            )
        if self.max_length is not None and self.min_length > self.max_length:
            raise ConfigError(f"min_length={self.min_length}: must be at most max_length={self.max_length}")

    @property
    def each(self) -> int:
        """How many completions there are of each prompt, at most."""
        return self.n_best if self.num_beams > 1 else self.n_samples

    @property
    def most(self) -> Most:
        """How long texts may become."""
        return Most(self.max_new_tokens, self.max_length)

    @property
    def ranking(self) -> Ranking:
        """By what beams are ranked."""
        return Ranking(
            self.length_penalty, self.length_norm, self.early_stopping, self.count_forced, self.renormalise
        )


def constraints(tokenizer: Any, how: Settings, starts: bool = False) -> Constraints:
    """The rules that the settings ask for, by the tokenizer's ids.

    starts: texts begin with a start token, which is counted in `min_length` though it is no text.
    """

    def ids_of(key: str, said: tuple[Token | None, ...]) -> tuple[int, ...]:
        return tuple(token_id(tokenizer, one, key) for one in said if one is not None)

    def id_of(key: str, said: Token | None) -> int | None:
        return next(iter(ids_of(key, (said,))), None)

    ends = (tokenizer.eos_id,) if how.ends is None else how.ends
    return Constraints(
        no_repeat=how.no_repeat_ngram_size,
        least=how.min_new_tokens,
        least_whole=max(0, how.min_length - starts),
        start=id_of("forced_start", how.forced_start),
        end=id_of("forced_end", how.forced_end),
        suppress=ids_of("suppress", how.suppress),
        ends=() if how.ignore_eos else ids_of("ends", ends),
    )
