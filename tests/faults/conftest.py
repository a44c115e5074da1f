"""What the faults happen to: a protector, a key, clean vectors in files, and a warm process to be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vecveil
from harness.command_line import run, write_pairs
from harness.faults import WarmProcess

FILES, GROUPS, GROUP_ROWS, DIMENSION = 8, 3, 200, 32


@pytest.fixture(scope="session")
def protector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A protector for vectors of 32 dimensions."""
    folder = tmp_path_factory.mktemp("protector")
    positive, negative = (np.load(path) for path in write_pairs(folder))
    made = vecveil.fit_pairs(positive, negative, method="laplace", noise_to_signal=0.5)
    made.save(folder / "vectors.vecveil")
    return folder / "vectors.vecveil"


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of keys for keyed noise."""
    path = tmp_path_factory.mktemp("key") / "noise.key"
    assert run("key", "new", path).code == 0
    return path


@pytest.fixture(scope="session")
def clean() -> np.ndarray:
    """(N, n) vectors, the rows of all files of ``lake`` in order."""
    rows = FILES * GROUPS * GROUP_ROWS
    return np.random.default_rng(11).normal(size=(rows, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory, clean: np.ndarray) -> Path:
    """A folder of Parquet files of some row groups each, with a column of ids."""
    folder = tmp_path_factory.mktemp("lake")
    for number, rows in enumerate(np.array_split(np.arange(len(clean)), FILES)):
        pq.write_table(
            table_of(clean, rows),
            folder / f"{number:02d}.parquet",
            row_group_size=GROUP_ROWS,
            compression="none",
            use_dictionary=False,
        )
    return folder


def table_of(clean: np.ndarray, rows: np.ndarray) -> pa.Table:
    """Return some rows with their ids."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(clean[rows].reshape(-1)), clean.shape[1])
    return pa.table({"id": [f"r{row:06d}" for row in rows], "embedding": flat})


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    """A process with what protects tables imported."""
    modules = (
        "vecveil.gateway.bulk",
        "vecveil.gateway.bulk.running",
        "vecveil.cli.protect",
        "vecveil.texts.tables.pipeline",
        "pyarrow.parquet",
        "fsspec.implementations.local",
        "tqdm",
        "vecveil.privacy.accounting",
        "vecveil.cli.tables",
    )
    with WarmProcess(tmp_path_factory.mktemp("said"), modules) as process:
        yield process
