"""Encoders and encoder-decoders say what `transformers` says on the same weights, to 1e-4 in fp32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from model import published
from torch import nn

from tfcli.batch import Batch

pytest.importorskip("transformers")

Make = Callable[[], tuple[nn.Module, nn.Module]]
ENCODERS = [published.bert, published.roberta, published.distilbert, published.modernbert]
BOTH = [published.t5, partial(published.t5, gated=True), published.bart, published.marian]


def called(make: Make) -> str:
    return "t5_1_1" if isinstance(make, partial) else make.__name__


@pytest.mark.parametrize("make", ENCODERS, ids=called)
@torch.no_grad()
def test_an_encoder_equals_transformers(make: Make) -> None:
    ours, theirs = make()
    tokens, mask, positions = published.ragged(2, 12, [12, 7])
    tokens = tokens.masked_fill(tokens == 1, 5).masked_fill(~mask.bool(), 1)  # RoBERTa counts what is not pad
    said = ours(Batch(tokens, positions=positions))
    right = theirs(input_ids=tokens, attention_mask=mask).logits
    assert (said - right)[mask.bool()].abs().max() < 1e-4


@torch.no_grad()
def test_segments_are_those_of_bert() -> None:
    ours, theirs = published.bert()
    tokens, segments = published.cases.ids(2, 8), torch.tensor([[0] * 3 + [1] * 5, [0] * 8])
    right = theirs(input_ids=tokens, token_type_ids=segments).logits
    assert (ours(Batch(tokens, segments=segments)) - right).abs().max() < 1e-4
    assert (ours(Batch(tokens)) - right).abs().max() > 1e-2


@pytest.mark.parametrize("make", BOTH, ids=called)
@torch.no_grad()
def test_an_encoder_decoder_equals_transformers(make: Make) -> None:
    ours, theirs = make()
    source, mask, positions = published.ragged(2, 14, [14, 6])
    target = published.cases.ids(2, 9, seed=8)
    said = ours(Batch(target, source=source, source_positions=positions))
    right = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    assert (said - right).abs().max() < 1e-4
