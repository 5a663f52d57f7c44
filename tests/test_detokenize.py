"""Text out of ids as they come."""

import random

import pytest
import tokenizers
from tokenizers import decoders, models

from tfcli.detokenize import HALF, WINDOW, Detokenizer, StopStrings
from tfcli.tokenizer import Tokenizer

TEXTS = ["日本 👩‍👩‍👧 é", "plain words, and  two spaces\n", "a👍🏽b" * 9, "\n\n", "混ぜ書き and ASCII"]


def byte_level() -> Tokenizer:
    """One token a byte."""
    alphabet = {c: i for i, c in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    backend = tokenizers.Tokenizer(models.BPE(alphabet, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, {})


def byte_fallback() -> Tokenizer:
    """Llama's form: words marked by ▁, bytes where there is no token."""
    pieces = ["<unk>", "▁", "▁wor", "ld", "s", "a", "b", "é", *(f"<0x{i:02X}>" for i in range(256))]
    vocabulary = {p: i for i, p in enumerate(pieces)}
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend, {})


def pieces(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> list[str]:
    text = Detokenizer(tokenizer, prompt)
    return [*map(text.push, ids), text.close()]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["byte_level", "byte_fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text_and_hold_no_half_character(tokenizer: Tokenizer, text: str) -> None:
    prompt = tokenizer.encode("日本 a")
    new = tokenizer.encode("日本 a" + text)[len(prompt) :]
    came = pieces(tokenizer, prompt, new)
    assert "".join(came) == text
    assert not any(HALF in piece for piece in came)
    assert Detokenizer(tokenizer, prompt).read(new) == text


def test_a_continuation_keeps_the_space_before_its_first_word() -> None:
    tokenizer = byte_fallback()
    world = [tokenizer.backend.token_to_id("▁wor"), tokenizer.backend.token_to_id("ld")]
    assert pieces(tokenizer, tokenizer.encode("a"), world) == [" wor", "ld", ""]
    assert pieces(tokenizer, [], world) == ["wor", "ld", ""]


def test_a_character_that_is_never_finished_is_left_out() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("ok 👍")
    assert "".join(pieces(tokenizer, [], ids[:-1])) == "ok "
    assert Detokenizer(tokenizer, []).read(ids[:-1]) == "ok "


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_give_the_same_text_piece_by_piece_and_at_once(seed: int) -> None:
    tokenizer = byte_level()
    ids = random.Random(seed).choices(tokenizer.encode("日👍éA"), k=60)
    at_once = tokenizer.decode(ids)
    came = "".join(pieces(tokenizer, [], ids))
    assert came == Detokenizer(tokenizer, []).read(ids)
    assert at_once.startswith(came) and not at_once[len(came) :].strip(HALF)


def test_an_id_costs_the_same_at_the_end_of_a_long_text_and_after_endless_broken_bytes() -> None:
    tokenizer = byte_level()
    sizes: list[int] = []

    class Counting:
        special_ids = frozenset()

        def decode(self, ids: list[int]) -> str:
            sizes.append(len(ids))
            return tokenizer.decode(ids)

    broken = tokenizer.encode("é")[-1:] * 300
    ids = tokenizer.encode("word " * 100) + broken + tokenizer.encode("日")
    assert "".join(pieces(Counting(), [], ids)) == "word " * 100 + HALF * 300 + "日"
    assert max(sizes) <= WINDOW + 1


def follow(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    stop = StopStrings(tuple(stops))
    out = []
    for piece in pieces:
        out.append(stop.push(piece))
        if stop.found:
            return out, True
    return [*out, stop.close()], False


@pytest.mark.parametrize(
    "stops, came, out, found",
    [
        (["###"], ["a##", "#x"], ["a", ""], True),  # over two tokens, the second goes on
        (["###"], ["a##", "b", "#"], ["a", "##b", "", "#"], False),  # a beginning that never ends
        (["\n"], ["one\ntwo"], ["one"], True),  # within a bigger token
        (["ab", "b"], ["a", "b"], ["", ""], True),
        (["aab"], ["aa", "ab"], ["", "a"], True),  # the beginning moves on
        (["abcd", "bc"], ["xabc"], ["xa"], True),  # the one that is complete first
        (["abcd", "bc"], ["xabcd"], ["xa"], True),  # ... however the tokens fall
        (["zz", "##"], ["##"], [""], True),
        ([], ["a", "b"], ["a", "b", ""], False),
    ],
)
def test_text_ends_exactly_before_a_stop_string(stops: list, came: list, out: list, found: bool) -> None:
    assert follow(stops, came) == (out, found)


def test_where_tokens_fall_makes_no_difference_to_where_text_stops() -> None:
    chance = random.Random(1)
    for _ in range(300):
        text = "".join(chance.choices("ab#\n", k=30))
        stops = ["".join(chance.choices("ab#\n", k=chance.randint(1, 4))) for _ in range(2)]
        cuts = sorted(chance.sample(range(30), 5))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, 30])]
        by_letter, by_part = follow(stops, list(text)), follow(stops, parts)
        assert "".join(by_letter[0]) == "".join(by_part[0]) and by_letter[1] == by_part[1]
        ends = [text.find(s) + len(s) for s in stops if s in text]
        assert by_letter[1] == bool(ends)
