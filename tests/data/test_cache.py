import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tfcli.data import Document
from tfcli.data.corpus import cache_folder, get_tokenizer, prepare
from tfcli.data.tokens import Encoder, Writer, load
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Bpe, Byte, Char

TEXTS = [f"document {i} with some text" for i in range(50)]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "cache" / "tokens").iterdir()}


def rows(corpus) -> list[list[int]]:
    return [corpus.validation[i].tokens.tolist() for i in range(len(corpus.validation))] + [
        corpus.train.blocks[i].tokens.tolist() for i in range(len(corpus.train.blocks))
    ]


def test_what_was_encoded_once_is_read(
    listed: type, ready: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ready(listed(TEXTS))
    made = files(tmp_path)
    monkeypatch.setattr(Encoder, "flat", None)
    again = ready(listed(TEXTS))
    assert rows(again) == rows(first) and again.facts == first.facts
    assert len(made) == 2 and files(tmp_path) == made


def test_another_content_tokenizer_or_setting_is_encoded_anew(
    listed: type, ready: Callable, char: Tokenizer, tmp_path: Path
) -> None:
    def count() -> int:
        return len(files(tmp_path)) // 2

    ready(listed(TEXTS))
    changed = [
        listed([*TEXTS[:-1], TEXTS[-1] + "!"]),
        listed(TEXTS, held=["other"]),
        listed(TEXTS, bos=False),
        listed(TEXTS, eos=False),
        listed(TEXTS, max_documents=20),
        listed(TEXTS, validation_fraction=0.2),
    ]
    for n, source in enumerate(changed, 2):
        ready(source)
        assert count() == n
    others = [Byte().train(), Char(allow_special=True).train(TEXTS), Char().train(TEXTS)]
    for n, other in enumerate(others, len(changed) + 2):
        prepare(listed(TEXTS), other, seq_len=8, cache_dir=tmp_path / "cache")
        assert count() == n
    for packing in ("none", "documents"):
        ready(listed(TEXTS, packing=packing), seq_len=4)
        assert count() == 1 + len(changed) + len(others)


DAMAGE = {
    "half of it": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0" * 64,
    "zeros": lambda data: b"\0" * len(data),
    "one bit": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "another version": lambda data: data[:-8] + b"tfcliT00",
    "no end": lambda data: data[:-16] + b"\xff" * 8 + data[-8:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_made_anew(damage: Callable, listed: type, ready: Callable, tmp_path: Path) -> None:
    first, made = rows(ready(listed(TEXTS))), files(tmp_path)
    for name in made:
        path = tmp_path / "cache" / "tokens" / name
        path.write_bytes(damage(made[name]))
        assert load(path) is None
        assert rows(ready(listed(TEXTS))) == first and files(tmp_path) == made


def test_without_a_folder_to_write_to_tokens_are_kept_in_memory(
    listed: type, char: Tokenizer, ready: Callable, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    corpus = prepare(listed(TEXTS), char, seq_len=8, cache_dir=tmp_path / "file" / "cache")
    assert rows(corpus) == rows(ready(listed(TEXTS)))
    assert [n for n in corpus.notices if "cannot be written" in n and str(tmp_path / "file") in n]


def test_a_full_disk_leaves_nothing_behind_and_the_run_goes_on(
    listed: type, ready: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Writer, data: bytes) -> None:
        if self.totals.documents > 20 and not hasattr(self.file, "getvalue"):
            raise OSError(28, "No space left on device")
        put(self, data)

    put = Writer._put
    monkeypatch.setattr(Writer, "_put", full)
    corpus = ready(listed(TEXTS))
    assert "No space left on device" in corpus.notices[0] and files(tmp_path) == {}
    monkeypatch.undo()
    assert rows(corpus) == rows(ready(listed(TEXTS)))


def test_what_a_killed_run_left_is_removed_after_a_day(listed: type, ready: Callable, tmp_path: Path) -> None:
    ready(listed(TEXTS))
    folder = tmp_path / "cache" / "tokens"
    for name, age in ((".old.tmp", 25 * 3600), (".new.tmp", 3600)):
        (folder / name).write_text("half")
        os.utime(folder / name, (time.time() - age,) * 2)
    ready(listed(TEXTS[:-1]))
    assert [path.name for path in folder.glob(".*")] == [".new.tmp"]


def _many_times(folder: str, texts: list[str]) -> None:
    from tfcli.data.text import Text

    path = Path(folder) / "a.txt"
    for n in range(20, 30):
        source = Text(path=str(path), sample_by="line", max_documents=n)
        corpus = prepare(source, Byte().train(), seq_len=8, cache_dir=Path(folder) / "cache")
        assert corpus.facts["train"]["documents"] + corpus.facts["validation"]["documents"] == n


def test_two_runs_may_write_the_same_cache_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=_many_times, args=(str(tmp_path), TEXTS)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0]
    assert len(files(tmp_path)) == 20 and all(name.endswith(".tokens") for name in files(tmp_path))


def test_ids_beyond_16_bits_are_kept(listed: type, tmp_path: Path) -> None:
    letters = [chr(i) for i in [*range(0x100, 0xD800), *range(0xE000, 0xFFFF), *range(0x10000, 0x13000)]]
    wide = Char().train(["".join(letters)])
    assert wide.vocab_size > 70_000
    texts = ["".join(letters[-9 - i : -i]) for i in range(1, 30)]
    for _ in range(2):
        corpus = prepare(listed(texts), wide, seq_len=8, cache_dir=tmp_path)
        ids = corpus.train.blocks.tokens.ids
        assert ids.dtype == np.uint32 and ids.max() > 70_000
        assert wide.decode(ids[1:10]) == texts[0]


def test_the_cache_is_where_the_user_keeps_caches(
    listed: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(listed([])) == tmp_path / "tfcli"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(listed([])) == tmp_path / ".cache" / "tfcli"
    assert cache_folder(listed([], cache_dir="~/own")) == tmp_path / "own"


def test_a_tokenizer_is_trained_once_for_the_same_text_and_recipe(
    listed: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(recipe: Bpe | Char, texts: list[str] = TEXTS, **settings) -> str:
        tokenizer = get_tokenizer(recipe, listed(texts, held=["other"], **settings), tmp_path)
        assert tokenizer.hash == recipe.train(texts[: settings.get("max_documents")]).hash
        return tokenizer.hash

    first, folder = get(Bpe(vocab_size=300)), tmp_path / "tokenizers"
    get(Bpe(vocab_size=301))
    get(Char())
    get(Char(allow_special=True))
    get(Char(extra=("<mask>",)))
    get(Char(), [*TEXTS, "MORE"])
    get(Char(), max_documents=9)
    assert len(list(folder.iterdir())) == 7
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with monkeypatch.context() as patch:
            patch.setattr(Char, "train", None)
            patch.setattr(Bpe, "learn", None)
            source = listed(TEXTS, held=["other"])
            assert get_tokenizer(Bpe(vocab_size=300), source, tmp_path).hash == first
        for file in folder.glob(f"*/{name}"):
            file.write_text(file.read_text(encoding="utf-8")[:-9], encoding="utf-8")
        assert get(Bpe(vocab_size=300)) == first  # trained anew, as what was kept is damaged
    assert len(list(folder.iterdir())) == 7


def test_the_source_may_say_where_the_cache_is(listed: type, char: Tokenizer, tmp_path: Path) -> None:
    prepare(listed(TEXTS, cache_dir=str(tmp_path / "own")), char, seq_len=8)
    assert len(list((tmp_path / "own" / "tokens").iterdir())) == 2


def test_a_long_document_is_written_in_pieces_that_change_nothing(
    listed: type, char: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["".join(f"line {i}\n" for i in range(n)) for n in (3, 400, 1, 90)]
    documents = [Document(text, "q") for text in texts]
    whole = prepare(listed(documents), char, seq_len=8, cache_dir=tmp_path / "a")
    monkeypatch.setattr("tfcli.data.tokens.LONG", 20)
    pieces = prepare(listed(documents), char, seq_len=8, cache_dir=tmp_path / "b")
    assert rows(pieces) == rows(whole) and pieces.facts == whole.facts
    assert np.array_equal(pieces.train.blocks.tokens.starts, whole.train.blocks.tokens.starts)
