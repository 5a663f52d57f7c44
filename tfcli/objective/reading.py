"""Where in a text the answer to a question stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tfcli.batch import Batch
from tfcli.data import Example
from tfcli.objective import Objective
from tfcli.objective.rows import collate


class Reading(Objective):
    """-log p(first | x) - log p(last | x), both over the tokens of x  (BERT, Devlin et al. 2018)

    The first and the last token of the answer; both are token 0 where the text has no answer.
    """

    family = "encoder"
    needs = "answer"
    says = "span"
    shifted = False

    def __call__(self, examples: list[Example]) -> Batch:
        """Inputs (B, T), and the first and last token of each answer (B, 2); rows are padded on the right."""
        batch = collate([e.tokens for e in examples], None, examples, self.pad_id)
        answers = np.stack([e.target for e in examples]).astype(np.int64)
        return replace(batch, labels=torch.from_numpy(answers))
