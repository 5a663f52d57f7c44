"""Tokenizers that are trained from the run's own data.

All but `Char` work on UTF-8 bytes with the full byte alphabet, so they give back every text exactly.
"""

import json
from collections.abc import Iterable, Iterator

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from tfcli.errors import ConfigError
from tfcli.tokenizer import ROLES, Tokenizer, pieces, valid
from tfcli.values import Count

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"


class Trained:
    """A recipe: `train(texts)` gives a Tokenizer.

    extra: further special tokens, which have the ids after those that every text needs. One that is named
    after a role has it, as <mask>.
    """

    needs_text = True
    special: tuple[str, ...] = (PAD, BOS, EOS)  # with ids 0, 1, 2 ...

    def __init__(self, *, extra: tuple[str, ...] = (), allow_special: bool = False) -> None:
        self.special = (*dict.fromkeys((*self.special, *extra)),)
        self.allow_special = allow_special

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Learns from the texts; raises ConfigError if there are none."""
        backend = self.learn(_some(texts))
        hidden = [token for token in self.special if token != UNK]  # which stays visible when decoded
        backend.add_special_tokens(hidden)
        roles = {role: f"<{role}>" for role in ROLES if f"<{role}>" in self.special}
        return Tokenizer(backend, roles, allow_special=self.allow_special)

    def learn(self, texts: Iterator[str]) -> Backend:
        """The backend whose first ids are the special tokens."""
        raise NotImplementedError


class Char(Trained):
    """One token per character of the training text; a character unseen there is <unk>."""

    special = (PAD, BOS, EOS, UNK)

    def learn(self, texts: Iterator[str]) -> Backend:
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        vocabulary = {token: i for i, token in enumerate([*self.special, *sorted(characters)])}
        backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token=UNK))  # no merges: characters
        backend.decoder = decoders.Fuse()
        return backend


class Byte(Trained):
    """One token per byte of UTF-8: the id of byte b is 3 + len(extra) + b  (ByT5, Xue et al. 2021)."""

    needs_text = False

    def train(self, texts: Iterable[str] = ()) -> Tokenizer:
        return super().train(["nothing to learn"])

    def learn(self, texts: Iterator[str]) -> Backend:
        vocabulary = {token: i for i, token in enumerate([*self.special, *byte_symbols()])}
        backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        return backend


class Subword(Trained):
    """A vocabulary of at most `vocab_size` pieces of words, special tokens and all 256 bytes included."""

    least = 256

    def __init__(
        self, *, vocab_size: Count, extra: tuple[str, ...] = (), allow_special: bool = False
    ) -> None:
        super().__init__(extra=extra, allow_special=allow_special)
        least = self.least + len(self.special)
        if vocab_size < least:
            raise ConfigError(
                f"tokenizer.vocab_size={vocab_size}: must be at least {least}, "
                "the byte alphabet and the special tokens"
            )
        self.vocab_size = vocab_size

    def fit(
        self, backend: Backend, trainer: type, texts: Iterator[str], first: tuple = (), **more
    ) -> Backend:
        """Trains the backend in place; the special tokens and `first` have the first ids."""
        settings = {"vocab_size": self.vocab_size, "initial_alphabet": byte_symbols(), "show_progress": False}
        trainer = trainer(special_tokens=[*self.special, *first], **settings, **more)
        backend.train_from_iterator((piece for text in texts for piece in pieces(text)), trainer)
        return backend


class Bpe(Subword):
    """Byte-level byte-pair encoding  (Sennrich et al. 2016; GPT-2, Radford et al. 2019)."""

    def learn(self, texts: Iterator[str]) -> Backend:
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        return self.fit(backend, trainers.BpeTrainer, texts)


class Unigram(Subword):
    """The likeliest segmentation under a unigram language model, here over bytes  (Kudo 2018)."""

    special = (PAD, BOS, EOS, UNK)

    def learn(self, texts: Iterator[str]) -> Backend:
        backend = Backend(models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        self.fit(backend, trainers.UnigramTrainer, texts, unk_token=UNK)
        learned = json.loads(backend.to_str())["model"]["vocab"][len(self.special) :]
        room = self.vocab_size - len(self.special)
        vocabulary = [(token, 0.0) for token in self.special] + _settled(learned, room)
        backend.model = models.Unigram(vocab=vocabulary, unk_id=self.special.index(UNK), byte_fallback=False)
        return backend


class WordPiece(Subword):
    """The longest known piece first, '##' before a piece that continues a word  (BERT, Devlin et al. 2018).

    Over bytes and with white space kept, so nothing is lost; '#' is a word of its own, so '##' is never text.
    """

    special = (PAD, BOS, EOS, UNK)
    least = 2 * 256  # each byte at the beginning of a word and within one

    def learn(self, texts: Iterator[str]) -> Backend:
        hashes = pre_tokenizers.Split("#", "isolated")
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        short = pre_tokenizers.Split(
            Regex(".{1,64}"), "isolated"
        )  # the search is quadratic in a word's length
        student = Backend(models.WordPiece(unk_token=UNK))
        student.pre_tokenizer = pre_tokenizers.Sequence([hashes, words, short])
        within = tuple(f"##{symbol}" for symbol in byte_symbols())
        vocabulary = self.fit(student, trainers.WordPieceTrainer, texts, within).get_vocab()
        backend = Backend(models.WordPiece(vocab=vocabulary, unk_token=UNK))
        backend.pre_tokenizer = student.pre_tokenizer
        backend.decoder = decoders.Sequence([decoders.Replace(Regex("^##"), ""), decoders.ByteLevel()])
        return backend


def _settled(learned: list[tuple[str, float]], room: int) -> list[tuple[str, float]]:
    """The bytes and the best pieces: the same whenever the same text is learned, and such as a file can hold.

    The trainer sums in any order, and gives the bytes it never saw the lowest score + n * 0.0001 at random.
    """
    lowest = min((score for _, score in learned), default=0.0)
    unseen = lowest + 256 * 0.0001
    scores = ((token, lowest if len(token) == 1 and score < unseen else score) for token, score in learned)
    ranked = sorted(
        ((token, round(score, 6)) for token, score in scores), key=lambda pair: (-pair[1], pair[0])
    )
    singles = [pair for pair in ranked if len(pair[0]) == 1]
    return singles + [pair for pair in ranked if len(pair[0]) > 1][: room - len(singles)]


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte 0..255 (GPT-2's table)."""
    printable = {byte for first, last in ("!~", "¡¬", "®ÿ") for byte in range(ord(first), ord(last) + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _some(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        empty = empty and not text
        yield valid(text)
    if empty:
        raise ConfigError("tokenizer: there is no text to train on")
