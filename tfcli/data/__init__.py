"""Where text comes from and the order in which it is learned: the contracts of data.

source --documents--> str --tokenizer--> ids --packing--> examples --feed--> the objective
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from tfcli.values import Count as Size
from tfcli.values import Range

Part = Annotated[float, Range(low=0, high=1, open_low=True, open_high=True)]  # some of it, and not all
Packing = Literal["stream", "documents", "none"]


class Document(NamedTuple):
    """A text, and what stands before it; a very long one may come in pieces.

    A pair is a document whose prompt is the source and whose text is the target.
    """

    text: str
    prompt: str = ""
    begins: bool = True  # else it goes on where the one before it stopped
    ends: bool = True

    @property
    def size(self) -> int:
        """Bytes in UTF-8."""
        return len(self.text.encode()) + len(self.prompt.encode())


class Labelled(NamedTuple):
    """A text, or two, and the class it belongs to."""

    text: str
    label: str
    second: str | None = None
    where: str = ""  # file and line, for messages

    @property
    def prompt(self) -> str:
        """What stands before the text: nothing."""
        return ""

    @property
    def size(self) -> int:
        """Bytes in UTF-8."""
        return len(self.text.encode()) + len((self.second or "").encode())


class Tagged(NamedTuple):
    """A sentence in words, each with its tag (B-x, I-x, O)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str = ""

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def prompt(self) -> str:
        return ""

    @property
    def size(self) -> int:
        """Bytes in UTF-8."""
        return len(self.text.encode())


class Answer(NamedTuple):
    """A piece of a context, and the character at which it begins there."""

    text: str
    start: int


class Question(NamedTuple):
    """A question, the text that holds its answer, and the answers that count as right; none: it has no
    answer there.
    """

    question: str
    context: str
    answers: tuple[Answer, ...]
    id: str = ""
    where: str = ""

    @property
    def text(self) -> str:
        return self.context

    @property
    def prompt(self) -> str:
        return self.question + "\n"

    @property
    def size(self) -> int:
        """Bytes in UTF-8."""
        return len(self.context.encode()) + len(self.question.encode())


Record = Document | Labelled | Tagged | Question
Kind = Literal["text", "pair", "label", "tags", "answer"]  # what can be learned from a source's records


class Example(NamedTuple):
    """One row to learn from.

    Of text: up to seq_len + 1 tokens, of which every next one is to be predicted, or as many as an objective
    asks for. With `documents` it may hold more tokens, as the last of a document is no input (nothing follows
    it). Of records: what is read, and as `target` what is to be said of it.
    """

    tokens: np.ndarray  # (L,) int64
    documents: np.ndarray | None = None  # (L,) which packed document a token belongs to; None: one
    positions: np.ndarray | None = None  # (L,) restarted at each document; None: 0..L-1
    score: np.ndarray | None = None  # (L,) bool, may it be a label; None: all
    target: np.ndarray | None = None  # pair: (M,) ids with EOS; label: (1,); tags: (L,); answer: (2,)
    segments: np.ndarray | None = None  # (L,) 0 in the first text, 1 in the second; None: 0
    place: tuple[int, ...] = ()  # (seed, epoch, index): whatever is random about it is drawn from these


class Blocks(Protocol):
    """Examples that can be counted and looked up."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Example: ...

    def labels(self) -> np.ndarray:
        """How many tokens of each are to be predicted, (len,)."""

    def sizes(self) -> np.ndarray:
        """How many tokens of each are read, of the source and of the target, (len, 2)."""


class Feed(Protocol):
    """Examples without an end, in an order that depends on the seed and on how many were drawn."""

    epoch: float  # how many times the data were gone through
    examples_per_epoch: int | None  # None: not known beforehand
    batches_per_epoch: float | None  # as that

    def draw(self, n: int) -> list[Example]:
        """The next n examples for this rank; every rank draws the same n. A feed that sorts them by length
        gives fewer where they run out, and as many as fit where there is a budget of tokens.
        """

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass
class Corpus:
    """What a run learns from and what it is evaluated on."""

    train: Feed
    validation: Blocks
    facts: dict[str, Any]  # "train" and "validation": documents, tokens, bytes ...; see `prepare`
    notices: list[str] = field(default_factory=list)  # what the user should read at the start
    labels: tuple[str, ...] | None = None  # the classes or tags, in the order of their ids; None: no labels


@dataclass(kw_only=True)
class Source:
    """Documents, and how they become examples. The choices of the group `data` are subclasses.

    packing: `stream` cuts all documents, one after the other, into blocks; `documents` puts several whole
    documents into a block, none of which sees another; `none` makes one row of each. bos, eos: around each
    document, where the tokenizer has such a token; if both are the same one, as for GPT-2, a stream has it
    once between documents and once at its beginning. tokenizer_characters: on how much text a tokenizer is
    trained, at most. cache_dir: where tokens are kept; None is tfcli in the user's cache folder.
    """

    packing: Packing = "stream"
    bos: bool = True
    eos: bool = True
    tokenizer_characters: Size = 50_000_000
    cache_dir: str | None = None

    # what a subclass may make a setting
    gives: ClassVar[frozenset[Kind]] = frozenset({"text"})  # what its records can teach
    streaming: ClassVar[Any] = False  # whether documents are read while training
    validation_fraction: ClassVar[Any] = None  # how much is held out where `held_out` is None
    max_documents: ClassVar[Any] = None  # how many documents are read before anything is held out
    separator: ClassVar[Any] = ""  # what stands at the end of every prompt
    score_prompt: ClassVar[Any] = True  # whether prompts are to be predicted as well
    validation_key: ClassVar[str] = "data.streaming=false"  # what to set where nothing can be held out
    where: ClassVar[Any] = "data"  # the setting that names the data, for messages

    def documents(self, skip: int = 0) -> Iterator[Record]:
        """All but the first `skip` in their order, blank ones as well; of training if others are held out."""
        raise NotImplementedError

    def held_out(self) -> Iterator[Record] | None:
        """The documents of the validation part; None: a fraction of `documents` is taken."""
        return None

    def everything(self) -> Iterator[Record]:
        """The records of both parts, none held out."""
        return chain(self.documents(), self.held_out() or ())

    def fingerprint(self) -> str:
        """Two sources have the same one only if they hold the same documents."""
        raise NotImplementedError

    def sketch(self) -> str:
        """What is cheap to know of the documents of a streamed source: if it changed, they did."""
        return self.fingerprint()

    def n_bytes(self) -> int | None:
        """About how much text there is; None: not known."""
        return None

    def notices(self) -> list[str]:
        """What to tell the user after `documents` was read: what was left out, and why."""
        return []
