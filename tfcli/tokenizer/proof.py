"""Whether `transformers` reads a saved tokenizer as it is meant."""

from pathlib import Path

from tfcli.tokenizer import Tokenizer

SAMPLES = (
    "", " ", "hello", " hello", "a  b ", "Hello, World! It's 3.14 or 12,345.", "x\n\n  y\tz", "é e\u0301 ß İ",
    "日本語 中文", "👩‍👩‍👧 ok", "def f(x):\n    return x  # no", "A" * 17, "...!?", "1\u00a02\u3000３",
)  # fmt: skip


def differs(folder: Path, tokenizer: Tokenizer) -> str | None:
    """Why AutoTokenizer of a folder is not this tokenizer, in one line; None if it gives the same ids.

    Some model types of config.json make it take a class that keeps the vocabulary only, whatever
    tokenizer_config.json says (Qwen 2's).
    """
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    source = tokenizer.reads
    head = [source.bos_id] if source.adds_bos else []
    tail = [source.eos_id] if source.adds_eos else []
    for text in SAMPLES:
        here, there = [*head, *source.encode(text), *tail], theirs.encode(text)
        if here != there:
            name = type(theirs).__name__
            return f"{name} of transformers reads {text!r} as {there[:8]}, and must as {here[:8]}"
    return None
