import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from data.made import make, parts, refused, shared, write

from tfcli.data import Tagged

SENTENCES = [
    (("EU", "rejects", "German"), ("B-ORG", "O", "B-MISC")),
    (("#", "of", "\xa0"), ("O", "O", "O")),
    (("Peter", "Blackburn"), ("B-PER", "I-PER")),
]
FOUR = """\ufeff-DOCSTART- -X- -X- O

EU NNP I-NP B-ORG
rejects VBZ I-VP O
German JJ I-NP B-MISC

# NN x O
of IN  y O
\xa0 SP z O
-DOCSTART- -X- -X- O
Peter NNP I-NP B-PER
Blackburn NNP I-NP I-PER"""
TWO = "\r\n\t\r\n".join("\r\n".join(f"{w}\t{t}" for w, t in zip(*s)) for s in SENTENCES) + "\r\n\t\r\n\r\n"


def said(records: list[Tagged]) -> list[tuple]:
    return [(record.words, record.tags) for record in records]


@pytest.mark.parametrize("text", [FOUR, TWO])
def test_sentences_are_read_from_columns_between_tabs_or_blanks(text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", text)
    (tmp_path / "a.annotated.gz").write_bytes(gzip.compress(text.encode()))
    for file in (path, str(tmp_path / "a.annotated.gz")):
        source = make("conll", path=file, validation_path=path)
        assert said([*source.documents()]) == SENTENCES == said([*source.held_out()])
        assert said([*source.documents(skip=2)]) == SENTENCES[2:]


def test_a_sentence_knows_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", FOUR)
    found = make("conll", path=path, validation_path=path).documents()
    assert [r.where for r in found] == [f"{path}:3", f"{path}:7", f"{path}:11"]


def test_any_column_may_be_the_word_or_the_tag_and_lines_may_be_comments(tmp_path: Path) -> None:
    text = "# sent_id = 1\n1\tThe\tDET\t_\n2\tend\tNOUN\t_\n\n# sent_id = 2\n1\tSo\tADV\t_\n"
    settings = {"path": write(tmp_path / "a.conllu", text), "word_column": 1, "tag_column": -2}
    found = make("conll", comment="# ", validation_path=settings["path"], **settings).documents()
    assert said(list(found)) == [(("The", "end"), ("DET", "NOUN")), (("So",), ("ADV",))]
    match = (
        "a.conllu:2: has 4 columns between tabs, .* before it 4 columns between blanks; .* data.comment='# '"
    )
    refused("conll", match, **settings)


def test_a_line_that_is_no_tagged_word_is_refused_with_its_place(tmp_path: Path) -> None:
    for text, settings, match in [
        (
            "a\tO\nb\n",
            {},
            "a.conll:2: has 1 column between blanks, and the line before it 2 columns between tabs",
        ),
        ("a O\nb c O\n", {}, "a.conll:2: has 3 columns between blanks, and the line before it 2"),
        ("a\tO\n\n# text\n\nb\tO\n", {}, "a.conll:3: has 2 columns between blanks, .* data.comment='# '"),
        ("a\n", {}, "a.conll:1: has 1 columns, so that the word is the tag; a tag is missing"),
        ("a O\n\nb c O\n\nd\tO\n", {"tag_column": 2}, "a.conll:1: data.tag_column=2 is not in this line"),
        (
            "a O\n",
            {"word_column": -3},
            "a.conll:1: data.word_column=-3 is not in this line; it has 2 columns",
        ),
        ("a\tO\nb\t\n", {}, "a.conll:2: data.tag_column=-1 is blank in this line"),
        ("\tO\n", {}, "a.conll:1: data.word_column=0 is blank in this line"),
        ("a O\n", {"comment": ""}, "data.comment='': every line begins with that"),
        ("a O\n", {}, "holds a single record, of which nothing can be held out"),
    ]:
        refused("conll", match, path=write(tmp_path / "a.conll", text), **settings)
    refused("conll", "data.path: missing; give .*, as data.path=train.conll")


def test_sentences_are_learned_and_their_tags_found(tmp_path: Path, ready: Callable) -> None:
    path = write(tmp_path / "a.conll", [f"a{i} O\nb B-x\n" for i in range(30)])
    for settings, n in [
        ({}, (27, 3)),
        ({"validation_path": path}, (30, 30)),
        ({"max_documents": 10}, (9, 1)),
    ]:
        corpus = ready(make("conll", path=path, **settings), seq_len=16, kind="tags")
        assert tuple(corpus.facts[part]["documents"] for part in ("train", "validation")) == n
        assert corpus.labels == ("O", "B-x")


def test_the_fingerprint_changes_with_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a b O\n")
    settings = [{}, {"word_column": 1}, {"tag_column": 1}, {"comment": "#"}, {"validation_path": path}]
    prints = [make("conll", path=path, **s).fingerprint() for s in settings]
    assert len(set(prints)) == len(prints)


def test_the_real_entities_are_all_read() -> None:
    names = ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]
    train, dev, test = (shared(f"wnut17/{name}.gz") for name in names)
    found = parts(make("conll", path=train, validation_path=dev), "tags")
    assert [len(part) for part in found] == [3_394, 1_009]
    tags = Counter(tag for record in found[0] for tag in record.tags)
    assert sum(tags.values()) == 62_730 and tags["B-person"] == 660 and len(tags) == 13
    assert sum(map(len, parts(make("conll", path=test), "tags"))) == 1_287
