"""SentencePiece's table of replacements, checked before the backend follows it.

The table is four bytes of size, a double array of that size (Yata 2011; darts-clone), and the replacements,
each ended by a zero byte, to which the leaves of the array point.
"""

import numpy as np

_LEAF, _LABEL = 1 << 8, 0x800000FF


def fault(charsmap: bytes) -> str | None:
    """What is wrong with a table, or None: some text would lead out of the array or of the replacements."""
    size = int.from_bytes(charsmap[:4], "little")
    if len(charsmap) < 8 or size % 4 or not 4 <= size <= len(charsmap) - 4:
        return "its normalization table does not fit"
    try:
        texts = charsmap[4 + size :]
        texts.decode()
    except UnicodeDecodeError:
        return "its normalization texts are not UTF-8"
    leaves = _leaves(np.frombuffer(charsmap, dtype="<u4", count=size // 4, offset=4).astype(np.int64))
    if leaves is None:
        return "its normalization table leads out of itself"
    starts = np.frombuffer(texts, dtype=np.uint8)
    if leaves.size and (leaves.max() >= starts.size or texts[-1:] != b"\0"):
        return "its normalization table leads beyond its texts"
    return "its normalization table leads into a character" if (starts[leaves] >> 6 == 2).any() else None


def _leaves(units: np.ndarray) -> np.ndarray | None:
    """The values of all leaves that some bytes reach; None if bytes lead out of the array."""
    seen = np.zeros(units.size, dtype=bool)
    nodes, found = np.array([0]), []
    while nodes.size:
        seen[nodes] = True
        base = nodes ^ _offset(units[nodes])
        if (base | 255).max() >= units.size:
            return None
        held = base[(units[nodes] & _LEAF) != 0]
        found.append(units[held] & 0x7FFFFFFF)
        places = base[:, None] ^ np.arange(1, 256)
        matches = (units[places] & _LABEL) == np.arange(1, 256)
        nodes = np.unique(places[matches])
        nodes = nodes[~seen[nodes]]
    return np.concatenate(found)


def _offset(units: np.ndarray) -> np.ndarray:
    return (units >> 10) << ((units & (1 << 9)) >> 6)
