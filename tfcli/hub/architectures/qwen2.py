"""Qwen2: Llama with biases on queries, keys and values, windows in some layers (arXiv 2407.10671)."""

from typing import Any

from tfcli.hub import Architecture, Kind
from tfcli.hub.architectures.llama import NAMES, SPARE, size
from tfcli.hub.architectures.mistral import FULL, SLIDING, window_of
from tfcli.hub.fields import ACTIVATIONS, CAUSAL, Asked, Choice, Field, Flat, Number, Only, Settings, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.layers import Layers, kinds, shortest
from tfcli.hub.rope import Rope

OURS = {FULL: "full", SLIDING: "sliding"}
THEIRS = {own: name for name, own in OURS.items()}


class Windows(Field):
    """Which layers have a window: those from `max_window_layers` on, or as `layer_types` has it."""

    def read(self, asked: Asked) -> Settings:
        switch = asked.get("use_sliding_window", False)
        if not isinstance(switch, bool):
            raise asked.refused("use_sliding_window", "must be true or false")
        asked.get("sliding_window")  # which says nothing without the switch
        window = window_of(asked, 4096) if switch else None
        named = self.kinds(asked, Layers("num_hidden_layers", "n", 32).read(asked)["n"], window)
        dropout = Number("attention_dropout", "dropout", 0.0).read(asked)["dropout"]
        if SLIDING not in named:
            return {"attention": "qwen2", "attention.dropout": dropout}
        if window is None:
            raise asked.refused("layer_types", "needs use_sliding_window=true and a sliding_window")
        found: Settings = {"attention": "qwen2_windows", "attention.sliding.rule.size": window}
        found["attention.pattern"] = shortest([OURS[kind] for kind in named])
        return found | {f"attention.{own}.dropout": dropout for own in THEIRS}

    def kinds(self, asked: Asked, n_layers: int, window: int | None) -> list[str]:
        """The kind of each layer, as they are called there."""
        first = asked.get("max_window_layers", 28)
        if type(first) is not int:
            raise asked.refused("max_window_layers", "must be a whole number")
        last = FULL if window is None else SLIDING
        return kinds(asked, OURS, n_layers, [last if layer >= first else FULL for layer in range(n_layers)])

    def write(self, our: Flat) -> dict[str, Any]:
        pattern = our.get("attention.pattern", ["full"])
        place = "attention.full" if "attention.pattern" in our else "attention"
        n_layers = our["size.n_layers"]
        kinds = [THEIRS.get(pattern[layer % len(pattern)], FULL) for layer in range(n_layers)]
        found = {"use_sliding_window": SLIDING in kinds, "layer_types": kinds}
        found["attention_dropout"] = our[f"{place}.dropout"]
        if SLIDING not in kinds:
            return found
        first = kinds.index(SLIDING)
        behind = {"max_window_layers": first} if FULL not in kinds[first:] else {}  # for older programs
        return found | behind | {"sliding_window": our.get("attention.sliding.rule.size")}


ARCHITECTURE = Architecture(
    model_type="qwen2",
    settings={"preset": "qwen2"},
    kinds={"Qwen2ForCausalLM": Kind({}, {})},
    body="Qwen2Model",
    fields=(
        *size(4096, 32, 32, 22016, 32768, n_kv_heads=32),
        Number("rms_norm_eps", "norm.eps", 1e-6),
        Rope(),
        Windows(),
        Choice("hidden_act", "ffn.activation", ACTIVATIONS, "silu"),
        Switch("tie_word_embeddings", "head.tied", False),
        Only("use_mrope", False),
        CAUSAL,
    ),
    names=NAMES,
    prefix="model.",
    habits=Habits(spare=SPARE),
)
