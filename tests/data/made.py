"""What the tests of sources share: one made as a user makes it, and the real data, if they lie beside us."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tfcli.data import Record, Source
from tfcli.data.parts import Parts
from tfcli.errors import ConfigError
from tfcli.values import check_arguments

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs" / "data"


def make(choice: str, /, **changes) -> Source:
    """A choice of the group `data` with changed settings."""
    node = OmegaConf.merge(OmegaConf.load(CONFIGS / "_base.yaml"), OmegaConf.load(CONFIGS / f"{choice}.yaml"))
    node = OmegaConf.to_container(node)
    node.pop("defaults")
    place, _, kind = node.pop("_target_").rpartition(".")
    source = getattr(import_module(place), kind)
    return source(**check_arguments(source, node | changes, "data"))


def parts(source: Source, kind: str) -> tuple[list[Record], list[Record]]:
    """What is learned from, and what is held out."""
    found = list(Parts(source, kind))
    return [r for part, r in found if part == 0], [r for part, r in found if part == 1]


def refused(choice: str, match: str, /, **changes) -> None:
    """That choice is refused, when it is made or read, in one line."""
    with pytest.raises(ConfigError, match=match) as error:
        parts(make(choice, **changes), "pair")
    assert "\n" not in str(error.value)


def write(path: Path, text: str | Iterable[str]) -> str:
    """A file with that text, or with these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((text if isinstance(text, str) else "".join(f"{line}\n" for line in text)).encode())
    return str(path)


def shared(place: str) -> str:
    """A file of the real data; the test is skipped where there are none."""
    path = ROOT.parent / "shared" / "data" / place
    if not path.exists():
        pytest.skip(f"needs the real data, which are not here: {place}")
    return str(path)
