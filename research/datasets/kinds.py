"""The three kinds of data set that experiments take: pairs, retrieval and texts.

A data set is checked when it is made, whoever made it. No repr shows a text.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from vecveil.errors import InvalidInputError, message

__all__ = ["DataSet", "PairSet", "RetrievalSet", "Span", "TextSet", "group_ids"]


class Span(TypedDict):
    """Characters ``start`` to ``end`` (exclusive) of a text."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, eq=False, repr=False)
class PairSet:
    """Pairs of sentences with a score of their likeness (STS).

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
            raise _wrong(self, "scores", "finite", "NaN or infinity")

    def __repr__(self) -> str:
        return f"PairSet(name={self.name!r}, pairs={len(self.left)})"


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalSet:
    """Documents, queries, and which documents answer which query.

    Attributes:
        documents: title, ". " and text where there is a title, else the text.
        query_split: "train", "dev" or "test" of each query.
        relevant: query id to document id to grade, from 1; each query has at least one.
        same_pool: a query is itself a document, under the same id, and is left out when scoring.
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
                raise _wrong(self, field, "different from each other", "one that occurs twice")
        if set(self.relevant) != set(self.query_ids):
            raise _wrong(self, "relevant", "given for each query and no other", "other query ids")
        for grades in self.relevant.values():
            if not grades or not grades.keys() <= known or min(grades.values()) < 1:
                got = "a query with none, or with unknown documents or grades"
                raise _wrong(self, "relevant", "documents of the set with grades from 1", got)

    def __repr__(self) -> str:
        counts = f"documents={len(self.documents)}, queries={len(self.queries)}"
        return f"RetrievalSet(name={self.name!r}, {counts})"


@dataclass(frozen=True, eq=False, repr=False)
class TextSet:
    """Texts with what is known of them: spans, labels, splits (PII, entities, classification).

    Attributes:
        groups: (N,) int64; texts with the same number (one abstract, template or patient) are not
            to be parted between a train and a test side.
        split: "train", "dev", "test" (or test1 and on) of each text; None if the set has none.
        spans: of each text; None if the set has none.
        labels: the class of each text; None if the set has none.
    """

    name: str
    texts: tuple[str, ...]
    groups: NDArray[np.int64]
    split: tuple[str, ...] | None = None
    spans: tuple[tuple[Span, ...], ...] | None = None
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("split", "spans", "labels") if getattr(self, name) is not None]
        _same_length(self, "texts", "groups", *given)
        _texts(self, "texts", *(name for name in given if name != "spans"))
        for text, spans in zip(self.texts, self.spans or (), strict=bool(self.spans)):
            if any(not 0 <= span["start"] < span["end"] <= len(text) for span in spans):
                raise _wrong(self, "spans", "inside their texts", "offsets outside of one")

    def __repr__(self) -> str:
        return f"TextSet(name={self.name!r}, texts={len(self.texts)})"


DataSet: TypeAlias = PairSet | RetrievalSet | TextSet


def group_ids(keys: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return one number per key, the same for equal keys, counted in the order they come up."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _same_length(owner: Any, first: str, *others: str) -> None:
    count = len(getattr(owner, first))
    for name in others:
        found = len(getattr(owner, name))
        if found != count:
            raise _wrong(owner, name, f"one per row of {first} ({count})", found)
    if count == 0:
        raise _wrong(owner, first, "at least one", "none")


def _texts(owner: Any, *names: str) -> None:
    for name in names:
        for value in getattr(owner, name):
            if not isinstance(value, str):
                raise _wrong(owner, name, "texts", f"a {type(value).__name__}")


def _wrong(owner: Any, param: str, constraint: str, got: object) -> InvalidInputError:
    return InvalidInputError(
        message(f"{type(owner).__name__} {owner.name!r}", param, constraint, got)
    )
