"""What is to be learned: an objective makes a batch out of examples."""

from __future__ import annotations

from typing import ClassVar, Literal

from tfcli.batch import Batch
from tfcli.data import Example, Kind
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer

Says = Literal["tokens", "class", "tags", "span"]


class Objective:
    """The collate function, `examples -> Batch`; one loss, the cross-entropy of the labels, serves all.

    It is made from settings alone; `bind` gives it the tokenizer. Whatever is random is drawn from an
    example's `place`, so a resumed run meets the same batches and an evaluation the same ones every time.
    """

    family: ClassVar[str]  # the kind of model that learns it
    needs: ClassVar[Kind] = "text"  # what the data must give
    says: ClassVar[Says] = "tokens"  # what the head must give scores of
    shifted: ClassVar[bool] = True  # labels are the next tokens, so a row of text is one token longer
    packs: ClassVar[bool] = True  # rows of text may hold documents that do not see each other
    prefix: ClassVar[bool] = False  # the tokens of a prompt see each other
    special: tuple[str, ...] = ()  # tokens that a trained tokenizer gets for it
    label_smoothing: float = 0.0  # in training; evaluation takes the plain loss
    pad_id: int = 0  # what stands in padding, where nobody looks at it

    def bind(self, tokenizer: Tokenizer) -> None:
        """Looks up the ids it needs. Raises ConfigError where the tokenizer lacks one."""
        self.pad_id = tokenizer.pad_id

    def row(self, seq_len: int) -> int:
        """How many tokens of text make a row of which the model reads at most `seq_len`."""
        return seq_len

    def beyond(self, n: int) -> int:
        """How many tokens, beyond n, an encoder-decoder reads and writes of a row of n, at most."""
        return n

    def __call__(self, examples: list[Example]) -> Batch:
        raise NotImplementedError


def wanted(role: str, found: int | None, objective: str) -> int:
    """An id that is needed. Raises ConfigError where the tokenizer has none."""
    if found is None:
        raise ConfigError(f"objective={objective}: needs a {role} token, and this tokenizer has none")
    return found
