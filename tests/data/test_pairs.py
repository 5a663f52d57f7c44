import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from data.made import make, parts, refused, shared, write

from tfcli.data import Document

ROWS = [('He said "go".', "Er sagte: ,los'."), ("tab, comma", "日本\u2028 x"), ("caf\u00e9", "\u00fc")]


def tables(folder: Path) -> dict[str, str]:
    """The same rows in every format."""
    import pyarrow
    import pyarrow.parquet

    quoted = ['"' + '","'.join(cell.replace('"', '""') for cell in row) + '"' for row in ROWS]
    named = [{"n": 1, "source": a, "target": b} for a, b in ROWS]
    plain = ["\t".join(row) for row in ROWS]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(named), folder / "a.parquet")
    return {
        "plain": write(folder / "a.txt", plain),
        "other": write(folder / "a.en-de", ["\t".join((*row, "credit")) for row in ROWS]),
        "windows": write(folder / "w.txt", "\ufeff" + "\r\n".join(plain)),
        "tsv": write(folder / "a.tsv", ["source\ttarget", *plain]),
        "csv": write(folder / "a.csv", ["source,target", *quoted]),
        "jsonl": write(folder / "a.jsonl", [json.dumps(row) for row in named]),
        "json": write(folder / "a.json", json.dumps(named, indent=1)),
        "parquet": str(folder / "a.parquet"),
    }


def test_the_same_pairs_come_out_of_every_format_compressed_or_not(tmp_path: Path) -> None:
    expected = [Document(b, prompt=a) for a, b in ROWS]
    for path in tables(tmp_path).values():
        packed = Path(path + ".gz")
        packed.write_bytes(gzip.compress(Path(path).read_bytes()))
        for file in (path, str(packed)):
            source = make("pairs", path=file, validation_path=path)
            assert [*source.documents()] == expected == [*source.held_out()], file
            assert [*source.documents(skip=2)] == expected[2:]


def test_columns_go_by_name_by_number_or_by_a_name_within(tmp_path: Path) -> None:
    csv = write(tmp_path / "a.csv", ["1,x,y", "2,v,w"])
    source = make("pairs", path=csv, source_column=1, target_column=0, validation_path=csv)
    assert [*source.documents()] == [Document("1", "x"), Document("2", "v")]
    rows = [{"translation": {"en": "x", "de": "y"}}, {"translation": {"en": "v", "de": "w"}}]
    for name, text in [("a.jsonl", map(json.dumps, rows)), ("b.json", json.dumps(rows))]:
        path = write(tmp_path / name, text)
        names = {"source_column": "translation.en", "target_column": "translation.de"}
        assert [*make("pairs", path=path, validation_path=path, **names).documents()][1] == Document("w", "v")
    lists = write(tmp_path / "b.jsonl", ['["x", "y"]', '["v", "w"]'])
    source = make("pairs", path=lists, source_column=0, target_column=1, validation_path=lists)
    assert [*source.documents()] == [Document("y", "x"), Document("w", "v")]


def test_a_cell_may_be_quoted_in_csv_and_where_it_is_said(tmp_path: Path) -> None:
    for name, sign in (("a.csv", ","), ("a.tsv", "\t")):
        path = write(tmp_path / name, f'source{sign}target\n"one{sign}\ntwo"{sign}x\ny{sign}"z"\n')
        source = make("pairs", path=path, quotes=True, validation_path=path)
        assert [*source.documents()] == [Document("x", f"one{sign}\ntwo"), Document("z", "y")]


def test_two_texts_are_aligned_line_by_line_blank_lines_included(tmp_path: Path) -> None:
    english = write(tmp_path / "a.en", "\ufeffone\r\n\r\nthree\rstill three\r\nfour\r\n")
    german = write(tmp_path / "a.de", "eins\nzwei\ndrei\u2028noch drei\nfünf")
    source = make("pairs", source_path=english, target_path=german, validation_source_path=english,
                  validation_target_path=german)  # fmt: skip
    expected = [Document("eins", "one"), Document("drei\u2028noch drei", "three\nstill three"),
                Document("fünf", "four")]  # fmt: skip
    assert [*source.documents()] == expected == [*source.held_out()]
    assert source.notices() == [f"{source.where}: 2 of 8 records have a blank side and were left out"]


def test_texts_with_unequal_counts_are_refused_even_if_few_are_read(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.en", "1\n2\n3\n"), write(tmp_path / "a.de", "1\n2")
    for limit in (None, 1):
        match = r"a.en has 3 lines and \S*a.de 2; they must be as many"
        refused("pairs", match, source_path=a, target_path=b, max_documents=limit)


def test_pairs_with_a_blank_side_are_left_out_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [*(f"{i}\t{i}" for i in range(20)), "a\t", " \tb", "\t", "", "c\td"])
    source = make("pairs", path=path, separator=" => ")
    train, held = parts(source, "pair")
    assert len(train) + len(held) == 21 and Document("d", "c => ") in train + held
    assert source.notices() == [f"data.path={path}: 3 of 24 records have a blank side and were left out"]


def test_sides_can_be_swapped_and_separated(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ["x\ty", "v\tw"])
    source = make("pairs", path=path, reverse=True, separator="=", score="all", validation_path=path)
    assert [*source.documents()] == [Document("x", "y="), Document("v", "w=")]
    assert source.score_prompt and not make("pairs", path=path).score_prompt


def test_a_source_sentence_is_not_learned_in_one_translation_and_held_out_in_another(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [f"{i // 3}\t{i}" for i in range(300)])
    for reverse in (False, True):
        train, held = parts(make("pairs", path=path, reverse=reverse), "pair")
        sides = [{int(d.text if reverse else d.prompt) for d in part} for part in (train, held)]
        assert len(held) == 30 and len(sides[1]) == 10 and not sides[0] & sides[1]
    train, held = parts(make("pairs", path=path, max_documents=60), "pair")
    assert len(train) == 54 and max(int(d.text) for d in train + held) == 59


BROKEN = {
    "a.txt": ("x\ty\nalone\n", r"a.txt:2: data.target_column=1 is not in this row; it has column 0$"),
    "a.csv": (
        "source,target\nx,y\nz\n",
        "a.csv:3: data.target_column=target is not in this row; it has source",
    ),
    "b.csv": ("source,target\nHello, you,Hallo\n", "b.csv:2: has 3 cells, and the first line names 2"),
    "c.csv": ("mr,ref\nx,y\n", "c.csv:2: data.source_column=source is not in this row; it has mr, ref"),
    "a.jsonl": ('{"source": "x", "target": null}', "a.jsonl:1: 'target' holds null, it must be text"),
    "b.jsonl": ('\n{"source": 7, "target": "y"}', "b.jsonl:2: 'source' holds int, it must be text"),
    "c.jsonl": ('{"source": "x", "targe": "y"}', "c.jsonl:1: data.target_column=target .* 'targe'"),
    "d.jsonl": ('"just text"', "d.jsonl:1: data.source_column=source is not in this row; it has none"),
    "a.json": ('[{"source": "x", "target": "y"}, {"source": "z"}]', r"a.json\[1\]: data.target_column"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_row_that_is_no_pair_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    text, match = BROKEN[name]
    path = write(tmp_path / name, text)
    refused("pairs", match, path=path, validation_path=path)


def test_a_parquet_row_is_refused_with_its_place(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"source": ["x", "y"], "target": ["z", None]}), path)
    refused("pairs", r"a.parquet\[1\]: 'target' holds null", path=str(path))
    match = r"a.parquet\[0\]: data.source_column=src .* it has source, target"
    refused("pairs", match, path=str(path), source_column="src", target_column="target")


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ["x\ty"])
    write(tmp_path / "b.de", ["x"])
    for settings, match in [
        ({}, "data.path: missing; give a file or a pattern, as data.path=pairs.tsv, or data.source_path="),
        ({"path": str(tmp_path)}, "is a folder; give a file, or a pattern"),
        ({"path": path, "source_path": path}, "data.source_path and data.target_path: must both be given"),
        (
            {"source_path": path},
            "data.source_path and data.target_path: must both be given, and no data.path",
        ),
        ({"path": path, "validation_target_path": path}, "data.validation_source_path and .* must both"),
        (
            {"source_path": str(tmp_path / "*.txt"), "target_path": str(tmp_path / "*")},
            "means 1 files, and data.target_path=.* 2; they must be as many",
        ),
        ({"path": path, "source_column": 0, "target_column": "y"}, "must all be names .* or all numbers"),
        ({"path": path}, "holds a single record, of which nothing can be held out"),
        ({"path": path, "source_column": -1}, "data.source_column=-1: must be text or a whole number"),
    ]:
        refused("pairs", match, **settings)


def test_the_fingerprint_changes_with_what_the_pairs_are_and_not_with_where_they_lie(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ["x\ty\tz", "v\tw\tu"])
    same = write(tmp_path / "elsewhere" / "b.txt", ["x\ty\tz", "v\tw\tu"])
    settings = [{}, {"reverse": True}, {"separator": " "}, {"target_column": 2}, {"validation_path": path}]
    prints = [make("pairs", path=path, **s).fingerprint() for s in settings]
    prints.append(make("pairs", source_path=path, target_path=path).fingerprint())
    prints.append(make("pairs", path=str(tmp_path / "**/*.txt")).fingerprint())
    assert len(set(prints)) == len(prints)
    assert make("pairs", path=same, bos=True).fingerprint() == prints[0]


def test_pairs_are_learned_by_both_families(tmp_path: Path, ready: Callable) -> None:
    path = write(tmp_path / "a.txt", [*(f"ab{i}\tcd{i}" for i in range(40)), "x\t"])
    for kind in ("pair", "text"):
        corpus = ready(make("pairs", path=path, separator="="), seq_len=16, kind=kind)
        assert corpus.facts["train"]["documents"] == 36 and corpus.facts["validation"]["documents"] == 4
        assert f"data.path={path}: 1 of 41 records have a blank side and were left out" in corpus.notices


def test_the_real_translations_are_read_without_a_setting() -> None:
    train, held = parts(make("pairs", path=shared("cmn_eng/cmn.txt.gz")), "pair")
    assert len(train) + len(held) == 22_075 and 2100 < len(held) < 2300
    assert train[0] == Document("嗨。", "Hi.") and not {d.prompt for d in train} & {d.prompt for d in held}


def test_the_real_meanings_are_read_by_the_names_of_their_columns() -> None:
    path = shared("e2e_nlg/devset.csv.gz")
    train, held = parts(make("pairs", path=path, source_column="mr", target_column="ref"), "pair")
    assert len(train) + len(held) == 4_672 and train[0].prompt.startswith("name[Alimentum], area[")
