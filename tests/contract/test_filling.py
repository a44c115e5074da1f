"""Tables on their way into a sealed index: no value changes, no row is lost, and no type of column stops the copy."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vecveil.errors import DataFileError
from vecveil.index import SealedIndex
from vecveil.keys import KeyFile
from vecveil.stores.filling import Filling, fill_from_table
from vecveil.texts.tables import read_table

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


class LengthEncoder:
    """Vectors of a text's length."""

    name, dimension, fingerprint = "length", 4, "length"
    max_length = None

    def encode(self, texts: Any) -> np.ndarray:
        return np.array([[1, len(text), 0, 0] for text in texts], np.float32)

    encode_query = encode


@pytest.fixture
def index(tmp_path: Path) -> SealedIndex:
    KeyFile.create(tmp_path / "search.keys", "first")
    return SealedIndex(tmp_path / "index", tmp_path / "search.keys", encoder=LengthEncoder(), max_staleness=0)


@pytest.fixture
def copied(tmp_path: Path, index: SealedIndex) -> Callable[..., Filling]:
    """A function that writes a file and copies it to ``index``."""

    def copy(name: str, content: str, **options: Any) -> Filling:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return fill_from_table(read_table(tmp_path / name, text_column="text"), index, **options)

    return copy


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["3.10", "3.1"], ["3.10", "3.1"]),
        (["250.00", "250.0", "250"], ["250.00", "250.0", "250"]),
        (["250.0", "250"], ["250.0", "250"]),
        (["007", "7"], ["007", "7"]),
        (["+5", "5"], ["+5", "5"]),
        (["1e3", "1000"], ["1e3", "1000"]),
        (["-0", "0"], ["-0", "0"]),
        (["-0.0", "0.0"], ["-0.0", "0.0"]),
        (["0.1", "0.10000000000000001"], ["0.1", "0.10000000000000001"]),
        (["9007199254740993", "1"], ["9007199254740993", "1"]),
        (["2024.0", "1999.0"], [2024.0, 1999.0]),
        (["2024", "-1", "0"], [2024, -1, 0]),
        (["3.5", "2", "0.00001"], [3.5, 2, 1e-5]),
        (["3.5", "", "2"], [3.5, None, 2]),
    ],
)
@pytest.mark.parametrize("batch", [1, 20_000])
def test_different_values_of_csv_stay_different(
    copied: Callable[..., Filling], index: SealedIndex, values: list[str], expected: list[Any], batch: int
) -> None:
    rows = "".join(f"{i},x,{value}\n" for i, value in enumerate(values))
    assert copied("t.csv", f"id,text,v\n{rows}", batch=batch).rows == len(values)
    found = [row.get("v") for row in index.get([str(i) for i in range(len(values))]).metadata if row is not None]
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))
    for i, value in enumerate(expected):
        if value is not None:
            assert index.ids({"v": value}) == [str(i)]


def test_lone_quotes_between_tabs_join_no_rows(copied: Callable[..., Filling], index: SealedIndex) -> None:
    assert copied("t.tsv", 'id\ttext\n1\t"hello\n2\tworld\n3\tfoo"\n4\tx\n').rows == 4
    assert index.get(["1", "2", "3", "4"]).texts == ['"hello', "world", 'foo"', "x"]


def test_numbers_of_json_lines_lose_no_digits(copied: Callable[..., Filling], index: SealedIndex) -> None:
    numbers = ["18446744073709551617", "12345678901234567.89", "1e400", "1e-400", "0.10000000000000001", "3.10"]
    copied("t.jsonl", "".join(f'{{"text": "x", "v": {number}}}\n' for number in numbers))
    found = [row and row["v"] for row in index.get([str(i) for i in range(len(numbers))]).metadata]
    assert found == [2**64 + 1, "12345678901234567.89", "1e400", "1e-400", 0.1, 3.1]


def test_no_type_of_column_stops_a_copy(tmp_path: Path, index: SealedIndex) -> None:
    noon = datetime.datetime(2025, 3, 30, 12)
    zone = datetime.timezone(datetime.timedelta(hours=2))
    columns = {
        "id": pa.array([ID.bytes, uuid.UUID(int=7).bytes], pa.uuid()),
        "text": pa.array(["a", "b"]),
        "at": pa.array([noon, noon.replace(second=1)], pa.timestamp("us", "Europe/Berlin")),
        "visit": pa.array(
            [{"at": noon, "by": "x"}, None], pa.struct([("at", pa.timestamp("ns")), ("by", pa.string())])
        ),
        "days": pa.array([[noon.date()], None], pa.list_(pa.date32())),
        "prices": pa.array([[Decimal("3.10"), Decimal("3.11")], []], pa.list_(pa.decimal128(5, 2))),
        "owner": pa.array([ID.bytes, None], pa.uuid()),
        "labels": pa.array([[("color", "red")], [("color", "blue")]], pa.map_(pa.string(), pa.string())),
        "tenant": pa.array([2**63, 2**63 + 1], pa.uint64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert fill_from_table(read_table(tmp_path / "t.parquet", text_column="text"), index).compared == 2
    first = str(ID)
    assert index.get([first]).metadata == [
        {
            "at": "2025-03-30T12:00:00+00:00",
            "visit": {"at": "2025-03-30T12:00:00", "by": "x"},
            "days": ["2025-03-30"],
            "prices": ["3.10", "3.11"],
            "owner": first,
            "labels": {"color": "red"},
            "tenant": 2**63,
        }
    ]
    for where in (
        {"at": noon.replace(hour=14, tzinfo=zone)},
        {"at": {"lt": noon.replace(hour=14, second=1, tzinfo=zone)}},
        {"visit.at": noon},
        {"days": noon.date()},
        {"prices": Decimal("3.11")},
        {"owner": ID},
        {"labels.color": "red"},
        {"tenant": 2**63},
    ):
        assert index.ids(where) == [first], where


def test_vectors_of_json_lines_are_taken(copied: Callable[..., Filling], index: SealedIndex) -> None:
    rows = '{"text": "a", "embedding": [0.5, 0, 0, 2]}\n{"text": "bb", "embedding": [0, 1, 0, 0]}\n'
    assert copied("t.jsonl", rows).rows == 2
    stored = index.get(["0", "1"])
    assert np.array_equal(stored.vectors, np.array([[0.5, 0, 0, 2], [0, 1, 0, 0]]))
    assert stored.metadata == [{}, {}]


@pytest.mark.parametrize("second", ['"embedding": [1, 2, 3]', '"embedding": null', '"k": 1', '"embedding": "x"'])
def test_vectors_of_json_lines_that_differ_in_length(copied: Callable[..., Filling], second: str) -> None:
    with pytest.raises(DataFileError, match="'embedding' is not a list of numbers of the same length in every row"):
        copied("t.jsonl", f'{{"text": "a", "embedding": [0.5, 0, 0, 2]}}\n{{"text": "b", {second}}}\n')


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", '{"a": [1, NaN]}'])
def test_infinity_in_json_lines(copied: Callable[..., Filling], index: SealedIndex, value: str) -> None:
    rows = f'{{"text": "a", "f": 1.5}}\n{{"text": "b", "f": {value}}}\n'
    with pytest.raises(DataFileError, match=r"row 2 \(counted from 1\) has NaN or infinity in 'f'"):
        copied("t.jsonl", rows)
    assert not index.exists()


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")]])
def test_nan_in_parquet(tmp_path: Path, index: SealedIndex, value: Any) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "f": pa.array([None, value])}), tmp_path / "t.parquet")
    reader = read_table(tmp_path / "t.parquet")
    with pytest.raises(DataFileError, match=r"row 2 \(counted from 1\) has NaN or infinity in 'f'"):
        fill_from_table(reader, index)
    assert not index.exists()
    assert fill_from_table(reader, index, drop=["f"]).rows == 2


def test_null_in_json_lines_is_left_out(copied: Callable[..., Filling], index: SealedIndex) -> None:
    copied("t.jsonl", '{"text": "a", "f": null, "k": 1}\n')
    assert index.get(["0"]).metadata == [{"k": 1}]
