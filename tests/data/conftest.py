from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tfcli.data import Blocks, Document, Example, Record, Source
from tfcli.data.corpus import prepare
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Char


class Listed(Source):
    """Documents or other records of a list."""

    gives = frozenset({"text", "pair", "label", "tags", "answer"})

    def __init__(
        self, documents: list[str | Record], held: list[str | Record] | None = None, **settings
    ) -> None:
        fraction, limit = settings.pop("validation_fraction", 0.1), settings.pop("max_documents", None)
        super().__init__(**settings)
        self.listed, self.held = documents, held
        self.validation_fraction, self.max_documents = fraction, limit

    def documents(self, skip: int = 0):
        return map(as_record, self.listed[skip:])

    def held_out(self):
        return None if self.held is None else map(as_record, self.held)

    def fingerprint(self) -> str:
        return repr((self.listed, self.held))


def as_record(it: str | Record) -> Record:
    return Document(it) if isinstance(it, str) else it


@pytest.fixture
def listed() -> type[Listed]:
    return Listed


@pytest.fixture(scope="session")
def char() -> Tokenizer:
    return Char().train([" \n" + "".join(map(chr, range(33, 127)))])


@pytest.fixture
def ready(tmp_path: Path, char: Tokenizer) -> Callable:
    """Prepares a source with the character tokenizer and a cache of the test's own."""

    def prepared(source: Source, seq_len: int = 8, **settings):
        return prepare(source, char, seq_len=seq_len, cache_dir=tmp_path / "cache", **settings)

    return prepared


@pytest.fixture
def pairs() -> Callable:
    """All (input, label) pairs of examples, as the objective makes them; IGNORE labels left out."""
    from tfcli.batch import IGNORE
    from tfcli.objective.causal_lm import CausalLM

    def found(rows: Blocks | list[Example]) -> list[tuple[int, int]]:
        batch = CausalLM()([rows[i] for i in range(len(rows))])
        scored = batch.labels != IGNORE
        return list(zip(batch.inputs[scored].tolist(), batch.labels[scored].tolist()))

    return found


@pytest.fixture
def same() -> Callable:
    """Whether two lists of examples are equal in every field."""

    def equal(ours: list[Example], theirs: list[Example]) -> bool:
        return len(ours) == len(theirs) and all(
            (a is None and b is None) or np.array_equal(a, b)
            for x, y in zip(ours, theirs)
            for a, b in zip(x, y)
        )

    return equal
