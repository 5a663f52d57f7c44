import pytest

from tfcli.data import Document, Labelled, Question, Tagged
from tfcli.data.parts import Parts, split, training_texts
from tfcli.errors import ConfigError


def parts(n: int, fraction: float = 0.1) -> list[int]:
    return [part for part, _ in split((Document(str(i)) for i in range(n)), fraction)]


@pytest.mark.parametrize("n", range(2, 50))
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_both_parts_have_a_document_and_the_share_that_was_asked(n: int, fraction: float) -> None:
    found = parts(n, fraction)
    assert len(found) == n and set(found) == {0, 1}
    assert abs(sum(found) - n * fraction) <= 1


def test_every_tenth_document_is_held_out() -> None:
    assert [i for i, part in enumerate(parts(40)) if part] == [9, 19, 29, 39]


def test_the_end_of_a_single_document_is_held_out() -> None:
    text = "".join(chr(97 + i % 26) for i in range(105))
    assert list(split(iter([Document(text)]), 0.1)) == [(0, Document(text[:94])), (1, Document(text[94:]))]
    assert list(split(iter([Document("x")]), 0.1)) == [(0, Document("x"))]
    assert list(split(iter([Document("xy", "q")]), 0.1)) == [(0, Document("x", "q")), (1, Document("y"))]


def test_blank_documents_are_left_out_and_counted(listed: type) -> None:
    found = Parts(listed(["a", "", " \n\t", "b", "\u2028"], held=["", "c"]))
    assert [(part, d.text) for part, d in found] == [(0, "a"), (0, "b"), (1, "c")]
    assert found.blank == [3, 1]


def test_records_are_blank_if_they_say_nothing(listed: type) -> None:
    said = [Labelled("", "a", "b"), Tagged(("\u2003",), ("O",)), Question("", "text", ())]
    blank = [Labelled(" ", "a"), Labelled("", "a", " "), Tagged((), ()), Question("who?", " ", ())]
    found = Parts(listed([*said, *blank], held=blank))
    assert [record for _, record in found] == said and found.blank == [4, 4]


def test_a_single_record_is_not_cut_in_two(listed: type) -> None:
    for record in (Labelled("one two", "a"), Tagged(("a", "b"), ("O", "O")), Question("who?", "text", ())):
        with pytest.raises(ConfigError, match="holds a single record, of which nothing can be held out"):
            list(Parts(listed([record])))
    pair = Document("xy", "q")
    assert len(list(Parts(listed([pair])))) == 2
    with pytest.raises(ConfigError, match="single record"):
        list(Parts(listed([pair]), kind="pair"))


def test_records_are_shared_out_as_documents_are(listed: type) -> None:
    texts, records = [str(i) for i in range(25)], [Labelled(str(i), "a") for i in range(25)]
    assert [p for p, _ in Parts(listed(texts))] == [p for p, _ in Parts(listed(records))]


def test_max_documents_counts_what_is_not_blank_before_anything_is_held_out(listed: type) -> None:
    found = list(Parts(listed(["", "a", " ", *"bcdefg"], max_documents=4)))
    assert [(part, d.text) for part, d in found] == [(0, "a"), (0, "b"), (0, "c"), (1, "d")]


def test_a_tokenizer_learns_from_the_training_part_and_only_as_much_as_asked(listed: type) -> None:
    source = listed([Document(f"{i:02}", "p") for i in range(20)])
    assert list(training_texts(source)) == [f"p{i:02}" for i in range(20) if i not in (9, 19)]
    source.tokenizer_characters = 8
    assert list(training_texts(source)) == ["p00", "p01", "p0"]


def test_a_source_without_text_is_named(listed: type) -> None:
    with pytest.raises(ConfigError, match="data: there is no text in it"):
        list(training_texts(listed(["", " "])))
