"""Marian's translators (Junczys-Dowmunt et al. 2018, arXiv 1804.00344)."""

import torch
from torch import Tensor, nn

from tfcli.hub import Architecture, Kind
from tfcli.hub.architectures import bart
from tfcli.hub.fields import Alike, Free, Only, Switch
from tfcli.hub.filling import Habits
from tfcli.hub.names import Name
from tfcli.model.position.sinusoidal import Sinusoidal


def waves(shape: tuple[int, ...]) -> Tensor:
    """What a table of positions holds, (n, D)."""
    scheme = Sinusoidal(shape[-1], layout="concatenated")
    return scheme.embed(torch.zeros(1, *shape), torch.arange(shape[0])[None])[0]


def table(model: nn.Module) -> Name:
    """The table of what is written, which may be that of what is read."""
    if model.embedding.table.weight is model.source_embedding.table.weight:
        return Name("model.shared", also=("model.decoder.embed_tokens.weight",))
    return Name("model.decoder.embed_tokens")


ARCHITECTURE = Architecture(
    model_type="marian",
    settings={"preset": "marian"},
    kinds={"MarianMTModel": Kind({"objective": "marian", "objective.start": "pad"})},
    fields=(
        *bart.FIELDS,
        Switch("share_encoder_decoder_embeddings", "family.share_embeddings", True),
        Alike("vocab_size", "decoder_vocab_size"),
        Only("normalize_embedding", None, False),
        Only("static_position_embeddings", None, True),
        Free("extra_pos_embeddings"),  # rows of a table that waves have no need of
    ),
    names={**bart.LAYERS, "embedding.table": table},
    prefix="model.",
    habits=Habits(
        spare=bart.SPARE,
        fixed=((r"model\.(encoder|decoder)\.embed_positions\.weight", waves),),
        zero=bart.ZERO,
    ),
)
