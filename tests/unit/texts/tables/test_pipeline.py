"""protect_table: every row protected, in order, with its columns; or nothing at all."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import raises
from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError, ReleaseError
from vecveil.texts.tables import protect_table, read_table
from vecveil.texts.tables.columns import import_pyarrow

CANARY = "zebra-7731"


def double(X):
    return X * 2


def encode(texts):
    return np.array([[len(text), 1.0] for text in texts], np.float32)


def load(path):
    return np.concatenate([chunk.vectors for chunk in read_table(path)])


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)


def vectors(X):
    return pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])


class TestVectors:
    def test_npy_to_npy(self, tmp_path, X):
        np.save(tmp_path / "a.npy", X)
        counts = protect_table(tmp_path / "a.npy", tmp_path / "b.npy", double, chunk_rows=70)
        np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), X * 2)
        assert counts.to_record() == {
            "rows": 1000,
            "dimension": 8,
            "released_dimension": 8,
            "source": "embedding",
            "encoded": False,
            "carried": [],
            "left_out": [],
        }

    def test_parquet_carries_columns_but_not_the_text(self, tmp_path, X):
        table = {
            "id": pa.array(range(1000), pa.int16()),
            "text": [CANARY] * 1000,
            "embedding": vectors(X),
            "tags": [["a"], []] * 500,
        }
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        source, carry = tmp_path / "a.parquet", ["id", "tags"]
        counts = protect_table(source, tmp_path / "b.parquet", double, carry=carry, chunk_rows=70)
        found = pq.read_table(tmp_path / "b.parquet")
        assert found.column_names == ["id", "tags", "embedding"]
        assert found["id"].to_pylist() == list(range(1000))
        assert found.schema.field("id").type == pa.int16()
        assert found["tags"].to_pylist() == table["tags"]
        np.testing.assert_array_equal(load(tmp_path / "b.parquet"), X * 2)
        assert (counts.carried, counts.left_out) == (("id", "tags"), ("text",))
        assert CANARY.encode() not in (tmp_path / "b.parquet").read_bytes()

    def test_metadata_of_the_input_is_not_carried(self, tmp_path, X):
        table = pa.table({"embedding": vectors(X)}).replace_schema_metadata({"note": CANARY})
        pq.write_table(table, tmp_path / "a.parquet")
        protect_table(tmp_path / "a.parquet", tmp_path / "b.parquet", double, metadata={"method": "m"})
        assert CANARY.encode() not in (tmp_path / "b.parquet").read_bytes()
        assert read_table(tmp_path / "b.parquet").metadata == {"protected": True, "method": "m"}

    def test_keep_text_and_chosen_columns(self, tmp_path, X):
        table = {"a": range(1000), "text": ["t"] * 1000, "b": range(1000), "embedding": vectors(X)}
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        counts = protect_table(tmp_path / "a.parquet", tmp_path / "b.parquet", double, keep_text=True, carry=["b"])
        found = pq.read_table(tmp_path / "b.parquet")
        assert found.column_names == ["text", "b", "embedding"]
        assert (counts.carried, counts.left_out) == (("text", "b"), ("a",))

    def test_named_column_becomes_embedding(self, tmp_path, X):
        pq.write_table(pa.table({"vec": vectors(X)}), tmp_path / "a.parquet")
        counts = protect_table(tmp_path / "a.parquet", tmp_path / "b.parquet", double, embedding_column="vec")
        assert pq.read_schema(tmp_path / "b.parquet").names == ["embedding"]
        assert (counts.source, counts.left_out) == ("vec", ())

    @pytest.mark.parametrize("name", ["title", "id"])
    def test_second_column_of_vectors_is_not_released(self, tmp_path, X, name):
        table = {"embedding": vectors(X), name: vectors(X)}
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        counts = protect_table(tmp_path / "a.parquet", tmp_path / "b.parquet", double)
        assert (counts.carried, counts.left_out) == ((), (name,))
        assert pq.read_schema(tmp_path / "b.parquet").names == ["embedding"]

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([[0.5] * 8] * 2, pa.list_view(pa.float32())),
            pa.array([[1] * 8] * 2, pa.list_(pa.int8())),
            pa.array([[[0.5] * 8]] * 2, pa.list_(pa.list_(pa.float64()))),
            pa.array([{"v": [0.5] * 8}] * 2),
            pa.array([b"0" * 32] * 2),
            pa.array([b"0" * 32] * 2).dictionary_encode(),
            pa.array([b"0" * 16] * 2, pa.binary(16)),
            pa.array([[("k", 0.5)]] * 2, pa.map_(pa.string(), pa.float64())),
            pa.array([None, str([0.5] * 8)]),
            pa.array([None, str([0.5] * 8)]).dictionary_encode(),
            pa.array(["a", " ".join(["-1e-3"] * 8)], pa.large_string()),
            pa.array(["a", f"array({[0.5] * 9}, dtype=float32)"]),
            pa.array(["a", ", ".join(["0.5"] * 999)]),
        ],
    )
    def test_what_may_be_clean_vectors_is_carried_by_name_only(self, tmp_path, X, column):
        source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
        pq.write_table(pa.table({"embedding": vectors(X[:2]), "clean": column}), source)
        assert protect_table(source, target, double).left_out == ("clean",)
        protect_table(source, target, double, carry=["clean"], overwrite=True)
        assert pq.read_table(target)["clean"].to_pylist() == column.to_pylist()

    def test_ids_that_may_be_clean_vectors_are_refused(self, tmp_path, X, refuses):
        source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
        ids = ["a", " ".join(["-1e-3"] * 8)]
        pq.write_table(pa.table({"embedding": vectors(X[:2]), "id": ids}), source)
        with refuses("`carry`", "'id'", "left out"):
            protect_table(source, target, double)
        assert os.listdir(tmp_path) == ["a.parquet"]
        assert protect_table(source, target, double, carry=["id"]).carried == ("id",)

    def test_only_ids_are_carried_unasked(self, tmp_path, X):
        day = datetime.datetime(2024, 1, 2)
        plain = {
            "i": pa.array([1, 2], pa.uint8()),
            "f": [0.5, 1.5],
            "b": [True, False],
            "s": ["[see 1, 2, 3, 4, 5, 6, 7, 8]", "1 2 3 4 5 6 7"],
            "t": [day, None],
            "d": [day.date(), None],
            "c": [day.time(), None],
            "m": [decimal.Decimal("1.5"), None],
            "n": [None, None],
            "k": pa.array(["x", "y"]).dictionary_encode(),
        }
        pq.write_table(pa.table({**plain, "embedding": vectors(X[:2])}), tmp_path / "a.parquet")
        source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
        assert protect_table(source, target, double).carried == ()
        assert protect_table(source, target, double, id_column="i", overwrite=True).carried == ("i",)
        counts = protect_table(source, target, double, carry=list(plain), overwrite=True)
        assert counts.carried == tuple(plain)

    def test_dictionary_values_that_no_row_has_are_not_written(self, tmp_path, X):
        source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
        kept = pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array(["x", CANARY]))
        nested = pa.ListArray.from_arrays([0, 1, 2, 3], kept)
        columns = {"kind": kept, "tags": nested, "embedding": vectors(X[:3])}
        pq.write_table(pa.table(columns), source)
        assert CANARY.encode() in source.read_bytes()
        protect_table(source, target, double, carry=["kind", "tags"])
        found = pq.read_table(target)
        assert found["kind"].to_pylist() == ["x", None, "x"]
        assert found["tags"].to_pylist() == [["x"], [None], ["x"]]
        assert found.schema.field("kind").type == pa.string()
        assert CANARY.encode() not in target.read_bytes()

    def test_clean_vectors_cannot_be_carried(self, tmp_path, X, refuses):
        pq.write_table(pa.table({"embedding": vectors(X), "text": ["t"] * 1000}), tmp_path / "a.parquet")
        for name in ("embedding", "text"):
            with refuses("`carry`", repr(name), error=InvalidInputError):
                protect_table(tmp_path / "a.parquet", tmp_path / "b.parquet", double, carry=[name])

    def test_name_that_the_output_needs(self, tmp_path, X, refuses):
        table = {"vec": vectors(X), "embedding": ["x"] * 1000}
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        with refuses("'embedding'", "Rename", error=InvalidInputError):
            protect_table(
                tmp_path / "a.parquet", tmp_path / "b.parquet", double, embedding_column="vec", carry=["embedding"]
            )

    def test_reduced_dimension_and_dtype(self, tmp_path, X):
        np.save(tmp_path / "a.npy", X.astype(np.float64))
        counts = protect_table(tmp_path / "a.npy", tmp_path / "b.parquet", lambda x: x[:, :3])
        assert (counts.dimension, counts.released_dimension) == (8, 3)
        assert load(tmp_path / "b.parquet").dtype == np.float64

    def test_wrong_dimension_before_any_work(self, tmp_path, X, refuses):
        np.save(tmp_path / "a.npy", X)
        with refuses("a.npy", "384", "dimension 8", "encoder", error=IncompatibleError):
            protect_table(tmp_path / "a.npy", tmp_path / "b.npy", pytest.fail, dimension=384)
        assert os.listdir(tmp_path) == ["a.npy"]

    def test_nan_late_in_the_file_leaves_nothing(self, tmp_path, X, refuses):
        X[990] = np.nan
        np.save(tmp_path / "a.npy", X)
        with refuses("a.npy", "row 991 (counted from 1)"):
            protect_table(tmp_path / "a.npy", tmp_path / "b.npy", double, chunk_rows=100)
        assert os.listdir(tmp_path) == ["a.npy"]

    def test_npy_output_has_no_room_for_columns(self, tmp_path, X, refuses):
        np.save(tmp_path / "a.npy", X)
        for options in ({"keep_text": True}, {"carry": ["id"]}):
            with refuses("vectors only", error=InvalidInputError):
                protect_table(tmp_path / "a.npy", tmp_path / "b.npy", double, **options)


class TestTexts:
    def test_csv(self, write, tmp_path):
        path = write("a.csv", "id,text\n007,abc\n8,d\n9,\n")
        counts = protect_table(path, tmp_path / "b.parquet", double, encode=encode, chunk_rows=2)
        found = pq.read_table(tmp_path / "b.parquet")
        assert found["id"].to_pylist() == ["007", "8", "9"]
        assert load(tmp_path / "b.parquet").tolist() == [[6, 2], [2, 2], [0, 2]]
        assert counts.encoded
        assert (counts.source, counts.carried, counts.left_out) == ("text", ("id",), ("text",))

    def test_jsonl_with_fields_that_vary(self, write, tmp_path):
        rows = [{"text": "abc", "id": 1}, {"text": "d", "spans": [{"start": 0}], "id": "x"}]
        path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        protect_table(
            path, tmp_path / "b.parquet", double, encode=encode, carry=["id", "spans"], keep_text=True, chunk_rows=1
        )
        found = pq.read_table(tmp_path / "b.parquet").drop(["embedding"])
        assert found.to_pylist() == [
            {"text": "abc", "id": "1", "spans": None},
            {"text": "d", "id": '"x"', "spans": '[{"start": 0}]'},
        ]

    def test_lists_of_text_formats_are_carried_by_name_only(self, write, tmp_path):
        row = {"text": "abc", "clean": [0.5] * 8}
        numbers = " ".join(["0.5"] * 8)
        paths = [write("a.jsonl", json.dumps(row) + "\n"), write("a.csv", f"text,clean\nabc,{numbers}\n")]
        for path in paths:
            counts = protect_table(path, tmp_path / "b.parquet", double, encode=encode)
            assert counts.left_out == ("text", "clean")
            (tmp_path / "b.parquet").unlink()
            protect_table(path, tmp_path / "b.parquet", double, encode=encode, carry=["clean"])
            (tmp_path / "b.parquet").unlink()

    def test_vectors_are_taken_before_texts(self, tmp_path):
        table = {"text": ["a", None], "embedding": pa.array([[1.0], [2.0]], pa.list_(pa.float32()))}
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        counts = protect_table(tmp_path / "a.parquet", tmp_path / "b.npy", double, encode=pytest.fail)
        assert not counts.encoded
        assert np.load(tmp_path / "b.npy").tolist() == [[2], [4]]

    def test_texts_without_an_encoder(self, write, tmp_path, refuses):
        with refuses("`embedding_column`", "'id', 'text'"):
            protect_table(write("a.csv", "id,text\n1,a\n"), tmp_path / "b.npy", double)

    def test_null_text_leaves_nothing(self, write, tmp_path, refuses):
        path = write("a.jsonl", '{"text": "a"}\n{"text": null}\n')
        with refuses("row 2"):
            protect_table(path, tmp_path / "b.npy", double, encode=encode, chunk_rows=1)
        assert os.listdir(tmp_path) == ["a.jsonl"]

    def test_broken_line_late_in_the_file_is_found_before_any_work(self, write, tmp_path, refuses):
        path = write("a.jsonl", '{"text": "a"}\n' * 9999 + f"{CANARY}\n")
        with refuses("line 10000"):
            protect_table(path, tmp_path / "b.npy", pytest.fail, encode=pytest.fail)

    def test_encoder_of_another_dimension(self, write, tmp_path, refuses):
        with refuses("5", "dimension 2", error=IncompatibleError):
            protect_table(write("a.txt", "a\n"), tmp_path / "b.npy", double, encode=encode, dimension=5)


class TestFailsClosed:
    @pytest.fixture
    def source(self, tmp_path, X):
        np.save(tmp_path / "a.npy", X)
        return tmp_path / "a.npy"

    @pytest.mark.parametrize(
        "protect", [lambda X: X[:-1], lambda X: X * np.nan, lambda X: None, lambda X: X[0], lambda X: X.astype(int)]
    )
    def test_bad_output_of_protect(self, source, refuses, protect):
        with refuses("othing was released", error=ReleaseError):
            protect_table(source, source.with_name("b.npy"), protect)
        assert os.listdir(source.parent) == ["a.npy"]

    @pytest.mark.parametrize("name", ["b.npy", "b.parquet"])
    def test_ctrl_c(self, source, name):
        calls = []

        def protect(X):
            calls.append(len(X))
            if len(calls) == 3:
                signal.raise_signal(signal.SIGINT)
            return X

        with pytest.raises(KeyboardInterrupt):
            protect_table(source, source.with_name(name), protect, chunk_rows=100)
        assert calls == [100] * 3
        assert os.listdir(source.parent) == ["a.npy"]

    def test_error_of_protect_comes_through(self, source):
        def protect(X):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            protect_table(source, source.with_name("b.npy"), protect)
        assert os.listdir(source.parent) == ["a.npy"]

    def test_output_is_the_input(self, source):
        before = source.read_bytes()
        link = source.with_name("link.npy")
        link.symlink_to(source)
        hard = source.with_name("hard.npy")
        hard.hardlink_to(source)
        same = [(target, "E-INPUT") for target in (source, hard, source.parent / "." / "a.npy")]
        for target, code in [*same, (link, "E-DATA-FILE")]:
            with raises(code, "output"):
                protect_table(source, target, double, overwrite=True)
        assert source.read_bytes() == before

    def test_existing_output(self, source, refuses):
        target = source.with_name("b.npy")
        target.write_bytes(b"old")
        with refuses("b.npy", "exists"):
            protect_table(source, target, pytest.fail)
        assert target.read_bytes() == b"old"

    def test_output_is_checked_before_the_input_is_read(self, tmp_path, refuses):
        with refuses("b.csv", error=InvalidInputError):
            protect_table(tmp_path / "missing.csv", tmp_path / "b.csv", double)


def test_progress_goes_to_stderr(write, tmp_path, capsys):
    protect_table(write("a.txt", "a\nb\n"), tmp_path / "b.npy", double, encode=encode, show_progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Protecting" in err


class TestImports:
    def test_pyarrow_is_loaded_for_parquet_only(self, tmp_path):
        code = """
import os, sys, numpy as np
import vecveil.texts.tables as tables
os.chdir(sys.argv[1])
np.save("a.npy", np.ones((3, 2)))
open("a.csv", "w").write("id,text\\n1,a\\n")
tables.protect_table("a.npy", "b.npy", lambda X: X)
tables.protect_table("a.csv", "c.npy", lambda X: X, encode=lambda t: np.ones((len(t), 2)))
assert tables.read_texts("a.csv", columns=["id"]).columns == {"id": ["1"]}
print(sorted({"pyarrow", "pandas", "torch"} & set(sys.modules)))
"""
        run = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_missing_pyarrow(self, write, tmp_path, monkeypatch, X):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(MissingDependencyError, match=r"vecveil\[files\]"):
            import_pyarrow()
        with pytest.raises(MissingDependencyError):
            read_table(write("a.parquet", b"PAR1" + b"0" * 20))
        with pytest.raises(MissingDependencyError):
            protect_table(write("a.txt", "a\n"), tmp_path / "b.parquet", double, encode=pytest.fail)


MEASURE = """
import sys, numpy as np
from vecveil.texts.tables import protect_table
if sys.argv[1] != "nothing":
    rng = np.random.default_rng()
    noisy = lambda X: X + rng.random(X.shape, X.dtype)
    protect_table(sys.argv[1], sys.argv[2], noisy)
else:
    import pyarrow.parquet
status = open("/proc/self/status").read()
print(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    """160,000 vectors (234 MiB) may add at most 430 MiB to a process that has done nothing.

    Control: a process that holds input and output at once needs 468 MiB for the arrays alone.
    benchmarks/memory.py measures a million.
    """
    rows, n = 160_000, 384
    source = tmp_path / f"a.{kind}"
    X = np.tile(np.random.default_rng(0).standard_normal((rows // 16, n), np.float32), (16, 1))
    if kind == "npy":
        np.save(source, X)
    else:
        table = pa.table({"embedding": vectors(X)})
        pq.write_table(table, source, row_group_size=rows, compression="none", use_dictionary=False)

    def peak_mib(*arguments):
        run = [sys.executable, "-c", MEASURE, *map(str, arguments)]
        return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout) / 1024

    base = peak_mib("nothing", "")
    used = peak_mib(source, tmp_path / f"b.{kind}")
    assert used - base <= 430, f"{used:.0f} MiB, of which {base:.0f} MiB before any work"
