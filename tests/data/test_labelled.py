import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from data.made import make, parts, refused, shared, write

from tfcli.data import Labelled
from tfcli.data.passages import cut


def plain(records: list[Labelled]) -> list[tuple]:
    return [record[:3] for record in records]


def test_a_row_has_a_text_and_a_label_or_two_texts(tmp_path: Path) -> None:
    named = [{"text": "a", "second": "b", "label": "yes"}, {"text": "c", "second": "d", "label": " no "}]
    paths = [
        write(tmp_path / "a.csv", ["text,second,label", "a,b,yes", "c,d, no "]),
        write(tmp_path / "a.tsv", ["text\tsecond\tlabel", "a\tb\tyes", "c\td\tno"]),
        write(tmp_path / "a.jsonl", map(json.dumps, named)),
    ]
    for path in paths:
        one = make("labelled", path=path, validation_path=path)
        assert plain([*one.documents()]) == [("a", "yes", None), ("c", "no", None)]
        two = make("labelled", path=path, validation_path=path, second_column="second")
        assert plain([*two.documents()]) == [("a", "yes", "b"), ("c", "no", "d")]
    path = write(tmp_path / "a.txt", ["yes\ta", "no\tc"])
    source = make("labelled", path=path, text_column=1, label_column=0, validation_path=path)
    assert plain([*source.documents()]) == [("a", "yes", None), ("c", "no", None)]
    assert next(source.documents()).where == f"{path}:1"


def test_a_number_is_a_label(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": [1, 0]}), path)
    lines = write(tmp_path / "a.jsonl", ['{"text": "a", "label": 1}', '{"text": "b", "label": false}'])
    assert [r.label for r in make("labelled", path=path, validation_path=path).documents()] == ["1", "0"]
    source = make("labelled", path=lines, validation_path=lines, labels=[1, "false"])
    assert [r.label for r in source.documents()] == ["1", "false"]


def test_a_row_that_is_not_labelled_is_refused_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["text,label", "a,good", "b,goood", "c,"])
    match = "a.csv:3: the label 'goood' must be one of data.labels, bad, good; did you mean 'good'"
    refused("labelled", match, path=path, labels=["bad", "good"])
    refused("labelled", "a.csv:4: 'label' holds nothing, it must be a label", path=path)
    refused("labelled", "a.csv:2: data.second_column=b is not in this row", path=path, second_column="b")
    for value, match in [("null", "null"), ("2.5", "float"), ('["x"]', "list")]:
        path = write(tmp_path / "a.jsonl", [f'{{"text": "a", "label": {value}}}'])
        refused("labelled", f"a.jsonl:1: 'label' holds {match}, it must be a label", path=path)


def folders(folder: Path) -> str:
    """Two classes, one of two files of three paragraphs each, one of one file of ten."""
    for i in range(2):
        write(folder / "poems" / f"{i}.txt", "\n\n".join(f"poem {i} {j}\nline" for j in range(3)))
    write(folder / "news" / "deep" / "a.txt", "\n\n\n".join(f"news {j}" for j in range(10)))
    return str(folder)


def test_folders_are_the_labels_of_the_texts_in_them(tmp_path: Path) -> None:
    path = folders(tmp_path / "set")
    write(tmp_path / "set" / "README.md", "hello")
    source = make("labelled", path=path, sample_by="paragraph", validation_fraction=0.2)
    train, held = parts(source, "label")
    assert Counter(r.label for r in train) == {"news": 8, "poems": 5}
    assert [(r.label, r.text) for r in held] == [
        ("news", "news 8"),
        ("poems", "poem 1 2\nline"),
        ("news", "news 9"),
    ]
    assert {r.label for r in train[:2]} == {"news", "poems"}  # so max_documents takes some of each
    assert source.notices() == [
        f"data.path={path}: 1 files beside the folders belong to no label and were left out"
    ]
    other = make("labelled", path=path, validation_path=path, sample_by="paragraph")
    assert plain([*other.documents()]) == plain([*other.held_out()]) and len([*other.documents()]) == 16


def test_each_label_may_have_its_files(tmp_path: Path) -> None:
    path = folders(tmp_path)
    paths = {"poem": f"{path}/poems", "other": f"{path}/news/deep/a.txt"}
    source = make("labelled", paths=paths, sample_by="paragraph")
    train, held = parts(source, "label")
    assert Counter(r.label for r in train) == {"other": 9, "poem": 5} and len(held) == 2
    named = make(
        "labelled", paths=paths, validation_paths={"poem": f"{path}/poems/0.txt"}, sample_by="paragraph"
    )
    assert len([*named.documents()]) == 16 and next(named.held_out()).text == "poem 0 0\nline"
    assert len(parts(make("labelled", paths=paths, sample_by="paragraph", max_documents=6), "label")[0]) == 6


def test_what_is_held_out_stands_behind_all_that_is_learned_of_a_text(tmp_path: Path) -> None:
    words = [f"w{i:04}" for i in range(2000)]
    paths = {name: write(tmp_path / f"{name}.txt", f"{name} ".join(words)) for name in ("a", "b")}
    train, held = parts(make("labelled", paths=paths, passage_characters=100), "label")
    assert {r.label for r in held} == {"a", "b"} and len(held) == pytest.approx(len(train + held) / 10, abs=2)
    for label in paths:
        last = max(r.text for r in train if r.label == label)
        assert last < min(r.text for r in held if r.label == label)


def test_passages_are_of_about_one_length_and_cut_between_words() -> None:
    text = " ".join("abcdefghij"[: 1 + i % 10] for i in range(3000))
    for size in (30, 100, 333, 10**9):
        found = list(cut(text, size))
        assert " ".join(found) == text
        assert all(0.5 * size < len(piece) < 1.6 * size for piece in found) or found == [text]
    chinese = list(cut("日" * 950, 100))
    assert "".join(chinese) == "日" * 950 and {len(piece) for piece in chinese} <= {95, 105, 106}
    assert list(cut("short", 100)) == ["short"]


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    path, rows = folders(tmp_path / "set"), write(tmp_path / "a.csv", ["text,label", "a,x", "b,y"])
    one = {"x": rows}
    for settings, match in [
        ({}, "data.path: missing; give .* data.path=reviews.csv, or data.paths="),
        ({"path": rows, "paths": one}, "data.path and data.paths: both are given; leave one out"),
        ({"paths": {}}, "data.paths={}: must be a path for each label"),
        ({"paths": "a.txt"}, "data.paths=a.txt: must be a path for each label"),
        ({"paths": {"x": 3}}, "data.paths.x=3: must be a file, a folder or a pattern"),
        ({"paths": {"x": "none.txt"}}, "data.paths.x=none.txt: no such file or folder"),
        ({"paths": one, "validation_path": rows}, "holds texts by label, and data.validation_path is none"),
        ({"path": rows, "validation_paths": one}, "holds rows, and the validation part texts by label"),
        ({"path": rows, "passage_characters": 9}, "data.passage_characters=9: is for texts by label"),
        ({"path": rows, "sample_by": "line"}, "data.sample_by=line: is for texts by label"),
        ({"path": path, "label_column": "y"}, "data.label_column=y: is for rows with labels"),
        ({"path": path, "labels": ["news"]}, "the label 'poems' must be one of data.labels, news"),
        ({"path": f"{path}/poems"}, "has no folders, whose names would be labels; data.paths names files"),
        ({"path": path}, "'news' has a single passage, of which nothing can be held out"),
        ({"path": rows, "text_column": 0}, "must all be names .* or all numbers"),
    ]:
        refused("labelled", match, **settings)


def test_the_fingerprint_changes_with_label_content_and_cutting(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", ["one", "two"]), write(tmp_path / "b.txt", ["three", "four"])
    settings = [
        {"paths": {"x": a, "y": b}},
        {"paths": {"x": b, "y": a}},
        {"paths": {"x": a, "z": b}},
        {"paths": {"x": a, "y": b}, "validation_paths": {"x": a}},
        {"paths": {"x": a, "y": b}, "sample_by": "line"},
        {"paths": {"x": a, "y": b}, "passage_characters": 3},
        {"path": a, "text_column": "t"},
        {"path": a, "label_column": "t"},
    ]
    prints = [make("labelled", **s).fingerprint() for s in settings]
    assert len(set(prints)) == len(prints) and make("labelled", **settings[0]).fingerprint() == prints[0]


def test_labelled_texts_are_learned(tmp_path: Path, ready: Callable) -> None:
    rows = [f"text {i},{'even' if i % 2 == 0 else 'odd'}" for i in range(40)]
    path = write(tmp_path / "a.csv", ["text,label", *rows, " ,odd"])
    corpus = ready(make("labelled", path=path), seq_len=16, kind="label")
    assert corpus.labels == ("even", "odd") and corpus.facts["train"]["documents"] == 36
    assert f"data.path={path}: 1 of 41 records have no text and were left out" in corpus.notices


def test_three_real_corpora_give_passages_of_each() -> None:
    paths = {
        "shakespeare": shared("tinyshakespeare/input.txt"),
        "stories": shared("tinystories/stories_713.jsonl"),
        "wiki": shared("wikitext2/wiki.valid.raw.gz"),
    }
    train, held = parts(make("labelled", paths=paths, passage_characters=300), "label")
    for part in (train, held):
        counts = Counter(r.label for r in part)
        assert set(counts) == set(paths) and min(counts.values()) > len(part) / 10
        lengths = sorted(len(r.text) for r in part)
        assert 200 < lengths[len(lengths) // 10] <= lengths[-1] < 460
    assert all(a.label != b.label for a, b in pairwise(train[:100]))
