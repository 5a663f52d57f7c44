"""Each position scheme against its formula, written out anew in float64, and against published values."""

import math

import numpy as np
import pytest
import torch

from tfcli.errors import ConfigError
from tfcli.model.position.alibi import Alibi, slopes
from tfcli.model.position.learned import Learned
from tfcli.model.position.rope import DynamicRope, LinearRope, Llama3Rope, Rope, YarnRope
from tfcli.model.position.shaw import Shaw
from tfcli.model.position.sinusoidal import Sinusoidal
from tfcli.model.position.t5 import T5Bias, bucket


def positions(*values: int) -> torch.Tensor:
    return torch.tensor([values])


def turned(
    x: np.ndarray, frequencies: np.ndarray, at: np.ndarray, interleaved: bool, gain: float = 1.0
) -> np.ndarray:
    """(T, R) features turned by complex multiplication, pair by pair, in float64."""
    half = x.shape[-1] // 2
    first, second = (x[:, 0::2], x[:, 1::2]) if interleaved else (x[:, :half], x[:, half:])
    z = (first + 1j * second) * np.exp(1j * at[:, None] * frequencies) * gain
    out = np.empty_like(x)
    if interleaved:
        out[:, 0::2], out[:, 1::2] = z.real, z.imag
    else:
        out[:, :half], out[:, half:] = z.real, z.imag
    return out


def plain(width: int, base: float = 10000.0) -> np.ndarray:
    return np.array([base ** (-2 * i / width) for i in range(width // 2)])


def check_rope(scheme: Rope, frequencies: np.ndarray, length: int = 40, gain: float = 1.0) -> None:
    at = torch.randint(0, length, (1, 9))
    x = torch.randn(1, 9, 1, 2 * len(frequencies))
    said = scheme.rotation(at, length)(x)[0, :, 0].numpy()
    right = turned(x[0, :, 0].double().numpy(), frequencies, at[0].double().numpy(), scheme.interleaved, gain)
    np.testing.assert_allclose(said, right, atol=2e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_is_a_complex_turn_of_each_pair(interleaved: bool) -> None:
    check_rope(Rope(8, interleaved=interleaved), plain(8))
    check_rope(Rope(16, base=500000.0, interleaved=interleaved), plain(16, 500000.0))


def test_partial_rope_leaves_the_rest_alone() -> None:
    x = torch.randn(1, 3, 2, 8)
    said = Rope(8, partial=0.5).rotation(positions(0, 5, 9), 10)(x)
    assert torch.equal(said[..., 4:], x[..., 4:])
    right = turned(x[0, :, 1, :4].double().numpy(), plain(4), np.array([0.0, 5, 9]), interleaved=False)
    np.testing.assert_allclose(said[0, :, 1, :4].numpy(), right, atol=2e-6)


def test_rope_scores_depend_on_distance_only() -> None:
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)
    rope = Rope(16)

    def score(i: int, j: int) -> float:
        return float((rope.rotation(positions(i), 200)(q) * rope.rotation(positions(j), 200)(k)).sum())

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)


def test_rope_tables_are_exact_at_far_positions_whatever_the_precision() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rotation = Rope(64).rotation(torch.arange(131072)[None], 131072)
    angles = np.arange(131072.0)[:, None] * plain(64)
    np.testing.assert_allclose(rotation.cos[0, :, 0, :32].numpy(), np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(rotation.sin[0, :, 0, 32:].numpy(), np.sin(angles), atol=1e-6)


def test_linear_scaling_divides_positions() -> None:
    check_rope(LinearRope(8, factor=4.0), plain(8) / 4)


def test_dynamic_scaling_raises_the_base_once_the_text_is_longer() -> None:
    scheme = DynamicRope(8, factor=2.0, original=16)
    check_rope(scheme, plain(8), length=16)
    base = 10000.0 * (2 * 40 / 16 - 1) ** (8 / 6)
    check_rope(scheme, plain(8, base), length=40)
    # rows of their own length, in one batch
    at = torch.tensor([[0, 3, 15], [0, 3, 39]])
    both = scheme.rotation(at, torch.tensor([[16], [40]]))
    for row, length in ((0, 16), (1, 40)):
        own = scheme.rotation(at[row : row + 1], length)
        assert torch.allclose(both.cos[row], own.cos[0], atol=1e-7)


def test_llama3_scaling_keeps_short_waves_stretches_long_ones_and_blends_between() -> None:
    factor, low, high, original = 8.0, 1.0, 4.0, 64
    right = []
    for theta in plain(32):
        wave = 2 * math.pi / theta
        if wave < original / high:
            right.append(theta)
        elif wave > original / low:
            right.append(theta / factor)
        else:
            smooth = (original / wave - low) / (high - low)
            right.append((1 - smooth) * theta / factor + smooth * theta)
    assert len({round(r / t, 6) for r, t in zip(right, plain(32))}) > 3, "all three cases must occur"
    check_rope(Llama3Rope(32, factor=factor, low=low, high=high, original=original), np.array(right))


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_stretches_slow_waves_and_sharpens_scores(truncate: bool) -> None:
    width, factor, original, base = 32, 4.0, 64, 10000.0

    def find(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = find(32.0), find(1.0)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    right = plain(width) / factor * ramp + plain(width) * (1 - ramp)
    assert 0 < ramp[2] < 1
    check_rope(
        YarnRope(width, factor=factor, original=original, truncate=truncate),
        right,
        gain=0.1 * math.log(factor) + 1,
    )
    both = YarnRope(
        width, factor=factor, original=original, truncate=truncate, mscale=1.0, mscale_all_dim=0.5
    )
    check_rope(both, right, gain=(0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1))
    check_rope(
        YarnRope(width, factor=factor, original=original, truncate=truncate, attention_factor=1.5),
        right,
        gain=1.5,
    )


def test_rope_refuses_what_has_no_pairs() -> None:
    with pytest.raises(ConfigError, match="head_dim=7"):
        Rope(7)
    with pytest.raises(ConfigError, match="head_dim=8"):
        Rope(8, partial=0.1)
    with pytest.raises(ConfigError, match="low=4"):
        Llama3Rope(8, low=4.0, high=4.0)


@pytest.mark.parametrize(
    ("n_heads", "right"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [2.0**-i for i in range(1, 9)]),
        (
            12,
            [
                0.5,
                0.25,
                0.125,
                0.0625,
                0.03125,
                0.015625,
                0.0078125,
                0.00390625,
                0.707107,
                0.353553,
                0.176777,
                0.0883883,
            ],
        ),
    ],
)
def test_alibi_slopes_are_the_published_ones(n_heads: int, right: list[float]) -> None:
    assert slopes(n_heads) == pytest.approx(right, rel=1e-5)


def test_alibi_is_minus_slope_times_distance_on_both_sides() -> None:
    bias = Alibi(2).bias(positions(5), positions(0, 5, 7))
    assert bias.shape == (1, 2, 1, 3)
    assert bias[0, 0, 0].tolist() == pytest.approx([-5 / 16, 0, -2 / 16])


@pytest.mark.parametrize(
    ("bidirectional", "right"),
    [
        (True, {-128: 15, -64: 14, -20: 10, -8: 8, -1: 1, 0: 0, 1: 17, 8: 24, 20: 26, 64: 30, 128: 31}),
        (False, {-128: 31, -64: 26, -20: 17, -8: 8, -1: 1, 0: 0, 1: 0, 77: 0}),
    ],
)
def test_t5_buckets_are_the_published_ones(bidirectional: bool, right: dict[int, int]) -> None:
    offsets = torch.tensor(list(right))
    assert bucket(offsets, 32, 128, bidirectional).tolist() == list(right.values())


def test_t5_bias_is_the_bucket_row_of_each_head() -> None:
    scheme = T5Bias(n_heads=3)
    torch.nn.init.normal_(scheme.table.weight)
    bias = scheme.bias(positions(30), positions(0, 10, 29, 30))
    for j, key in enumerate((0, 10, 29, 30)):
        row = int(bucket(torch.tensor(key - 30), 32, 128, bidirectional=False))
        assert torch.equal(bias[0, :, 0, j], scheme.table.weight[row])


def test_t5_refuses_buckets_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="max_distance=16"):
        T5Bias(4, n_buckets=32, max_distance=16)


@torch.no_grad()
def test_shaw_adds_a_clipped_vector_to_every_key_and_value() -> None:
    clip, width = 2, 4
    scheme = Shaw(width, clip=clip)
    for table in (scheme.keys, scheme.value_table):
        torch.nn.init.normal_(table.weight)
    q_pos, k_pos = positions(3, 6), positions(0, 1, 2, 3, 4, 5, 6)
    q, weights = torch.randn(1, 2, 2, width), torch.rand(1, 2, 2, 7)
    scores, gathered = scheme.scores(q, q_pos, k_pos), scheme.values(weights, q_pos, k_pos)
    for h in range(2):
        for i, qi in enumerate((3, 6)):
            z = torch.zeros(width)
            for j in range(7):
                row = min(max(j - qi, -clip), clip) + clip
                assert scores[0, h, i, j].item() == pytest.approx(
                    float(q[0, h, i] @ scheme.keys.weight[row]), abs=1e-5
                )
                z += weights[0, h, i, j] * scheme.value_table.weight[row]
            assert torch.allclose(gathered[0, h, i], z, atol=1e-5)
    assert Shaw(width, values=False).values(weights, q_pos, k_pos) is None


def test_sinusoids_are_those_of_the_paper_in_either_layout() -> None:
    width, at = 6, positions(0, 1, 50, 5000)
    x = torch.zeros(1, 4, width)
    angles = np.array([0.0, 1, 50, 5000])[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    interleaved = Sinusoidal(width).embed(x, at)[0].numpy()
    np.testing.assert_allclose(interleaved[:, 0::2], np.sin(angles), atol=1e-6)
    np.testing.assert_allclose(interleaved[:, 1::2], np.cos(angles), atol=1e-6)
    concatenated = Sinusoidal(width, layout="concatenated").embed(x, at)[0].numpy()
    np.testing.assert_allclose(concatenated, np.concatenate((np.sin(angles), np.cos(angles)), 1), atol=1e-6)
    with pytest.raises(ConfigError, match="d_model=7"):
        Sinusoidal(7)


def test_learned_positions_are_rows_of_a_table_that_ends() -> None:
    scheme = Learned(4, 10)
    torch.nn.init.normal_(scheme.table.weight)
    said = scheme.embed(torch.zeros(1, 3, 4), torch.tensor([[0, 9, -1]]))
    assert scheme.context == 10
    assert torch.equal(said[0, :2], scheme.table.weight[[0, 9]])
    assert torch.isfinite(said).all()
