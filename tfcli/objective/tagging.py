"""The tag of each word."""

from __future__ import annotations

from tfcli.batch import Batch
from tfcli.data import Example
from tfcli.objective import Objective
from tfcli.objective.rows import collate


class Tagging(Objective):
    """-log p(tag[w] | x), scored at the first token of each word w  (BERT, Devlin et al. 2018)"""

    family = "encoder"
    needs = "tags"
    says = "tags"
    shifted = False

    def __call__(self, examples: list[Example]) -> Batch:
        """Inputs, and labels where words begin; (B, T) each."""
        rows, labels = [e.tokens for e in examples], [e.target for e in examples]
        return collate(rows, labels, examples, self.pad_id)
