"""The three kinds of data set check themselves, and show no text."""

from __future__ import annotations

import numpy as np
import pytest

from research.datasets import PairSet, RetrievalSet, TextSet, group_ids
from vecveil.errors import InvalidInputError

CANARY = "zebra-7731"
PAIR = {
    "name": "p",
    "left": (CANARY, "b"),
    "right": ("c", "d"),
    "scores": np.array([1.0, 2.0]),
    "split": ("train", "test"),
    "source": ("x", "y"),
}
SEARCH = {
    "name": "r",
    "document_ids": ("d1", "d2"),
    "documents": (CANARY, "b"),
    "query_ids": ("q1",),
    "queries": ("c",),
    "query_split": ("test",),
    "relevant": {"q1": {"d2": 1}},
}
TEXT = {
    "name": "t",
    "texts": (CANARY, "b"),
    "groups": np.array([0, 1]),
    "spans": (({"start": 0, "end": 3, "label": "X"},), ()),
}


@pytest.mark.parametrize(("kind", "given"), [(PairSet, PAIR), (RetrievalSet, SEARCH), (TextSet, TEXT)])
def test_no_repr_shows_a_text(kind, given):
    assert CANARY not in repr(kind(**given))


@pytest.mark.parametrize(
    ("kind", "given", "changed", "words"),
    [
        (PairSet, PAIR, {"right": ("c",)}, "right"),
        (PairSet, PAIR, {"scores": np.array([1.0, np.nan])}, "scores"),
        (PairSet, PAIR, {"left": (CANARY, None)}, "left"),
        (RetrievalSet, SEARCH, {"document_ids": ("d1", "d1")}, "document_ids"),
        (RetrievalSet, SEARCH, {"relevant": {}}, "relevant"),
        (RetrievalSet, SEARCH, {"relevant": {"q1": {}}}, "relevant"),
        (RetrievalSet, SEARCH, {"relevant": {"q1": {"d3": 1}}}, "relevant"),
        (RetrievalSet, SEARCH, {"relevant": {"q1": {"d1": 0}}}, "relevant"),
        (RetrievalSet, SEARCH, {"queries": ("c", "d")}, "queries"),
        (TextSet, TEXT, {"texts": (), "groups": np.array([]), "spans": None}, "texts"),
        (TextSet, TEXT, {"groups": np.array([0])}, "groups"),
        (TextSet, TEXT, {"labels": ("x",)}, "labels"),
        (TextSet, TEXT, {"spans": (({"start": 0, "end": 99, "label": "X"},), ())}, "spans"),
    ],
)
def test_what_does_not_fit_is_refused(kind, given, changed, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        kind(**{**given, **changed})
    assert CANARY not in str(caught.value)


def test_groups_are_numbered_in_the_order_they_come_up():
    assert group_ids(["b", "a", "b", 7]).tolist() == [0, 1, 0, 2]
