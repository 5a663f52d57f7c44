from collections.abc import Callable

from tfcli.data.parts import Parts
from tfcli.data.stdlib import Stdlib


def test_the_standard_library_is_a_few_megabytes_of_modules_in_order_without_tests() -> None:
    source = Stdlib()
    texts = [document.text for document in source.documents()]
    assert 2_000_000 < sum(map(len, texts)) < 14_000_000
    assert len(texts) + source.skipped == len(source.files) > 200
    assert sorted(set(source.files)) == sorted(source.files)
    assert not any({"test", "tests", "site-packages"} & set(file.parts[-4:-1]) for file in source.files)
    assert any("def dumps" in text for text in texts)
    assert [d.text for d in Stdlib().documents(skip=100)] == texts[100:]
    assert Stdlib().fingerprint() == source.fingerprint()


def test_a_tenth_of_the_modules_is_held_out_always_the_same() -> None:
    first = [part for part, _ in Parts(Stdlib())]
    assert abs(sum(first) - len(first) / 10) <= 1
    assert [part for part, _ in Parts(Stdlib())] == first


def test_modules_that_are_not_utf8_are_left_out_and_told(tmp_path, monkeypatch, ready: Callable) -> None:
    for i in range(20):
        (tmp_path / f"m{i:02}.py").write_bytes(b"x = '\xe9'" if i in (3, 4) else b"x = 'e'")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    for _ in range(2):  # read from the text, and from the cache
        corpus = ready(Stdlib())
        assert "data=stdlib: 2 files are not UTF-8 and were left out" in corpus.notices
        assert corpus.facts["train"]["documents"] == 17
