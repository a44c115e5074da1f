"""Folders of clean vectors with ids, and what keyed noise makes of them, for tests of engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vecveil.keys import NoiseKey
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.protector import Protector

__all__ = ["expected", "laplace_file", "rows_of", "table_of", "write_parts"]


def laplace_file(path: Path, dimension: int) -> Path:
    """Write a protector that was fitted on nothing, and return its path."""
    Protector("laplace", Laplace(dimension, 5.0)).save(path)
    return path


def table_of(X: np.ndarray, ids: Sequence[str] | None = None) -> pa.Table:
    """Return ids and vectors as a table."""
    named = [f"item-{i}" for i in range(len(X))] if ids is None else list(ids)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    return pa.table({"id": named, "embedding": vectors})


def write_parts(folder: Path, files: int, rows: int, dimension: int, group: int) -> np.ndarray:
    """Write ``files`` Parquet files of ``rows`` each in row groups of ``group``; return all vectors."""
    folder.mkdir(parents=True)
    X = np.random.default_rng(0).standard_normal((files * rows, dimension)).astype(np.float32)
    ids = [f"item-{i}" for i in range(len(X))]
    for file in range(files):
        of = slice(file * rows, (file + 1) * rows)
        pq.write_table(table_of(X[of], ids[of]), folder / f"{file:03}.parquet", row_group_size=group)
    return X


def rows_of(table: pa.Table) -> dict[str, np.ndarray]:
    """Return the vectors of a released table by their ids, each of which stands there once."""
    flat = table["embedding"].combine_chunks().flatten().to_numpy()
    ids = table["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, flat.reshape(len(ids), -1), strict=True))


def expected(protector: Protector, X: np.ndarray, key: NoiseKey) -> dict[str, np.ndarray]:
    """Return what keyed noise makes of ``X`` with the ids of `table_of`."""
    ids = [f"item-{i}" for i in range(len(X))]
    return dict(zip(ids, protector.protect(X, ids=ids, key=key), strict=True))
