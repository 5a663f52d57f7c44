"""The embedded corpus: the source text of Python's own standard library."""

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from tfcli.data import Document, Part, Source
from tfcli.data.formats import read
from tfcli.data.text import hash_files
from tfcli.errors import ConfigError
from tfcli.values import Count

# not code that teaches Python (tests, generated tables), or not of every machine (what was installed)
LEFT_OUT = {"test", "tests", "idle_test", "idlelib", "lib2to3", "pydoc_data", "encodings", "turtledemo",
            "ensurepip", "site-packages", "dist-packages", "__pycache__", "__phello__"}  # fmt: skip


@dataclass(kw_only=True)
class Stdlib(Source):
    """One document per module of the standard library, 9 MB; every 1/validation_fraction-th is held out."""

    where: ClassVar[str] = "data=stdlib"
    validation_fraction: Part = 0.1
    max_documents: Count | None = None

    def __post_init__(self) -> None:
        root = Path(sysconfig.get_paths()["stdlib"])
        self.files = list(_modules(root))
        self.skipped = 0
        if not self.files:
            raise ConfigError(
                f"data=stdlib: this Python keeps no source text in {root}; use data=text data.path=..."
            )

    def documents(self, skip: int = 0) -> Iterator[Document]:
        self.skipped = 0
        return islice(self._read(), skip, None)

    def _read(self) -> Iterator[Document]:
        for file in self.files:
            try:
                yield Document(next(read(file, text_column="text")))
            except ConfigError:  # a few old modules are not UTF-8
                self.skipped += 1

    def fingerprint(self) -> str:
        return hash_files(self.files)

    def n_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def notices(self) -> list[str]:
        return [f"data=stdlib: {self.skipped} files are not UTF-8 and were left out"] if self.skipped else []


def _modules(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in LEFT_OUT
        )  # walk goes no deeper than these
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))
