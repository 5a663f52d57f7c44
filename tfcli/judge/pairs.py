"""How well targets are predicted from their sources, and how well they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tfcli import generate
from tfcli.bootstrap import of_mean
from tfcli.data import Document, Source
from tfcli.judge import Bench, Numbers, bar, made_of, read
from tfcli.metrics import Score
from tfcli.scores import bleu, chrf, exact


def judge_pairs(
    bench: Bench, source: Source, records: Sequence[Document], frequent: str | None = None
) -> Numbers:
    """Loss and perplexity of targets, and with `decode` what is written of sources, against them.

    frequent: the most frequent target of training, to be compared with.
    """
    made = made_of(bench, source, records)
    score, _ = read(bench, made.rows)
    score += Score(bytes=sum(len(record.text.encode()) for record in made.kept))
    numbers = {name: getattr(score, name) for name in ("loss", "perplexity", "accuracy", "bits_per_byte")}
    numbers |= {"tokens": score.tokens, "pairs": len(made.kept), **made.odd}
    return numbers | (judge_written(bench, source, made.kept, frequent) if bench.how.decode else {})


def judge_written(
    bench: Bench, source: Source, pairs: Sequence[Document], frequent: str | None = None
) -> Numbers:
    """BLEU, chrF and exact match of what is written, of the source itself, and of one target for all."""
    wanted = [pair.text for pair in pairs]
    by = bench.how.bleu_tokenizer
    found = written(bench, source, pairs)
    b, c, same = bleu(found, wanted, by), chrf(found, wanted), exact(found, wanted)
    numbers = {"bleu": b.value, "bleu_ci": b.ci, "chrf": c.value, "chrf_ci": c.ci}
    numbers |= {"exact_match": float(same.mean()), "exact_match_ci": of_mean(same)}
    separator = source.separator  # is no part of what is read
    rivals = {"copy": [pair.prompt.removesuffix(separator) for pair in pairs]}
    rivals |= {} if frequent is None else {"constant": [frequent] * len(pairs)}
    for name, texts in rivals.items():
        numbers |= {f"{name}_bleu": bleu(texts, wanted, by).value, f"{name}_chrf": chrf(texts, wanted).value}
        numbers[f"{name}_exact_match"] = float(exact(texts, wanted).mean())
    numbers |= {"constant": frequent, "bleu_signature": b.signature, "chrf_signature": c.signature}
    n = min(bench.how.samples, len(pairs))
    shown = [i * len(pairs) // n for i in range(n)]
    rows = ((pairs[i].prompt, wanted[i], found[i]) for i in shown)
    return numbers | {"samples": [dict(zip(("source", "reference", "hypothesis"), row)) for row in rows]}


def written(bench: Bench, source: Source, pairs: Sequence[Document]) -> list[str]:
    """What the model writes of each source, or after each prompt: greedily, or the best of its beams."""
    how = generate.Settings(
        num_beams=bench.how.num_beams,
        max_new_tokens=bench.how.max_new_tokens,
        batch_size=bench.how.batch_size,
        bos=source.bos,
        eos=source.eos,
        seed=0,
    )
    given = [pair.prompt for pair in pairs]
    facts: dict[str, Any] = {"prefix": bench.objective.prefix}
    if bench.model.family == "encoder_decoder":
        given, facts = None, {"sources": given, "start_id": bench.objective.start_id}
    completions = generate.completions(bench.model, bench.tokenizer, given, how, **facts)
    with bar(len(pairs), "text") as progress:
        texts = []
        for completion in completions:
            texts.append(completion.text)
            progress.update()
    return texts


def most_frequent(pairs: Iterable[Document]) -> str | None:
    """The target that most pairs have, the first of equals; None: there are no pairs."""
    return next((text for text, _ in Counter(pair.text for pair in pairs).most_common(1)), None)
