"""The order of examples: a function of (seed, epoch, index), so a resumed run goes on exactly."""

from typing import Any

import numpy as np

from tfcli.data import Blocks, Example
from tfcli.errors import ConfigError


class Shuffled:
    """Every example once an epoch, each epoch in its own order; batches run on across epochs.

    Each of `world` ranks takes every world-th example, so what a step learns does not depend on their number.
    """

    def __init__(
        self,
        blocks: Blocks,
        *,
        seed: int,
        key: str = "",
        batch_size: int = 1,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.blocks, self.seed, self.key, self.rank, self.world = blocks, seed, key, rank, world
        self.examples_per_epoch: int | None = len(blocks)
        self.batches_per_epoch: float | None = len(blocks) / batch_size  # over all ranks
        self.drawn = 0  # by all ranks together
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    @property
    def epoch(self) -> float:
        return self.drawn / len(self.blocks)

    def index(self, drawn: int) -> int:
        """Which example comes after so many."""
        epoch, place = divmod(drawn, len(self.blocks))
        if self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng([self.seed, epoch]).permutation(len(self.blocks)))
        return int(self._order[1][place])

    def draw(self, n: int) -> list[Example]:
        mine = range(self.drawn + self.rank, self.drawn + n * self.world, self.world)
        self.drawn += n * self.world
        return [self._placed(k) for k in mine]

    def _placed(self, drawn: int) -> Example:
        index = self.index(drawn)
        return self.blocks[index]._replace(place=(self.seed, 1 + drawn // len(self.blocks), index))

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "seed": self.seed, "examples": len(self.blocks), "key": self.key}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another feed of the same examples stood, in its order; refuses other examples."""
        if (state.get("examples"), state["key"]) != (len(self.blocks), self.key):
            raise ConfigError(
                f"data: the run learned from {state.get('examples', 'streamed')} rows, these are "
                f"{len(self.blocks)} others; keep data, packing, tokenizer, train.seq_len and "
                "train.batch_tokens, or start anew with init_from"
            )
        self.drawn, self.seed = int(state["drawn"]), int(state["seed"])
