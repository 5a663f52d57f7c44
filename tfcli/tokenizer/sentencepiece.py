"""SentencePiece model files, read from their protobuf wire format without the protobuf package."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfcli.errors import ConfigError
from tfcli.tokenizer.charsmap import fault

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = "unigram", "bpe"
_KINDS = {1: UNIGRAM, 2: BPE, 3: "word", 4: "char"}


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its id is its place."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass(frozen=True)
class Model:
    """What a model file says, as far as it matters for reading text  (Kudo & Richardson 2018)."""

    pieces: tuple[Piece, ...]
    algorithm: str = UNIGRAM
    byte_fallback: bool = False
    charsmap: bytes = b""
    dummy_prefix: bool = True
    tidy: bool = True  # remove_extra_whitespaces
    escape: bool = True  # escape_whitespaces
    roles: dict[str, str] = field(default_factory=dict)  # e.g. {"eos": "</s>"}

    @property
    def unknown(self) -> int:
        """The id of the unknown piece."""
        return next(i for i, piece in enumerate(self.pieces) if piece.kind == UNKNOWN)


class Damaged(ValueError):
    """Bytes that are no protobuf message of this kind."""


def load(path: Path) -> Model:
    """Reads a model file. Raises ConfigError, in one line, if it is none or asks for what is not built."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (Damaged, UnicodeDecodeError, struct.error) as error:
        raise ConfigError(f"{path}: not a SentencePiece model, or damaged ({error})") from None


def parse(data: bytes, where: str = "model") -> Model:
    """The model of a file's bytes."""
    message = fields(data)
    pieces = tuple(_piece(fields(_bytes(one))) for one in message.get(1, ()))
    trainer, normalizer = (fields(_bytes(_last(message, number, b""))) for number in (2, 3))
    charsmap = _bytes(_last(normalizer, 2, b""))
    _check_pieces(pieces)
    if charsmap and (wrong := fault(charsmap)):
        raise Damaged(wrong)
    _refuse(message, trainer, pieces, where)
    return Model(
        pieces=pieces,
        algorithm=_KINDS[_last(trainer, 3, 1)],
        byte_fallback=bool(_last(trainer, 35, 0)),
        charsmap=charsmap,
        dummy_prefix=bool(_last(normalizer, 3, 1)),
        tidy=bool(_last(normalizer, 4, 1)),
        escape=bool(_last(normalizer, 5, 1)),
        roles=_roles(trainer, pieces),
    )


def fields(data: bytes) -> dict[int, list[int | bytes]]:
    """A message as field number to the values found, in their order; fixed-width values stay bytes."""
    found: dict[int, list[int | bytes]] = {}
    for number, value in _walk(data):
        found.setdefault(number, []).append(value)
    return found


def _walk(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise Damaged(f"field 0 at byte {at}")
        if wire == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}.get(wire), at)
            if size is None or at + size > len(data):
                raise Damaged(f"a value that cannot be at byte {at}")
            value, at = data[at : at + size], at + size
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next thing begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Damaged("it ends within a number")
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Damaged(f"a number too large at byte {at}")


def _piece(message: dict[int, list[int | bytes]]) -> Piece:
    score = struct.unpack("<f", _bytes(_last(message, 2, bytes(4))))[0]
    return Piece(_bytes(_last(message, 1, b"")).decode(), score, _number(_last(message, 3, NORMAL)))


def _roles(trainer: dict[int, list[int | bytes]], pieces: tuple[Piece, ...]) -> dict[str, str]:
    """The pieces that are unk, bos, eos and pad; an id of -1 says that there is none."""
    fields_of = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}
    ids = {role: _number(_last(trainer, number, usual)) for role, (number, usual) in fields_of.items()}
    kinds = (UNKNOWN, CONTROL, USER_DEFINED)
    known = {role: pieces[i] for role, i in ids.items() if 0 <= i < len(pieces)}
    return {role: piece.text for role, piece in known.items() if piece.kind in kinds}


def _check_pieces(pieces: tuple[Piece, ...]) -> None:
    if sum(piece.kind == UNKNOWN for piece in pieces) != 1:
        raise Damaged("it has not one unknown piece")
    if not all(piece.text and piece.score == piece.score for piece in pieces):
        raise Damaged("a piece is empty, or its score is no number")
    if len({piece.text for piece in pieces}) != len(pieces):
        raise Damaged("it has a piece twice")


def _refuse(message: dict, trainer: dict, pieces: tuple[Piece, ...], where: str) -> None:
    kind = _KINDS.get(_last(trainer, 3, 1))
    if kind not in (UNIGRAM, BPE):
        raise ConfigError(f"{where}: model_type={kind}: must be unigram or bpe")
    if _last(trainer, 24, 0):
        raise ConfigError(f"{where}: treat_whitespace_as_suffix=true: must be false")
    if fields(_bytes(_last(message, 5, b""))).get(2, [b""])[-1]:
        raise ConfigError(f"{where}: denormalizer_spec: must be empty, texts are not rewritten when decoded")
    odd = next((p.text for p in pieces if p.kind not in range(NORMAL, BYTE + 1) or p.kind == UNUSED), None)
    if odd is not None:
        raise ConfigError(f"{where}: piece '{odd}' is unused or of an unknown kind; restrict no vocabulary")


def _last(message: dict[int, list[int | bytes]], number: int, usual: int | bytes) -> int | bytes:
    return message.get(number, [usual])[-1]


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise Damaged("a number where bytes belong")
    return value


def _number(value: int | bytes) -> int:
    """A number of 32 bits with its sign."""
    if isinstance(value, bytes):
        raise Damaged("bytes where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value
