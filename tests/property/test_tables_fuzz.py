"""Malformed files: a valid result or one VecveilError, never another exception and never a hang.

At least 2,000 inputs a run: random bytes from Hypothesis, and mutations of valid files (cut off,
bits flipped, spliced, in another encoding, garbage inside gzip, hostile values). The mutations are
drawn from a seed that each test names, and a failure prints the number of the case.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vecveil.errors import DataFileError, InvalidInputError
from vecveil.texts.tables import read_table, read_texts

pytestmark = pytest.mark.filterwarnings("ignore:.*control characters:UserWarning")
CANARY = "zebra-7731"
SUFFIXES = ["csv", "tsv", "jsonl", "txt", "csv.gz", "jsonl.gz", "parquet", "npy"]
EXPECTED = (DataFileError, InvalidInputError)
SECONDS_A_CASE = 10
BYTES_CASES = 600
MUTATIONS = 220
HOSTILE_VALUES = 300
LARGEST_MESSAGE = 2_000

tally: Counter[str] = Counter()


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Fail if the block takes longer than any small file may."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError("a reader hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS_A_CASE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


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
    with no_hang():
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
            tally[result] += 1
    tally["inputs"] += 1
    return result


def valid_files() -> dict[str, bytes]:
    """Return one valid file for each suffix; texts and names of people hold the canary."""
    rows = [
        {
            "id": i,
            "text": f"{CANARY} note {i} é 😀, with a comma",
            "score": i / 7,
            "spans": [{"start": 0, "end": 5, "label": CANARY}],
        }
        for i in range(40)
    ]
    jsonl = "".join(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate(rows))
    lines = ["id,text,spans"]
    for row in rows:
        spans = json.dumps(row["spans"]).replace('"', '""')
        lines.append(f'{row["id"]},"{row["text"]}\n""quoted""","{spans}"')
    csv = "\r\n".join(lines)
    X = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    table = pa.Table.from_pylist(rows)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4)
    parquet, npy = io.BytesIO(), io.BytesIO()
    pq.write_table(table.append_column("embedding", vectors), parquet, row_group_size=17)
    np.save(npy, X)
    return {
        "csv": csv.encode(),
        "tsv": b"id\ttext\tspans\n1\ta b\t[]\n2\tc\t\n",
        "jsonl": jsonl.encode(),
        "txt": f"{CANARY}\nline\n\né 😀\n".encode(),
        "csv.gz": gzip.compress(csv.encode(), mtime=0),
        "jsonl.gz": gzip.compress(jsonl.encode(), mtime=0),
        "parquet": parquet.getvalue(),
        "npy": npy.getvalue(),
    }


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with one to three kinds of damage."""
    for _ in range(rng.randint(1, 3)):
        if not data:
            return data
        place = rng.randrange(len(data))
        match rng.randrange(9):
            case 0:
                data = data[:place]
            case 1:
                changed = bytearray(data)
                for _ in range(rng.choice([1, 1, 4, 32])):
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
                data = bytes(changed)
            case 2:
                data = data[:place] + rng.randbytes(rng.randint(1, 40)) + data[place:]
            case 3:
                end = min(len(data), place + rng.randint(1, 200))
                data = data[:place] + data[end:]
            case 4:
                end = min(len(data), place + rng.randint(1, 200))
                data = data[:end] + data[place:]
            case 5:
                data = data[:place] + b"\0" * rng.randint(1, 9) + data[place + 1 :]
            case 6:
                codec = rng.choice(["latin1", "utf-16", "utf-16-be", "cp037"])
                half = data[place:].decode("utf-8", "ignore").encode(codec, "ignore")
                data = half if rng.random() < 0.3 else data[:place] + half
            case 7:
                mark = rng.choice([b'"', b"\r", b"\n", b",", b"\\", b"[", b"{", b"\xff", b"\xed\xa0\x80"])
                data = data[:place] + mark * rng.choice([1, 1, 3, 500]) + data[place:]
            case 8:
                size = rng.choice([1, 2, 4, 8])
                value = rng.choice([0, 1, 2**31 - 1, 2**31, 2**63, 2**64 - 1]) % 2 ** (8 * size)
                data = data[:place] + value.to_bytes(size, "little") + data[place + size :]
    return data


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_control_the_valid_files_are_read(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(valid_files()[suffix])
    assert read_all(path) >= 2


@settings(
    max_examples=BYTES_CASES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    suffix=st.sampled_from(SUFFIXES),
    magic=st.sampled_from(
        [b"", b"", b"text\n", b'{"text": ', b"PAR1", b"\x93NUMPY\x01\0", b"\x1f\x8b\x08", b"\xff\xfe"]
    ),
    body=st.binary(max_size=400) | st.text(max_size=200).map(lambda s: s.encode("utf-8", "replace")),
    zipped=st.booleans(),
)
def test_random_bytes(tmp_path, suffix, magic, body, zipped):
    data = magic + body
    outcome(tmp_path / f"a.{suffix}", gzip.compress(data) if zipped else data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_mutations_of_valid_files(tmp_path, suffix):
    valid = valid_files()[suffix]
    seed = f"mutations of {suffix}"
    rng = random.Random(seed)
    results = Counter()
    for case in range(MUTATIONS):
        if suffix.endswith(".gz") and case % 2:
            data = gzip.compress(mutate(gzip.decompress(valid), rng), mtime=0)
        else:
            data = mutate(valid, rng)
        try:
            results[outcome(tmp_path / f"a.{suffix}", data)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed!r}, case {case}")
            raise
    assert results["refused"] > 0


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


def test_enough_inputs_of_both_kinds_were_tried():
    """Runs last in this file: the tests above fed what they promise."""
    if tally["inputs"] < BYTES_CASES:
        pytest.skip("only some tests of this file were selected")
    assert tally["inputs"] >= 2_000
    assert tally["read"] >= 200
    assert tally["refused"] >= 1_000
