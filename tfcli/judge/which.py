"""Which judge is for which model and data, and what none can judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from tfcli.data import Document, Record, Source
from tfcli.data.tokens import Encoder
from tfcli.errors import ConfigError
from tfcli.evaluate import Settings, documents_of, score_texts
from tfcli.judge import Bench, Numbers
from tfcli.judge.pairs import judge_pairs, judge_written, most_frequent
from tfcli.judge.records import judge_answers, judge_labels, judge_tags
from tfcli.judge.text import judge_text
from tfcli.scores import sacrebleu_metrics
from tfcli.windows import check_window

JUDGES = {"label": judge_labels, "tags": judge_tags, "answer": judge_answers}
WRITING = ("num_beams", "max_new_tokens", "samples", "bleu_tokenizer")  # keys that serve `decode`
NUMBERS = ("loss", "perplexity", "bits_per_byte", "tokens", "bytes", "documents")


def judge_one(bench: Bench, text: str, bos: bool, eos: bool) -> Numbers:
    """The numbers of one text, whose ends are those that the model knows from its own data."""
    if bench.objective.needs != "text":
        raise ConfigError(
            "--text-file: this model is scored on what it says of a text, not on the text alone; give data="
        )
    bench = bench._replace(how=settled(bench, pairs=False, part="all"))
    encoder = Encoder(bench.tokenizer, bos, eos)
    judged = _next_tokens if strided(bench) else partial(judge_text, packing="none")
    return _shown(bench, judged(bench, [Document(text)], encoder))


def judge(bench: Bench, source: Source, train: Callable[[], Source]) -> Numbers:
    """The numbers of a part of some data. train: makes the data that the model learned from."""
    kind = bench.objective.needs
    bench = bench._replace(how=settled(bench, pairs="pair" in source.gives))
    how = bench.how
    if source.streaming and how.part != "validation" and how.max_documents is None and not strided(bench):
        raise ConfigError("max_documents=null: say how many of these streamed documents are to be scored")
    records: Iterable[Record] = islice(documents_of(source, how.part, kind), how.max_documents)
    if how.decode or not (source.streaming and strided(bench)):
        records = list(records)
    frequent = frequent_target(train) if how.decode else None
    if kind in JUDGES:
        numbers = JUDGES[kind](bench, source, records)
    elif kind == "pair":
        numbers = judge_pairs(bench, source, records, frequent)
    else:
        numbers = _of_text(bench, source, records)
        numbers |= judge_written(bench, source, records, frequent) if how.decode else {}
    return _shown(bench, numbers)


def strided(bench: Bench) -> bool:
    """Whether every token is predicted from those before it, so that texts of any length can be scored."""
    objective = bench.objective
    return objective.family == "decoder" and objective.needs == "text" and not objective.prefix


def settled(bench: Bench, pairs: bool, part: str | None = None) -> Settings:
    """The settings without None. Raises ConfigError for one that would have no say.

    pairs: whether the data are pairs.
    """
    how, default = bench.how, Settings()
    masked = bench.objective.needs == "text" and bench.model.family == "encoder"
    writes = bench.objective.needs == "pair" or (pairs and bench.model.family == "decoder")
    idle = {
        "stride": (not strided(bench), "models that predict the next token of a text"),
        "pseudo_perplexity": (not masked, "masked language models"),
        "decode": (not writes, "models that write, on pairs"),
        "f1_by": (bench.objective.needs != "answer", "models that answer questions"),
    } | {key: (not how.decode, "decode=true") for key in WRITING}
    for key, (nothing, use) in idle.items():
        value = getattr(how, key)
        if nothing and value != getattr(default, key):
            raise ConfigError(f"{key}={str(value).lower()}: has no say here; it is for {use}")
    if how.decode:
        sacrebleu_metrics()  # if it is not there, that is said before all the work
    how = how.completed(bench.trained_on)._replace(part=part or how.part)
    check_window(how.window, how.stride, bench.model.context)
    return how


def frequent_target(train: Callable[[], Source]) -> str | None:
    """The most frequent target of the data that a model learned from; None: there is none to be found."""
    try:
        source = train()
        return most_frequent(documents_of(source, "train", "pair")) if "pair" in source.gives else None
    except ConfigError:
        return None


def _of_text(bench: Bench, source: Source, documents: Iterable[Record]) -> Numbers:
    if strided(bench):
        encoder = Encoder(bench.tokenizer, source.bos, source.eos, source.score_prompt)
        return _next_tokens(bench, documents, encoder, endless=not isinstance(documents, list))
    packing = source.packing if bench.objective.packs or source.packing != "documents" else "none"
    return judge_text(bench, documents, Encoder.of(source, bench.tokenizer), packing)


def _next_tokens(
    bench: Bench, documents: Iterable[Record], encoder: Encoder, endless: bool = False
) -> Numbers:
    score = score_texts(bench.model, documents, encoder, bench.how, endless=endless, **bench.where)
    return {name: getattr(score, name) for name in NUMBERS}


def _shown(bench: Bench, numbers: Numbers) -> Numbers:
    stride = {"stride": bench.how.stride} if strided(bench) else {}
    return {"part": bench.how.part, **numbers, "window": bench.how.window, **stride}
