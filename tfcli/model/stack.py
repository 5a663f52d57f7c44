"""A stack of layers: attention, then feed-forward, each within its placement."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfcli.errors import ConfigError
from tfcli.model.attention import Pass, View
from tfcli.model.cache import Cache
from tfcli.model.linear import short
from tfcli.model.parts import Parts
from tfcli.model.single import Glance, Glances
from tfcli.model.visibility import Rule


class Layer(nn.Module):
    """x -> attention -> feed-forward"""

    def __init__(self, parts: Parts, index: int) -> None:
        super().__init__()
        self.attention = parts.placement(parts.attention.make(index), parts.norm)
        self.ffn = parts.placement(parts.ffn.make(index), parts.norm)

    def forward(self, x: Tensor, view: View, cache: Cache | None = None) -> Tensor:
        return self.ffn(self.attention(x, view, cache))


class Stack(nn.Module):
    """Layers under common rules.

    Layers of one kind share a view: everything that depends on positions only (masks, rotations, bias
    tables) is made
    once a pass. recompute: activations are made anew in the backward pass instead of kept (Chen et al. 2016).
    """

    def __init__(self, parts: Parts, n_layers: int, rules: tuple[Rule, ...], recompute: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(parts, i) for i in range(n_layers))
        self.recompute = recompute
        self.positions = nn.ModuleList()  # the schemes: one a kind, or one a layer
        self.kinds: list[tuple[tuple[Rule, ...], int]] = []  # of each layer: its rules, its scheme
        made: dict[
            object, int
        ] = {}  # a kind of scheme, and the attention it serves -> its place in positions
        for i, layer in enumerate(self.layers):
            attention = layer.attention.branch
            scheme = self._scheme(parts, i, attention, made)
            refuse_deaf(attention, self.positions[scheme])
            self.kinds.append((rules if attention.rule is None else (*rules, attention.rule), scheme))
        self.final_norm = parts.norm() if self.layers[0].attention.final_norm else None

    def _scheme(self, parts: Parts, layer: int, attention: nn.Module, made: dict[object, int]) -> int:
        """Where in `positions` a layer's scheme is: one a layer, or one a kind and head size."""
        kind, facts = parts.position.kind(layer), tuple(attention.facts.values())
        place = made.get(kind, made.get((kind, facts)))
        if place is None or self.positions[place].per_layer:
            place = len(self.positions)
            self.positions.append(parts.position.make(layer, attention))
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

    def forward(self, x: Tensor, this: Pass, caches: list[Cache] | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); with caches the T new tokens join what they remember."""
        n_new, views = x.shape[1], {}
        for i, layer in enumerate(self.layers):
            cache = caches[i] if caches else None
            n_keys = cache.upcoming(n_new) if cache is not None else n_new
            view = self.view(this, n_keys, i, views)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, view, use_reentrant=False)
            else:
                x = layer(x, view, cache)
        return x if self.final_norm is None else self.final_norm(x)

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
            (i, kinds.index(self.kinds[i]), short(layer.attention), short(layer.ffn))
            for i, layer in enumerate(self.layers)
        ]
        last = short(self.final_norm) if self.final_norm is not None else None

        def step(x: Tensor, place: int, caches: list[Cache]) -> Tensor:
            glances: list[Glance | None] = [None] * len(kinds)
            for i, kind, attention, ffn in layers:
                cache = caches[i]
                glance = glances[kind]
                if glance is None:
                    glance = glances[kind] = makers[kind].at(place, cache.upcoming(1))
                x = ffn(attention(x, glance, cache))
            return x if last is None else last(x)

        return step


def refuse_deaf(attention: nn.Module, scheme: nn.Module) -> None:
    """Raises ConfigError if position enters where that attention does not take it."""
    if scheme.enters is not None and scheme.enters not in attention.takes:
        raise ConfigError(
            f"position {type(scheme).__name__} enters as {scheme.enters}, which attention "
            f"{type(attention).__name__} does not take; it takes {', '.join(sorted(attention.takes))}"
        )
