"""The class of a text, or of two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tfcli.batch import Batch
from tfcli.data import Example
from tfcli.objective import Objective
from tfcli.objective.rows import collate


class Classification(Objective):
    """-log p(class | x)  (Dai & Le 2015; BERT, Devlin et al. 2018)"""

    family = "encoder"
    needs = "label"
    says = "class"
    shifted = False

    def __call__(self, examples: list[Example]) -> Batch:
        """Inputs (B, T), and the classes (B,)."""
        batch = collate([e.tokens for e in examples], None, examples, self.pad_id)
        classes = np.concatenate([e.target for e in examples]).astype(np.int64)
        return replace(batch, labels=torch.from_numpy(classes))
