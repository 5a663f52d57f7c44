"""Rotary frequencies and amplitudes against those that `transformers` makes of a config's fields."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tfcli.errors import ConfigError
from tfcli.model.position.rope import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    Rope,
    YarnRope,
)

pytest.importorskip("transformers")

E, BASE, LONGEST = 16, 500.0, 64
SHORT, LONG = [1.0 + i / 10 for i in range(8)], [2.0 + i for i in range(8)]


def theirs(fields: dict[str, Any], length: int | None = None, **config: Any) -> tuple[torch.Tensor, float]:
    """The frequencies and the amplitude of such `rope_parameters`, for a text of that length."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    made = LlamaConfig(
        hidden_size=4 * E,
        num_attention_heads=4,
        max_position_embeddings=LONGEST,
        rope_parameters={"rope_theta": BASE, **fields},
        **config,
    )
    return ROPE_INIT_FUNCTIONS[fields["rope_type"]](made, None, seq_len=length)


def check(scheme: Rope, fields: dict[str, Any], length: int | None = None, **config: Any) -> None:
    frequencies, amplitude = theirs(fields, length, **config)
    own = scheme.at(length or 1, torch.device("cpu")).flatten()
    torch.testing.assert_close(own[: len(own) // 2].float(), frequencies, rtol=2e-5, atol=1e-9)
    assert len(own) == 2 * len(frequencies)
    assert scheme.amplitude == pytest.approx(amplitude, rel=1e-6)


def partial_of(share: float) -> dict[str, Any]:
    return {"partial_rotary_factor": share}


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_linear_is_theirs(share: float) -> None:
    fields = {"rope_type": "linear", "factor": 3.0}
    check(LinearRope(E, factor=3.0, base=BASE, partial=share), fields | partial_of(share))


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("length", [None, 10, LONGEST, LONGEST + 1, 200])
def test_dynamic_is_theirs_and_grows_from_max_position_embeddings(share: float, length: int | None) -> None:
    # an original length among the fields is not looked at
    fields = {"rope_type": "dynamic", "factor": 3.0, "original_max_position_embeddings": 8}
    scheme = DynamicRope(E, factor=3.0, original=LONGEST, base=BASE, partial=share)
    check(scheme, fields | partial_of(share), length)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("original", [16, 40, None])
def test_llama3_is_theirs(share: float, original: int | None) -> None:
    fields = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    fields |= {} if original is None else {"original_max_position_embeddings": original}
    scheme = Llama3Rope(E, original=original or LONGEST, base=BASE, partial=share)
    check(scheme, fields | partial_of(share))


YARN = [
    ({}, {}),
    ({"attention_factor": 1.3}, {"attention_factor": 1.3}),
    ({"mscale": 0.7, "mscale_all_dim": 0.9}, {"mscale": 0.7, "mscale_all_dim": 0.9}),
    ({"mscale": 0.7}, {"mscale": 0.7}),
    ({"mscale": 0.7, "mscale_all_dim": 0.0}, {"mscale": 0.7, "mscale_all_dim": 0.0}),
    ({"beta_fast": 4, "beta_slow": 2}, {"beta_fast": 4.0, "beta_slow": 2.0}),
    ({"truncate": False}, {"truncate": False}),
    ({"original_max_position_embeddings": 16}, {"original": 16}),
    ({"original_max_position_embeddings": 4}, {"original": 4}),  # no wave turns once
    ({"original_max_position_embeddings": 4, "truncate": False}, {"original": 4, "truncate": False}),
    ({"factor": 0.5}, {"factor": 0.5}),
]


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize(("fields", "settings"), YARN, ids=str)
def test_yarn_is_theirs(share: float, fields: dict, settings: dict) -> None:
    settings = {"factor": 4.0, "original": LONGEST, "base": BASE, "partial": share, **settings}
    check(YarnRope(E, **settings), {"rope_type": "yarn", "factor": 4.0, **fields} | partial_of(share))


LONGROPE = [
    ({"factor": 4.0}, {"factor": 4.0}),
    ({}, {"factor": LONGEST / 16}),  # the ratio of both lengths
    ({"factor": 1.0}, {"factor": 1.0}),
    ({"factor": 4.0, "attention_factor": 1.19}, {"factor": 4.0, "attention_factor": 1.19}),
]


@pytest.mark.parametrize("length", [None, 1, 16, 17, 60])
@pytest.mark.parametrize(("fields", "settings"), LONGROPE, ids=str)
def test_longrope_is_theirs(fields: dict, settings: dict, length: int | None) -> None:
    fields = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, **fields}
    fields |= {"original_max_position_embeddings": 16}
    scheme = LongRope(E, short_factor=SHORT, long_factor=LONG, original=16, base=BASE, **settings)
    check(scheme, fields, length)
    assert scheme.stable_until == 16


def test_longrope_is_theirs_where_a_part_of_a_head_is_turned() -> None:
    fields = {"rope_type": "longrope", "short_factor": SHORT[:4], "long_factor": LONG[:4], "factor": 2.0}
    for length in (16, 17):
        scheme = LongRope(E, SHORT[:4], LONG[:4], factor=2.0, original=16, base=BASE, partial=0.5)
        check(scheme, fields | partial_of(0.5) | {"original_max_position_embeddings": 16}, length)


def test_longrope_without_lists_is_plain_and_then_slowed_by_its_factor() -> None:
    scheme = LongRope(E, factor=4.0, original=16)
    assert torch.equal(scheme.at(16, torch.device("cpu"))[0], Rope(E).frequencies)
    assert torch.equal(scheme.at(17, torch.device("cpu"))[0], Rope(E).frequencies / 4)


def test_longrope_takes_each_row_by_its_own_length() -> None:
    scheme = LongRope(E, SHORT, LONG, original=16)
    at = torch.tensor([[0, 3, 15], [0, 3, 16]])
    both = scheme.rotation(at, torch.tensor([[16], [17]]))
    for row in (0, 1):
        own = scheme.rotation(at[row : row + 1], 16 + row)
        assert torch.equal(both.cos[row], own.cos[0])
    assert not torch.allclose(both.cos[0, 1], both.cos[1, 1], atol=1e-3)


@pytest.mark.parametrize("name", ["short_factor", "long_factor"])
@pytest.mark.parametrize("n", [0, 7, 9])
def test_longrope_refuses_lists_of_another_length_by_their_name(name: str, n: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"position.{name}: has {n} numbers; must have 8, one for each pair"
    ):
        LongRope(E, **{name: [1.0] * n})


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3, 0.2])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_proportional_is_theirs(share: float, factor: float) -> None:
    fields = {"rope_type": "proportional", "factor": factor} | partial_of(share)
    check(ProportionalRope(E, factor=factor, partial=share, base=BASE), fields)


def test_proportional_leaves_the_last_pairs_of_a_head_as_they_are() -> None:
    x = torch.randn(1, 3, 1, E)
    said = ProportionalRope(E, partial=0.5).rotation(torch.tensor([[0, 5, 9]]), 10)(x)
    still = [*range(4, 8), *range(12, 16)]
    assert torch.equal(said[..., still], x[..., still])
    assert (said - x)[0, 1].abs().amax(0)[[0, 3, 8, 11]].min() > 0
    with pytest.raises(ConfigError, match=r"position.partial=0.1: turns no pair of head_dim=16"):
        ProportionalRope(E, partial=0.1)


def test_the_amplitude_of_phi3_is_that_of_its_paper() -> None:
    scheme = LongRope(96, factor=131072 / 4096, original=4096)
    assert scheme.amplitude == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert scheme.amplitude == pytest.approx(1.1902380714238083)
