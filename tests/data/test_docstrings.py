from collections.abc import Callable
from pathlib import Path

import pytest
from data.made import make, parts

from tfcli.data import Document
from tfcli.data.docstrings import described, functions

MODULE = '''
class Thing:
    @property
    def size(self):
        """How large
        it is.

        More of it.
        """

        return 1  # é

    async def wait(self): "said in one line"

    def long(self,
             other): r"""with the signature"""; return 2

    def bare(self):
        """Nothing else."""

def text():
    "A text."
    def inner(n):
        \'\'\'Inner.\'\'\'
        return """
left
"""
    return inner

def without():
    return 3
'''


def test_a_function_is_described_by_the_first_paragraph_of_its_docstring() -> None:
    found = {f.name: described(f, MODULE.split("\n")) for f in functions(MODULE)}
    assert list(found) == ["size", "wait", "long", "bare", "text", "inner"]
    assert found["size"] == ("def size(self):\n    return 1  # é", "How large it is.")
    assert found["inner"] == ('def inner(n):\n    return """\nleft\n"""', "Inner.")
    assert found["text"][0].startswith("def text():\n    def inner(n):\n        '''Inner.'''\n")
    assert [found[name][0] for name in ("wait", "long", "bare")] == ["", "", ""]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of our own, of twenty modules with two functions each."""
    for i in range(20):
        text = "".join(f'def f{j}(x):\n    """Say {i}.{j}."""\n    return x + {i}\n' for j in range(2))
        (tmp_path / f"m{i:02}.py").write_text(text)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    return tmp_path


def test_the_functions_of_a_module_are_held_out_together(modules: Path) -> None:
    train, held = parts(make("stdlib_docstrings"), "pair")
    assert (len(train), len(held)) == (36, 4)
    assert train[0] == Document("Say 0.0.", "def f0(x):\n    return x + 0")
    assert {r.text.split(".")[0] for r in held} == {"Say 9", "Say 19"}


def test_what_is_odd_is_cut_or_left_out_and_told(modules: Path, ready: Callable) -> None:
    (modules / "odd.py").write_text(
        'def f0(x):\n    """Say 0.0."""\n    return x + 0\n'  # as in m00
        f'def g():\n    """{"long " * 50}"""\n    return 1\n'
        'def h():\n    """Only said."""\n'
        'def k():\n    """Cut."""\n    x = 1 + 2 + 3 + 4\n    y = 1\n    return 5\n'
    )
    (modules / "broken.py").write_text('def f(:\n    """No."""\n')
    source = make("stdlib_docstrings", max_source=41)
    train, held = parts(source, "pair")
    assert Document("Cut.", "def k():\n    x = 1 + 2 + 3 + 4\n    y = 1") in train + held
    said = [notice.removeprefix("data=stdlib_docstrings: ") for notice in source.notices()]
    assert said == [
        "1 functions are longer than data.max_source=41 and were cut",
        "1 docstrings are longer than data.max_target=200 and were left out",
        "1 functions have no line of their own beside the docstring and were left out",
        "1 functions are the same as another and were left out",
    ]


def test_the_library_of_this_python_has_some_thousand_pairs_always_the_same() -> None:
    first, second = (parts(make("stdlib_docstrings"), "pair") for _ in range(2))
    assert first == second
    train, held = first
    assert len(train) + len(held) > 3_000 and 0.02 < len(held) / len(train) < 0.2
    assert len({*train, *held}) == len(train) + len(held)
    for record in train + held:
        assert record.prompt.startswith(("def ", "async def ")) and 0 < len(record.prompt) <= 500
        assert 0 < len(record.text) <= 200 and "\n" not in record.text
    assert not any(record.text in record.prompt for record in train if len(record.text) > 60)


def test_the_settings_are_kept_and_change_the_fingerprint() -> None:
    settings = [{}, {"max_source": 400}, {"max_target": 100}, {"reverse": True}, {"separator": "#"}]
    assert len({make("stdlib_docstrings", **s).fingerprint() for s in settings}) == len(settings)
    turned = next(make("stdlib_docstrings", reverse=True, separator="\n").documents())
    assert turned.text.startswith("def ") and turned.prompt.endswith("\n")
