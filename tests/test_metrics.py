"""The numbers a run is judged by."""

import math

import numpy as np
import pytest
import torch

from tfcli.batch import IGNORE
from tfcli.metrics import Score, bits_per_byte, correct, flops_per_token, perplexity, token_nats


def test_two_batches_of_unequal_length_count_by_their_tokens():
    both = Score(nats=100 * 2.0, tokens=100) + Score(nats=10 * 4.0, tokens=10)
    assert both.loss == pytest.approx(240 / 110)
    assert both.perplexity == pytest.approx(8.8624, abs=5e-5)  # not 20.09 or 30.99, the means of means


def test_a_perplexity_beyond_floats_is_inf_and_its_loss_is_still_there():
    score = Score(nats=800.0 * 3, tokens=3)
    assert (score.loss, score.perplexity) == (800.0, math.inf)
    assert perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))
    assert perplexity(0.0) == 1.0


def test_without_tokens_there_is_no_loss_and_without_text_no_bits_per_byte():
    assert math.isnan(Score().loss)
    assert Score(nats=1.0, tokens=1).bits_per_byte is None


def test_bits_per_byte_counts_the_bytes_of_the_text_and_not_its_tokens_or_characters():
    text = "é日👧"  # 2 + 3 + 4 bytes
    assert bits_per_byte(9 * math.log(2), len(text.encode())) == pytest.approx(1.0)
    # a uniform guess among 256 bytes costs 8 bits a byte, and the EOS behind them nothing
    score = Score(nats=10 * math.log(256), tokens=10, text_nats=9 * math.log(256), bytes=9)
    assert score.bits_per_byte == pytest.approx(8.0)


def test_flops_per_token_are_six_a_parameter_and_twelve_an_attention_product():
    tiny = flops_per_token(1000, n_layers=2, n_heads=4, head_dim=8, seq_len=16)
    assert tiny == 6 * 1000 + 12 * 2 * 4 * 8 * 16
    # PaLM 540B, table 10's model: 118 layers, 48 heads of 256, 2048 tokens
    palm = flops_per_token(540_350_000_000, n_layers=118, n_heads=48, head_dim=256, seq_len=2048)
    assert palm == pytest.approx(3.2777e12, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_nats_of_a_token_are_those_of_numpy_and_0_where_nothing_is_scored(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (5 * torch.randn(3, 4, 7, generator=generator)).to(dtype)
    logits[..., 6] = -math.inf  # a padded row of the vocabulary
    labels = torch.tensor([[0, 1, IGNORE, 2], [IGNORE] * 4, [5, 5, 5, 5]])
    nats = token_nats(logits, labels)
    x = logits.double().numpy()
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, labels.clamp(0).numpy()[..., None], -1)[..., 0]
    expected[labels == IGNORE] = 0
    assert nats.dtype == torch.float32 and nats.shape == (3, 4)
    np.testing.assert_allclose(nats.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_what_is_not_scored_cannot_spoil_the_sum():
    logits = torch.full((1, 2, 3), math.nan)
    logits[0, 0] = 0.0
    assert token_nats(logits, torch.tensor([[1, IGNORE]])).sum().item() == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("scores", "labels"),
    [((4, 3), (4,)), ((4, 5, 3), (4, 5)), ((4, 2, 7), (4, 2))],
    ids=["classes", "tags", "spans"],
)
def test_labels_of_every_kind_have_their_nats_and_are_right_where_their_score_is_the_highest(scores, labels):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(scores, generator=generator)
    wanted = torch.randint(0, scores[-1], labels, generator=generator)
    wanted[0], wanted[1] = logits[0].argmax(-1), IGNORE
    nats, flat = token_nats(logits, wanted), logits.double().flatten(0, -2).numpy()
    assert nats.shape == labels
    n_right = 0
    for found, x, y in zip(nats.flatten().tolist(), flat, wanted.flatten().tolist()):
        expected = 0 if y == IGNORE else np.log(np.exp(x).sum()) - x[y]
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
        n_right += y == x.argmax()
    assert correct(logits, wanted) == n_right > 0


def test_what_is_not_scored_is_never_right():
    assert correct(torch.zeros(1, 3, 2), torch.tensor([[0, IGNORE, 1]])) == 1
    assert correct(torch.zeros(1, 1, 2), torch.tensor([[IGNORE]])) == 0


def test_an_accuracy_is_there_only_where_all_tokens_were_looked_at():
    looked = Score(nats=1.0, tokens=4, correct=3, counted=True)
    assert looked.accuracy == 0.75
    assert (looked + Score(nats=1.0, tokens=4, correct=1, counted=True)).accuracy == 0.5
    assert (looked + Score(bytes=7, documents=1)).accuracy == 0.75
    assert (looked + Score(nats=1.0, tokens=4)).accuracy is None
    assert Score(nats=1.0, tokens=4).accuracy is None and Score().accuracy is None
