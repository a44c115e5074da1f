"""Writers: valid files, bounded row groups, and nothing half-written whatever happens."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError
from vecveil.texts.tables import open_writer, read_table

NAMES = ["out.npy", "out.parquet"]


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)


def load(path):
    return np.concatenate([chunk.vectors for chunk in read_table(path)])


class TestNpy:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("pieces", [1, 7, 1000])
    def test_can_be_mapped(self, tmp_path, X, dtype, pieces):
        X = X.astype(dtype)
        with open_writer(tmp_path / "out.npy") as writer:
            for piece in np.array_split(X, pieces):
                writer.write(piece)
        found = np.load(tmp_path / "out.npy", mmap_mode="r")
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, X)

    def test_other_columns_are_refused(self, tmp_path, X, refuses):
        with refuses("columns", error=InvalidInputError), open_writer(tmp_path / "out.npy") as writer:
            writer.write(X, {"id": list(range(1000))})


class TestParquet:
    def test_a_text_that_the_reader_refuses_is_not_written(self, tmp_path, X, refuses):
        """Text formats count characters, Parquet bytes."""
        path = tmp_path / "out.parquet"
        for size, expected in ((1 << 23, contextlib.nullcontext()), ((1 << 23) + 1, refuses("'text'", "16 MiB"))):
            with expected, open_writer(path, types={"text": "string"}, overwrite=True) as writer:
                writer.write(X[:1], {"text": ["é" * size]})
            (chunk,) = read_table(path).select([], texts=True, vectors=False)
            assert len(chunk.texts[0]) == 1 << 23

    def test_columns_schema_and_metadata(self, tmp_path, X):
        types = {"id": "int64", "spans": "json", "when": pa.date32(), "text": "string"}
        about = {"method": "subspace", "protector": "ab12"}
        with open_writer(tmp_path / "out.parquet", types=types, metadata=about) as writer:
            for piece in np.array_split(np.arange(1000), 3):
                columns = {
                    "id": piece.tolist(),
                    "spans": [[{"start": 1}]] * (len(piece) - 1) + [None],
                    "when": pa.array([1] * len(piece), pa.date32()),
                    "text": ["é"] * len(piece),
                }
                writer.write(X[piece], columns)
        table = pq.read_table(tmp_path / "out.parquet")
        assert table.column_names == ["id", "spans", "when", "text", "embedding"]
        assert table.schema.field("embedding").type == pa.list_(pa.float32(), 8)
        assert table.schema.field("when").type == pa.date32()
        assert table["id"].to_pylist() == list(range(1000))
        assert json.loads(table["spans"][0].as_py()) == [{"start": 1}]
        assert table["spans"][999].as_py() is None
        assert json.loads(table.schema.metadata[b"vecveil"]) == {"protected": True, **about}
        assert read_table(tmp_path / "out.parquet").metadata == {"protected": True, **about}
        np.testing.assert_array_equal(load(tmp_path / "out.parquet"), X)

    def test_float64_stays(self, tmp_path, X):
        with open_writer(tmp_path / "out.parquet") as writer:
            writer.write(X.astype(np.float64))
        schema = pq.read_schema(tmp_path / "out.parquet")
        assert schema.field("embedding").type == pa.list_(pa.float64(), 8)
        assert schema.metadata is None or b"vecveil" not in schema.metadata

    def test_row_groups_are_bounded_and_not_tiny(self, tmp_path):
        X = np.ones((10_000, 2), np.float32)
        with open_writer(tmp_path / "out.parquet") as writer:
            for _ in range(20):
                writer.write(X)
        about = pq.ParquetFile(tmp_path / "out.parquet").metadata
        sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
        assert sum(sizes) == 200_000
        assert max(sizes) <= 65_536
        assert len(sizes) <= 7

    def test_array_that_the_caller_reuses(self, tmp_path):
        buffer = np.zeros((10, 2), np.float32)
        with open_writer(tmp_path / "out.parquet") as writer:
            for i in range(3):
                buffer[:] = i
                writer.write(buffer)
        assert load(tmp_path / "out.parquet")[:, 0].tolist() == [0.0] * 10 + [1.0] * 10 + [2.0] * 10


@pytest.mark.parametrize("name", NAMES)
class TestEveryWriter:
    def test_vectors_must_agree(self, tmp_path, X, refuses, name):
        for other in (X[:, :7], X.astype(np.float64)):
            with (
                refuses(name, "dimension 8", "float32", error=IncompatibleError),
                open_writer(tmp_path / name) as writer,
            ):
                writer.write(X)
                writer.write(other)
        assert os.listdir(tmp_path) == []

    def test_nan_is_never_written(self, tmp_path, X, refuses, name):
        X[3, 3] = np.nan
        with refuses("finite", error=InvalidInputError), open_writer(tmp_path / name) as writer:
            writer.write(X)
        assert os.listdir(tmp_path) == []

    def test_nothing_to_write(self, tmp_path, refuses, name):
        with refuses(name, "no rows"), open_writer(tmp_path / name):
            pass
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, OSError])
    def test_any_exception_leaves_the_old_file(self, tmp_path, X, name, error):
        path = tmp_path / name
        path.write_bytes(b"old")

        def interrupted():
            with open_writer(path, overwrite=True) as writer:
                writer.write(X)
                raise error

        with pytest.raises(error):
            interrupted()
        assert os.listdir(tmp_path) == [name]
        assert path.read_bytes() == b"old"

    def test_overwrite(self, tmp_path, X, refuses, name):
        path = tmp_path / name
        path.write_bytes(b"old")
        with refuses(name, "exists", "--force"), open_writer(path):
            pytest.fail("the block must not run")
        assert path.read_bytes() == b"old"
        with open_writer(path, overwrite=True) as writer:
            writer.write(X)
        np.testing.assert_array_equal(load(path), X)

    def test_folder(self, tmp_path, refuses, name):
        (tmp_path / name).mkdir()
        with refuses(name, "a folder"), open_writer(tmp_path / name, overwrite=True):
            pytest.fail("the block must not run")

    def test_folder_that_cannot_be_made(self, tmp_path, refuses, name):
        (tmp_path / "file").write_bytes(b"")
        with refuses(name, "failed"), open_writer(tmp_path / "file" / name):
            pytest.fail("the block must not run")

    def test_new_folder_is_made(self, tmp_path, X, name):
        with open_writer(tmp_path / "a" / name) as writer:
            writer.write(X)
        np.testing.assert_array_equal(load(tmp_path / "a" / name), X)

    @pytest.mark.parametrize("room", [0, 20_000])
    def test_disk_full(self, tmp_path, X, refuses, monkeypatch, name, room):
        class Full(io.FileIO):
            def write(self, data):
                if self.tell() + memoryview(data).nbytes > room:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return super().write(data)

        def full(path, mode):
            return io.BufferedWriter(Full(path, mode))

        monkeypatch.setattr("vecveil.texts.tables.writing.open", full, raising=False)
        path = tmp_path / name
        path.write_bytes(b"old")
        with refuses(name, "disk is full", "removed", "Free some space"), open_writer(path, overwrite=True) as writer:
            writer.write(X)
        assert os.listdir(tmp_path) == [name]
        assert path.read_bytes() == b"old"

    def test_error_of_the_caller_is_not_blamed_on_the_disk(self, tmp_path, name):
        with pytest.raises(ConnectionError), open_writer(tmp_path / name):
            raise ConnectionError("the encoder's server went away")


@pytest.mark.parametrize("aim", ["there.npy", "nowhere.npy"])
def test_symbolic_link(tmp_path, X, refuses, aim):
    (tmp_path / "there.npy").write_bytes(b"old")
    (tmp_path / "out.npy").symlink_to(tmp_path / aim)
    for overwrite in (False, True):
        refused = refuses("out.npy", "`output`", "a symbolic link")
        with refused, open_writer(tmp_path / "out.npy", overwrite=overwrite) as writer:
            writer.write(X)
    assert (tmp_path / "there.npy").read_bytes() == b"old"
    assert not (tmp_path / "nowhere.npy").exists()


@pytest.mark.parametrize("name", ["out.csv", "out", "out.npy.gz"])
def test_unknown_suffix(tmp_path, refuses, name):
    with refuses(name, "*.parquet or *.npy", error=InvalidInputError), open_writer(tmp_path / name):
        pytest.fail("the block must not run")


def test_columns_must_fit(tmp_path, X, refuses):
    with (
        refuses("999 rows", error=InvalidInputError),
        open_writer(tmp_path / "a.parquet", types={"id": "int64"}) as writer,
    ):
        writer.write(X, {"id": list(range(999))})
    with (
        refuses("1 declared", error=InvalidInputError),
        open_writer(tmp_path / "a.parquet", types={"id": "int64"}) as writer,
    ):
        writer.write(X)
    with (
        refuses("changed while", error=DataFileError),
        open_writer(tmp_path / "a.parquet", types={"id": "int64"}) as writer,
    ):
        writer.write(X, {"id": ["x"] * 1000})
    assert os.listdir(tmp_path) == []
