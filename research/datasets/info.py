"""What is known of a data set before it is read: what it is, where its files may lie, its terms."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from research.datasets.kinds import DataSet
from vecveil.data.files import readable
from vecveil.errors import InvalidInputError, message

__all__ = ["KINDS", "DatasetInfo", "Place"]

KINDS = ("pairs", "retrieval", "texts")


@dataclass(frozen=True)
class Place:
    """One way in which the files of a data set may lie below the data folder, and their reader.

    Attributes:
        folders: below the data folder, "." for itself; the first that holds the files is taken.
        needs: glob patterns of files in that folder; the place holds if each finds one.
        read: called with the set's name and the folder; options go in with ``functools.partial``.
    """

    folders: tuple[str, ...]
    needs: tuple[str, ...]
    read: Callable[[str, Path], DataSet]

    def find(self, data: Path) -> Path | None:
        """Return the first folder below ``data`` that holds what the place needs."""
        for name in self.folders:
            folder = data / name
            if _is_folder(folder) and all(any(folder.glob(need)) for need in self.needs):
                return folder
        return None

    def partly(self, data: Path) -> str:
        """Return which files the first folder lacks that holds some of them; "" if none does."""
        for name in self.folders:
            folder = data / name
            if name == "." or not _is_folder(folder):
                continue
            lacks = [need for need in self.needs if not any(folder.glob(need))]
            if 0 < len(lacks) < len(self.needs):
                return f"{name}/ lacks {', '.join(lacks)}"
        return ""

    def __str__(self) -> str:
        return f"{' or '.join(f'{name}/' for name in self.folders)} with {', '.join(self.needs)}"


@dataclass(frozen=True)
class DatasetInfo:
    """A data set that experiments know by name.

    Attributes:
        name: lower-case, words joined by "-".
        kind: "pairs", "retrieval" or "texts".
        what: one sentence on what it is.
        places: where its files may lie, tried in this order.
        source: where its files come from, for who has none.
        terms: its licence, as far as stated; what to agree to first.
    """

    name: str
    kind: str
    what: str
    places: tuple[Place, ...]
    source: str = ""
    terms: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise self._wrong("name", "a non-empty string", type(self.name).__name__)
        if self.kind not in KINDS:
            raise self._wrong("kind", f"one of {', '.join(KINDS)}", repr(self.kind))
        if not self.places:
            raise self._wrong("places", "at least one place", "none")

    def _wrong(self, param: str, constraint: str, got: object) -> InvalidInputError:
        return InvalidInputError(message("DatasetInfo", param, constraint, got))


def _is_folder(folder: Path) -> bool:
    """Return whether ``folder`` is one that can be listed; one that may not be read is an error."""
    with readable(folder.name):
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
