"""Embedded pairs: functions of Python's own standard library, and what their docstrings say they do."""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tfcli.data import Document
from tfcli.data.files import PartName
from tfcli.data.pairs import PairSource
from tfcli.data.stdlib import Stdlib
from tfcli.values import Count

Function = ast.FunctionDef | ast.AsyncFunctionDef
ODD = {  # what is odd about functions
    "cut": "functions are longer than data.max_source={max_source} and were cut",
    "long": "docstrings are longer than data.max_target={max_target} and were left out",
    "empty": "functions have no line of their own beside the docstring and were left out",
    "twice": "functions are the same as another and were left out",
}


@dataclass(kw_only=True)
class Docstrings(PairSource):
    """The source text of a function -> the first paragraph of its docstring.

    max_source, max_target: in characters; a longer function is cut after its last whole line, and one whose
    docstring is longer is left out. The functions of a module are held out together.
    """

    where: ClassVar[str] = "data=stdlib_docstrings"
    names_validation: ClassVar[bool] = False
    max_source: Count = 500
    max_target: Count = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        self.modules = Stdlib()
        self.odd = Counter()

    def records(self, part: PartName) -> Iterator[Document]:
        return iter(self._pairs)

    def together(self, record: Document) -> int:
        return self._pairs[record]

    @cached_property
    def _pairs(self) -> dict[Document, int]:
        """All pairs in the order of the modules, each with the number of its module.

        Parsing takes seconds and is done once.
        """
        found: dict[Document, int] = {}
        for module, document in enumerate(self.modules.documents()):
            lines = document.text.split("\n")
            for function in functions(document.text):
                pair = self._fitting(*described(function, lines))
                self.odd["twice"] += pair in found
                if pair is not None:
                    found.setdefault(pair, module)
        return found

    def _fitting(self, source: str, target: str) -> Document | None:
        """The pair with its source cut; None where it is left out."""
        kept = source if len(source) <= self.max_source else cut(source, self.max_source)
        if not kept or len(target) > self.max_target:
            self.odd["long" if kept else "empty"] += 1
            return None
        self.odd["cut"] += kept != source
        return self.pair(kept, target)

    def fingerprint(self) -> str:
        return f"{self.modules.fingerprint()} {self.how()}"

    def n_bytes(self) -> int | None:
        return None  # of the modules only a part

    def notices(self) -> list[str]:
        said = (
            f"{self.where}: {self.odd[kind]} {what.format(**vars(self))}"
            for kind, what in ODD.items()
            if self.odd[kind]
        )
        return [*super().notices(), *self.modules.notices(), *said]


def functions(text: str) -> Iterator[Function]:
    """Those with a docstring, in the order of the text."""
    try:
        with warnings.catch_warnings():  # of old escapes in the library's own code
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError:  # a template, or for another Python
        return
    found = (node for node in ast.walk(tree) if isinstance(node, Function) and ast.get_docstring(node))
    yield from sorted(found, key=lambda node: node.lineno)


def described(function: Function, lines: list[str]) -> tuple[str, str]:
    """A function's lines without its docstring, nothing if there are none; and that one's first paragraph."""
    docstring, *body = function.body
    before = lines[function.lineno - 1 : docstring.lineno - 1]
    after = "\n".join(lines[docstring.end_lineno : function.end_lineno]).lstrip("\n")
    shared = lines[docstring.lineno - 1][
        : docstring.col_offset
    ].strip()  # its line begins with something else
    if shared or not body or body[0].lineno == docstring.end_lineno:
        source = ""
    else:
        source = "\n".join(_dedented(line, function.col_offset) for line in [*before, *after.split("\n")])
    first = ast.get_docstring(function).split("\n\n")[0]
    return source.strip(), " ".join(first.split())


def _dedented(line: str, indent: int) -> str:
    return line if line[:indent].strip() else line[indent:]


def cut(source: str, size: int) -> str:
    """The first lines that have at most `size` characters together; nothing if the first is longer."""
    return source[: size + 1].rpartition("\n")[0]
