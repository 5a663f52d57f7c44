"""Whether `transformers` makes of a folder what ours makes of the model that was written there."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tfcli.batch import PAD, Batch
from tfcli.errors import RunError, one_line
from tfcli.tokenizer import Tokenizer

NEAR = 1e-4  # of the largest score, or of 1
WIDTH, WIDEST = 24, 160  # tokens of a row, so that windows of some size are shorter
TEXTS = (
    "",
    "The cat sat on the mat.",
    "def f(x):\n    return x + 12345",
    " two  blanks",
    "naïve 日本語 😀",
    "A's",
)


class Checked(NamedTuple):
    """What was found."""

    largest: float | None  # the largest difference of the scores; None: they were not compared
    left_out: str = ""  # what was not compared, or why nothing was


def installed() -> bool:
    """Whether there is something to check by."""
    return importlib.util.find_spec("transformers") is not None


def verify(folder: Path, kind: str, model: nn.Module, tokenizer: Tokenizer) -> Checked:
    """Compares scores and ids.

    model: ours, on the CPU, with the numbers that were written. tokenizer: with its ends. Raises RunError
    where the two differ.
    """
    if not installed():
        return Checked(None, "transformers is not installed")
    with silent():
        largest = compare_scores(loaded(folder, kind), model, tokenizer)
        return Checked(largest, compare_ids(folder, tokenizer))


def verify_file(file: Path, kind: str, model: nn.Module, tokenizer: Tokenizer) -> Checked:
    """The same of a GGUF file; how its words are cut is for the reader to know, so ids are not compared."""
    if not installed():
        return Checked(None, "transformers is not installed")
    with silent():
        theirs = loaded(file.parent, kind, gguf_file=file.name)
        largest = compare_scores(theirs, model, tokenizer)
        return Checked(largest, "its tokenizer was read back here alone")


@contextmanager
def silent() -> Iterator[None]:
    """`transformers` prints nothing."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def loaded(folder: Path, kind: str, **how: Any) -> nn.Module:
    """Their model in fp32, every weight of which the folder has; how: what tells of another form."""
    import transformers

    try:
        load = getattr(transformers, kind).from_pretrained
        theirs, info = load(folder, output_loading_info=True, dtype=torch.float32, **how)
        auto = transformers.AutoConfig.from_pretrained(folder, **how)
    except Exception as error:
        raise RunError(
            f"transformers cannot load what was written ({one_line(error)}); nothing is left"
        ) from None
    if type(auto) is not type(theirs.config):
        raise RunError(f"config.json tells of another class than {kind}; nothing is left")
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = sorted(map(str, info[key]))
        if names and not (key == "missing_keys" and all(name.startswith("pooler.") for name in names)):
            raise RunError(f"{kind}: {key.replace('_', ' ')} {', '.join(names[:5])}; nothing is left")
    return theirs.eval()


# --- scores -------------------------------------------------------------------------------------------------


def compare_scores(theirs: nn.Module, model: nn.Module, tokenizer: Tokenizer) -> float:
    """The largest difference of scores of ragged rows."""
    batch = rows(model, tokenizer)
    with torch.no_grad():
        mine, right = ours_of(model, batch), theirs_of(theirs, model, batch, tokenizer)
    if mine.shape != right.shape:
        raise RunError(f"scores are {tuple(right.shape)} by transformers, and {tuple(mine.shape)} here")
    largest, most = float((mine - right).abs().max()), max(1.0, float(right.abs().max()))
    if not largest <= NEAR * most:  # a number that is none is no small one
        raise RunError(
            f"transformers' scores of what was written differ by {largest:.3g}, and {NEAR * most:.3g} is "
            "allowed; nothing is left"
        )
    return largest


def rows(model: nn.Module, tokenizer: Tokenizer) -> Batch:
    """Two rows of unequal length, (2, T), and sources where the model reads some."""
    generator = torch.Generator().manual_seed(0)
    known = [i for i in range(model.vocab_size) if not (tokenizer.has_pad and i == tokenizer.pad_id)]

    def draw(context: int | None) -> tuple[Tensor, Tensor]:
        width = min(widest(model), context or WIDEST)
        ids = torch.tensor(known)[torch.randint(len(known), (2, width), generator=generator)]
        places = torch.arange(width).expand(2, -1)
        return ids, places.masked_fill(places >= torch.tensor([[width], [(width + 2) // 3]]), PAD)

    ids, positions = draw(model.context)
    if model.family == "encoder_decoder":
        source, source_positions = draw(model.source_context)
        return Batch(ids, source=source, source_positions=source_positions)
    segments = None
    if model.embedding.segments is not None:
        segments = torch.randint(len(model.embedding.segments.weight), ids.shape, generator=generator)
    return Batch(ids.where(positions != PAD, tokenizer.pad_id), positions=positions, segments=segments)


def widest(model: nn.Module) -> int:
    """So many tokens that the smallest window sees not all of them, if it is none of hundreds."""
    reaches = [rule.reach for rules, _ in model.stack.kinds for rule in rules if rule.reach is not None]
    wide = 2 * min(reaches, default=0) + 8
    return wide if WIDTH < wide <= WIDEST else WIDTH


def ours_of(model: nn.Module, batch: Batch) -> Tensor:
    """Our scores, 0 where no token is."""
    if model.head.says == "vector" and model.head.activation is None:  # pooled by others' code from this
        return there(model.hidden(batch), batch)
    scores = model(batch)
    if model.head.says == "span":
        return there(scores.transpose(1, 2), batch)
    return there(scores, batch) if scores.ndim == 3 else scores


def theirs_of(theirs: nn.Module, model: nn.Module, batch: Batch, tokenizer: Tokenizer) -> Tensor:
    """Their scores, 0 where no token is."""
    out = theirs(**inputs(batch, tokenizer))
    if model.head.says == "span":
        return there(torch.stack([out.start_logits, out.end_logits], dim=-1), batch)
    if model.head.says == "vector":
        return there(out.last_hidden_state, batch) if model.head.activation is None else out.pooler_output
    return there(out.logits, batch) if out.logits.ndim == 3 else out.logits


def inputs(batch: Batch, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """A batch under their names."""
    if batch.source is not None:
        mask = (batch.source_positions != PAD).long()
        source = batch.source.where(mask.bool(), tokenizer.pad_id)
        return {"input_ids": source, "attention_mask": mask, "decoder_input_ids": batch.inputs}
    found = {"input_ids": batch.inputs, "attention_mask": (batch.positions != PAD).long()}
    return found if batch.segments is None else found | {"token_type_ids": batch.segments}


def there(scores: Tensor, batch: Batch) -> Tensor:
    """(B, T, n), 0 where no token is."""
    if batch.positions is None:
        return scores
    return scores.masked_fill((batch.positions == PAD)[..., None], 0.0)


# --- ids ----------------------------------------------------------------------------------------------------


def compare_ids(folder: Path, tokenizer: Tokenizer) -> str:
    """Raises RunError for a text of which AutoTokenizer makes other ids; returns why it cannot be asked."""
    from transformers import AutoTokenizer

    try:
        theirs = AutoTokenizer.from_pretrained(folder)
    except ImportError as error:
        return f"ids were not compared ({one_line(error)})"
    except Exception as error:
        raise RunError(
            f"AutoTokenizer cannot load what was written ({one_line(error)}); nothing is left"
        ) from None
    head = [tokenizer.bos_id] if tokenizer.adds_bos else []
    tail = [tokenizer.eos_id] if tokenizer.adds_eos else []
    asked = [(tokenizer.reads, "text")]
    if tokenizer.reads is not tokenizer:
        asked.append((tokenizer, "text_target"))
    for ours, argument in asked:
        for text in TEXTS:
            mine, right = [*head, *ours.encode(text), *tail], theirs(**{argument: text})["input_ids"]
            if mine != right:
                raise RunError(
                    f"AutoTokenizer makes {right} of {text!r}, and {mine} is right; nothing is left"
                )
    return ""
