"""Batches of Arrow rows: no copy on the way in, the protector's own releases on the way out, names of keys alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import vecveil
from harness.errors import raises
from unit.gateway.bulk.conftest import DIMENSION
from vecveil.gateway.bulk import ArrowProtection, BulkJob
from vecveil.gateway.bulk.job import OpenJob
from vecveil.keys import KeyFile
from vecveil.privacy.protector import Protector

ROWS = 60


def clean(dtype: Any = np.float32, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((rows, DIMENSION)).astype(dtype)


def fixed(X: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])


def listed(X: np.ndarray) -> pa.Array:
    offsets = pa.array(np.arange(len(X) + 1, dtype=np.int32) * X.shape[1])
    return pa.ListArray.from_arrays(offsets, pa.array(X.reshape(-1)))


def tables(X: np.ndarray, vectors: pa.Array) -> pa.Table:
    return pa.table({"id": [f"item-{i}" for i in range(len(X))], "embedding": vectors})


def address(X: np.ndarray) -> int:
    return int(X.__array_interface__["data"][0])


def vectors_of(table: pa.Table) -> np.ndarray:
    flat = table["embedding"].combine_chunks().flatten().to_numpy()
    return flat.reshape(table.num_rows, -1)


@pytest.mark.parametrize("wrap", [fixed, listed])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_are_read_and_written_where_they_lie(
    bulk_protector: vecveil.Protector, monkeypatch: pytest.MonkeyPatch, wrap: Any, dtype: Any
) -> None:
    """The protector sees the memory of the batch, and the table holds what the protector returned."""
    X = clean(dtype)
    batch = tables(X, wrap(X)).to_batches()[0].slice(7, 40)
    seen: list[tuple[int, int]] = []
    protect = Protector.protect

    def spy(self: Protector, given: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
        released = protect(self, given, *args, **options)
        seen.append((address(given), address(released)))
        return released

    monkeypatch.setattr(Protector, "protect", spy)
    table = ArrowProtection(BulkJob.of(bulk_protector))(batch)
    ((given, released),) = seen
    assert given == address(X) + 7 * DIMENSION * X.itemsize
    assert table["embedding"].num_chunks == 1
    assert table["embedding"].chunk(0).values.buffers()[1].address == released


def test_it_releases_what_the_protector_does(keyed: BulkJob) -> None:
    X = clean()
    opened = OpenJob(keyed)
    ids = [f"item-{i}" for i in range(ROWS)]
    same = opened.protector.protect(X, ids=ids, key=opened.key)
    whole = ArrowProtection(keyed)(tables(X, fixed(X)))
    np.testing.assert_array_equal(vectors_of(whole), same)
    assert whole.schema.names == ["id", "embedding"]
    copy = pickle.loads(pickle.dumps(ArrowProtection(keyed)))  # as a worker that does it again
    for start in range(0, ROWS, 20):
        part = copy(tables(X, listed(X)).slice(start, 20))
        np.testing.assert_array_equal(vectors_of(part), same[start : start + 20])


def test_copies_draw_noise_of_their_own(bulk_protector: vecveil.Protector) -> None:
    table = tables(np.ones((ROWS, DIMENSION)), fixed(np.ones((ROWS, DIMENSION))))
    protection = ArrowProtection(BulkJob.of(bulk_protector, check_lengths=False))
    protection(table)
    copies = [pickle.loads(pickle.dumps(protection)) for _ in range(2)]
    rows = np.concatenate([vectors_of(each(table)) for each in (protection, protection, *copies)])
    assert len(np.unique(rows, axis=0)) == 4 * ROWS


def test_a_pickle_has_the_name_of_the_key_and_not_the_key(keyed: BulkJob) -> None:
    protection = ArrowProtection(keyed)
    protection(tables(clean(), fixed(clean())))
    assert keyed.key is not None
    secret = KeyFile.from_file(keyed.key).key().secret_for_noise()
    packed = pickle.dumps(protection)
    assert secret not in packed
    assert keyed.key.encode() in packed
    assert keyed.key not in repr(protection)


def test_no_rows_give_no_rows_of_the_same_columns(keyed: BulkJob) -> None:
    protection = ArrowProtection(keyed)
    table = tables(clean(), fixed(clean()))
    empty = protection(table.slice(0, 0))
    assert empty.num_rows == 0
    assert empty.schema == protection(table).schema == protection.schema(table.schema)


def test_tables_that_cannot_be_are_refused(keyed: BulkJob, tmp_path: Path) -> None:
    protection = ArrowProtection(keyed)
    X = clean()
    X[3, 2] = np.nan
    with raises("E-DATA-FILE", "embedding_column"):
        protection(tables(X, fixed(X)))
    with raises("E-INPUT-TYPE", "rows"):
        protection(X)
    more = tables(clean(), fixed(clean())).append_column("other", fixed(clean()))
    assert "other" not in protection(more).column_names
