import json
from collections.abc import Callable
from pathlib import Path

import pytest

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
