"""Every Arrow type as JSON values: nothing is lost, nothing stops, and times have one form."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecveil.texts.tables import read_table
from vecveil.texts.tables.columns import ids_of, json_value, json_values, printed_number, time_text

NOON = datetime.datetime(2025, 3, 30, 12)
HALF = NOON.replace(microsecond=500_000)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
STORAGE = pa.array([1, 0, None], pa.int8())

CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (pa.null(), [None], [None]),
    (pa.bool_(), [True, None], [True, None]),
    *((kind, [1, None], [1, None]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())),
    (pa.int64(), [2**53 + 1, -(2**63)], [2**53 + 1, -(2**63)]),
    (pa.uint32(), [2**32 - 1], [2**32 - 1]),
    (pa.uint64(), [2**64 - 1, None], [2**64 - 1, None]),
    *((kind, [0.5, float("nan"), None], [0.5, None, None]) for kind in (pa.float16(), pa.float32(), pa.float64())),
    *((kind, ["a", "", None], ["a", "", None]) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, [b"a", None], ["YQ==", None]) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(1), [b"a", None], ["YQ==", None]),
    (pa.date32(), [NOON.date(), None], ["2025-03-30", None]),
    (pa.date64(), [NOON.date(), None], ["2025-03-30", None]),
    (pa.time32("s"), [NOON.time(), None], ["12:00:00", None]),
    (pa.time32("ms"), [HALF.time(), None], ["12:00:00.500000", None]),
    (pa.time64("us"), [HALF.time(), None], ["12:00:00.500000", None]),
    (pa.time64("ns"), [1, None], ["00:00:00.000000001", None]),
    (pa.timestamp("s"), [NOON, None], ["2025-03-30T12:00:00", None]),
    *(
        (pa.timestamp(unit), [NOON, HALF, None], ["2025-03-30T12:00:00", "2025-03-30T12:00:00.500000", None])
        for unit in ("ms", "us", "ns")
    ),
    (pa.timestamp("ns"), [1], ["1970-01-01T00:00:00.000000001"]),
    (pa.timestamp("ms"), [-(10**14)], ["-1199-02-15T14:13:20"]),
    *(
        (pa.timestamp(unit, "Europe/Berlin"), [NOON, None], ["2025-03-30T12:00:00+00:00", None])
        for unit in ("s", "ms", "us", "ns")
    ),
    *((pa.duration(unit), [90, None], [90, None]) for unit in ("s", "ms", "us", "ns")),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3]), None], [[1, 2, 3], None]),
    *(
        (kind(5, 2), [Decimal("3.10"), None], ["3.10", None])
        for kind in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
    ),
    (pa.decimal128(20, 12), [Decimal(0)], ["0.000000000000"]),
    *(
        (kind(pa.timestamp("ns", "UTC")), [[NOON, None], None, []], [["2025-03-30T12:00:00+00:00", None], None, []])
        for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
    ),
    (pa.list_(pa.date32(), 2), [[NOON.date()] * 2, None], [["2025-03-30"] * 2, None]),
    (pa.list_(pa.list_(pa.decimal128(5, 2))), [[[Decimal("3.10")], None], None], [[["3.10"], None], None]),
    (
        pa.struct([("at", pa.timestamp("ns")), ("of", pa.list_(pa.binary()))]),
        [{"at": NOON, "of": [b"a"]}, None],
        [{"at": "2025-03-30T12:00:00", "of": ["YQ=="]}, None],
    ),
    (pa.struct([]), [{}, None], [{}, None]),
    (pa.map_(pa.string(), pa.date32()), [[("a", NOON.date())], None, []], [{"a": "2025-03-30"}, None, {}]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("a", 2)]], [[["a", 1], ["a", 2]]]),
    (pa.map_(pa.int64(), pa.int64()), [[(1, 2)]], [[[1, 2]]]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "a", None], ["a", "a", None]),
    (pa.uuid(), [ID.bytes, None], [str(ID), None]),
]


@pytest.mark.parametrize(("kind", "given_values", "expected"), CASES, ids=lambda case: str(case)[:50])
def test_every_type(tmp_path: Path, kind: Any, given_values: list[Any], expected: list[Any]) -> None:
    values = pa.array(given_values, kind)
    found = json_values(values)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))
    assert json.loads(json.dumps(found, allow_nan=False)) == expected  # no tuple, which compares unequal when read
    for start in range(len(values)):  # a slice begins within buffers
        assert json_values(values[start:]) == expected[start:]
    table = pa.table({"text": ["a"] * len(values), "value": values})
    try:
        pq.write_table(table, tmp_path / "t.parquet")
    except pa.ArrowNotImplementedError:
        assert kind in (pa.month_day_nano_interval(), pa.struct([])), "Parquet has this type"
        return
    (chunk,) = read_table(tmp_path / "t.parquet")
    assert json_values(chunk.columns["value"]) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.ExtensionArray.from_storage(pa.bool8(), STORAGE), [True, False, None]),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'])), ['{"a": 1}']),
        (
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2]], pa.list_(pa.int32(), 2))
            ),
            [[1, 2]],
        ),
        (
            pa.ListArray.from_arrays(
                [0, 1], pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes], pa.binary(16)))
            ),
            [[str(ID)]],
        ),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]), ["a", "a", None]),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), [[["a", 1], ["a", 2]]]),
    ],
)
def test_types_that_are_made_from_others(values: Any, expected: list[Any]) -> None:
    assert json_values(values) == expected


def test_ids_may_be_uuids() -> None:
    assert ids_of(pa.array([ID.bytes], pa.uuid()), source="t", first_row=0) == [str(ID)]


MOMENTS = st.datetimes(
    datetime.datetime(2, 1, 1),
    datetime.datetime(9998, 1, 1),
    timezones=st.sampled_from([datetime.timezone(datetime.timedelta(hours=hours)) for hours in (-5, 0, 2)]),
)


@given(MOMENTS, MOMENTS)
def test_texts_of_times_sort_as_the_times(first: datetime.datetime, second: datetime.datetime) -> None:
    assert (time_text(first) < time_text(second)) == (first < second)
    assert (time_text(first) == time_text(second)) == (first == second)
    in_arrow = json_values(pa.array([first, second], pa.timestamp("us", "Asia/Tokyo")))
    assert in_arrow == [time_text(first), time_text(second)]


@pytest.mark.slow
@given(st.from_regex(r"[+-]?[0-9]{0,17}(\.[0-9]{0,4})?(e[0-9])?", fullmatch=True))
def test_a_number_prints_back(text: str) -> None:
    number = printed_number(text)
    if number is not None:
        assert format(Decimal(repr(number)), "f") == text


@pytest.mark.parametrize(
    "text", ["3.10", "250.00", "007", "+5", "1e3", "-0", "-0.0", "", " 1", "1.", ".5", "nan", "٣", "1_000"]
)
def test_other_characters_are_no_number(text: str) -> None:
    assert printed_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-3", -3), ("3.1", 3.1), ("0.00001", 1e-5), ("2024.0", 2024.0)]
)
def test_equal_characters_are_a_number(text: str, number: float) -> None:
    assert printed_number(text) == number


def test_moments_at_the_end_of_time_and_missing_ones() -> None:
    pandas = pytest.importorskip("pandas")
    west = datetime.timezone(datetime.timedelta(hours=-2))
    assert time_text(datetime.datetime.max.replace(tzinfo=west)) == "9999-12-31T23:59:59.999999-02:00"
    assert json_value([pandas.NaT, pandas.Timestamp("2025-03-30T12:00+02:00")]) == [None, "2025-03-30T10:00:00+00:00"]


@pytest.mark.slow
def test_arrow_values_are_read_without_pandas() -> None:
    """pandas imports the compute functions of pyarrow, which `import pyarrow` alone does not have."""
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from vecveil.texts.tables.columns import import_pyarrow\n"
        "print(hasattr(import_pyarrow(), 'compute'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True\n", done.stderr
