"""What the tests of data sets share: a data folder to write into."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


class DataFolder:
    """Writes files below a folder; its name decides on compression."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def text(self, name: str, content: str, encoding: str = "utf-8") -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode(encoding)
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)

    def lines(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        self.text(name, "".join(json.dumps(row) + "\n" for row in rows))

    def parquet(self, name: str, columns: dict[str, list[Any]]) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, compression="zstd")


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")
