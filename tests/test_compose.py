"""What is said of overrides that cannot be composed, in one line and at once."""

from __future__ import annotations

import pytest

from tfcli.compose import compose, spelled
from tfcli.errors import ConfigError


@pytest.mark.parametrize("name", ["generate", "eval"])
@pytest.mark.parametrize("word", ["attention=mqa", "objective=seq2seq", "size.d_model=3", "family=decoder"])
def test_a_group_of_another_command_is_no_key_here(name: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f"^{word[:4]}.*: no such key") as error:
        compose(name, [word])
    assert "\n" not in str(error.value)


VALUES = [
    None,
    True,
    False,
    3,
    1e-05,
    0.5,
    "rope",
    "a b",
    "it's",
    "back\\slash",
    "end\\",
    "a,b=c",
    "[x]",
    "null",
]
VALUES += ["TRUE", "3", "", "日本", "a: b", [1, 2], ["full", "local"], [0.5, None]]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_spelled_so_that_it_comes_back(value: object) -> None:
    assert compose("train", [f"+extra={spelled(value)}"]).extra == value
