"""A protector without an encoder, and tables of clean vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vecveil
from vecveil.gateway.bulk import BulkJob

DIMENSION = 16
WriteTable = Callable[..., np.ndarray]


@pytest.fixture(scope="session")
def bulk_protector() -> vecveil.Protector:
    rng = np.random.default_rng(0)
    negative = rng.standard_normal((300, DIMENSION)).astype(np.float32)
    words = (rng.random((300, 6)) < 0.3).astype(int)
    shift = (words @ rng.standard_normal((6, DIMENSION))).astype(np.float32)
    return vecveil.fit_pairs(
        negative + shift,
        negative,
        words,
        noise_to_signal=0.3,
        rank=4,
        kept=8,
        flattening=0.5,
        pairs=True,
        show_progress=False,
    )


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "noise.key"
    vecveil.KeyFile.create(path, "k")
    return path


@pytest.fixture
def keyed(bulk_protector: vecveil.Protector, key: Path) -> BulkJob:
    """A job whose releases can be compared."""
    return BulkJob.of(bulk_protector, id_column="id", key=str(key))


@pytest.fixture
def write_table() -> WriteTable:
    """Write a table of unit-free vectors with ids from ``first`` on, and return the vectors."""

    def write(path: Path, rows: int, *, first: int = 0, group: int = 10) -> np.ndarray:
        X = np.random.default_rng(first).standard_normal((rows, DIMENSION)).astype(np.float32)
        ids = pa.array([f"item-{i}" for i in range(first, first + rows)])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), DIMENSION)
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": ids, "embedding": vectors})
        pq.write_table(table, path, row_group_size=group)
        return X

    return write
