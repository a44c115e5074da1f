"""Vectors from Parquet and .npy."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vecveil.errors import DataFileError, InvalidInputError
from vecveil.texts.tables import read_table

CANARY = "zebra-7731"


def all_vectors(path, **options):
    return np.concatenate([chunk.vectors for chunk in read_table(path, **options)])


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)


def column(X, kind):
    """Return X as an Arrow column of one of the ways that programs write vectors."""
    width = X.shape[1]
    flat = pa.array(X.reshape(-1))
    offsets = np.arange(0, X.size + 1, width)
    match kind:
        case "fixed":
            return pa.FixedSizeListArray.from_arrays(flat, width)
        case "list":
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
        case "large_list":
            return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
        case "tensor":
            storage = pa.FixedSizeListArray.from_arrays(flat, width)
            return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(flat.type, [width]), storage)
    raise AssertionError(kind)


class TestParquet:
    @pytest.mark.parametrize("kind", ["fixed", "list", "large_list", "tensor"])
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_every_kind_of_column(self, tmp_path, X, kind, dtype):
        X = X.astype(dtype)
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": column(X, kind)}), path, row_group_size=300)
        reader = read_table(path, chunk_rows=64)
        assert (reader.embedding_column, reader.dimension, reader.rows) == ("embedding", 8, 1000)
        assert reader.text_column is None
        found = all_vectors(path, chunk_rows=64)
        assert found.dtype == (np.float64 if dtype == np.float64 else np.float32)
        np.testing.assert_array_equal(found, X)

    @pytest.mark.parametrize("rows", [100, 1000, 10_000])
    def test_chunks_cover_all_rows_whatever_the_row_groups(self, tmp_path, X, rows):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": column(X, "fixed")}), path, row_group_size=rows)
        chunks = list(read_table(path, chunk_rows=90))
        assert sum(chunk.rows for chunk in chunks) == 1000
        assert max(chunk.rows for chunk in chunks) <= 90
        assert [c.first_row for c in chunks] == list(np.cumsum([0, *[c.rows for c in chunks]])[:-1])

    def test_column_by_name_and_other_columns(self, tmp_path, X):
        path = tmp_path / "a.parquet"
        table = {"id": range(1000), "vec": column(X, "list"), "text": ["t"] * 1000}
        pq.write_table(pa.table(table), path)
        chunk = next(iter(read_table(path, embedding_column="vec")))
        assert list(chunk.columns) == ["id"]
        assert chunk.columns["id"].to_pylist() == list(range(1000))
        assert chunk.texts == ["t"] * 1000
        assert read_table(path).embedding_column is None, "only `embedding` is found by itself"

    @pytest.mark.parametrize(
        "texts",
        [pa.array(["a", "é"]), pa.array(["a", "é"], pa.large_string()), pa.array(["a", "é"]).dictionary_encode()],
    )
    def test_kinds_of_text(self, tmp_path, texts):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": texts}), path)
        assert next(iter(read_table(path))).texts == ["a", "é"]

    def test_null_vector(self, tmp_path, refuses):
        path = tmp_path / "a.parquet"
        values = pa.array([[1.0, 2.0]] * 70 + [None], pa.list_(pa.float32(), 2))
        pq.write_table(pa.table({"embedding": values}), path)
        with refuses("a.parquet", "row 71 (counted from 1) of 'embedding' has no vector"):
            list(read_table(path, chunk_rows=30))

    def test_null_inside_a_vector(self, tmp_path, refuses):
        path = tmp_path / "a.parquet"
        values = pa.array([[1.0, 2.0], [3.0, None]], pa.list_(pa.float32(), 2))
        pq.write_table(pa.table({"embedding": values}), path)
        with refuses("row 2", "a missing value"):
            list(read_table(path))

    def test_lists_of_different_lengths(self, tmp_path, refuses):
        path = tmp_path / "a.parquet"
        values = pa.array([[1.0, 2.0]] * 50 + [[1.0]], pa.list_(pa.float32()))
        pq.write_table(pa.table({"embedding": values}), path)
        with refuses("row 51", "1 values instead of 2"):
            list(read_table(path, chunk_rows=30))

    def test_empty_lists(self, tmp_path, refuses):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": pa.array([[]], pa.list_(pa.float32()))}), path)
        with refuses("without values"):
            read_table(path)

    def test_lists_of_integers_are_no_vectors(self, tmp_path, refuses):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": [[1, 2]], "b": ["x"]}), path)
        with refuses("lists of float32 or float64", "list<"):
            read_table(path, embedding_column="embedding")
        with refuses("`text_column`", "'embedding', 'b'"):
            read_table(path)

    def test_nan_with_the_row_in_the_file(self, tmp_path, X, refuses):
        X[777, 3] = np.nan
        X[900] = np.inf
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": column(X, "fixed")}), path)
        with refuses("has NaN or infinity in 1 of", "row 778 (counted from 1)"):
            list(read_table(path, chunk_rows=100))

    def test_null_texts(self, tmp_path, refuses):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": ["a", None, CANARY, None]}), path)
        with refuses("null", "row 2"):
            list(read_table(path))

    def test_no_rows_missing_column_and_duplicates(self, tmp_path, X, refuses):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
        with refuses("no rows"):
            read_table(path)
        pq.write_table(pa.table({"embeddings": column(X, "fixed")}), path)
        with refuses("'embeddings'", "Did you mean 'embeddings'?"):
            read_table(path, embedding_column="embeding")
        pq.write_table(pa.table([pa.array(["x"]), pa.array(["y"])], names=["text", "text"]), path)
        with refuses("1 column names twice"):
            read_table(path)

    def test_text_that_is_not_utf_8(self, tmp_path, refuses):
        raw = pa.array([b"ok", CANARY.encode() + b"\xff"], pa.binary())
        path = tmp_path / "a.parquet"
        text = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
        pq.write_table(pa.table({"text": text}), path)
        with refuses("damaged"):
            list(read_table(path))

    @pytest.mark.parametrize("part", [0.02, 0.5, 0.999])
    def test_truncated(self, tmp_path, X, refuses, part):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": column(X, "fixed")}), path)
        os.truncate(path, int(path.stat().st_size * part))
        with refuses("a.parquet", "truncated or damaged"):
            read_table(path)

    def test_damaged_in_the_middle(self, tmp_path, X, refuses):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"embedding": column(X, "fixed")}), path, use_dictionary=False)
        data = bytearray(path.read_bytes())
        data[4:40] = b"\xff" * 36
        path.write_bytes(data)
        with refuses("a.parquet", "truncated or damaged"):
            list(read_table(path))

    def test_not_parquet(self, write, refuses):
        with refuses("not a Parquet file"):
            read_table(write("a.parquet", f"text\n{CANARY}\n"))


class TestNpy:
    @pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", ">f8"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_orders_and_types(self, tmp_path, X, dtype, order):
        path = tmp_path / "a.npy"
        X = np.asarray(X, dtype, order=order)
        np.save(path, X)
        reader = read_table(path, chunk_rows=77)
        assert (reader.rows, reader.dimension, reader.format) == (1000, 8, "npy")
        found = all_vectors(path, chunk_rows=77)
        assert found.dtype == np.dtype("f4" if dtype == "<f2" else dtype[1:])
        assert found.dtype.isnative
        np.testing.assert_array_equal(found, X)

    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    def test_versions(self, tmp_path, X, version):
        path = tmp_path / "a.npy"
        with open(path, "wb") as file:
            np.lib.format.write_array(file, X, version=version)
        np.testing.assert_array_equal(all_vectors(path), X)

    @pytest.mark.parametrize(
        ("array", "words"),
        [
            (np.zeros(3), ["(N, n)", "(3,)"]),
            (np.zeros((2, 2, 2)), ["(2, 2, 2)"]),
            (np.zeros((0, 4)), ["no rows"]),
            (np.zeros((4, 0)), ["n is at least 1"]),
            (np.zeros((2, 2), int), ["int64", "astype"]),
            (np.array([[CANARY]]), ["dtype"]),
            (np.array([[{CANARY: 1}]]), ["dtype"]),
            (np.zeros((2, 2), np.longdouble), ["dtype"]),
        ],
    )
    def test_other_arrays(self, tmp_path, refuses, array, words):
        path = tmp_path / "a.npy"
        np.save(path, array, allow_pickle=True)
        with refuses("a.npy", *words):
            read_table(path)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_nan_with_the_row_in_the_file(self, tmp_path, X, refuses, value):
        X[[600, 777], 3] = value
        np.save(tmp_path / "a.npy", X)
        with refuses("has NaN or infinity in 2 of", "row 601"):
            list(read_table(tmp_path / "a.npy", chunk_rows=400))

    def test_large_finite_values_are_fine(self, tmp_path):
        X = np.full((100, 4), 1e308)
        np.save(tmp_path / "a.npy", X)
        np.testing.assert_array_equal(all_vectors(tmp_path / "a.npy"), X)

    @pytest.mark.parametrize("size", [7, 9, 60, 130, 4000])
    def test_truncated(self, tmp_path, X, refuses, size):
        path = tmp_path / "a.npy"
        np.save(path, X)
        os.truncate(path, size)
        with refuses("a.npy"):
            read_table(path)

    def test_shrinks_while_it_is_read(self, tmp_path, X, refuses):
        path = tmp_path / "a.npy"
        np.save(path, X)
        chunks = iter(read_table(path, chunk_rows=100))
        next(chunks)
        os.truncate(path, 9000)
        with refuses("while it was read"):
            list(chunks)

    def test_text_column_is_not_there(self, tmp_path, X, refuses):
        np.save(tmp_path / "a.npy", X)
        with refuses("`text_column`", "'embedding'"):
            read_table(tmp_path / "a.npy", text_column="text")


class TestFiles:
    def test_missing_and_folder(self, tmp_path, refuses):
        with refuses("File not found", "none.csv"):
            read_table(tmp_path / "none.csv")
        with refuses(tmp_path.name, "a folder"):
            read_table(tmp_path)
        with refuses("null character"):
            read_table("a\0.csv")

    def test_permission_error_whoever_runs_the_test(self, write, refuses, monkeypatch):
        path = write("a.csv", "text\nx\n")

        def denied(*args, **options):
            raise PermissionError(13, "denied", str(path))

        monkeypatch.setattr("vecveil.texts.tables.files.open", denied, raising=False)
        with refuses("a.csv", "may not read"):
            read_table(path)

    @pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.parquet", "a.npy"])
    def test_empty(self, write, refuses, name):
        with refuses(name, "is empty"):
            read_table(write(name, b""))

    @pytest.mark.parametrize(
        ("name", "word"),
        [
            ("a.json", "jsonl"),
            ("a.xlsx", "CSV"),
            ("a.npz", "numpy.save"),
            ("a", "no suffix"),
            ("a.parquet.gz", "'.gz'"),
        ],
    )
    def test_unknown_suffix(self, write, refuses, name, word):
        with refuses(name, "*.jsonl", word, error=InvalidInputError):
            read_table(write(name, b"x"))

    def test_format_by_option(self, write, refuses):
        path = write("a.json", '{"text": "a"}\n')
        assert read_table(path, format="jsonl").rows == 1
        with refuses("`format`", "'xml'", error=InvalidInputError):
            read_table(path, format="xml")

    def test_wrong_format_is_seen(self, tmp_path, write, X, refuses):
        np.save(tmp_path / "a.npy", X)
        with refuses("a npy file", "format='npy'"):
            read_table(tmp_path / "a.npy", format="csv")
        for head, said in (
            (b"PK\x03\x04", "spreadsheet"),
            (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
            (b"SQLite format 3\x00\x10\x00\xff", "SQLite"),
            (pickle.dumps([{"text": "a"}]), "pickle"),
        ):
            with refuses(said, "CSV"):
                read_table(write("a.csv", head + b"rest\n"))
        np.savez(tmp_path / "a.npz", X=X)
        for name in ("a.csv", "a.npy", "a.parquet"):
            with refuses("NumPy archive", "numpy.save"):
                read_table(write(name, (tmp_path / "a.npz").read_bytes()))
        with refuses("not compressed"):
            read_table(write("a.csv.gz", b"text\nx\n"))

    @pytest.mark.parametrize("cut", [5, 20, -4])
    def test_truncated_gzip(self, write, refuses, cut):
        import gzip

        data = gzip.compress(f"text\n{CANARY}\n".encode() * 1000)
        with refuses("a.csv.gz", "truncated or damaged"):
            read_table(write("a.csv.gz", data[:cut]))

    def test_named_pipe(self, tmp_path):
        import threading

        path = tmp_path / "pipe"
        os.mkfifo(path)
        feeder = threading.Thread(target=lambda: path.write_bytes(b"a\nb\n"))
        feeder.start()
        reader = read_table(path, format="txt")
        feeder.join()
        assert [c.texts for c in reader] == [["a", "b"]]

    def test_repr_shows_no_contents(self, write):
        reader = read_table(write("a.csv", f"text,b\n{CANARY},{CANARY}\n"))
        chunk = next(iter(reader))
        assert CANARY in chunk.texts
        assert CANARY not in repr(chunk) + repr(reader)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e39"])
def test_vectors_of_json_lines_are_finite(tmp_path: Path, value: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"embedding": [1, 2.5]}}\n{{"embedding": [1, {value}]}}\n')
    reader = read_table(path)
    assert reader.dimension == 2
    with pytest.raises(DataFileError, match=r"`embedding_column` has NaN or infinity .* row 2"):
        list(reader)
