"""SentencePiece files of published models: what each family makes of the same format."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tfcli.errors import ConfigError
from tfcli.tokenizer.sentencepiece import CONTROL, UNKNOWN, Model, Piece, load
from tfcli.tokenizer.spm import backend
from tfcli.tokenizer.words import Read

FAIRSEQ = (Piece("<s>", 0.0, CONTROL), Piece("<pad>", 0.0, CONTROL), Piece("</s>", 0.0, CONTROL),
           Piece("<unk>", 0.0, UNKNOWN))  # fmt: skip
OWN_ROLES = ("unk", "bos", "eos", "pad")


def from_pieces(path: Path, kind: str, said: dict[str, Any]) -> Read:
    """The backend of a model file, and what the file itself says of its special tokens."""
    kind = kind or ("xlmroberta" if path.name == "sentencepiece.bpe.model" else "")
    if kind not in ("", "t5", "llama", "gemma", "xlmroberta"):
        raise ConfigError(
            f"{path}: a SentencePiece model of {kind}: must be of T5, Llama, Mistral, Gemma or XLM-RoBERTa, "
            "or have a tokenizer.json"
        )
    model = load(path)
    if kind == "xlmroberta":
        model = replace(model, pieces=(*FAIRSEQ, *model.pieces[3:], Piece("<mask>", 0.0, CONTROL)))
    else:
        said = {f"{role}_token": model.roles.get(role) for role in OWN_ROLES} | said
    if kind == "t5":
        model = with_sentinels(model, said.get("extra_ids", 100), path)
    if kind == "llama" and said.get("add_prefix_space") is False:
        model = replace(model, dummy_prefix=False)
    return backend(model, anew=kind != "llama" or said.get("legacy") is not False), said, kind


def with_sentinels(model: Model, n: int, path: Path) -> Model:
    """T5's <extra_id_0> has the last id, <extra_id_1> the one before, and so on, where the file has none."""
    if not isinstance(n, int) or not 0 <= n < 1 << 16:
        raise ConfigError(f"{path.parent / 'tokenizer_config.json'}: extra_ids={n}: must be a whole number")
    if any(piece.text == "<extra_id_0>" for piece in model.pieces):
        return model
    more = (Piece(f"<extra_id_{k}>", 0.0, CONTROL) for k in reversed(range(n)))
    return replace(model, pieces=(*model.pieces, *more))
