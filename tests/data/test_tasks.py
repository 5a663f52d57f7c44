from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tfcli.data.tasks import Add, Copy, Reverse, Sort, Task
from tfcli.errors import ConfigError
from tfcli.tokenizer import Tokenizer
from tfcli.values import check_arguments

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "data"
ANSWERS = {
    "copy": lambda word: word,
    "reverse": lambda word: word[::-1],
    "sort": lambda word: "".join(sorted(word)),
    "add": lambda sum_: str(sum(map(int, sum_.split("+")))),
}


def make(name: str, **changes) -> Task:
    node = OmegaConf.merge(OmegaConf.load(CONFIGS / "_base.yaml"), OmegaConf.load(CONFIGS / f"{name}.yaml"))
    node = OmegaConf.to_container(node)
    node.pop("defaults")
    place, _, kind = node.pop("_target_").rpartition(".")
    source = getattr(import_module(place), kind)
    return source(**check_arguments(source, node | changes, "data"))


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_right_and_no_problem_comes_twice(name: str) -> None:
    source = make(name)
    train, held = list(source.documents()), list(source.held_out())
    assert (len(train), len(held)) == (source.n_train, source.n_validation)
    assert len({d.prompt for d in train + held}) == len(train) + len(held)
    for document in train + held:
        assert document.prompt.endswith("=") and document.text == ANSWERS[name](document.prompt[:-1])


@pytest.mark.parametrize("name", ANSWERS)
def test_problems_depend_on_their_own_seed_only(name: str) -> None:
    first = list(make(name).documents())
    assert list(make(name, packing="stream").documents()) == first
    assert list(make(name, seed=1).documents()) != first
    assert list(make(name).documents(skip=9_000 if len(first) > 9_000 else 7_000)) == first[-1_000:]


@pytest.mark.parametrize("kind", [Copy, Reverse, Sort])
def test_words_are_of_every_length_and_all_there_are_can_be_asked(kind: type[Task]) -> None:
    source = kind(symbols="ab", length=4, min_length=2, n_train=24, n_validation=4)
    words = [d.prompt[:-1] for d in [*source.documents(), *source.held_out()]]
    assert {len(word) for word in words} == {2, 3, 4} and len(set(words)) == 4 + 8 + 16
    lengths = [len(d.prompt) - 1 for d in kind(n_train=2000).documents()]
    assert min(lengths.count(n) for n in range(4, 9)) > 300


def test_numbers_have_up_to_as_many_digits_as_asked() -> None:
    source = Add(digits=1, n_train=90, n_validation=10)
    assert {d.prompt for d in [*source.documents(), *source.held_out()]} == {
        f"{a}+{b}=" for a in range(10) for b in range(10)
    }


def test_what_cannot_be_made_is_refused() -> None:
    for name, settings, match in [
        ("add", {"digits": 1}, "there are only 100 different problems"),
        ("sort", {"length": 2, "symbols": "ab"}, "there are only 6 different problems"),
        ("copy", {"min_length": 9}, "data.min_length=9: must be at most data.length=8"),
        ("copy", {"symbols": "aa"}, "must be different characters"),
        ("copy", {"symbols": "a="}, "must be different characters"),
        ("copy", {"symbols": ""}, "must be different characters"),
        (
            "copy",
            {"score": "answers"},
            "data.score='answers': must be one of answer, all; did you mean 'answer'",
        ),
        ("copy", {"n_validation": 0}, "data.n_validation=0: must be a whole number at least 1"),
        ("copy", {"packing": "blocks"}, "data.packing='blocks': must be one of stream, documents, none"),
    ]:
        with pytest.raises(ConfigError, match=match):
            make(name, **settings)


@pytest.mark.parametrize("packing", ["stream", "documents", "none"])
def test_only_answers_and_what_ends_them_are_scored(
    packing: str, ready: Callable, char: Tokenizer, pairs: Callable
) -> None:
    settings = {"n_train": 40, "n_validation": 10, "packing": packing}
    corpus = ready(make("add", **settings), seq_len=32)
    answers = sum(len(d.text) + 1 for d in make("add", **settings).documents())
    labels = [label for _, label in pairs(corpus.train.blocks)]
    assert len(labels) == answers == corpus.facts["train"]["labels"]
    assert labels.count(char.eos_id) == 40 and not {char.bos_id, *char.encode("+=")} & set(labels)
    scored = ready(make("add", score="all", **settings), seq_len=32).facts["train"]
    assert scored["labels"] == scored["tokens"] - (1 if packing == "stream" else 40)


def test_problems_longer_than_a_row_are_told_or_refused(ready: Callable) -> None:
    source = make("copy", length=12, min_length=1, n_train=50, n_validation=10)
    assert any("rows hold nothing to predict" in notice for notice in ready(source, seq_len=4).notices)
