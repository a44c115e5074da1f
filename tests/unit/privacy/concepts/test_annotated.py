"""Given spans are checked against their texts, and errors name the row alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import AnnotatedSpans, Span

GOOD = {"start": 0, "end": 6, "label": "DRUG", "text": "secret"}


def test_rows_may_be_dicts_spans_json_or_none() -> None:
    rows: list[Any] = [[GOOD], json.dumps([GOOD]), [Span(0, 6, "DRUG")], None, "", "null", []]
    spans = AnnotatedSpans(rows).detect(["secret stays"] * len(rows))
    assert spans[:3] == [[Span(0, 6, "DRUG")]] * 3
    assert spans[3:] == [[], [], [], []]


def test_the_label_may_be_missing_and_integers_may_be_numpys() -> None:
    spans = AnnotatedSpans([[{"start": np.int64(1), "end": np.int32(2)}]]).detect(["abc"])
    assert spans == [[Span(1, 2, "span")]]
    assert type(spans[0][0].start) is int


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([{"start": 3, "end": 3}], "start 3, end 3"),
        ([{"start": 4, "end": 3}], "start 4, end 3"),
        ([{"start": -1, "end": 3}], "start -1, end 3"),
        ([{"start": 0, "end": 13}], "start 0, end 13, length 12"),
        ([{"start": 0.0, "end": 3}], "float"),
        ([{"start": True, "end": 3}], "bool"),
        ([{"start": "0", "end": 3}], "str"),
        ([{"start": None, "end": 3}], "NoneType"),
        ([{"start": 10**30, "end": 10**31}], "length 12"),
        ([{"start": 0}], "without start or end"),
        ([{"start": 0, "end": 3, "label": 7}], "int"),
        ([5], "int"),
        (5, "int"),
        ({"start": 0, "end": 3}, "dict"),
        ("[{", "not JSON"),
        ("[" * 100_000, "row 1"),
        ('"secret"', "row 1"),
        ("3", "int"),
    ],
)
def test_refused_rows(row: object, complaint: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        AnnotatedSpans([[GOOD], row]).detect(["secret stays"] * 2)
    assert complaint in str(error.value)
    assert "row 1" in str(error.value)
    assert "secret" not in str(error.value)


def test_another_number_of_texts_is_refused() -> None:
    with raises("E-INPUT", "spans"):
        AnnotatedSpans([[GOOD]]).detect(["secret stays"] * 2)


@pytest.mark.parametrize("rows", ["[]", {"a": 1}, 5, None])
def test_refused_containers(rows: object) -> None:
    with raises("E-INPUT-TYPE", "spans"):
        AnnotatedSpans(rows)  # type: ignore[arg-type]


def test_the_repr_shows_counts() -> None:
    assert repr(AnnotatedSpans([[GOOD], None])) == "AnnotatedSpans(2 texts, 1 spans)"
