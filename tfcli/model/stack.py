"""A stack of layers: attention, attention to a memory if there is one, then feed-forward."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfcli.errors import ConfigError
from tfcli.model.attention import Pass, View
from tfcli.model.cache import Cache, Once
from tfcli.model.linear import short
from tfcli.model.parts import Parts
from tfcli.model.single import Glance, Glances
from tfcli.model.visibility import Causal, Rule


class Seen(NamedTuple):
    """What one layer looks at in one pass, and what it remembers of it (None: in training, nothing)."""

    own: View
    across: View | None  # of the memory
    cache: Cache | None
    memory: Once | None  # the cache of the memory's keys and values
    present: Tensor | None  # (B, T), which are tokens; None: all


class Layer(nn.Module):
    """x -> attention -> attention to the memory -> feed-forward; parallel: x + what each makes of x"""

    def __init__(self, parts: Parts, index: int) -> None:
        super().__init__()
        self.attention = parts.placement(parts.attention.make(index), parts.norm, first=index == 0)
        across = parts.cross_attention
        self.cross_attention = parts.placement(across.make(index), parts.norm) if across else None
        self.ffn = parts.placement(parts.ffn.make(index), parts.norm)
        self.parallel = self.attention.parallel

    def forward(self, x: Tensor, seen: Seen) -> Tensor:
        branches = [(self.attention, (seen.own, seen.cache)), (self.ffn, ())]
        if self.cross_attention is not None:
            branches.insert(1, (self.cross_attention, (seen.across, seen.memory)))
        read = x
        for branch, looks_at in branches:
            made = branch(read if self.parallel else x, *looks_at, present=seen.present)
            x = x + made if self.parallel else made
        return x


class Stack(nn.Module):
    """Layers under common rules.

    Layers of one kind share a view: everything that depends on positions only (masks, rotations, bias
    tables) is made once a pass. Without a causal rule keys on both sides are seen. recompute: activations
    are made anew in the backward pass instead of kept (Chen et al. 2016).
    """

    def __init__(self, parts: Parts, n_layers: int, rules: tuple[Rule, ...], recompute: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(parts, i) for i in range(n_layers))
        self.recompute = recompute
        self.bidirectional = Causal() not in rules
        self.positions = nn.ModuleList()  # the schemes: one a kind, or one a layer
        self.kinds: list[tuple[tuple[Rule, ...], int]] = []  # of each layer: its rules, its scheme
        made: dict[
            object, int
        ] = {}  # a kind of scheme, and the attention it serves -> its place in positions
        for i, layer in enumerate(self.layers):
            attention = layer.attention.branch
            scheme = self._scheme(parts, i, attention, made)
            refuse_deaf(attention, self.positions[scheme])
            refuse_blind(layer)
            self.kinds.append((rules if attention.rule is None else (*rules, attention.rule), scheme))
        self.final_norm = parts.norm() if self.layers[0].attention.final_norm else None
        if recompute and parts.norm().over_tokens:
            raise ConfigError(
                "train.recompute=true: would count every batch twice in the running statistics of this norm; "
                "set it to false, or choose a norm over features"
            )

    def _scheme(self, parts: Parts, layer: int, attention: nn.Module, made: dict[object, int]) -> int:
        """Where in `positions` a layer's scheme is: one a layer, or one a kind and head size."""
        kind, facts = parts.position.kind(layer), tuple(attention.facts.values())
        place = made.get(kind, made.get((kind, facts)))
        if place is None or self.positions[place].per_layer:
            place = len(self.positions)
            self.positions.append(parts.position.make(layer, attention, self.bidirectional))
            by_input = self.positions[place].enters == "input"  # added once, whatever attention there is
            made[kind if by_input else (kind, facts)] = place
        return place

    @property
    def context(self) -> int | None:
        """How many positions there are; None: it goes on."""
        return min((p.context for p in self.positions if p.context is not None), default=None)

    @property
    def stable_until(self) -> int | None:
        """In texts longer than this, what was computed for a shorter one no longer holds; None: it always
        does.
        """
        return min((p.stable_until for p in self.positions if p.stable_until is not None), default=None)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token vectors with what position adds to the input."""
        for scheme in self.positions:
            x = scheme.embed(x, positions)
        return x

    def new_caches(self) -> list[Cache]:
        """An empty cache for each layer."""
        return [layer.attention.branch.new_cache() for layer in self.layers]

    def new_memories(self) -> list[Once]:
        """For each layer an empty cache of what it looks at of a memory."""
        return [Once() for _ in self.layers]

    def forward(
        self, x: Tensor, this: Pass, caches: list[Cache] | None = None, memories: list[Once] | None = None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); with caches the T new tokens join what they remember.

        memories: a cache for each layer's keys and values of the pass's memory, made once.
        """
        n_new, views, present = x.shape[1], {}, this.present
        across = None if this.memory is None else View.across(this)
        for i, layer in enumerate(self.layers):
            cache = caches[i] if caches else None
            n_keys = cache.upcoming(n_new) if cache is not None else n_new
            memory = memories[i] if memories else None
            seen = Seen(self.view(this, n_keys, i, views), across, cache, memory, present)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, seen, use_reentrant=False)
            else:
                x = layer(x, seen)
        return x if self.final_norm is None else self.final_norm(x, present)

    def view(self, this: Pass, n_keys: int, layer: int, made: dict[object, View]) -> View:
        """What that layer looks at; made once for all layers of its kind, which remember equally far back."""
        kind = self.kinds[layer]
        if kind not in made:
            rules, scheme = kind
            made[kind] = View.of(this, n_keys, rules, self.positions[scheme])
        return made[kind]

    def single(self) -> Callable[[Tensor, int, list[Cache]], Tensor]:
        """`forward` for one token of one text: its vector (D,), its place, the caches -> (D,)."""
        kinds = list(dict.fromkeys(self.kinds))
        makers = [Glances(rules, self.positions[scheme]) for rules, scheme in kinds]
        layers = [
            (i, kinds.index(self.kinds[i]), short(layer.attention), short(layer.ffn), layer.parallel)
            for i, layer in enumerate(self.layers)
        ]
        last = short(self.final_norm) if self.final_norm is not None else None

        def step(x: Tensor, place: int, caches: list[Cache]) -> Tensor:
            glances: list[Glance | None] = [None] * len(kinds)
            for i, kind, attention, ffn, parallel in layers:
                cache = caches[i]
                glance = glances[kind]
                if glance is None:
                    glance = glances[kind] = makers[kind].at(place, cache.upcoming(1))
                made = attention(x, glance, cache)
                x = x + made + ffn(x) if parallel else ffn(made)
            return x if last is None else last(x)

        return step


def refuse_blind(layer: Layer) -> None:
    """Raises ConfigError if a layer's cross-attention reads no memory."""
    across = layer.cross_attention
    if across is not None and not across.branch.reads_memory:
        raise ConfigError(
            f"cross-attention {type(across.branch).__name__} reads no memory; choose another, as in "
            "attention@cross_attention=mha"
        )


def refuse_deaf(attention: nn.Module, scheme: nn.Module) -> None:
    """Raises ConfigError if position enters where that attention does not take it."""
    if scheme.enters is not None and scheme.enters not in attention.takes:
        raise ConfigError(
            f"position {type(scheme).__name__} enters as {scheme.enters}, which attention "
            f"{type(attention).__name__} does not take; it takes {', '.join(sorted(attention.takes))}"
        )
