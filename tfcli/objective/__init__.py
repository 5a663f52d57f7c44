"""What is to be learned: an objective makes a batch out of examples."""

from typing import Protocol

from tfcli.batch import Batch
from tfcli.data import Example


class Objective(Protocol):
    """The collate function; one loss, the cross-entropy of the labels, serves all."""

    family: str  # the kind of model that learns it

    def __call__(self, examples: list[Example]) -> Batch: ...
