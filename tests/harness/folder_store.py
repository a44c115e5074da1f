"""A vector store of one file for each row, which can be told to fail, to lose rows, or to kill its process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.errors import StoreError
from vecveil.stores import Batch, StoreInfo, VectorStore
from vecveil.stores.store import Match, Missing, Where

__all__ = ["FolderStore", "filled"]


class FolderStore(VectorStore):
    """Rows in the order of their ids. ``before_row`` is called with the number of rows written so far."""

    kind: ClassVar[str] = "folder"

    def __init__(self, folder: Path, *, normalises: bool = False) -> None:
        self.folder = Path(folder)
        self.written = 0
        self.before_row: Callable[[int], None] = lambda rows: None
        self._normalises = normalises

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        return cls(Path(where))

    @property
    def normalises(self) -> bool:
        return self._normalises

    def exists(self) -> bool:
        return (self.folder / "about.json").exists()

    def create(self, dimension: int, *, metric: str | None = None, filter_fields: Sequence[str] = ()) -> None:
        if self.exists():
            if self._about()["dimension"] != dimension:
                raise StoreError("FolderStore: another dimension.")
            return
        self.folder.mkdir(parents=True)
        (self.folder / "about.json").write_text(json.dumps({"dimension": dimension, "metric": metric}))

    def _about(self) -> dict[str, Any]:
        if not self.exists():
            raise StoreError("FolderStore: not there.")
        about: dict[str, Any] = json.loads((self.folder / "about.json").read_text())
        return about

    def info(self) -> StoreInfo:
        about = self._about()
        return StoreInfo("folder", self.folder.name, len(self.rows()), about["dimension"], about["metric"])

    def rows(self) -> dict[str, Path]:
        """Return the file of each row by its id, in order."""
        found = {self._load(path)[0]: path for path in self.folder.glob("*.row")}
        return dict(sorted(found.items()))

    def _load(self, path: Path) -> tuple[str, dict[str, Any], np.ndarray]:
        head, _, values = path.read_bytes().partition(b"\n")
        record = json.loads(head)
        return record["id"], record["fields"], np.frombuffer(values, dtype=np.float32)

    def file_of(self, one: str) -> Path:
        """Return the file of a row."""
        return self.folder / f"{hashlib.sha1(one.encode()).hexdigest()}.row"

    def write(self, batch: Batch) -> None:
        for one, vector, fields in zip(batch.ids, batch.vectors, batch.fields, strict=True):
            self.before_row(self.written)
            if self._normalises:
                vector = (vector.astype(np.float64) / np.linalg.norm(vector.astype(np.float64))).astype(np.float32)
            head = json.dumps({"id": one, "fields": dict(fields)}).encode()
            self.file_of(one).write_bytes(head + b"\n" + vector.astype(np.float32).tobytes())
            self.written += 1

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        names = [one for one in self.rows() if one > after]
        for start in range(0, len(names), size):
            part = self.read(names[start : start + size])
            yield Batch(part.ids, part.vectors, part.fields, part.ids[-1])

    def read(self, ids: Sequence[str], *, missing: Missing = "raise") -> Batch:
        if missing == "skip":
            ids = [one for one in ids if self.file_of(one).exists()]
        paths = [self.file_of(one) for one in ids]
        if not all(path.exists() for path in paths):
            raise StoreError("FolderStore: a row is missing.")
        loaded = [self._load(path) for path in paths]
        dimension = self._about()["dimension"]
        nothing = np.full(dimension, np.nan, dtype=np.float32)
        vectors = [row[2] if len(row[2]) else nothing for row in loaded]
        stacked = np.stack(vectors) if vectors else np.empty((0, dimension), np.float32)
        return Batch(tuple(ids), stacked, tuple(row[1] for row in loaded))

    def search(self, vector: Any, k: int = 10, where: Where | None = None) -> list[Match]:
        batch = self.read(list(self.rows()))
        batch = batch.rows(
            [
                i
                for i, row in enumerate(batch.fields)
                if all(row.get(name) in values for name, values in (where or {}).items())
            ]
        )
        distances = np.linalg.norm(batch.vectors - vector, axis=1)
        order = np.argsort(distances)[:k]
        return [Match(batch.ids[i], float(distances[i]), dict(batch.fields[i])) for i in order]

    def delete(self, ids: Sequence[str]) -> None:
        for one in ids:
            self.file_of(one).unlink(missing_ok=True)


def filled(
    folder: Path, vectors: np.ndarray, fields: Sequence[dict[str, Any]] | None = None, *, metric: str = "cosine"
) -> FolderStore:
    """Return a new store of these rows, with the ids ``r0000`` on."""
    store = FolderStore(folder)
    store.create(vectors.shape[1], metric=metric)
    ids = tuple(f"r{i:04d}" for i in range(len(vectors)))
    beside = [{} for _ in ids] if fields is None else fields
    store.write(Batch(ids, vectors.astype(np.float32), tuple(beside)))
    store.written = 0
    return store
