"""How well text is predicted from text that an objective made worse, and token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tfcli.data import Packing, Record
from tfcli.data.packing import pack
from tfcli.data.tokens import Encoder
from tfcli.errors import ConfigError
from tfcli.evaluate import encoded, score_batches
from tfcli.judge import Bench, Numbers, bar, read
from tfcli.windows import batched, masked_one_by_one

PSEUDO_DOCUMENTS = 100  # are read, unless it is said how many: a text is read once for each of its tokens


def judge_text(bench: Bench, documents: Sequence[Record], encoder: Encoder, packing: Packing) -> Numbers:
    """Loss and accuracy of rows of text under the objective, whose random choices are the same every time."""
    length, shifted = bench.objective.row(bench.how.window), bench.objective.shifted
    score, _ = read(bench, pack(encoder.gather(documents), packing, length, shifted))
    masked = bench.model.family == "encoder"
    numbers = {
        "loss": score.loss,
        "masked_perplexity" if masked else "perplexity": score.perplexity,
        "accuracy": score.accuracy,
        "tokens": score.tokens,
        "documents": len(documents),
    }
    return numbers | (pseudo_perplexity(bench, documents, encoder) if bench.how.pseudo_perplexity else {})


def pseudo_perplexity(bench: Bench, documents: Sequence[Record], encoder: Encoder) -> Numbers:
    """exp(-1/N sum_t log p(x_t | all but x_t))  (Salazar et al. 2020, arXiv 1910.14659)

    Each token in its turn is masked and found again, over at most `max_documents` documents.
    """
    chosen = documents[: bench.how.max_documents or PSEUDO_DOCUMENTS]
    mask, skipped = bench.tokenizer.mask_id, bench.special
    if mask is None:
        raise ConfigError("pseudo_perplexity=true: needs a mask token, and this tokenizer has none")
    ready = [document.ids for document in encoded(chosen, encoder)]
    rows = chain.from_iterable(masked_one_by_one(ids, bench.how.window, mask, skipped) for ids in ready)
    with bar(sum(map(len, ready)), "token") as progress:
        batches = batched(rows, bench.how.batch_size)
        score = score_batches(bench.model, batches, advance=progress.update, **bench.where)
    if not score.tokens:
        raise ConfigError("pseudo_perplexity=true: there is no token to mask in these data")
    return {
        "pseudo_perplexity": score.perplexity,
        "pseudo_loss": score.loss,
        "pseudo_tokens": score.tokens,
        "pseudo_documents": len(chosen),
    }
