"""Models judged by what they learned: stand-ins whose answers are known, and their scores by hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tfcli import predict
from tfcli.batch import IGNORE, PAD, Batch, pad
from tfcli.data import Answer, Document, Labelled, Question, Source, Tagged
from tfcli.data.tasks import Copy
from tfcli.data.tokens import Encoder
from tfcli.errors import ConfigError
from tfcli.evaluate import Settings
from tfcli.judge import Bench, pairs
from tfcli.judge.records import judge_answers, judge_labels, judge_tags
from tfcli.judge.text import judge_text
from tfcli.judge.which import frequent_target, judge, judge_one, settled
from tfcli.objective.causal_lm import CausalLM
from tfcli.tokenizer.trained import Byte

TOKENIZER = Byte(extra=("<mask>",)).train()
SURE = 20.0  # a logit beside zeros
THERE = {"where": "x.txt", "bos": True, "eos": True}


class Listed(Source):
    """Records of a list, the last of which are held out."""

    gives = frozenset({"text", "pair", "label", "tags", "answer"})

    def __init__(self, records: list, n_held: int = 0) -> None:
        super().__init__(packing="none")
        self.records, self.n_held = records, n_held

    def documents(self, skip: int = 0):
        return iter(self.records[: len(self.records) - self.n_held][skip:])

    def held_out(self):
        return iter(self.records[len(self.records) - self.n_held :])


class Says(nn.Module):
    """A model that says what a function says, and remembers how many rows it read at once."""

    def __init__(self, says: Callable[[Batch], Tensor], family: str = "encoder") -> None:
        super().__init__()
        self.says, self.family, self.context, self.vocab_size = says, family, None, TOKENIZER.vocab_size
        self.batches: list[Batch] = []

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self(batch), batch.labels

    def forward(self, batch: Batch) -> Tensor:
        self.batches.append(batch)
        return self.says(batch)


class Stand:
    """A stand-in for an objective: rows as they are, the target as labels."""

    family, shifted, packs, prefix, label_smoothing, start_id = "encoder", False, True, False, 0.1, 1

    def __init__(self, needs: str) -> None:
        self.needs = needs

    def row(self, seq_len: int) -> int:
        return seq_len

    def __call__(self, examples: list) -> Batch:
        rows = [torch.from_numpy(e.tokens) for e in examples]
        target = [torch.from_numpy(e.target) for e in examples]
        positions = pad([torch.arange(len(row)) for row in rows], PAD)
        if self.needs == "pair":
            read = [torch.cat((torch.tensor([1]), t[:-1])) for t in target]
            return Batch(pad(read, 0), pad(target, IGNORE), source=pad(rows, 0), source_positions=positions)
        labels = pad(target, IGNORE) if self.needs == "tags" else torch.stack(target)
        return Batch(pad(rows, 0), labels[:, 0] if self.needs == "label" else labels, positions)


def bench(model: nn.Module, objective, labels=None, **settings) -> Bench:
    how = Settings(**({"part": "all", "batch_size": 3, "window": 40} | settings))
    return Bench(model, TOKENIZER, objective, labels, how, {"device": torch.device("cpu")}, trained_on=50)


def nats(n_classes: int, right: bool) -> float:
    """-log p of a label under one logit of SURE beside zeros."""
    total = math.exp(SURE) + n_classes - 1
    return math.log(total) - (SURE if right else 0)


def one_hot(classes: Tensor, n: int) -> Tensor:
    return SURE * nn.functional.one_hot(classes, n).float()


# --- classes ------------------------------------------------------------------------------------------------


def by_length(batch: Batch) -> Tensor:
    """Class 0 for texts of one byte, 1 of two, 2 of three."""
    return one_hot((batch.positions != PAD).sum(1) - 3, 3)


TEXTS = [Labelled("ab", "two"), Labelled("a", "one"), Labelled("abc", "one"), Labelled("b", "one"),
         Labelled("x", "two")]  # fmt: skip
LENGTHS = ("one", "two", "three")


def test_classes_are_counted_whatever_the_order_and_size_of_batches():
    found = []
    for batch_size in (1, 3, 10):
        judged = bench(Says(by_length), Stand("label"), LENGTHS, batch_size=batch_size)
        found.append(judge(judged, Listed(TEXTS), pytest.fail))
    first = found[0]
    assert (first["accuracy"], first["n"], first["part"]) == (0.6, 5, "all")
    assert first["loss"] == pytest.approx((3 * nats(3, True) + 2 * nats(3, False)) / 5, rel=1e-5)
    f1 = {"one": 2 * 2 / (3 + 3), "two": 2 / (1 + 2), "three": 0}
    assert first["macro_f1"] == pytest.approx(sum(f1.values()) / 3)
    assert {name: rates["f1"] for name, rates in first["per_class"].items()} == pytest.approx(f1)
    for other in found[1:]:
        assert other.pop("loss") == pytest.approx(first["loss"])
        assert other == {name: value for name, value in first.items() if name != "loss"}
    assert "perplexity" not in first and "tokens" not in first


def test_a_label_that_the_model_does_not_know_is_refused_with_its_place():
    texts = [*TEXTS, Labelled("abcd", "for", where="x.txt: line 6")]
    judged = bench(Says(by_length), Stand("label"), (*LENGTHS, "four"))
    with pytest.raises(ConfigError, match="x.txt: line 6: the label 'for' must be one of one, two.*'four'"):
        judge_labels(judged, Listed(texts), texts)


def test_long_texts_are_cut_and_counted():
    judged = bench(Says(lambda batch: torch.zeros(len(batch.inputs), 3)), Stand("label"), LENGTHS)
    found = judge_labels(judged, Listed([]), [*TEXTS, Labelled("a" * 99, "one")])
    assert found["cut"] == 1 and found["n"] == 6
    assert max(b.inputs.shape[1] for b in judged.model.batches) == 40


def test_no_more_than_max_documents_are_read():
    judged = bench(Says(by_length), Stand("label"), LENGTHS, max_documents=2)
    assert judge(judged, Listed(TEXTS), pytest.fail)["n"] == 2


# --- tags ---------------------------------------------------------------------------------------------------

TAGS = ("O", "B-A", "I-A", "B-B", "I-B")


def by_letter(batch: Batch) -> Tensor:
    """The tag of a token: a is 1, b 2, c 3, d 4; all others O."""
    letters = batch.inputs - TOKENIZER.encode("a")[0] + 1
    return one_hot(letters.where((letters > 0) & (letters < 5), 0), 5)


def test_entities_are_found_by_the_first_sub_word_and_long_sentences_in_several_rows():
    sentences = [
        Tagged(("axx", "bc", "zd"), ("B-A", "I-A", "B-B")),  # blanks come before the later words' letters
        Tagged(("a",), ("B-A",)),
        Tagged(("a",) * 30, ("B-A",) + ("O",) * 29),  # 40 tokens and more: two rows
    ]
    judged = bench(Says(by_letter), Stand("tags"), TAGS)
    found = judge(judged, Listed(sentences), pytest.fail)
    # of each sentence the first word is read; each later one begins with its blank, which is O
    assert found["words"] == 34 and found["sentences"] == 3
    assert found["word_accuracy"] == pytest.approx(32 / 34)
    assert (found["precision"], found["recall"]) == (pytest.approx(2 / 3), pytest.approx(2 / 4))
    assert sum(len(b.inputs) for b in judged.model.batches) == 4
    assert found["loss"] == pytest.approx((32 * nats(5, True) + 2 * nats(5, False)) / 34, rel=1e-5)


def test_the_tags_of_several_rows_are_those_of_one_sentence():
    """An entity across the border of two rows is one entity."""
    n = 30  # of which 19 fit a row
    sentence = Tagged(
        ("x",) * n, tuple("B-A" if i == 15 else "I-A" if 15 < i < 25 else "O" for i in range(n))
    )
    wanted = iter(sentence.tags)

    def right(batch: Batch) -> Tensor:
        said = [
            [TAGS.index(next(wanted)) if y != IGNORE else 0 for y in row] for row in batch.labels.tolist()
        ]
        return one_hot(torch.tensor(said), 5)

    judged = bench(Says(right), Stand("tags"), TAGS)
    found = judge_tags(judged, Listed([]), [sentence])
    assert len(judged.model.batches[0].inputs) == 2
    assert (found["f1"], found["entities"], found["per_type"]["A"]["n"]) == (1, 1, 1)


# --- answers ------------------------------------------------------------------------------------------------


def at_digits(batch: Batch) -> Tensor:
    """The answer begins at 1 and ends at 2, wherever these are; 0 means that there is none."""
    one, two, none = (TOKENIZER.encode(digit)[0] for digit in "120")
    starts = (batch.inputs == one).float() * SURE
    ends = (batch.inputs == two).float() * SURE
    refuses = (batch.inputs == none).any(1)
    starts[refuses, 0] = ends[refuses, 0] = 2 * SURE
    return torch.stack((starts, ends), 1).masked_fill((batch.positions == PAD)[:, None], -1e30)


def question(context: str, *answers: str, ask: str = "q") -> Question:
    return Question(ask, context, tuple(Answer(a, context.index(a)) for a in answers))


def test_an_answer_is_the_best_span_of_all_windows_as_its_context_spells_it():
    asked = [
        question("abc 1 Def 2 x", "1 Def 2"),
        question("y" * 60 + " 1 two é 2" + "z" * 60, "1 two é 2", "two é"),  # several windows
        question("1 two 2", "1 two"),
    ]
    judged = bench(Says(at_digits), Stand("answer"))
    found = judge(judged, Listed(asked), pytest.fail)
    assert found["exact_match"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx((2 + 2 * 2 / (3 + 2)) / 3)
    assert (
        found["questions"] == 3 and found["windows"] == sum(len(b.inputs) for b in judged.model.batches) > 5
    )


def test_no_answer_is_given_only_where_the_data_have_questions_without_one():
    sure = question("0 is none, but 1 2", "1 2")
    assert judge_answers(bench(Says(at_digits), Stand("answer")), Listed([]), [sure])["exact_match"] == 1
    both = [question("0 is none, but 1 2"), question("1 2", "1 2")]
    assert judge_answers(bench(Says(at_digits), Stand("answer")), Listed([]), both)["exact_match"] == 1
    in_another_window = [question("0" + "y" * 60 + "1 2", "1 2"), question("0")]
    found = judge_answers(bench(Says(at_digits), Stand("answer")), Listed([]), in_another_window)
    assert found["exact_match"] == 1 and found["windows"] > 3
    wrong = [question("0 is none, but 1 2", "1 2"), question("1 2")]
    assert judge_answers(bench(Says(at_digits), Stand("answer")), Listed([]), wrong)["exact_match"] == 0


def test_an_evaluation_gives_the_answer_that_is_given_to_who_asks(monkeypatch):
    draw, said = torch.Generator().manual_seed(1), []
    asked = [question(f"the  {word} \n on  " + "é x " * n, word) for word, n in (("cat", 1), ("dog", 30))] * 4

    class Drawn(Says):
        """Scores by the tokens of a row, whatever the batch; blanks have the highest."""

        head = type("Head", (), {"says": "span"})()

        def __init__(self) -> None:
            super().__init__(None)
            self.table = nn.Parameter(torch.randn(2, TOKENIZER.vocab_size, generator=draw))
            self.table.data[:, TOKENIZER.encode(" ")[0]] = 9.0

        def forward(self, batch: Batch) -> Tensor:
            there = batch.positions != PAD if batch.positions is not None else batch.inputs >= 0
            return self.table[:, batch.inputs].movedim(0, 1).masked_fill(~there[:, None], -1e30)

    def seen(pairs, by):
        said.extend(answer for answer, _ in pairs)
        return {}

    monkeypatch.setattr("tfcli.judge.records.of_answers", seen)
    model = Drawn()
    judge_answers(bench(model, Stand("answer")), Listed([]), asked)
    wanted = predict.answer(
        model, TOKENIZER, [(q.question, q.context) for q in asked], predict.Settings(), limit=40
    )
    assert said == [one.answer for one in wanted] and all(text == text.strip() != "" for text in said)


def test_a_question_that_leaves_its_context_no_room_is_unread_and_wrong():
    asked = [question("abc 1 Def 2 x", "1 Def 2"), question("1 2", "1 2", ask="long " * 9)]
    asked += [question("x 1 2", "1 2")]
    found = judge(bench(Says(at_digits), Stand("answer")), Listed(asked), pytest.fail)
    assert (found["unread"], found["questions"]) == (1, 3)
    assert found["exact_match"] == found["f1"] == pytest.approx(2 / 3)
    with pytest.raises(ConfigError, match="nothing to score in 1 records; window=40 is too short"):
        judge(bench(Says(at_digits), Stand("answer")), Listed(asked[1:2]), pytest.fail)


# --- pairs --------------------------------------------------------------------------------------------------

PAIRS = [Document(text, source) for source, text in
         [("ab", "ba"), ("x", "x"), ("hello", "olleh"), ("no", "on"), ("y", "x")]]  # fmt: skip


def uniform(batch: Batch) -> Tensor:
    return torch.zeros(*batch.inputs.shape, TOKENIZER.vocab_size)


def test_the_loss_of_pairs_is_that_of_their_targets_without_smoothing():
    judged = bench(Says(uniform, "encoder_decoder"), Stand("pair"))
    found = judge(judged, Listed(PAIRS), pytest.fail)
    n_bytes = sum(len(pair.text) for pair in PAIRS)
    assert found["tokens"] == n_bytes + len(PAIRS) and found["pairs"] == 5  # each has an end
    assert found["perplexity"] == pytest.approx(TOKENIZER.vocab_size, rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(math.log2(TOKENIZER.vocab_size), rel=1e-5)
    assert "bleu" not in found


def test_pairs_that_are_too_long_are_left_out_and_counted():
    judged = bench(Says(uniform, "encoder_decoder"), Stand("pair"))
    found = judge(judged, Listed([*PAIRS, Document("x" * 99, "y")]), pytest.fail)
    assert (found["pairs"], found["left_out"]) == (5, 1)


def test_what_is_written_is_compared_with_the_targets_beside_copying_and_the_most_frequent_target(
    monkeypatch,
):
    pytest.importorskip("sacrebleu")
    calls = []

    def reversing(model, tokenizer, prompts, how, *, sources, start_id):
        calls.append((how.num_beams, how.max_new_tokens, start_id))
        return (type("Completion", (), {"text": source[::-1]}) for source in sources)

    monkeypatch.setattr(pairs.generate, "completions", reversing)
    judged = bench(
        Says(uniform, "encoder_decoder"), Stand("pair"), decode=True, num_beams=4, max_new_tokens=9, samples=2
    )
    found = judge(judged, Listed(PAIRS), lambda: Listed([*PAIRS, *[Document("held", "out")] * 3], n_held=3))
    assert calls == [(4, 9, 1)]
    assert found["exact_match"] == pytest.approx(4 / 5) and found["copy_exact_match"] == pytest.approx(1 / 5)
    assert found["constant"] == "x" and found["constant_exact_match"] == pytest.approx(2 / 5)
    assert found["chrf"] > found["constant_chrf"] and found["chrf"] > found["copy_chrf"]
    assert found["chrf_ci"][0] < found["chrf_ci"][1]
    assert "tok:13a" in found["bleu_signature"] and "chrF2" in found["chrf_signature"]
    assert found["samples"] == [
        {"source": "ab", "reference": "ba", "hypothesis": "ba"},
        {"source": "hello", "reference": "olleh", "hypothesis": "olleh"},
    ]


def test_what_only_parts_source_and_target_is_not_copied(monkeypatch):
    pytest.importorskip("sacrebleu")
    copied = lambda model, tokenizer, given, how, *, sources, start_id: (  # noqa: E731
        type("Completion", (), {"text": source})() for source in sources
    )
    monkeypatch.setattr(pairs.generate, "completions", copied)
    judged = bench(Says(uniform, "encoder_decoder"), Stand("pair"), decode=True)
    task = Copy(n_train=20, n_validation=5)
    found = judge(judged, task, lambda: task)
    assert found["copy_exact_match"] == 1 and found["exact_match"] == 0  # of what is read, with its "="
    source = Listed([Document("ab", "ab => "), Document("x", "y => ")])
    source.separator = " => "
    assert judge(judged, source, lambda: source)["copy_exact_match"] == 0.5


def test_without_the_training_data_there_is_no_constant_to_compare_with():
    def gone():
        raise ConfigError("no such file")

    assert frequent_target(gone) is None
    assert frequent_target(lambda: Listed([])) is None


# --- text ---------------------------------------------------------------------------------------------------


class Masking(Stand):
    """A stand-in for a masked language model's objective: one token in four, by the example's place."""

    def __call__(self, examples: list) -> Batch:
        inputs, labels = [], []
        for example in examples:
            chosen = np.random.default_rng(example.place).random(len(example.tokens)) < 0.25
            inputs.append(torch.from_numpy(np.where(chosen, TOKENIZER.mask_id, example.tokens)))
            labels.append(torch.from_numpy(np.where(chosen, example.tokens, IGNORE)))
        positions = pad([torch.arange(len(row)) for row in inputs], PAD)
        return Batch(pad(inputs, 0), pad(labels, IGNORE), positions)


A = TOKENIZER.encode("a")[0]


def says_a(batch: Batch) -> Tensor:
    return one_hot(torch.full_like(batch.inputs, A), TOKENIZER.vocab_size)


DOCUMENTS = [Document("abab" * n) for n in range(1, 12)]


def test_masked_tokens_are_the_same_every_time_whatever_the_batches():
    encoder = Encoder(TOKENIZER)
    found = []
    for batch_size in (1, 4, 50):
        judged = bench(Says(says_a), Masking("text"), batch_size=batch_size)
        found.append(judge_text(judged, DOCUMENTS, encoder, "none"))
    assert found[0] == pytest.approx(found[1]) and found[0] == pytest.approx(found[2])
    assert 40 < found[0]["tokens"] < 100 and 0.3 < found[0]["accuracy"] < 0.6
    wrong = 1 - found[0]["accuracy"]
    vocab = TOKENIZER.vocab_size
    assert found[0]["loss"] == pytest.approx(nats(vocab, True) + wrong * SURE, rel=1e-5)
    assert found[0]["masked_perplexity"] == pytest.approx(math.exp(found[0]["loss"]))
    assert "perplexity" not in found[0] and "pseudo_perplexity" not in found[0]


def test_the_pseudo_perplexity_masks_every_token_of_the_text_once_and_reads_all_others():
    def knows_the_text(batch: Batch) -> Tensor:
        """Sure where a is followed by b and b by a, as long as it can see a neighbour."""
        before = torch.roll(batch.inputs, 1, 1)
        return one_hot(torch.where(before == A, A + 1, A), TOKENIZER.vocab_size)

    judged = bench(Says(knows_the_text), Masking("text"), pseudo_perplexity=True)
    found = judge(judged, Listed(DOCUMENTS[:3]), pytest.fail)
    assert (found["pseudo_tokens"], found["pseudo_documents"]) == (4 + 8 + 12, 3)
    assert found["pseudo_loss"] == pytest.approx(nats(TOKENIZER.vocab_size, True), abs=1e-5)
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(found["pseudo_loss"]))
    masked = [(b.inputs == TOKENIZER.mask_id).sum(1) for b in judged.model.batches]
    assert (torch.cat(masked[1:]) == 1).all()


def test_the_pseudo_perplexity_is_that_of_at_most_max_documents():
    judged = bench(Says(says_a), Masking("text"), pseudo_perplexity=True, max_documents=2)
    found = judge(judged, Listed(DOCUMENTS), pytest.fail)
    assert (found["documents"], found["pseudo_documents"], found["pseudo_tokens"]) == (2, 2, 12)


def test_unless_it_is_said_how_many_the_pseudo_perplexity_is_that_of_the_first_few(monkeypatch):
    monkeypatch.setattr("tfcli.judge.text.PSEUDO_DOCUMENTS", 3)
    found = judge(
        bench(Says(says_a), Masking("text"), pseudo_perplexity=True), Listed(DOCUMENTS), pytest.fail
    )
    assert (found["documents"], found["pseudo_documents"], found["pseudo_tokens"]) == (11, 3, 24)


def test_one_text_is_scored_as_one_document_with_its_ends():
    judged = bench(Says(says_a), Masking("text"), pseudo_perplexity=True)
    found = judge_one(judged, "a" * 90, bos=True, eos=True)
    assert (found["documents"], found["pseudo_tokens"], found["part"]) == (1, 90, "all")
    assert found["pseudo_loss"] == pytest.approx(nats(TOKENIZER.vocab_size, True), abs=1e-5)


# --- what has no say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "family", "settings", "message"),
    [
        (Stand("label"), "encoder", {"stride": 4}, "stride=4: has no say here"),
        (Stand("label"), "encoder", {"pseudo_perplexity": True}, "pseudo_perplexity=true: .*masked language"),
        (CausalLM(), "decoder", {"pseudo_perplexity": True}, "pseudo_perplexity=true: .*masked language"),
        (Stand("tags"), "encoder", {"decode": True}, "decode=true: has no say here"),
        (Stand("pair"), "encoder_decoder", {"num_beams": 4}, "num_beams=4: .*for decode=true"),
        (Stand("pair"), "encoder_decoder", {"f1_by": "characters"}, "f1_by=characters: .*answer questions"),
    ],
)
def test_a_setting_that_would_have_no_say_is_refused(objective, family, settings, message):
    with pytest.raises(ConfigError, match=message):
        settled(bench(Says(uniform, family), objective, **settings), pairs=True)


def test_without_sacrebleu_nothing_is_read_before_that_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    model = Says(uniform, "encoder_decoder")
    with pytest.raises(ConfigError, match="pip install sacrebleu"):
        judge(bench(model, Stand("pair"), decode=True), Listed(PAIRS), pytest.fail)
    assert not model.batches


def test_a_text_alone_is_refused_by_a_model_that_says_something_of_it():
    with pytest.raises(ConfigError, match="--text-file: .*give data="):
        judge_one(bench(Says(by_length), Stand("label"), LENGTHS), "text", True, True)


def test_a_window_beyond_the_models_positions_is_refused():
    model = Says(by_length)
    model.context = 32
    for settings in ({}, {"window": 40}):
        with pytest.raises(ConfigError, match="window=[45]0: this model reads at most 32"):
            settled(bench(model, Stand("label"), LENGTHS, **{"window": None, **settings}), pairs=False)
