"""Hostile values in files: a valid result or one VecveilError, never another exception and never a hang.

Each test draws from its seed, and a failure prints the number of the case; tests/fuzz damages files at random.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vecveil.errors import DataFileError, InvalidInputError
from vecveil.texts.tables import read_table, read_texts

pytestmark = [pytest.mark.filterwarnings("ignore:.*control characters:UserWarning"), pytest.mark.timeout(60)]
CANARY = "zebra-7731"
EXPECTED = (DataFileError, InvalidInputError)
HOSTILE_VALUES = 300
LARGEST_MESSAGE = 2_000


def read_all(path: Path, **options: object) -> int:
    """Read everything that a file has, check it, and return the number of rows."""
    reader = read_table(path, chunk_rows=16, **options)
    rows = 0
    for chunk in reader:
        assert chunk.first_row == rows
        if chunk.texts is not None:
            assert len(chunk.texts) == chunk.rows
            for text in chunk.texts:
                text.encode("utf-8")
        if chunk.vectors is not None:
            assert chunk.vectors.shape == (chunk.rows, reader.dimension)
            assert np.isfinite(chunk.vectors).all()
        assert all(len(values) == chunk.rows for values in chunk.columns.values())
        rows += chunk.rows
    assert rows == reader.rows > 0
    return rows


def outcome(path: Path, data: bytes) -> str:
    """Read ``data`` and say how it ended; any exception but the expected ones fails the test."""
    path.write_bytes(data)
    for call in (lambda: read_all(path), lambda: read_texts(path, columns=["spans"], embeddings=True)):
        try:
            call()
            result = "read"
        except EXPECTED as error:
            message = str(error)
            assert CANARY not in message
            assert path.name in message
            assert len(message) < LARGEST_MESSAGE
            result = "refused"
    return result


def hostile(rng: random.Random, depth: int = 0) -> str:
    """Return a JSON value, or nearly one, that a careless reader trips over."""
    simple = [
        "null",
        "true",
        "NaN",
        "-Infinity",
        "1e999",
        "-0.0",
        "1" * 30,
        "9" * 5000,
        str(2**63),
        str(-(2**63)),
        "1e-400",
        '""',
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"\\u0000"',
        '"\0"',
        "\\",
        f'"{CANARY}"',
        "'a'",
        '"' + "[" * 300 + '"',
        "[]",
        "{}",
        "[1, [2, {}]]",
        "0x1F",
        "01",
        "[" * 90 + "]" * 90,
        "[" * 3000 + "]" * 3000,
        '{"a":' * 2000 + "1" + "}" * 2000,
        "tru",
        '{"start": 1e400}',
    ]
    if depth < 3 and rng.random() < 0.2:
        parts = [hostile(rng, depth + 1) for _ in range(rng.randint(0, 3))]
        return "[" + ", ".join(parts) + "]"
    return rng.choice(simple)


def test_hostile_json(tmp_path):
    rng = random.Random("hostile json")
    results = Counter()
    for case in range(HOSTILE_VALUES):
        lines = ['{"text": "fine"}'] * rng.randint(0, 20)
        for _ in range(rng.randint(1, 3)):
            key = rng.choice(["text", "spans", "id", "\\ud800", "", "embedding"])
            value = hostile(rng)
            line = f'{{"text": "x", "{key}": {value}}}' if rng.random() < 0.9 else value
            lines.insert(rng.randint(0, len(lines)), line)
        try:
            results[outcome(tmp_path / "a.jsonl", "\n".join(lines).encode())] += 1
        except BaseException as error:
            error.add_note(f"case {case}")
            raise
    assert results["refused"] > 0


def parquet_columns(rng: random.Random) -> dict[str, pa.Array]:
    """Return a table as odd programs write them: wrong list sizes, NaN, nulls, strange types."""
    rows = rng.choice([0, 1, 5, 40])
    sizes = [rng.choice([0, 3, 3, 3, 4]) for _ in range(rows)]
    floats = [float("nan"), float("inf"), 1e308, -0.0, None, 1.0]
    lists = [[rng.choice(floats) for _ in range(3)] for _ in range(rows)]
    vectors = [
        pa.array([[1.0] * size for size in sizes], pa.list_(pa.float32())),
        pa.array(lists, pa.list_(pa.float64(), 3)),
        pa.array([[1.0] * 3 if rng.random() < 0.9 else None] * rows, pa.list_(pa.float32(), 3)),
        pa.array([[1]] * rows, pa.list_(pa.int8())),
        pa.array([[[1.0]]] * rows, pa.list_(pa.list_(pa.float32()))),
        pa.array([b"\0\0\0\0"] * rows, pa.binary(4)),
        pa.array([1.0] * rows),
        pa.nulls(rows),
        pa.array(["x"] * rows).dictionary_encode(),
        pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float16())),
    ]
    span = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("label", pa.string())])
    texts = [
        pa.array([rng.choice(["a", CANARY, None]) for _ in range(rows)], pa.string()),
        pa.array([CANARY] * rows, pa.large_string()),
        pa.array([CANARY.encode()] * rows, pa.binary()),
        pa.array([{"a": CANARY}] * rows, pa.struct([("a", pa.string())])),
        pa.array([1] * rows, pa.int64()),
        pa.array([[{"start": 0, "end": rng.choice([1, 99])}]] * rows, pa.list_(span)),
    ]
    names = rng.sample(["text", "embedding", "spans", "other", "a.b", ""], 3)
    return {name: rng.choice(vectors + texts) for name in names}


def test_strange_parquet_tables(tmp_path):
    rng = random.Random("strange parquet")
    results = Counter()
    for case in range(HOSTILE_VALUES):
        buffer = io.BytesIO()
        columns = parquet_columns(rng)
        pq.write_table(pa.table(columns), buffer, row_group_size=rng.choice([1, 7, 1000]))
        try:
            results[outcome(tmp_path / "a.parquet", buffer.getvalue())] += 1
        except BaseException as error:
            error.add_note(f"case {case}")
            raise
    assert results["refused"] > 0


def test_hostile_npy_headers(tmp_path):
    shapes = [
        "(2, 2)",
        "(-1, 4)",
        "(2**70, 4)",
        f"({10**30}, 4)",
        "(True, 4)",
        "(4,)",
        "()",
        "4",
        "(1.5, 2)",
        "[2, 2]",
        f"({10**9}, {10**9})",
        "(0, 0)",
        "('a', 2)",
        "(" * 200,
    ]
    types = ["'<f4'", "'|O'", "'<i8'", "'<f99'", "'f4, f8'", "[('a', '<f4')]", "'<U9'", "None", "1"]
    orders = ["False", "True", "None", "'x'"]
    for shape in shapes:
        for kind in types:
            for order in orders:
                text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
                head = b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text
                outcome(tmp_path / "a.npy", head + b"\0" * 16)
