import gzip
from pathlib import Path

import pytest

from tfcli.data.parts import Parts
from tfcli.data.text import Text
from tfcli.errors import ConfigError


def texts(source: Text) -> list[str]:
    return [document.text for document in source.documents()]


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_folder_is_read_in_the_order_of_names_without_what_is_hidden_or_no_text(tmp_path: Path) -> None:
    write(tmp_path, b_txt="B", a_md="A", sub__z_py="Z", sub__deep__y_txt="Y", c_bin="no", _git__x_txt="no")
    (tmp_path / "b2.txt.gz").write_bytes(gzip.compress(b"B2"))
    assert texts(Text(path=str(tmp_path))) == ["A", "B", "B2", "Y", "Z"]


def test_a_pattern_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, b_txt="B", a_txt="A", a_md="M", sub__c_txt="C")
    assert texts(Text(path=str(tmp_path / "*.txt"))) == ["A", "B"]
    assert texts(Text(path=str(tmp_path / "**" / "*.txt"))) == ["A", "B", "C"]


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    for name in ("corpus", "a.log", "epoch=1,x [1]*.txt"):
        (tmp_path / name).write_text(name)
        assert texts(Text(path=str(tmp_path / name))) == [name]


def test_a_path_that_leads_nowhere_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for settings, match in [
        ({}, "data.path: missing"),
        ({"path": "no/such.txt"}, "data.path=no/such.txt: no such file or folder"),
        ({"path": str(tmp_path)}, "no .txt, .md"),
        ({"path": "/dev/null"}, "data.path=/dev/null: is neither a file nor a folder"),
        ({"path": str(tmp_path / "*.txt")}, "no such file or folder"),
        ({"path": __file__, "validation_path": "none.txt"}, "data.validation_path=none.txt: no such file"),
    ]:
        with pytest.raises(ConfigError, match=match):
            Text(**settings)


def test_validation_path_is_what_is_held_out(tmp_path: Path) -> None:
    write(tmp_path, a_txt="one\n\ntwo\nthree", b_txt="four\n")
    source = Text(path=str(tmp_path / "a.txt"), validation_path=str(tmp_path / "b.txt"), sample_by="line")
    assert [(part, d.text) for part, d in Parts(source)] == [
        (0, "one"),
        (0, "two"),
        (0, "three"),
        (1, "four"),
    ]


def test_the_fingerprint_changes_with_the_content_and_how_it_is_read_but_not_with_the_place(
    tmp_path: Path,
) -> None:
    write(tmp_path, a_txt="one", x__a_txt="one", b_txt="two", c_md="one")
    prints = [
        Text(path=str(tmp_path / name), **settings).fingerprint()
        for name, settings in [
            ("a.txt", {}),
            ("b.txt", {}),
            ("c.md", {}),
            ("a.txt", {"sample_by": "line"}),
            ("a.txt", {"text_column": "story"}),
            ("a.txt", {"validation_path": str(tmp_path / "b.txt")}),
            ("[ab].txt", {}),
        ]
    ]
    assert len(set(prints)) == len(prints)
    assert Text(path=str(tmp_path / "x")).fingerprint() == prints[0]


def test_documents_can_be_skipped(tmp_path: Path) -> None:
    write(tmp_path, a_txt="1\n2\n", b_txt="3\n4\n")
    source = Text(path=str(tmp_path), sample_by="line")
    assert [d.text for d in source.documents(skip=3)] == ["4"]
