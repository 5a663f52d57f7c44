"""How many layers a config.json tells of, and of what kinds they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfcli.hub.fields import Asked, Field, Flat, Number, Settings

AT_MOST = 10**5  # layers; beyond it no list of them is made


class Layers(Number):
    """How many layers there are, which no list that is made by it is to be too long for."""

    def read(self, asked: Asked) -> Settings:
        found = super().read(asked)
        if not 1 <= found[self.key] <= AT_MOST:
            raise asked.refused(self.names, f"must be a whole number of layers from 1 to {AT_MOST}")
        return found


class Sides(Field):
    """How many layers each side of an encoder-decoder has.

    default: of the encoder, and of the decoder; None: as many as the encoder.
    """

    def __init__(
        self, encoder: tuple[str, ...], decoder: str, default: int, of_decoder: int | None = None
    ) -> None:
        self.encoder, self.decoder, self.default, self.of_decoder = encoder, decoder, default, of_decoder

    def read(self, asked: Asked) -> Settings:
        n_encoder = Layers(self.encoder, "n", self.default).read(asked)["n"]
        n_decoder = Layers(self.decoder, "n", self.of_decoder or n_encoder).read(asked)["n"]
        alike = {"size.n_layers": n_encoder}
        return alike if n_decoder == n_encoder else alike | {"family.n_decoder_layers": n_decoder}

    def write(self, our: Flat) -> dict[str, Any]:
        sides = {self.encoder[0]: "family.n_encoder_layers", self.decoder: "family.n_decoder_layers"}
        return {theirs: our[own] for theirs, own in sides.items() if own in our}


def kinds(asked: Asked, known: Mapping[str, str], n_layers: int, usual: Sequence[str]) -> list[str]:
    """The kind of each layer, by their names: as `layer_types` lists them, or else as usual."""
    named = asked.get("layer_types", usual)
    listed = isinstance(named, list | tuple) and all(isinstance(k, str) and k in known for k in named)
    if not listed or len(named) != n_layers:
        right = f"must list {' or '.join(known)} for each of {n_layers} layers, as num_hidden_layers has it"
        raise asked.refused("layer_types", right)
    return list(named)


def shortest(names: Sequence[str]) -> list[str]:
    """The shortest list that, said over and over, gives all of them: a b a -> a b."""
    whole = list(names)
    lengths = (n for n in range(1, len(whole)) if whole[n:] == whole[:-n])
    return whole[: next(lengths, len(whole))]
