import bz2
import gzip
import json
import lzma
import sys
from pathlib import Path

import pytest

from tfcli.data import formats
from tfcli.data.formats import read, suffixes
from tfcli.errors import ConfigError

# a byte order mark, both line ends, characters that end no line, blank lines, no end of the last line
RAW = "\ufeffone\r\ntwo\u2028b\x0cc\x85d\n\n \r\nthree\rfour\n\nfive".encode()
LINES = ["one", "two\u2028b\x0cc\x85d", "", " ", "three", "four", "", "five"]
PACKERS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def documents(path: Path, data: bytes, **settings) -> list[str]:
    path.write_bytes(data)
    return list(read(path, **({"text_column": "text"} | settings)))


@pytest.mark.parametrize("packed", PACKERS)
def test_a_plain_text_is_one_document_or_its_paragraphs_or_its_lines(packed: str, tmp_path: Path) -> None:
    path, data = tmp_path / f"a.txt{packed}", PACKERS[packed](RAW)
    assert documents(path, data) == ["\n".join(LINES)]
    assert documents(path, data, sample_by="line") == LINES
    paragraphs = [text for text in documents(path, data, sample_by="paragraph") if text]
    assert paragraphs == ["\n".join(LINES[:2]), "three\nfour", "five"]
    for sample_by in ("line", "paragraph"):
        ours = documents(path, data, sample_by=sample_by)
        assert documents(path, data, sample_by=sample_by, whole=False) == ours


def test_the_same_documents_come_out_of_every_format(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    texts = ["one\r\ntwo", '\ufeffq"uo,te', "日本 👩‍👩‍👧", "a\u2028b", "", "x\ry"]
    expected = ["one\ntwo", 'q"uo,te', "日本 👩‍👩‍👧", "a\u2028b", "", "x\ny"]
    lines = "\n".join(json.dumps({"n": 1, "text": text}, ensure_ascii=False) for text in texts)
    table = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "n": [1] * len(texts)}), table)
    quoted = (text.replace("\r\n", "\n").replace('"', '""').replace("\r", "\n") for text in texts)
    rows = "\n".join(f'1,"{text}"' for text in quoted)
    for packed, pack in PACKERS.items():
        assert documents(tmp_path / f"a.jsonl{packed}", pack(f"\ufeff{lines}\n\n".encode())) == expected
        assert documents(tmp_path / f"b.parquet{packed}", pack(table.read_bytes())) == expected
        assert (
            documents(tmp_path / f"a.csv{packed}", pack(f"\ufeffn,text\r\n{rows}\r\n".encode())) == expected
        )
    assert (
        documents(tmp_path / "a.json", json.dumps([{"text": t} for t in texts], indent=1).encode())
        == expected
    )
    assert documents(tmp_path / "b.json", lines.encode()) == expected


def test_null_is_an_empty_text_and_other_columns_do_not_matter(tmp_path: Path) -> None:
    rows = b'{"text": null, "b": [1]}\n{"b": 2, "text": "x"}\n"just text"\n'
    assert documents(tmp_path / "a.jsonl", rows) == ["", "x", "just text"]
    assert documents(tmp_path / "a.csv", b"story,text\nS,T\n", text_column="story") == ["S"]
    assert documents(tmp_path / "a.tsv", b"story\ttext\nS\tT\n") == ["T"]


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    assert documents(tmp_path / "a.jsonl", b'"a\\ud800b"\n"\\ud83d\\ude00"') == ["a\ufffdb", "😀"]


def test_every_member_of_a_gzip_file_is_read(tmp_path: Path) -> None:
    both = gzip.compress(b"one\n") + gzip.compress(b"two\n")
    assert documents(tmp_path / "a.txt.gz", both, sample_by="line") == ["one", "two"]


BROKEN = {
    "a.txt": (b"fine\nalso\nbad \xff\n", r"a.txt:3: not UTF-8 \(byte 0xff\)"),
    "b.txt": ("utf-16".encode("utf-16"), r"b.txt:1: not UTF-8"),
    "a.txt.gz": (gzip.compress(b"line\n" * 9999)[:-9], "a.txt.gz: the compressed data end too early"),
    "b.txt.gz": (b"plain", "b.txt.gz: cannot be read"),
    "c.txt.gz": (gzip.compress(b"line\n")[:-8] + b"wrong" * 2, "c.txt.gz: cannot be read"),
    "a.txt.xz": (lzma.compress(b"line\n" * 9999)[:-9], "a.txt.xz: the compressed data end too early"),
    "b.txt.xz": (b"plain", "b.txt.xz: cannot be read"),
    "a.txt.bz2": (b"plain", "a.txt.bz2: cannot be read"),
    "d.txt": (gzip.compress(b"not plain"), "d.txt:1: not UTF-8"),
    "a.jsonl": (b'{"text": "x"}\n\n{"text": "y\n', "a.jsonl:3: not JSON"),
    "b.jsonl": (b'{"text": "x"}\n{"txt": "y"}\n', "b.jsonl:2: data.text_column=text is not .*; it has txt"),
    "c.jsonl": (b'{"text": "x"}\n{"text": 7}\n', "c.jsonl:2: 'text' holds int, it must be text"),
    "d.jsonl": (b'{"text": "x"}\n[1]\n', "d.jsonl:2: data.text_column=text is not in this row"),
    "e.jsonl": (b'{"text": "x"}\n{"text": "\xff"}\n', "e.jsonl:2: not UTF-8"),
    "f.jsonl.gz": (gzip.compress(b'{"text": "x"}\n{"te'), "f.jsonl.gz:2: not JSON"),
    "a.json": (b'[{"text": "x"},', "a.json: not JSON"),
    "a.csv": (b"n,txt\n1,x\n", "a.csv:2: data.text_column=text is not .*; it has n, txt; did you mean"),
    "b.csv": (b'n,text\n1,"x\n', "b.csv:2: not CSV"),
    "c.csv": (b"n,text\n1,x\n2\n", "c.csv:3: data.text_column=text is not in this row; it has n"),
    "a.parquet": (b"PAR1 not really PAR1", "a.parquet: not Parquet"),
    "b.parquet": (b"", "b.parquet: not Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_said_with_file_and_line(name: str, whole: bool, tmp_path: Path) -> None:
    data, message = BROKEN[name]
    with pytest.raises(ConfigError, match=message) as error:
        documents(tmp_path / name, data, whole=whole)
    assert "\n" not in str(error.value)


def test_a_parquet_file_without_the_column_or_with_another_kind_is_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"texts": ["x"], "n": [["y"]]}), path)
    with pytest.raises(ConfigError, match=r"it has texts, n; did you mean 'texts'\?"):
        list(read(path, text_column="text"))
    with pytest.raises(ConfigError, match="'n' holds list, it must be text"):
        list(read(path, text_column="n"))


def test_zstandard_is_read_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt.zst"
    try:
        import zstandard

        assert documents(path, zstandard.compress(b"text\n")) == ["text\n"]
    except ImportError:
        pass
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression", None)
    with pytest.raises(ConfigError, match="needs the package zstandard"):
        documents(path, b"")


def test_the_kind_of_a_file_is_read_off_its_name() -> None:
    assert suffixes(Path("a/b.JSONL.GZ")) == (".jsonl", ".gz")
    assert suffixes(Path("b.v2.txt")) == (".txt", "")
    assert suffixes(Path("b.gz")) == ("", ".gz")


def test_a_plain_text_that_must_not_be_held_in_memory_is_cut_at_line_ends(tmp_path: Path) -> None:
    text = "".join(f"line {i}\n" for i in range(400_000))
    parts = documents(tmp_path / "a.txt", text.encode(), whole=False)
    assert len(parts) == 5 and max(map(len, parts)) < 1.1 * 2**20
    assert "\n".join(parts) + "\n" == text


def test_a_reader_that_is_left_open_is_no_trouble_when_python_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")
    for sample_by in ("line", "paragraph", "document"):
        lines = formats._plain(tmp_path / "a.txt", sample_by, whole=True)
        next(lines)
        with monkeypatch.context() as ending:
            ending.setattr(formats, "ConfigError", None)  # as Python leaves the names of a module at its end
            lines.close()
