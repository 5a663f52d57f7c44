"""How well a model predicts: its loss on prepared blocks while it trains, and documents in strided windows.

Every sum is taken over tokens, in float64, and divided once at the end; so neither the size of a batch nor
the length of its rows moves a result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from tfcli.batch import Batch
from tfcli.data import Document, Kind, Record, Source
from tfcli.data.parts import PARTS, Parts, held_for_streaming, is_blank
from tfcli.data.tokens import Encoder, as_document
from tfcli.errors import ConfigError
from tfcli.metrics import Score, correct, token_nats
from tfcli.reader import evaluating
from tfcli.scores import BleuTokenizer, Words
from tfcli.values import Count, Index
from tfcli.windows import Row, batched, check_window, windows

BATCH = 1 << 20  # characters that are encoded together, so that all cores have work


class Settings(NamedTuple):
    """How a model is scored; the keys of `configs/eval.yaml`."""

    part: Literal["validation", "train", "all"] | None = "validation"
    window: Count | None = None  # tokens read at once; None: as many as the model was trained on
    stride: Count | None = None  # tokens that a window scores; None: the window
    batch_size: Count = 16  # windows, rows or sources read together
    max_documents: Count | None = None  # documents, pairs, sentences, questions; None: all
    pseudo_perplexity: bool = False  # of a masked language model
    decode: bool = False  # whether an encoder-decoder writes its targets, to be compared with the true ones
    num_beams: Count = 1
    max_new_tokens: Count | None = None
    samples: Index = 5  # of what was written, shown
    bleu_tokenizer: BleuTokenizer = "13a"
    f1_by: Words = "words"

    def completed(self, trained_on: int) -> Settings:
        """The same without None, for a model trained on that many tokens."""
        window = self.window or trained_on
        return self._replace(window=window, stride=self.stride or window)


class Encoded(NamedTuple):
    """A document as ids."""

    ids: Sequence[int] | np.ndarray
    n_given: int = 1  # of the first of them, which are not scored: BOS and a prompt, or whatever is first
    n_bytes: int = 0  # UTF-8 bytes of the text that is scored


def documents_of(source: Source, part: str, kind: Kind = "text") -> Iterator[Record]:
    """The documents of a part of the data, split as for training; `all` of them are not split at all."""
    if part == "all":
        return _not_blank(source, source.everything())
    if not source.streaming:
        return (document for number, document in Parts(source, kind) if PARTS[number] == part)
    held, skip = held_for_streaming(source)
    return iter(held) if part == "validation" else _not_blank(source, source.documents(skip))


def _not_blank(source: Source, documents: Iterable[Record]) -> Iterator[Record]:
    return islice((document for document in documents if not is_blank(document)), source.max_documents)


def encoded(documents: Iterable[Record], encoder: Encoder) -> Iterator[Encoded]:
    """Documents as the run's data has them: BOS, where it begins documents, and EOS, where it ends them."""
    for batch in _by_size(map(as_document, documents), BATCH):
        for document, (ids, unscored) in zip(batch, encoder(batch)):
            yield Encoded(ids, max(1, unscored), _scored_bytes(document, encoder, unscored))


def _scored_bytes(document: Document, encoder: Encoder, unscored: int) -> int:
    if unscored:
        return len(document.text.encode(errors="surrogatepass"))
    text, tokenizer = document.prompt + document.text, encoder.tokenizer
    begins_itself = not encoder.bos or tokenizer.bos_id is None  # then its first token is given, not scored
    given = _first_bytes(document.prompt or text, tokenizer.backend) if begins_itself else 0
    return len(text.encode(errors="surrogatepass")) - given


def _first_bytes(text: str, backend: Any) -> int:
    """How many bytes of a text its first token stands for."""
    encoding = backend.encode(text, add_special_tokens=False)
    if not encoding.ids:
        return 0
    end = encoding.offsets[0][1]  # in characters
    if len(encoding) > 1 and encoding.offsets[1][0] < end:  # a token that ends within a character
        return 1 if encoding.tokens[0].startswith("<0x") else len(encoding.tokens[0])
    return len(text[:end].encode(errors="surrogatepass"))


def _by_size(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Documents in lists of about `size` characters."""
    batch, n_characters = [], 0
    for document in documents:
        batch.append(document)
        n_characters += len(document.text)
        if n_characters >= size:
            yield batch
            batch, n_characters = [], 0
    yield batch


@contextmanager
def undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """The model without dropout and gradients; its modes and torch's random numbers are kept."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad(), evaluating(model):
        yield


def validation_loss(
    model: nn.Module,
    blocks: Sequence[Any],
    objective: Callable[[list[Any]], Batch],
    *,
    batch_size: int,
    device: torch.device | str = "cpu",
    precision: Any = None,
    limit: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    count_correct: bool = False,
    special_ids: Collection[int] = (),
    advance: Callable[[int], Any] = lambda labels: None,
) -> Score | None:
    """The score of prepared blocks, or of `limit` of them spread evenly, under the plain loss.

    The labels may be tokens, classes, tags or spans: what the objective makes and the model's head scores.
    should_stop: asked before every batch and at the end; once it says so, there is no score: None.
    count_correct: whether the score has an accuracy. special_ids, advance: as of `score_documents`.
    Leaves no trace in a run that trains. Raises ConfigError when nothing in them can be scored.
    """
    chosen = choose(len(blocks), limit)
    slices = (chosen[i : i + batch_size] for i in range(0, len(chosen), batch_size))
    wanted = takewhile(lambda _: not should_stop(), slices)
    batches = (objective([blocks[i] for i in indices]) for indices in wanted)
    score = score_batches(
        model,
        batches,
        device=torch.device(device),
        precision=precision,
        count_correct=count_correct,
        special_ids=special_ids,
        advance=advance,
    )
    if should_stop():
        return None
    if not score.tokens:
        raise ConfigError(f"the validation data ({len(chosen)} blocks) has no token to score")
    return score


def choose(n_blocks: int, limit: int | None) -> list[int]:
    """Which of so many blocks are scored: all, or `limit` of them spread evenly."""
    n = n_blocks if limit is None else min(limit, n_blocks)
    return [i * n_blocks // n for i in range(n)]


def score_texts(
    model: nn.Module,
    documents: Iterable[Record],
    encoder: Encoder,
    how: Settings,
    *,
    endless: bool = False,
    **where: Any,
) -> Score:
    """The score of texts, with a progress bar at a terminal; `where`: device and precision.

    endless: the texts may be more than memory holds, so nobody counts them before they are scored.
    """
    check_window(how.window, how.stride, model.context)
    ready = encoded(documents, encoder)
    ready = ready if endless else list(ready)
    total = None if endless else sum(max(0, len(document.ids) - document.n_given) for document in ready)
    special_ids = encoder.tokenizer.special_ids - {encoder.tokenizer.unk_id}  # <unk> does stand for text
    with tqdm(total=total, unit="token", unit_scale=True, delay=1, leave=False, disable=None) as bar:
        return score_documents(
            model,
            ready,
            window=how.window,
            stride=how.stride,
            batch_size=how.batch_size,
            special_ids=special_ids,
            advance=bar.update,
            **where,
        )


def score_documents(
    model: nn.Module,
    documents: Iterable[Encoded],
    *,
    window: int,
    stride: int,
    batch_size: int,
    special_ids: Collection[int] = (),
    device: torch.device | str = "cpu",
    precision: Any = None,
    advance: Callable[[int], Any] = lambda tokens: None,
) -> Score:
    """The score of documents: every token that is not given, exactly once, in `windows`.

    BOS, being first, is never scored. EOS is, since a model has to know where a text ends; but as it stands
    for no byte, it and all `special_ids` are left out of the bits per byte. A document of one token counts
    for nothing. `advance` is told the tokens of each batch. Raises ConfigError when nothing can be scored.
    """
    check_window(window, stride, model.context)
    n_documents = n_bytes = 0

    def cut() -> Iterator[Row]:
        nonlocal n_documents, n_bytes
        for ids, n_given, size in documents:
            if len(ids) > n_given:
                n_documents, n_bytes = n_documents + 1, n_bytes + size
                yield from windows(ids, window, stride, n_given)

    batches = batched(cut(), batch_size)
    how = {"device": torch.device(device), "precision": precision}
    score = score_batches(model, batches, **how, special_ids=special_ids, advance=advance)
    if not score.tokens:
        raise ConfigError("0 tokens to score: a text needs at least two, as its first is never scored")
    return score + Score(bytes=n_bytes, documents=n_documents)


def score_batches(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    device: torch.device,
    precision: Any = None,
    count_correct: bool = False,
    special_ids: Collection[int] = (),
    advance: Callable[[int], Any] = lambda labels: None,
    see: Callable[[Tensor], Any] | None = None,
) -> Score:
    """The sums over all batches, which stay on the device to the end, so no batch waits for its numbers.

    see: is shown what the head says of each batch, in order.
    """
    nats = torch.zeros((), dtype=torch.float64, device=device)
    text_nats = nats.clone()
    special = torch.tensor(sorted(special_ids), dtype=torch.long, device=device)
    tokens, right = 0, torch.zeros((), dtype=torch.long, device=device)
    with undisturbed(model, device):
        for batch in batches:
            n_targets = batch.targets
            if not n_targets and see is None:
                continue
            tokens += n_targets
            batch = batch.to(device)
            logits, labels = scores_of(model, batch, precision, whole=see is not None)
            losses = token_nats(logits, labels)
            nats += losses.sum(dtype=torch.float64)
            # filled, not multiplied by 0: an infinite loss of a special token must not become nan
            text_nats += losses.masked_fill(torch.isin(labels, special), 0).sum(dtype=torch.float64)
            if count_correct:
                right += correct(logits, labels)
            if see is not None:
                see(logits)
            advance(n_targets)
    return Score(nats.item(), tokens, text_nats.item(), correct=right.item(), counted=count_correct)


def scores_of(
    model: nn.Module, batch: Batch, precision: Any = None, whole: bool = False
) -> tuple[Tensor, Tensor]:
    """What the model's head says of a batch, and the labels of that; whole: also of what has no label."""
    with precision.autocast(batch.inputs.device) if precision else nullcontext():
        return (model(batch), batch.labels) if whole else model.scores(batch)
