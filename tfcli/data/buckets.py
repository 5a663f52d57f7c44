"""Batches of about equally long examples, so that little of a batch is padding."""

from typing import Any

import numpy as np

from tfcli.data import Blocks, Example
from tfcli.errors import ConfigError

POOL = 100  # batches whose examples are sorted together: more leave less padding, and less to chance


class Bucketed:
    """Every example once an epoch, in batches of `batch_size`, or of as many as `batch_tokens` has room for.

    rows * (longest source + longest target) <= batch_tokens  (the token budget of Vaswani et al. 2017)

    An epoch is a function of (seed, epoch): all examples in a random order, cut into pools of many batches;
    each pool sorted by length and cut into batches; all batches in a random order. The last batch of a pool
    may be a smaller one. Each of `world` ranks takes every world-th row of a batch.
    """

    def __init__(
        self,
        blocks: Blocks,
        *,
        batch_size: int,
        batch_tokens: int | None = None,
        seed: int,
        key: str = "",
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.blocks, self.seed, self.rank, self.world = blocks, seed, rank, world
        self.batch_size, self.batch_tokens = batch_size, batch_tokens  # of all ranks together
        self.key = f"{key} {batch_size} rows" if batch_tokens is None else f"{key} {batch_tokens} tokens"
        self.sizes = blocks.sizes()  # (examples, 2) tokens of source and target
        self._check_room()
        self.examples_per_epoch: int | None = len(blocks)
        self.passes = self.at = 0  # epochs that are over, and batches drawn of this one
        self._plan: tuple[Any, list[np.ndarray]] = (None, [])
        self.batches_per_epoch: float | None = len(self.batches)  # of the first; a budget may give others
        self.padding = self._padding(self.batches)  # its share of the tokens of the first epoch
        self.padding_unsorted = self._padding(self._cut(np.concatenate(self._pools(0))))

    def _check_room(self) -> None:
        longest = int(self.sizes.sum(1).max())
        if self.batch_tokens is not None and longest > self.batch_tokens:
            raise ConfigError(
                f"train.batch_tokens={self.batch_tokens}: the longest row has {longest} tokens, source and "
                f"target together; must be at least {longest}, or lower train.seq_len"
            )

    @property
    def epoch(self) -> float:
        return self.passes + self.at / len(self.batches)

    @property
    def batches(self) -> list[np.ndarray]:
        """The indices of each batch of this epoch, in order."""
        if self._plan[0] != (self.seed, self.passes):
            self._plan = ((self.seed, self.passes), self._planned(self.passes))
        return self._plan[1]

    def _planned(self, epoch: int) -> list[np.ndarray]:
        batches = [batch for pool in self._pools(epoch) for batch in self._cut(self._sorted(pool))]
        order = np.random.default_rng([self.seed, epoch, 1]).permutation(len(batches))
        return [batches[i] for i in order]

    def _pools(self, epoch: int) -> list[np.ndarray]:
        order, size = (
            np.random.default_rng([self.seed, epoch]).permutation(len(self.blocks)),
            self._pool_size(),
        )
        return np.split(order, range(size, len(order), size))

    def _pool_size(self) -> int:
        if self.batch_tokens is None:
            return POOL * self.batch_size
        return POOL * max(1, int(self.batch_tokens / self.sizes.sum(1).mean()))

    def _sorted(self, rows: np.ndarray) -> np.ndarray:
        source, target = self.sizes[rows].T
        return rows[np.lexsort((target, source))]  # by source, then target, then chance

    def _cut(self, rows: np.ndarray) -> list[np.ndarray]:
        """Rows in their order as batches."""
        if self.batch_tokens is None:
            return np.split(rows, range(self.batch_size, len(rows), self.batch_size))
        ends, n, source, target = [], 0, 0, 0
        for i, (s, t) in enumerate(self.sizes[rows].tolist()):
            n, source, target = n + 1, max(source, s), max(target, t)
            if n * (source + target) > self.batch_tokens:
                ends.append(i)
                n, source, target = 1, s, t
        return np.split(rows, ends)

    def _padding(self, batches: list[np.ndarray]) -> float:
        begins = np.cumsum([0, *map(len, batches[:-1])])
        longest = np.maximum.reduceat(self.sizes[np.concatenate(batches)], begins)  # (batches, 2)
        room = (longest.sum(1) * np.array([len(batch) for batch in batches])).sum()
        return 1 - int(self.sizes.sum()) / int(room)

    def draw(self, n: int) -> list[Example]:
        """This rank's rows of the next batch: n of them, or fewer where examples run out, or as many as the
        budget has room for.
        """
        assert self.batch_tokens is not None or n * self.world == self.batch_size
        if self.at == len(self.batches):
            self.passes, self.at = self.passes + 1, 0
        batch = self.batches[self.at][self.rank :: self.world]
        self.at += 1
        return [self.blocks[i]._replace(place=(self.seed, 1 + self.passes, i)) for i in batch.tolist()]

    def state_dict(self) -> dict[str, Any]:
        at = {"passes": self.passes, "at": self.at, "seed": self.seed}
        return at | {"examples": len(self.blocks), "key": self.key}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another feed of the same batches stood, in its order; refuses others."""
        if (state.get("examples"), state["key"]) != (len(self.blocks), self.key):
            raise ConfigError(
                f"data: the run learned from {state.get('examples', 'streamed')} rows in other batches than "
                f"these of {len(self.blocks)}; keep data, tokenizer, train.seq_len, train.batch_size and "
                "train.batch_tokens, or start anew with init_from"
            )
        self.passes, self.at, self.seed = int(state["passes"]), int(state["at"]), int(state["seed"])
