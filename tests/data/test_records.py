from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from tfcli.batch import IGNORE
from tfcli.data import Answer, Document, Labelled, Question, Tagged
from tfcli.data.records import encode_question, encode_source, encode_text, encode_words, shares
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.tokenizer.trained import Bpe

PAIRS = [Document("t" * (i % 5 + 1), "s" * (i % 7 + 1)) for i in range(40)]
TEXTS = [Labelled(f"text {i}", "odd" if i % 2 else "even", where=f"a.csv:{i}") for i in range(40)]
SENTENCES = [Tagged(("An", "ash", "grows"), ("O", "B-tree", "O"), f"a.conll:{i}") for i in range(20)]
CONTEXT = "The ash grows near the river, and the elm on the hill behind the old mill."
QUESTIONS = [
    Question("What grows?", CONTEXT, (Answer("ash", 4),), "q0"),
    Question("Where is the elm?", CONTEXT, (Answer("on the hill", 42),), "q1"),
    Question("Who?", CONTEXT, (), "q2"),
] * 5


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Bpe(vocab_size=320).train([CONTEXT * 9, "An ash grows"])


def words_only(*words: str, unk: bool = True) -> Tokenizer:
    """A tokenizer of whole words without BOS and EOS."""
    names = [*words, "<unk>"] if unk else [*words]
    backend = Backend(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(backend, {"unk": "<unk>"} if unk else {})


def rows(blocks) -> list:
    return [blocks[i] for i in range(len(blocks))]


# --- the helpers -----------------------------------------------------------------------------------------


def test_a_source_has_the_ends_that_are_asked_for(char: Tokenizer) -> None:
    ids = char.encode("abc")
    assert encode_source(char, "abc", True, True) == [char.bos_id, *ids, char.eos_id]
    assert encode_source(char, "abc", bos=False, eos=True) == [*ids, char.eos_id]
    assert encode_source(char, "", bos=False, eos=False) == []
    assert encode_source(words_only("abc"), "abc") == [0]


def test_of_two_texts_the_longer_one_gives_way(char: Tokenizer) -> None:
    tokens, segments = encode_text(char, "a" * 10, "bc", 9)
    assert char.decode(tokens) == "aaaabc" and len(tokens) == 9
    assert segments.tolist() == [0] * 6 + [1] * 3
    assert tokens[[0, 5, 8]].tolist() == [char.bos_id, char.eos_id, char.eos_id]
    tokens, segments = encode_text(char, "abcdef", None, 5)
    assert char.decode(tokens) == "abc" and segments.tolist() == [0] * 5
    assert char.decode(encode_text(char, "abcdef", "ghijkl", 10)[0]) == "abcdghi"
    with pytest.raises(ConfigError, match="train.seq_len=3: has no room for text"):
        encode_text(char, "a", "b", 3)


def test_shares_fill_the_room() -> None:
    for n in range(12):
        for m in range(12):
            for room in range(1, 26):
                a, b = shares(n, m, room)
                assert 0 <= a <= n and 0 <= b <= m and a + b == min(n + m, room)
                assert (a == n or a >= b - 1) and (b == m or b >= a - 1)  # none is cut below the other


@pytest.mark.parametrize("limit", [3, 4, 5, 8, 13, 99])
def test_no_word_is_lost_or_tagged_twice(limit: int, char: Tokenizer) -> None:
    words = ["An", "ash", "grows", "a", "b", "c", "near", "a", "mill"]
    found = encode_words(char, words, limit)
    assert max(len(tokens) for tokens, _ in found) <= limit
    for tokens, first in found:
        assert len(tokens) == len(first) and first[0] == first[-1] == -1
        assert (tokens[0], tokens[-1]) == (char.bos_id, char.eos_id)
    begun = np.concatenate([first for _, first in found])
    assert begun[begun >= 0].tolist() == list(range(len(words)))
    if limit >= 8:  # room for the longest word
        assert "".join(char.decode(tokens) for tokens, _ in found) == " ".join(words)


def test_words_are_encoded_as_in_running_text(bpe: Tokenizer) -> None:
    ((tokens, first),) = encode_words(bpe, ["The", "ash", "grows"], 40)
    assert tokens[1:-1].tolist() == bpe.encode("The ash grows")
    starts = [i for i, word in enumerate(first) if word >= 0]
    assert [bpe.decode(tokens[i:j]) for i, j in zip(starts, [*starts[1:], None])] == ["The", " ash", " grows"]
    assert encode_words(bpe, [], 40) == []


def test_a_word_without_a_token_is_unk_or_refused() -> None:
    ((tokens, first),) = encode_words(words_only("a"), ["a", "\u2003", "a"], 9)
    assert tokens.tolist() == [0, 1, 0] and first.tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"x.conll:7: ' ' gives no token, and the tokenizer has no <unk>"):
        encode_words(words_only("a", "<unk>", unk=False), ["a", " "], 9, where="x.conll:7")


@pytest.mark.parametrize("limit", [24, 30, 41, 64, 200])
@pytest.mark.parametrize("stride", [None, 0, 3])
def test_windows_hold_every_token_of_the_context(limit: int, stride: int | None, char: Tokenizer) -> None:
    question = "Where?"
    found = encode_question(char, question, CONTEXT, limit, stride)
    seen = Counter()
    for tokens, segments, spans in found:
        assert len(tokens) == len(segments) == len(spans) <= limit
        assert char.decode(tokens[segments == 0]) == question
        inside = spans[:, 0] >= 0
        assert (segments[inside] == 1).all() and (spans[~inside] == -1).all()
        text = "".join(CONTEXT[a:b] for a, b in spans[inside])
        assert text == char.decode(tokens[inside]) and text in CONTEXT
        assert tokens[-1] == char.eos_id and not inside[-1]
        seen.update(a for a, _ in spans[inside].tolist())
    assert set(seen) == set(range(len(CONTEXT)))
    share = limit // 4 if stride is None else stride
    assert sum(n - 1 for n in seen.values()) == share * (len(found) - 1)


def test_windows_hold_the_last_token_whatever_the_length(char: Tokenizer) -> None:
    for n in range(60):
        text = "x" * n
        found = encode_question(char, "why?", text, 20, 4)  # 13 tokens of context a window, 9 of them new
        ends = [int(spans.max()) if n else 0 for _, _, spans in found]
        assert ends[-1] == n and len(found) == max(1, -(-(n - 4) // 9))
        assert len(ends) < 2 or ends[-2] < n  # and none is for nothing


def test_rows_of_words_are_as_full_as_they_can_be(char: Tokenizer) -> None:
    found = encode_words(char, ["abc", "d", "ef", "g"], 7)  # 3 + 2, 3 + 2 tokens, and two ends
    assert [len(tokens) for tokens, _ in found] == [7, 7]


def test_spans_are_those_of_the_words_without_blanks(bpe: Tokenizer) -> None:
    ((_, _, spans),) = encode_question(bpe, "What?", "an ash — an elm", 64)
    texts = ["an ash — an elm"[a:b] for a, b in spans if a >= 0]
    assert "ash" in texts and not any(t != t.strip() for t in texts if t.strip())
    assert texts.count("—") == 3  # one for each of its bytes


def test_a_question_without_room_for_its_context_is_refused(char: Tokenizer) -> None:
    with pytest.raises(
        ConfigError, match="q7: the question has 11 tokens, more than half of train.seq_len=21"
    ):
        encode_question(char, "What grows?", CONTEXT, 21, where="q7")
    with pytest.raises(ConfigError, match="room for 5 tokens of its text in train.seq_len=16"):
        encode_question(char, "12345678", CONTEXT, 16, stride=5)
    assert len(encode_question(char, "12345678", "short", 16, stride=5)) == 1


# --- all records of a source -----------------------------------------------------------------------------


def test_a_pair_is_source_and_target_and_only_the_source_begins(
    listed: type, ready: Callable, char: Tokenizer
) -> None:
    corpus = ready(listed(PAIRS, held=[Document("xy", "ab")]), seq_len=9, kind="pair")
    (row,) = rows(corpus.validation)
    assert row.tokens.tolist() == [char.bos_id, *char.encode("ab"), char.eos_id]
    assert row.target.tolist() == [*char.encode("xy"), char.eos_id]
    assert row.segments is None and row.tokens.dtype == row.target.dtype == np.int64
    assert corpus.labels is None
    found = [(len(r.tokens) - 2, len(r.target) - 1) for r in rows(corpus.train.blocks)]
    assert found == [(len(d.prompt), len(d.text)) for d in PAIRS]
    (bare,) = rows(ready(listed(PAIRS, held=PAIRS[:1], bos=False, eos=False), kind="pair").validation)
    assert bare.tokens.tolist() == char.encode("s") and bare.target.tolist() == char.encode("t")


def test_every_pair_ends_in_one_eos_that_is_a_label_even_if_it_is_the_padding(
    listed: type, ready: Callable, char: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(char, "pad_id", char.eos_id)
    corpus = ready(listed(PAIRS, held=PAIRS[:3]), seq_len=9, kind="pair")
    targets = [row.target for row in corpus.train.draw(1) + rows(corpus.train.blocks)]
    assert all((t == char.eos_id).sum() == 1 and t[-1] == char.eos_id for t in targets)
    assert corpus.train.blocks.labels().tolist() == [len(d.text) + 1 for d in PAIRS]
    assert corpus.facts["train"]["labels"] == sum(len(d.text) + 1 for d in PAIRS)


def test_pairs_that_are_too_long_are_left_out_and_counted(listed: type, ready: Callable) -> None:
    corpus = ready(listed(PAIRS, held=PAIRS), seq_len=7, kind="pair")
    long = sum(len(d.prompt) + 2 > 7 for d in PAIRS)
    assert 0 < long < 40 and len(corpus.train.blocks) == len(corpus.validation) == 40 - long
    said = f"data: {long} of 40 %s pairs have a side longer than train.seq_len=7 and were left out"
    assert [n for n in corpus.notices if "longer" in n] == [said % "training", said % "validation"]
    assert corpus.train.blocks.sizes().max() <= 7
    with pytest.raises(ConfigError, match="nothing is left to train on; data: 40 of 40 training pairs"):
        ready(listed([Document("t" * 9, "s")] * 40, held=PAIRS), seq_len=7, kind="pair")
    with pytest.raises(ConfigError, match="nothing is left to evaluate on; data: 2 of 2 validation pairs"):
        ready(listed(PAIRS, held=[Document("t" * 9, "s")] * 2), seq_len=9, kind="pair")


def test_facts_of_pairs_count_both_sides(listed: type, ready: Callable) -> None:
    pairs = [Document("日本", "ab"), Document("c", "日")] * 5
    corpus = ready(
        listed(pairs, held=[*pairs, Document("", "x"), Document(" ", "y")]), seq_len=9, kind="pair"
    )
    facts = corpus.facts["train"]
    assert {key: facts[key] for key in ("documents", "tokens", "bytes", "blank", "unknown", "rows")} == {
        "documents": 10, "tokens": 5 * (4 + 3 + 3 + 2), "bytes": 5 * (8 + 4), "blank": 0, "unknown": 5 * 3,
        "rows": 10,
    }  # fmt: skip
    assert corpus.facts["validation"]["blank"] == 2
    assert 0 <= facts["padding"] <= facts["padding if unsorted"]
    assert "tokenizer: 30 of 120 tokens of the data are <unk>" in corpus.notices


def test_a_labelled_text_has_the_id_of_its_class(listed: type, ready: Callable, char: Tokenizer) -> None:
    corpus = ready(
        listed(TEXTS, held=[Labelled("xyz", "odd"), Labelled("x", "even", "yz")]), 16, kind="label"
    )
    assert corpus.labels == ("even", "odd")
    for record, row in zip(TEXTS, rows(corpus.train.blocks)):
        assert char.decode(row.tokens) == record.text
        assert row.target.tolist() == [corpus.labels.index(record.label)]
        assert row.segments.tolist() == [0] * len(row.tokens)
    one, two = rows(corpus.validation)
    ids = [char.bos_id, *char.encode("x"), char.eos_id, *char.encode("yz"), char.eos_id]
    assert two.tokens.tolist() == ids and two.segments.tolist() == [0, 0, 0, 1, 1, 1]
    assert (one.target.tolist(), two.target.tolist()) == ([1], [0])
    assert corpus.train.blocks.labels().tolist() == [1] * 40


def test_texts_that_are_too_long_are_cut_and_counted(listed: type, ready: Callable, char: Tokenizer) -> None:
    held = [Labelled("0123456789", "odd"), Labelled("012345", "odd", "abc"), Labelled("012345", "odd")]
    corpus = ready(listed(TEXTS, held=held), seq_len=8, kind="label")
    assert [char.decode(row.tokens) for row in rows(corpus.validation)] == ["012345", "012ab", "012345"]
    assert "data: 2 of 3 validation records are longer than train.seq_len=8 and were cut" in corpus.notices
    assert "data: 30 of 40 training records are longer than train.seq_len=8 and were cut" in corpus.notices


def test_given_labels_keep_their_order(listed: type, ready: Callable) -> None:
    given = ["odd", "none", "even"]
    corpus = ready(listed(TEXTS, held=TEXTS), 16, kind="label", labels=given)
    assert corpus.labels == ("odd", "none", "even")
    assert [row.target.tolist() for row in rows(corpus.validation)[:2]] == [[2], [0]]


def test_a_label_that_is_not_known_is_named_with_its_place_and_the_known(
    listed: type, ready: Callable
) -> None:
    strange = [Labelled("x", "evne", where="b.csv:3")]
    known = (
        r"must be one of even, odd, the labels of the training part; or name all in head.labels; did you mean"
    )
    with pytest.raises(ConfigError, match=f"b.csv:3: the label 'evne' {known} 'even'"):
        ready(listed(TEXTS, held=strange), kind="label")
    with pytest.raises(ConfigError, match=r"a.csv:0: the label 'even' must be one of odd, other$"):
        ready(listed(TEXTS, held=TEXTS), kind="label", labels=["odd", "other"])
    with pytest.raises(ConfigError, match="'even' is the only label"):
        ready(listed(TEXTS[::2], held=TEXTS[:1]), kind="label")
    many = [Labelled("x", f"{i:03}") for i in range(100)]
    with pytest.raises(ConfigError, match=r"000, 001, .* 019 ... \(100 in all\)"):
        ready(listed(many, held=strange), kind="label")


def test_tags_stand_on_the_first_token_of_each_word(listed: type, ready: Callable, char: Tokenizer) -> None:
    tags = ("B-tree", "O", "A-tag")
    corpus = ready(listed(SENTENCES, held=[Tagged(("ab", "cd", "e"), ("O", "B-tree", "O"))]), 24, kind="tags")
    assert corpus.labels == ("O", "B-tree") != tags
    (row,) = rows(corpus.validation)
    assert char.decode(row.tokens) == "ab cd e"
    assert row.target.tolist() == [IGNORE, 0, IGNORE, 1, IGNORE, IGNORE, 0, IGNORE, IGNORE]
    assert corpus.validation.labels().tolist() == [3]
    given = ready(listed(SENTENCES, held=SENTENCES), 24, kind="tags", labels=tags)
    assert given.labels == tags and set(given.validation[0].target.tolist()) == {IGNORE, 0, 1}


def test_a_class_that_is_called_o_has_no_special_place(listed: type, ready: Callable) -> None:
    blood = [Labelled("x", group) for group in ("A", "B", "O", "AB")] * 5
    assert ready(listed(blood, held=blood), kind="label").labels == ("A", "AB", "B", "O")


def test_a_long_sentence_is_several_rows_and_keeps_all_its_tags(listed: type, ready: Callable) -> None:
    words = tuple(f"w{i}" for i in range(30))
    tags = tuple("B-tree" if i % 3 else "O" for i in range(30))
    corpus = ready(listed(SENTENCES, held=[Tagged(words, tags)]), seq_len=13, kind="tags")
    assert len(corpus.validation) > 5
    target = np.concatenate([row.target for row in rows(corpus.validation)])
    assert tuple(corpus.labels[i] for i in target[target != IGNORE]) == tags
    assert corpus.facts["validation"]["labels"] == 30 and not corpus.notices


def test_words_longer_than_a_row_are_cut_and_counted(listed: type, ready: Callable, char: Tokenizer) -> None:
    held = [Tagged(("a", "123456789", "b"), ("O", "B-tree", "O"))]
    corpus = ready(listed(SENTENCES, held=held), seq_len=8, kind="tags")
    assert [char.decode(row.tokens) for row in rows(corpus.validation)] == ["a", " 12345", " b"]
    assert (
        "data: 1 words of the validation part are longer than train.seq_len=8 and were cut" in corpus.notices
    )


@pytest.mark.parametrize("limit", [40, 48, 64, 128])
def test_each_window_says_where_its_answer_is(
    limit: int, listed: type, ready: Callable, char: Tokenizer, bpe: Tokenizer
) -> None:
    corpus = ready(listed(QUESTIONS, held=QUESTIONS), seq_len=limit, kind="answer")
    found: dict[str, Counter] = {q.question: Counter() for q in QUESTIONS}
    for row in rows(corpus.train.blocks):
        question = char.decode(row.tokens[row.segments == 0])
        first, last = row.target.tolist()
        text = char.decode(row.tokens[first : last + 1])
        window = char.decode(row.tokens[row.segments == 1])
        answers = next(q.answers for q in QUESTIONS if q.question == question)
        if answers and answers[0].text in window:
            assert text == answers[0].text and row.segments[first] == 1
        else:
            assert (first, last) == (0, 0)
        found[question][text] += 1
    assert found["What grows?"]["ash"] >= 5 and found["Where is the elm?"]["on the hill"] >= 5
    assert set(found["Who?"]) == {""}
    assert (corpus.train.blocks.labels() == 2).all() and corpus.labels is None


def test_of_several_answers_each_window_has_one_that_it_holds(
    listed: type, ready: Callable, char: Tokenizer
) -> None:
    text = "elm " + "x" * 40 + " elm"
    both = Question("What?", text, (Answer("elm", 0), Answer("elm", 45)), "q")
    held = rows(ready(listed(QUESTIONS, held=[both]), seq_len=48, kind="answer").validation)
    assert [char.decode(r.tokens[r.target[0] : r.target[1] + 1]) for r in held] == ["elm", "elm"]
    assert held[0].target[0] < held[1].target[0]


def test_answers_of_bytes_and_sub_words_are_found(listed: type, bpe: Tokenizer, tmp_path) -> None:
    from tfcli.data.corpus import prepare

    text = "In 北京 there grows an élm."
    asked = [Question("Where?", text, (Answer("北京", 3),)), Question("What?", text, (Answer("élm", 21),))]
    corpus = prepare(listed(asked, held=asked), bpe, seq_len=64, kind="answer", cache_dir=tmp_path)
    found = [bpe.decode(r.tokens[r.target[0] : r.target[1] + 1]).strip() for r in rows(corpus.validation)]
    assert found == ["北京", "élm"]


def test_a_question_that_leaves_its_context_no_room_is_left_out_and_counted(
    listed: type, ready: Callable
) -> None:
    long = Question("Why " * 9, CONTEXT, (), "q77", where="s.json")
    corpus = ready(listed([*QUESTIONS, long], held=[*QUESTIONS, long, long]), seq_len=40, kind="answer")
    said = "questions leave their text too little room in train.seq_len=40 and were left out"
    assert corpus.notices == [f"data: 1 of 16 training {said}", f"data: 2 of 17 validation {said}"]
    alone = ready(listed(QUESTIONS, held=QUESTIONS), seq_len=40, kind="answer")
    assert len(corpus.train.blocks) == len(alone.train.blocks)
    assert alone.train.blocks.check == corpus.train.blocks.check
    with pytest.raises(ConfigError, match="nothing is left to train on; data: 1 of 1 training questions"):
        ready(listed([long], held=QUESTIONS), seq_len=40, kind="answer")


def test_a_single_record_is_refused_and_no_record_too(listed: type, ready: Callable) -> None:
    for records, kind in ((PAIRS, "pair"), (TEXTS, "label"), (SENTENCES, "tags"), (QUESTIONS, "answer")):
        with pytest.raises(
            ConfigError, match="data: holds a single record, of which nothing can be held out"
        ):
            ready(listed(records[:1]), seq_len=64, kind=kind)
        with pytest.raises(ConfigError, match="data: there is no text to train on"):
            ready(listed([]), seq_len=64, kind=kind)
        with pytest.raises(ConfigError, match="nothing to predict in the validation part, 0 documents"):
            ready(listed(records, held=[]), seq_len=64, kind=kind)
        corpus = ready(listed(records[:2], held=records[:2]), seq_len=64, kind=kind, batch_size=8)
        n = len(corpus.train.blocks)
        assert len(corpus.train.draw(8)) == n and (n == 2 or kind == "answer")
        assert f"data: {n} rows to train on, fewer than a batch of 8; each step takes all" in corpus.notices


def test_the_tokenizer_learns_from_all_that_records_say(listed: type) -> None:
    from tfcli.data.parts import training_texts

    records = [PAIRS[0], Labelled("one", "x", "two"), SENTENCES[0], QUESTIONS[0]]
    texts = list(training_texts(listed(records, held=["x"])))
    assert texts == ["st", "one\ntwo", "An ash grows", "What grows?\n" + CONTEXT]


def test_labelled_texts_can_be_learned_as_text(listed: type, ready: Callable, char: Tokenizer) -> None:
    corpus = ready(listed([Labelled("one", "x", "two"), *TEXTS], packing="none"), seq_len=16)
    assert char.decode(corpus.train.blocks[0].tokens) == "one\ntwo" and corpus.labels is None


def test_what_cannot_be_read_as_asked_is_refused(listed: type, ready: Callable) -> None:
    source = listed(TEXTS)
    source.gives = frozenset({"text", "label"})
    with pytest.raises(
        ConfigError, match="data: its records are for label, text, and the objective needs pair"
    ):
        ready(source, kind="pair")
    with pytest.raises(ConfigError, match="data.eos=false: is for text and pairs"):
        ready(listed(TEXTS, eos=False), kind="label")
    source.streaming = True
    with pytest.raises(ConfigError, match="data.streaming=true: is for text"):
        ready(source, kind="label")
    with pytest.raises(ConfigError, match="train.batch_tokens=99: data that are read while training"):
        ready(source, batch_tokens=99)


def test_records_are_drawn_in_batches_and_gone_on_with(listed: type, ready: Callable, same: Callable) -> None:
    def made(**changes):
        return ready(listed(PAIRS, held=PAIRS[:2]), seq_len=9, kind="pair", seed=5, **changes).train

    straight, it = [made(batch_tokens=60)], made(batch_tokens=60)
    batches = [straight[0].draw(1) for _ in range(30)]
    found = [it.draw(1) for _ in range(13)]
    again = made(batch_tokens=60)
    again.load_state_dict(it.state_dict())
    found += [again.draw(1) for _ in range(17)]
    assert all(same(a, b) for a, b in zip(batches, found))
    assert all(len(b) * (max(len(e.tokens) for e in b) + max(len(e.target) for e in b)) <= 60 for b in found)
    for others in (PAIRS[1:], [PAIRS[1], *PAIRS[1:]]):
        source = listed(others, held=PAIRS[:2])
        with pytest.raises(ConfigError, match="in other batches"):
            ready(source, seq_len=9, kind="pair", batch_tokens=60).train.load_state_dict(it.state_dict())


def test_validation_rows_have_the_same_place_every_time(listed: type, ready: Callable) -> None:
    for kind in ("text", "pair"):
        held = ready(listed(PAIRS, held=PAIRS), seq_len=9, kind=kind).validation
        assert [row.place for row in rows(held)] == [(0, 0, i) for i in range(len(held))]
