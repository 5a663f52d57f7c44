import json
from collections.abc import Callable
from pathlib import Path

import pytest
from data.made import make, refused

from tfcli.data import Document
from tfcli.data.hub import Hub
from tfcli.data.parts import Parts
from tfcli.errors import ConfigError

datasets = pytest.importorskip("datasets")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set of two splits, and no way to the network."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    folder = tmp_path / "set"
    folder.mkdir()
    for split, n in (("train", 40), ("validation", 5)):
        rows = ({"text": f"\ufeff{split} {i}\r\n" if i % 8 else " ", "n": i} for i in range(n))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("streaming", [False, True])
def test_the_rows_of_a_split_are_documents(folder: Path, streaming: bool) -> None:
    source = Hub(name=str(folder), streaming=streaming)
    expected = [f"train {i}\n" if i % 8 else " " for i in range(40)]
    assert [d.text for d in source.documents()] == expected
    assert [d.text for d in source.documents(skip=33)] == expected[33:]
    assert source.held_out() is None
    held = Hub(name=str(folder), streaming=streaming, validation_split="validation").held_out()
    assert [d.text for d in held] == [" ", *(f"validation {i}\n" for i in range(1, 5))]


def test_a_data_set_is_learned_from_and_evaluated_on(folder: Path, ready: Callable) -> None:
    for streaming in (False, True):
        for split, n in ((None, 3), ("validation", 4)):
            source = Hub(
                name=str(folder),
                streaming=streaming,
                validation_split=split,
                validation_documents=4,
                packing="none",
            )
            corpus = ready(source, seq_len=16)
            assert corpus.facts["validation"]["documents"] == n
            assert len(corpus.train.draw(100)) == 100


def test_one_that_was_saved_to_disk_is_read_too(folder: Path, tmp_path: Path) -> None:
    whole = datasets.load_dataset(str(folder))
    whole.save_to_disk(str(tmp_path / "all"))
    whole["train"].save_to_disk(str(tmp_path / "one"))
    expected = [d.text for d in Hub(name=str(folder)).documents()]
    for name in ("all", "one"):
        for streaming in (False, True):
            source = Hub(name=str(tmp_path / name), streaming=streaming)
            assert [d.text for d in source.documents()] == expected


def test_the_fingerprint_changes_with_split_and_column(folder: Path) -> None:
    settings = [{}, {"split": "validation"}, {"split": "train[:50%]"}, {"validation_split": "validation"}]
    prints = [Hub(name=str(folder), **s).fingerprint() for s in settings]
    assert len(set(prints)) == 4 and Hub(name=str(folder)).fingerprint() == prints[0]


def test_what_cannot_be_loaded_is_said_in_one_line(folder: Path) -> None:
    for settings, match in [
        ({}, "data.name: missing"),
        ({"name": "no/such"}, "data.name=no/such: split 'train' cannot be loaded"),
        ({"name": str(folder), "split": "trian"}, "split 'trian' cannot be loaded"),
        (
            {"name": str(folder), "text_column": "txt"},
            "data.text_column=txt: .* has text, n; did you mean 'text'",
        ),
        ({"name": str(folder), "text_column": "n"}, "row 0: 'n' holds int, it must be text"),
    ]:
        with pytest.raises(ConfigError, match=match) as error:
            list(Parts(Hub(**settings)))
        assert "\n" not in str(error.value)


def test_a_broken_row_is_an_error_while_streaming(folder: Path) -> None:
    with open(folder / "train.jsonl", "a") as file:
        file.write("{broken\n")
    with pytest.raises(ConfigError, match="cannot be (read|loaded)"):
        list(Hub(name=str(folder), streaming=True).documents())
    with pytest.raises(ConfigError, match="cannot be loaded"):
        list(Hub(name=str(folder)).documents())


def test_a_stream_does_not_go_on_with_other_rows(folder: Path, ready: Callable) -> None:
    def feed(**settings):
        return ready(Hub(name=str(folder), streaming=True, **settings)).train

    state = feed().state_dict()
    feed().load_state_dict(state)
    with pytest.raises(ConfigError, match="the run read other data"):
        feed(split="validation").load_state_dict(state)
    with open(folder / "train.jsonl", "a") as file:
        file.write('{"text": "more", "n": 1}\n')
    with pytest.raises(ConfigError, match="the run read other data"):
        feed().load_state_dict(state)


PAIRS = [("one", "eins"), ("two", "zwei"), ("three", "drei")]


def saved(place: Path, rows: list[dict], features: object = None) -> str:
    """A folder of `save_to_disk` with that split for training and for validation."""
    split = datasets.Dataset.from_list(rows, features=features)
    datasets.DatasetDict({"train": split, "validation": split}).save_to_disk(str(place))
    return str(place)


def both(name: str, choice: str, **settings) -> list:
    """All records, which must be those of the validation split as well."""
    source = make(choice, name=name, validation_split="validation", **settings)
    found = list(source.documents())
    assert found == list(source.held_out()) and found[1:] == list(source.documents(skip=1))
    return found


def test_pairs_are_columns_or_languages_of_a_translation(folder: Path, tmp_path: Path) -> None:
    expected = [Document(b, prompt=a) for a, b in PAIRS]
    flat = saved(tmp_path / "flat", [{"id": 1, "source": a, "target": b} for a, b in PAIRS])
    assert both(flat, "hub_pairs") == expected
    rows = [{"id": 1, "translation": {"en": a, "de": b}} for a, b in PAIRS]
    kinds = {"id": datasets.Value("int64"), "translation": datasets.Translation(languages=["en", "de"])}
    nested = saved(tmp_path / "nested", rows, datasets.Features(kinds))
    for prefix in ("", "translation."):
        names = {"source_column": f"{prefix}en", "target_column": f"{prefix}de"}
        assert both(nested, "hub_pairs", **names) == expected
    turned = both(nested, "hub_pairs", source_column="en", target_column="de", reverse=True)
    assert turned == [Document(a, prompt=b) for a, b in PAIRS]


def test_json_files_in_a_folder_are_pairs_too(folder: Path, tmp_path: Path, ready: Callable) -> None:
    (tmp_path / "json").mkdir()
    lines = [json.dumps({"source": f"a{i}", "target": f"b{i}"}) for i in range(40)]
    (tmp_path / "json" / "train.jsonl").write_text("\n".join([*lines, '{"source": " ", "target": "b"}']))
    corpus = ready(make("hub_pairs", name=str(tmp_path / "json")), kind="pair")
    assert [corpus.facts[part]["documents"] for part in ("train", "validation")] == [36, 4]
    assert "1 of 41 records have a blank side and were left out" in corpus.notices[0]


def test_numbers_with_names_are_labels_by_name(folder: Path, tmp_path: Path) -> None:
    rows = [{"text": "a", "more": "b", "label": 1}, {"text": "c", "more": "d", "label": 0}]
    plain = saved(tmp_path / "plain", rows)
    assert [(r.text, r.label) for r in both(plain, "hub_labelled")] == [("a", "1"), ("c", "0")]
    kinds = {"text": datasets.Value("string"), "more": datasets.Value("string"),
             "label": datasets.ClassLabel(names=["bad", "good"])}  # fmt: skip
    path = saved(tmp_path / "named", rows, datasets.Features(kinds))
    found = both(path, "hub_labelled", second_column="more", labels=["good", "bad"])
    assert [record[:3] for record in found] == [("a", "good", "b"), ("c", "bad", "d")]
    refused(
        "hub_labelled", "row 0: the label 'good' must be one of data.labels, bad", name=path, labels=["bad"]
    )
    unknown = saved(tmp_path / "unknown", [*rows, rows[0] | {"label": -1}], datasets.Features(kinds))
    refused("hub_labelled", "row 2: 'label' holds -1, which is none of its 2 names", name=unknown)


def test_tags_are_words_or_numbers_with_names(folder: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["EU", "says"], "ner_tags": [1, 0]}, {"tokens": ["no"], "ner_tags": [0]}]
    tags = datasets.List(datasets.ClassLabel(names=["O", "B-ORG"]))
    kinds = {"tokens": datasets.List(datasets.Value("string")), "ner_tags": tags}
    path = saved(tmp_path / "named", rows, datasets.Features(kinds))
    expected = [(("EU", "says"), ("B-ORG", "O")), (("no",), ("O",))]
    assert [(r.words, r.tags) for r in both(path, "hub_conll")] == expected
    spelled = [{"words": list(words), "tags": list(tags)} for words, tags in expected]
    path = saved(tmp_path / "spelled", spelled)
    found = both(path, "hub_conll", words_column="words", tags_column="tags")
    assert [(r.words, r.tags) for r in found] == expected
    odd = saved(tmp_path / "odd", [*rows, {"tokens": ["a", "b"], "ner_tags": [0]}])
    refused("hub_conll", "row 2: has 2 words and 1 tags; they must be as many", name=odd)
    null = saved(tmp_path / "null", [*rows, {"tokens": ["a", None], "ner_tags": [0, 0]}])
    refused("hub_conll", "row 2: 'tokens' holds None, each must be text", name=null)


def test_questions_have_their_answers_as_squad_has_them(folder: Path, tmp_path: Path) -> None:
    rows = [
        {"id": "x", "context": "Ada did", "question": "W", "answers": {"text": ["Ada"], "answer_start": [0]}},
        {"id": "y", "context": "Bob did", "question": "Y", "answers": {"text": [], "answer_start": []}},
    ]  # fmt: skip
    (first, second) = both(saved(tmp_path / "fine", rows), "hub_squad")
    assert first[:4] == ("W", "Ada did", (("Ada", 0),), "x") and second.answers == ()
    objects = [row | {"answers": [{"text": "did", "answer_start": 4}]} for row in rows]
    assert [r.answers for r in both(saved(tmp_path / "objects", objects), "hub_squad")] == [(("did", 4),)] * 2
    wrong = [rows[1], rows[0] | {"answers": {"text": ["Ada"], "answer_start": [2]}}]
    refused(
        "hub_squad",
        "row 1: question x: its answer 'Ada' .* it stands at 0",
        name=saved(tmp_path / "w", wrong),
    )


def test_records_are_refused_with_their_row_and_the_columns_there_are(folder: Path, tmp_path: Path) -> None:
    path = saved(tmp_path / "set", [{"source": "a", "target": "b"}, {"source": None, "target": "c"}])
    nested = saved(tmp_path / "nested", [{"translation": {"en": "a", "de": "b"}}] * 2)
    for choice, settings, match in [
        ("hub_pairs", {}, "data.name: missing"),
        ("hub_pairs", {"name": path}, f"data.name={path} row 1: 'source' holds null, it must be text"),
        (
            "hub_pairs",
            {"name": path, "target_column": "targt"},
            "data.target_column=targt: .* has .* 'target'",
        ),
        (
            "hub_pairs",
            {"name": nested, "source_column": "fr", "target_column": "en"},
            "row 0: data.source_column=fr is not in this row; it has en, de",
        ),
        ("hub_labelled", {"name": path}, "data.text_column=text: .* has source, target"),
        ("hub_conll", {"name": path, "words_column": "source", "tags_column": "target"}, "must be a list"),
        ("hub_squad", {"name": path}, "data.question_column=question: .* has source, target"),
    ]:
        refused(choice, match, **settings)


def test_the_fingerprint_of_records_changes_with_what_they_are(folder: Path, tmp_path: Path) -> None:
    path = saved(tmp_path / "set", [{"source": "a", "target": "b"}] * 3)
    settings = [{}, {"reverse": True}, {"separator": "="}, {"validation_split": "validation"}]
    prints = [make("hub_pairs", name=path, **s).fingerprint() for s in settings]
    assert len(set(prints)) == 4 and make("hub_pairs", name=path, eos=False).fingerprint() == prints[0]
