"""Filters over metadata compare exactly: numbers as Python does, lists by each value, times in one form."""

from __future__ import annotations

import datetime
import json
import operator
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.index.filters import MetadataTable, check_where, compared_fields

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
BIG = 2**53
NOON = datetime.datetime(2025, 3, 30, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


def matching(rows: list[dict[str, Any]], where: Any) -> list[int]:
    check_where(where, "test")
    table = MetadataTable.of([json.dumps(row) for row in rows])
    return [int(row) for row in np.flatnonzero(table.mask(where))]


NEAR = st.sampled_from([0, 5, BIG, 2**63, 2**64, 10**20, 10**400])
INTEGERS = st.builds(lambda near, step, sign: sign * (near + step), NEAR, st.integers(-2, 2), st.sampled_from([1, -1]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.builds(
    lambda near, sign: sign * float(near), st.sampled_from([0, 5, BIG, 2**63, 2**64]), st.sampled_from([1, -1])
)
OPERANDS = st.one_of(INTEGERS.filter(lambda number: abs(number) < 10**300), FLOATS)


@given(st.lists(INTEGERS) | st.lists(FLOATS) | st.lists(INTEGERS | FLOATS), st.sampled_from([*COMPARISONS]), OPERANDS)
def test_numbers_are_compared_as_python_does(numbers: list[float], name: str, operand: float) -> None:
    rows = [{"n": number} for number in numbers]
    expected = [i for i, number in enumerate(numbers) if COMPARISONS[name](number, operand)]
    assert matching(rows, {"n": {name: operand}}) == expected


@given(st.lists(st.lists(INTEGERS | FLOATS, max_size=3)), st.lists(OPERANDS | st.sampled_from([True, "5", None])))
def test_numbers_in_lists(lists: list[list[float]], operands: list[Any]) -> None:
    numbers = [each for each in operands if isinstance(each, int | float) and not isinstance(each, bool)]
    expected = [
        i
        for i, values in enumerate(lists)
        if any(value in numbers for value in values) or (None in operands and not values)
    ]
    assert matching([{"n": values} for values in lists], {"n": {"in": operands}}) == expected


def test_another_tenant_is_not_returned() -> None:
    assert matching([{"tenant": 2**63 + 1}, {"tenant": 2**63}], {"tenant": 2**63}) == [1]
    assert matching([{"tenant": BIG + 1}, {"tenant": BIG}, {"tenant": 0.5}], {"tenant": BIG}) == [1]


def test_many_values() -> None:
    rows: list[dict[str, Any]] = [{"id": f"d{i}", "n": i, "x": i / 2, "b": [2**70 + i, True]} for i in range(6000)]
    assert matching(rows, {"id": [f"d{i}" for i in range(5000)]}) == list(range(5000))
    assert matching(rows, {"n": list(range(5000))}) == list(range(5000))
    assert matching(rows, {"x": [*range(100), 10**300]}) == list(range(0, 200, 2))
    assert matching(rows, {"b": [2**70 + i for i in range(5000)]}) == list(range(5000))
    assert matching(rows, {"id": {"nin": [f"d{i}" for i in range(5000)]}}) == list(range(5000, 6000))
    assert matching(rows[:2], {"b": [True, "x"]}) == [0, 1]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ({"at": NOON}, [1]),
        ({"at": NOON.astimezone(datetime.UTC)}, [1]),
        ({"at": {"gt": NOON}}, [2, 3]),
        ({"at": {"gte": NOON, "lt": NOON + datetime.timedelta(seconds=1)}}, [1, 2]),
        ({"at": [NOON, NOON.replace(microsecond=500_000)]}, [1, 2]),
        ({"at": {"gte": datetime.date(2025, 3, 30), "lt": datetime.date(2025, 3, 31)}}, [1, 2, 3]),
        ({"$not": {"at": {"lte": datetime.date(2025, 3, 30)}}}, [1, 2, 3]),
        ({"at": {"nin": [NOON]}}, [0, 2, 3]),
        ({"price": Decimal("3.10")}, [1]),
        ({"key": uuid.UUID(int=7)}, [2]),
    ],
)
def test_times_decimals_and_uuids(where: Any, rows: list[int]) -> None:
    table: list[dict[str, Any]] = [
        {"at": "2025-03-29T10:00:00+00:00", "price": "3.1"},
        {"at": "2025-03-30T10:00:00+00:00", "price": "3.10"},
        {"at": "2025-03-30T10:00:00.500000+00:00", "key": str(uuid.UUID(int=7))},
        {"at": "2025-03-30T10:00:01+00:00"},
    ]
    assert matching(table, where) == rows


@pytest.mark.parametrize("where", [{"n": float("nan")}, {"n": {"gt": True}}, {"n": b"a"}, {"n": {"in": [object()]}}])
def test_other_values_are_refused(where: Any) -> None:
    with raises("E-INPUT", "where"):
        check_where(where, "test")


TAGGED: list[dict[str, Any]] = [
    {"tags": ["a", "b"], "__row__": 1, "n": BIG + 1},
    {"tags": ["b", "c"], "__row__": 0, "n": 0.5},
    {"__row__": 2, "tags": []},
    {"tags": "b", "one": [1]},
]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (pc.field("__row__") == 0, [1]),
        (pc.field("__row__") >= 1, [0, 2]),
        (pc.list_value_length(pc.field("tags")) == 2, [0, 1]),
        (pc.field("tags").is_null(), [2]),
        (pc.list_element(pc.field("one"), 0) == 1, [3]),
        (~(pc.field("__row__") == 0), [0, 2]),
        (pc.field("none").is_null() & (pc.field("__row__") < 2), [0, 1]),
    ],
)
def test_expressions(where: Any, rows: list[int]) -> None:
    assert matching(TAGGED, where) == rows


@pytest.mark.parametrize(
    "where",
    [
        pc.field("tags") == "b",
        pc.field("tags").isin(["b"]),
        pc.field("one") == 1,
        pc.field("n") == BIG,
        pc.field("n") > 0.5,
        pc.field("n").isin([BIG]),
    ],
)
def test_expressions_that_pyarrow_would_answer_wrongly_are_refused(where: Any) -> None:
    with raises("E-INPUT", "where") as caught:
        matching(TAGGED, where)
    assert "A mapping" in str(caught.value)


def test_expressions_over_rows_without_metadata() -> None:
    assert matching([{}, {}], pc.field("n") == 1) == matching([], pc.field("n") == 1) == []
    assert matching([{}, {}], pc.field("n").is_null()) == [0, 1]
    assert (
        matching([{"a.b": 1, "a": {"b": 2}}], {"a.b": [1]}) == matching([{"a.b": 1, "a": {"b": 2}}], {"a.b": 2}) == [0]
    )


def test_fields_of_an_expression() -> None:
    assert compared_fields((pc.field("__row__") == 1) & (pc.field("a") == "x")) == {"__row__": set(), "a": set()}
