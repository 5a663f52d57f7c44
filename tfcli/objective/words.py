"""What the tokens of a vocabulary are: special, beginnings of words, ends of sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from tfcli.tokenizer import Tokenizer

STOPS = (".", "!", "?", "。", "！", "？", "．", "｡")
ANCHOR = "a"  # a token is spelled behind another: some decoders drop the blank before the first


class Vocabulary:
    """Facts of each token, as arrays over the vocabulary that are made once, when first asked for.

    A word begins at a token that brings white space or follows some, at an ideograph or kana (whose words are
    not set apart), behind a special token and at the beginning of a row; of WordPiece also at each piece
    without '##'. White space alone belongs to the word before it. So punctuation is a part of the word it
    stands at, unless WordPiece sets it apart, and of single bytes words are told apart by white space only.
    A sentence begins at the first word behind one that ends in a full stop or the like.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def special(self) -> np.ndarray:
        """(V,) tokens that stand for no text; <unk> stands for some."""
        t = self.tokenizer
        roles = {t.bos_id, t.eos_id, t.cls_id, t.sep_id, t.mask_id, t.pad_id if t.has_pad else None}
        return self._table((t.special_ids | roles) - {None, t.unk_id})

    @cached_property
    def ordinary(self) -> np.ndarray:
        """The ids of tokens that stand for a known piece of text."""
        there = np.array([piece != "" for piece in self._pieces], dtype=bool)
        return np.flatnonzero(there & ~self.special & ~self._table({self.tokenizer.unk_id} - {None}))

    @cached_property
    def ends_sentence(self) -> np.ndarray:
        """(V,) tokens whose text ends in a full stop, an exclamation or a question mark."""
        return self._each(lambda text: text.rstrip().endswith(STOPS)) & ~self.special

    def begins_word(self, tokens: np.ndarray, documents: np.ndarray | None = None) -> np.ndarray:
        """(L,) where a word of the row begins; special tokens, each, are taken for one."""
        before = np.roll(tokens, 1)
        begins = self._brings_word[tokens] | (self._ends_blank[before] & ~self._blank[tokens])
        begins |= self.special[tokens] | self.special[before]
        if documents is not None:
            begins |= documents != np.roll(documents, 1)
        begins[:1] = True
        return begins

    def begins_sentence(self, tokens: np.ndarray) -> np.ndarray:
        """(L,) where a sentence of the row begins that is not the first of its text."""
        stops = self.ends_sentence[tokens]
        solid = np.where(self._blank[tokens], -1, np.arange(len(tokens)))
        last = np.maximum.accumulate(solid)  # (L,) the last token so far that is no white space
        stopped = np.append(False, (stops[last] & (last >= 0))[:-1])[: len(tokens)]
        return stopped & self.begins_word(tokens) & ~stops & ~self.special[tokens]

    @cached_property
    def _brings_word(self) -> np.ndarray:
        """(V,) tokens that begin a word whatever stands before them."""
        if type(self.tokenizer.backend.model).__name__ == "WordPiece":
            return ~self._blank & np.array([not piece.startswith("##") for piece in self._pieces], dtype=bool)
        return ~self._blank & self._each(lambda text: text[:1].isspace() or _unspaced(text[:1]))

    @cached_property
    def _blank(self) -> np.ndarray:
        return self._each(str.isspace)

    @cached_property
    def _ends_blank(self) -> np.ndarray:
        return self._each(lambda text: text[-1:].isspace())

    @cached_property
    def _pieces(self) -> list[str]:
        return self.tokenizer.pieces_of_vocabulary()

    @cached_property
    def _texts(self) -> list[str]:
        """What each token adds to a text."""
        decoder = self.tokenizer.backend.decoder
        if decoder is None:  # then tokens are joined by blanks
            return [f" {piece}" for piece in self._pieces]
        return [decoder.decode([ANCHOR, piece])[len(ANCHOR) :] for piece in self._pieces]

    def _each(self, fact: Callable[[str], bool]) -> np.ndarray:
        return np.array([fact(text) for text in self._texts], dtype=bool)

    def _table(self, ids: Iterable[int]) -> np.ndarray:
        table = np.zeros(self.tokenizer.vocab_size, dtype=bool)
        table[list(ids)] = True
        return table


def _unspaced(character: str) -> bool:
    """Whether a character is of a script that puts no blanks between words: ideographs and kana."""
    return "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or character >= "\U00020000"
