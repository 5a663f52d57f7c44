"""A SentencePiece model as a backend of the `tokenizers` package that gives the same ids."""

import re
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from tfcli.tokenizer.sentencepiece import BPE, BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Model, Piece

SPACE = "▁"


def backend(model: Model, *, anew: bool = True) -> Backend:
    """The backend of a model; control pieces and the unknown piece are its special tokens.

    anew: a text after a special token gets the leading blank as well (`legacy` of Llama's files); else only
    the beginning does, and a blank that stands there already is taken for it, as `transformers` has it.
    """
    prefix = model.dummy_prefix
    made = Backend(_algorithm(model))
    made.normalizer = normalizers.Sequence(_rewriting(model, prefix and (anew or not model.escape)))
    words = [*([_first_only()] if prefix and not anew and model.escape else []), *_cuts(model)]
    if words:
        made.pre_tokenizer = pre_tokenizers.Sequence(words)
    made.decoder = decoders.Sequence(_spelling(model))
    special = [piece.text for piece in model.pieces if piece.kind in (CONTROL, UNKNOWN)]
    made.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    return made


def _algorithm(model: Model) -> models.Model:
    unknown = model.unknown
    if model.algorithm != BPE:
        scores = [(p.text, 0.0 if p.kind == USER_DEFINED else p.score) for p in model.pieces]
        return models.Unigram(scores, unk_id=unknown, byte_fallback=model.byte_fallback)
    whole = any(piece.kind == USER_DEFINED for piece in model.pieces)  # which no merge makes
    return models.BPE(
        vocab={piece.text: i for i, piece in enumerate(model.pieces)},
        merges=merges(model.pieces),
        unk_token=model.pieces[unknown].text,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        ignore_merges=whole,
    )


def merges(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others; the one with the best score is made first."""
    order = {piece.text: (-piece.score, i) for i, piece in enumerate(pieces) if piece.kind == NORMAL}
    halves = ((rank, text[:cut], text[cut:]) for text, rank in order.items() for cut in range(1, len(text)))
    known = [(rank, left, right) for rank, left, right in halves if left in order and right in order]
    known.sort(key=lambda pair: pair[0])
    return [(left, right) for _, left, right in known]


def _rewriting(model: Model, prefix: bool) -> list[normalizers.Normalizer]:
    """What is done to a text before it is cut, in SentencePiece's order."""
    space = SPACE if model.escape else " "
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.tidy:  # of blanks only; other white space is the table's
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if model.escape:
        steps.append(normalizers.Replace(" ", SPACE))
    if model.tidy:
        steps.append(normalizers.Replace(Regex(rf"{space}+\z"), ""))
    return [*steps, normalizers.Prepend(space)] if prefix else steps


def _first_only() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)


def _cuts(model: Model) -> list[pre_tokenizers.PreTokenizer]:
    """User-defined pieces stand alone; what spells another piece that is no text is cut in two."""
    alone = sorted((p.text for p in model.pieces if p.kind == USER_DEFINED), key=len, reverse=True)
    cuts = [pre_tokenizers.Split(Regex("|".join(map(re.escape, alone))), "isolated")] if alone else []
    silent = [p.text for p in model.pieces if p.kind in (CONTROL, UNKNOWN, BYTE)]
    if silent and (model.algorithm != BPE or alone):  # merges alone never make them
        places = _places(model, silent)
        halves = (f"{re.escape(t[:at])}(?={re.escape(t[at:])})" for t, at in places.items())
        cuts.append(pre_tokenizers.Split(Regex("|".join(halves)), "merged_with_previous"))
    return cuts


def _places(model: Model, texts: Iterable[str]) -> dict[str, int]:
    """Where to cut each text so that no piece, and no run of unknown characters, would span the cut."""
    normal = [piece.text for piece in model.pieces if piece.kind == NORMAL]
    joined = {text[i : i + 2] for text in normal for i in range(len(text) - 1)}
    known = {text for text in normal if len(text) == 1}

    def cost(text: str, at: int) -> tuple[bool, bool, int]:
        return text[at - 1 : at + 1] in joined, not known & {text[at - 1], text[at]}, at

    return {t: min(range(1, len(t)), key=lambda at, t=t: cost(t, at)) for t in texts if len(t) > 1}


def _spelling(model: Model) -> list[decoders.Decoder]:
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " ")] if model.escape else []
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    return [*steps, decoders.Strip(" ", left=1)] if model.dummy_prefix else steps
