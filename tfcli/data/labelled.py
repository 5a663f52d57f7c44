"""Texts, or pairs of texts, and the class of each: rows of a table, or a file or folder for each class."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from tfcli.data import Kind, Labelled
from tfcli.data.columns import Column, name, text
from tfcli.data.files import PREFIXES, Files, PartName, Records, Table, size_of
from tfcli.data.formats import SampleBy, normal
from tfcli.data.passages import Classes, Passages, classes, in_turn
from tfcli.data.text import hash_files
from tfcli.errors import ConfigError, suggest
from tfcli.values import Count

OF_ROWS = {"second_column": None, "label_column": "label", "quotes": None}  # settings and their defaults
OF_TEXTS = {"sample_by": "document", "passage_characters": None}


@dataclass(kw_only=True)
class LabelSource(Records):
    """A text and its label. labels: None, or all that there may be."""

    gives: ClassVar[frozenset[Kind]] = frozenset({"text", "label"})
    text_column: Column = "text"
    second_column: Column | None = None
    label_column: Column = "label"
    labels: list[str | int] | None = None

    def by_key(self) -> dict[str, Column | None]:
        """The columns by their keys."""
        names = ("text_column", "second_column", "label_column")
        return {f"data.{name}": getattr(self, name) for name in names}

    def labelled(self, row: Any, where: str, names: list[str] | None = None) -> Labelled:
        """A row as a record. names: of labels that are numbers."""
        first = text(row, self.text_column, where, "data.text_column")
        second = self.second_column
        if second is not None:
            second = normal(text(row, second, where, "data.second_column"))
        label = name(row, self.label_column, where, "data.label_column", names)
        return Labelled(normal(first), self.known(normal(label), where), second, where)

    def known(self, label: str, where: str) -> str:
        """The label, if it may be one."""
        allowed = None if self.labels is None else [str(one) for one in self.labels]
        if allowed is not None and label not in allowed:
            raise ConfigError(
                f"{where}: the label '{label}' must be one of data.labels, {', '.join(allowed)}"
                + suggest(label, allowed)
            )
        return label


@dataclass(kw_only=True)
class LabelledFiles(LabelSource, Table):
    """Rows with a text and its label; or plain texts, of which each belongs to one class.

    path: a file or a pattern of rows, or a folder whose folders are the labels of the texts in them. paths: a
    file, folder or pattern for each label. Plain texts are taken by document (file), paragraph or line,
    `sample_by`, and cut into passages of about `passage_characters`. Where no validation part is named, the
    end of each class's texts is held out, so that no passage is asked that stands between learned ones.
    """

    paths: dict[str, str] | None = None
    validation_paths: dict[str, str] | None = None
    sample_by: SampleBy = "document"
    passage_characters: Count | None = None

    places: ClassVar[frozenset[str]] = Files.places | {"paths", "validation_paths"}
    example: ClassVar[str] = "reviews.csv, or data.paths={poems: poems.txt, news: news.txt}"

    def located(self) -> dict[PartName, list[Path]]:
        self.texts: dict[PartName, Classes] = {}
        for part, prefix in PREFIXES.items():
            path, paths = (f"data.{prefix}{key}" for key in ("path", "paths"))
            found = classes(getattr(self, f"{prefix}path"), getattr(self, f"{prefix}paths"), path, paths)
            if found is not None:
                self.texts[part] = found
        self._check()
        return {"train": [], "validation": []} if self.texts else super().located()

    def _check(self) -> None:
        """Raises ConfigError for what does not go together."""
        if self.texts and "train" not in self.texts:
            raise ConfigError(f"{self.where}: holds rows, and the validation part texts by label")
        if self.texts and "validation" not in self.texts and self.validation_path is not None:
            raise ConfigError(f"{self.where}: holds texts by label, and data.validation_path is none of such")
        idle = OF_ROWS if self.texts else OF_TEXTS
        for setting, default in idle.items():
            if getattr(self, setting) != default:
                what = "rows with labels, and these are texts by label" if self.texts else "texts by label"
                raise ConfigError(f"data.{setting}={getattr(self, setting)}: is for {what}; leave it out")
        for label, files in self.texts.get("train", Classes({})).files.items():
            self.known(label, str(files[0]))

    @property
    def where(self) -> str:
        return "data.paths" if self.path is None else f"data.path={self.path}"

    def records_of(self, file: Path) -> Iterator[Labelled]:
        return (self.labelled(row, where) for where, row in self.table(file, self.by_key()))

    def documents(self, skip: int = 0) -> Iterator[Labelled]:
        return islice(self._in_turn("train"), skip, None) if self.texts else super().documents(skip)

    def held_out(self) -> Iterator[Labelled]:
        return self._in_turn("validation") if self.texts else super().held_out()

    def _in_turn(self, part: PartName) -> Iterator[Labelled]:
        passages = Passages(self.text_column, self.sample_by, self.passage_characters)
        if "validation" in self.texts:
            return in_turn([passages(*one) for one in self.texts[part].files.items()])
        found = self.texts["train"].files.items()
        return in_turn([passages.part(part, *one, self.validation_fraction, self.where) for one in found])

    def fingerprint(self) -> str:
        if not self.texts:
            return super().fingerprint()
        files, labels = [], []
        for part in self.texts.values():
            for label, of_label in part.files.items():
                labels.append((label, len(of_label)))
                files += [None, *of_label]
            files.append(None)
        return hash_files(files, repr(labels), self.how())

    def n_bytes(self) -> int | None:
        texts = [file for part in self.texts.values() for files in part.files.values() for file in files]
        return size_of(texts) if self.texts else super().n_bytes()

    def notices(self) -> list[str]:
        beside = sum(part.beside for part in self.texts.values())
        said = f"{self.where}: {beside} files beside the folders belong to no label and were left out"
        return [*super().notices(), *([said] if beside else [])]
