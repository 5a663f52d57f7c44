"""The types of values have the bounds they say."""

from __future__ import annotations

from typing import Any

import pytest

from tfcli.errors import ConfigError
from tfcli.values import Base, Seed, check


@pytest.mark.parametrize(("kind", "value"), [(Base, 1.5), (Base, 10_000), (Seed, 0), (Seed, 2**63 - 1)])
def test_a_value_within_the_bounds_is_taken(kind: Any, value: float) -> None:
    assert check(kind, value, "key") == value


@pytest.mark.parametrize(("kind", "value"), [(Base, 1), (Base, 0.5), (Seed, -1), (Seed, 2**63), (Seed, True)])
def test_a_value_outside_the_bounds_is_refused(kind: Any, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^key={value}: must be"):
        check(kind, value, "key")
