"""The three kinds of data set: pairs, retrieval and texts.

The constructor checks a data set. No repr shows a text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from vecveil.errors import InvalidInputError, unknown_name
from vecveil.texts.tables.files import readable


class MarkedSpan(TypedDict):
    """Characters ``start`` to ``end`` (exclusive) of a text."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, eq=False, repr=False)
class PairSet:
    """Pairs of sentences with a similarity score (STS).

    Attributes:
        left, right: the sentences, row by row.
        scores: (N,) finite float64; 0 to 5 in the STS sets.
        split: "train", "dev" or "test" of each pair.
        source: the part of the set that each pair is from.
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    scores: NDArray[np.float64]
    split: tuple[str, ...]
    source: tuple[str, ...]

    def __post_init__(self) -> None:
        _same_length(self, "left", "right", "scores", "split", "source")
        _texts(self, "left", "right", "split", "source")
        if not np.isfinite(self.scores).all():
            raise _wrong(self, "scores", "has NaN or infinity.")

    def __repr__(self) -> str:
        return f"PairSet(name={self.name!r}, pairs={len(self.left)})"


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalSet:
    """Documents, queries and relevance judgements.

    Attributes:
        documents: title, ". " and text where there is a title, else the text.
        query_split: "train", "dev" or "test" of each query.
        relevant: query id -> document id -> grade from 1; at least one for each query.
        same_pool: every query is also a document with the same id, which scoring leaves out.
    """

    name: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    query_split: tuple[str, ...]
    relevant: Mapping[str, Mapping[str, int]]
    same_pool: bool = False

    def __post_init__(self) -> None:
        _same_length(self, "document_ids", "documents")
        _same_length(self, "query_ids", "queries", "query_split")
        _texts(self, "document_ids", "documents", "query_ids", "queries", "query_split")
        known = set(self.document_ids)
        for field, ids in (("document_ids", known), ("query_ids", set(self.query_ids))):
            if len(ids) != len(getattr(self, field)):
                raise _wrong(self, field, "has an id twice.")
        if set(self.relevant) != set(self.query_ids):
            raise _wrong(self, "relevant", "lacks a query, or names one that is not in the set.")
        for grades in self.relevant.values():
            if not grades or not grades.keys() <= known or min(grades.values()) < 1:
                raise _wrong(self, "relevant", "has a query with no document, an unknown one, or a grade below 1.")

    def __repr__(self) -> str:
        counts = f"documents={len(self.documents)}, queries={len(self.queries)}"
        return f"RetrievalSet(name={self.name!r}, {counts})"


@dataclass(frozen=True, eq=False, repr=False)
class TextSet:
    """Texts with spans, labels and splits (PII, entities, classification); None for what a set lacks.

    Attributes:
        groups: (N,) int64; texts of one group (abstract, template, patient) must not be in both train and test.
        split: "train", "dev", "test" (or test1 and on) of each text.
        labels: the class of each text.
    """

    name: str
    texts: tuple[str, ...]
    groups: NDArray[np.int64]
    split: tuple[str, ...] | None = None
    spans: tuple[tuple[MarkedSpan, ...], ...] | None = None
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("split", "spans", "labels") if getattr(self, name) is not None]
        _same_length(self, "texts", "groups", *given)
        _texts(self, "texts", *(name for name in given if name != "spans"))
        for text, spans in zip(self.texts, self.spans or (), strict=bool(self.spans)):
            if any(not 0 <= span["start"] < span["end"] <= len(text) for span in spans):
                raise _wrong(self, "spans", "has offsets outside of the text.")

    def __repr__(self) -> str:
        return f"TextSet(name={self.name!r}, texts={len(self.texts)})"


DataSet: TypeAlias = PairSet | RetrievalSet | TextSet


def group_ids(keys: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return one number per key, equal for equal keys, in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _same_length(owner: Any, first: str, *others: str) -> None:
    count = len(getattr(owner, first))
    for name in others:
        found = len(getattr(owner, name))
        if found != count:
            raise _wrong(owner, name, f"has {found} rows and `{first}` {count}.")
    if count == 0:
        raise _wrong(owner, first, "is empty.")


def _texts(owner: Any, *names: str) -> None:
    for name in names:
        for value in getattr(owner, name):
            if not isinstance(value, str):
                raise _wrong(owner, name, f"has a {type(value).__name__}; it takes texts.")


def _wrong(owner: Any, param: str, text: str) -> InvalidInputError:
    return InvalidInputError(f"{type(owner).__name__} {owner.name!r}: `{param}` {text}", param=param)


KINDS = ("pairs", "retrieval", "texts")


@dataclass(frozen=True)
class Place:
    """One layout of a data set's files below the data folder, and their reader.

    Attributes:
        folders: candidates below the data folder ("." for itself); the first that holds the files is read.
        needs: glob patterns, each of which must match a file in the folder.
        read: called with the set's name and the folder; bind options with ``functools.partial``.
    """

    folders: tuple[str, ...]
    needs: tuple[str, ...]
    read: Callable[[str, Path], DataSet]

    def find(self, data: Path) -> Path | None:
        """Return the first folder below ``data`` that holds the needed files."""
        for name in self.folders:
            folder = data / name
            if is_folder(folder) and all(any(folder.glob(need)) for need in self.needs):
                return folder
        return None

    def partly(self, data: Path) -> str:
        """Return which files are missing from a folder that holds some of them; "" if none does."""
        for name in self.folders:
            folder = data / name
            if name == "." or not is_folder(folder):
                continue
            lacks = [need for need in self.needs if not any(folder.glob(need))]
            if 0 < len(lacks) < len(self.needs):
                return f"{name}/ lacks {', '.join(lacks)}"
        return ""

    def __str__(self) -> str:
        return f"{' or '.join(f'{name}/' for name in self.folders)} with {', '.join(self.needs)}"


@dataclass(frozen=True)
class DatasetInfo:
    """A data set known by name.

    Attributes:
        name: lower-case, words joined by "-".
        kind: "pairs", "retrieval" or "texts".
        what: one sentence.
        places: layouts, tried in this order.
        source: where to get the files.
        terms: licence, as far as stated, and what to agree to first.
    """

    name: str
    kind: str
    what: str
    places: tuple[Place, ...]
    source: str = ""
    terms: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidInputError("DatasetInfo: `name` is a string that is not empty.", param="name")
        if self.kind not in KINDS:
            raise unknown_name("DatasetInfo", "kind", KINDS, self.kind)
        if not self.places:
            raise InvalidInputError("DatasetInfo: `places` is empty.", param="places")


def is_folder(folder: Path) -> bool:
    """Return whether ``folder`` is a folder; raise if it may not be read."""
    with readable(folder.name):
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
