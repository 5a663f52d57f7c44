"""What a tokenizer's own files put around a text, and how a tokenizer is told to put it there."""

from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

OWN = {  # whether these classes put BOS before and EOS after a text
    "gptneox": (False, False), "t5": (False, True),
    "bert": (True, True), "roberta": (True, True), "xlmroberta": (True, True),
}  # fmt: skip
PROBES = ("a", "the", "1", ".", "日")  # one of which a vocabulary can read


def around(backend: Backend) -> tuple[list[int], list[int]]:
    """The ids that the post-processor puts before and after one text."""
    for text in PROBES:
        found = backend.encode(text)
        mask = found.special_tokens_mask
        if 0 in mask:
            first, last = mask.index(0), len(mask) - mask[::-1].index(0)
            return found.ids[:first], found.ids[last:]
    return [], []


def between(backend: Backend, eos_id: int | None) -> int:
    """How many EOS the post-processor puts between two texts; 1 where it puts something else, or nothing."""
    for text in PROBES:
        found = backend.encode(text, text)
        ids = [i for i, special in zip(found.ids, found.special_tokens_mask) if not special]
        if len(ids) == 2:
            first, second = (i for i, special in enumerate(found.special_tokens_mask) if not special)
            stand = found.ids[first + 1 : second]
            return len(stand) if stand and set(stand) == {eos_id} else 1
    return 1


def put(
    backend: Backend, bos: str | None, eos: str | None, *, segments: bool = False, twice: bool = False
) -> Backend:
    """The same backend that puts tokens around texts: `[bos] a [eos]`, and of two `[bos] a [eos] b [eos]`.

    segments: the second text and its end are of segment 1. twice: two EOS stand between them.
    """
    made = Backend.from_str(backend.to_str())
    made.encode_special_tokens = backend.encode_special_tokens
    second = int(segments)
    head, tail = ([token] if token is not None else [] for token in (bos, eos))
    single = [*head, "$A", *tail]
    pair = [*single, *(tail if twice else []), f"$B:{second}", *(f"{token}:{second}" for token in tail)]
    named = sorted({token: made.token_to_id(token) for token in (*head, *tail)}.items())
    made.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=named)
    return made


def alike(one: Backend, other: Backend) -> bool:
    """Whether two backends put the same around one text and around two, and part them alike."""

    def shown(backend: Backend) -> list:
        found = [backend.encode("a"), backend.encode("a", "b")]
        return [(encoding.ids, encoding.type_ids, encoding.special_tokens_mask) for encoding in found]

    return shown(one) == shown(other)


def of_class(backend: Backend, kind: str, special: dict[str, str]) -> Backend:
    """The backend as the class of `transformers` that reads its tokenizer.json would have it.

    These classes put what is theirs around a text, whatever stands in the file; all others put what the file
    says, and where it says nothing, nothing.
    """
    if kind not in OWN:
        return backend
    tokens = [special.get(role) if put else None for role, put in zip(("bos", "eos"), OWN[kind])]
    wanted = tuple([backend.token_to_id(token)] if token else [] for token in tokens)
    if around(backend) == wanted:
        return backend
    return put(backend, *tokens, segments=kind == "bert", twice=kind in ("roberta", "xlmroberta"))
