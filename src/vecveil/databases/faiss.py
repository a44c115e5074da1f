"""FAISS index files, with ids and fields in a file of JSON lines beside them.

``X.index`` holds vectors. ``X.index.jsonl``, if there is one, holds a line ``{"id": ..., "fields": {...}}`` for each of
its rows, in their order, behind a first line that `create` writes. Without it the ids are those of an ``IndexIDMap``,
else the numbers of the rows.

Both files are written anew for each batch, the lines first: after a crash between the two there are lines without a
vector, which count for nothing. So write in large batches; a migration writes a twentieth of the rows at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    as_json,
    check_cursor,
    database_errors,
    in_order,
    no_place,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.io import atomic_path, write_text
from vecveil.validation import check_count, check_embeddings

__all__ = ["FaissStore"]

_OWNER = "FaissStore"
_HEAD = "vecveil"
_WRITINGS = 20
_METRICS = ("cosine", "dot", "euclidean")
_AGAIN = "See that the file is whole and can be written, and run again."


class FaissStore(VectorStore):
    """One index file.

    Args:
        path: of the index.

    Raises:
        MissingDependencyError: faiss is not installed.
    """

    kind: ClassVar[str] = "faiss"

    def __init__(self, path: str) -> None:
        try:
            import faiss
        except ImportError:
            raise MissingDependencyError("Reading FAISS", "faiss-cpu", "faiss") from None
        self._faiss = faiss
        self._path = Path(path)
        self._beside = Path(f"{path}.jsonl")
        self._index: Any = None
        self._ids: list[str] = []
        self._fields: list[dict[str, Any]] = []
        self._metric: str | None = None
        self._stamp: tuple[int, ...] = ()

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is read or created yet.

        Raises:
            InvalidInputError: a collection: a file has none.
        """
        if collection is not None:
            raise InvalidInputError.of(_OWNER, "location", "faiss:FILE", "something behind #")
        return cls(where)

    def info(self) -> StoreInfo:
        """Return what the index says about itself; inner products are told as ``dot``."""
        index = self._loaded()
        told = "dot" if index.metric_type == self._faiss.METRIC_INNER_PRODUCT else None
        told = "euclidean" if index.metric_type == self._faiss.METRIC_L2 else told
        return StoreInfo(self.kind, self._path.name, index.ntotal, index.d, self._metric or told)

    def rows_at_once(self, batch: int, total: int) -> int:
        """Return a twentieth of a copy: more files written anew cost more than what a crash loses."""
        return max(batch, -(-total // _WRITINGS))

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows in the order of the index."""
        size = check_count(size, owner=_OWNER, param="size")
        start = check_cursor(after, owner=_OWNER)
        index = self._loaded()
        while start < index.ntotal:
            stop = min(start + size, index.ntotal)
            rows = tuple(self._fields[start:stop])
            yield Batch(tuple(self._ids[start:stop]), self._vectors(start, stop), rows, str(stop))
            start = stop

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self._path.is_file()

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Write an empty flat index: of inner products for ``cosine`` and ``dot``, else of distances."""
        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        if metric is not None and metric not in _METRICS:
            wanted = "one of " + ", ".join(_METRICS)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        if self.exists():
            there = self._loaded().d
            if there != dimension:
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the index", str(dimension),
                                    fix="Name another file.")  # fmt: skip
            return
        flat = self._faiss.IndexFlatL2 if metric in (None, "euclidean") else self._faiss.IndexFlatIP
        self._save(flat(dimension), [], [], metric)

    def write(self, batch: Batch) -> None:
        """Write both files anew with the rows in them, each at its place or at the end."""
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        index = self._loaded()
        if vectors.shape[1] != index.d:
            wanted = f"of dimension {index.d}"
            raise StoreError.of(_OWNER, "vectors", wanted, f"dimension {vectors.shape[1]}")
        fields = [json.loads(as_json(row, owner=_OWNER)) for row in batch.fields]
        last = {one: at for at, one in enumerate(batch.ids)}  # of equal ids the last row counts
        place = {one: at for at, one in enumerate(self._ids)}
        old = [at for one, at in last.items() if one in place]
        new = [at for one, at in last.items() if one not in place]
        ids = [*self._ids, *(batch.ids[at] for at in new)]
        beside = [*self._fields, *(fields[at] for at in new)]
        for at in old:
            beside[place[batch.ids[at]]] = fields[at]
        self._index, self._stamp = None, ()  # a failure leaves the files, not what is in memory
        with database_errors(_OWNER, "writing rows", _AGAIN):
            added = vectors[new].astype(np.float32)
            if old:
                kept = self._reconstructed(index, 0, index.ntotal)
                kept[[place[batch.ids[at]] for at in old]] = vectors[old]
                added = np.concatenate([kept, added])
                index.reset()
            if self._maps(index):
                index.add_with_ids(added, self._numbers(ids[len(ids) - len(added) :]))
            else:
                index.add(added)
        self._save(index, ids, beside, self._metric)

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        self._loaded()
        order = in_order(ids, self._ids, owner=_OWNER)
        vectors = [self._vectors(at, at + 1) for at in order]
        X = np.concatenate(vectors) if vectors else np.empty((0, self._index.d), dtype=np.float32)
        return Batch(tuple(ids), X, tuple(self._fields[at] for at in order))

    def _loaded(self) -> Any:
        """Return the index, read again if a file changed."""
        if not self.exists():
            raise no_place(str(self._path), "an index file", owner=_OWNER)
        stamp = tuple(
            number
            for path in (self._path, self._beside)
            if path.is_file()
            for number in (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino)
        )
        if self._index is None or stamp != self._stamp:
            with database_errors(_OWNER, "reading the index", _AGAIN):
                index: Any = self._faiss.read_index(str(self._path))
            ids, fields, metric = self._lines(index.ntotal)
            if self._maps(index):
                ids = [str(one) for one in self._faiss.vector_to_array(index.id_map)]
            self._ids = ids or [str(row) for row in range(index.ntotal)]
            self._fields = fields or [{} for _ in range(index.ntotal)]
            self._index, self._metric, self._stamp = index, metric, stamp
        return self._index

    def _lines(self, rows: int) -> tuple[list[str], list[dict[str, Any]], str | None]:
        """Return ids, fields and metric of the file beside the index; empty if there is none."""
        if not self._beside.is_file():
            return [], [], None
        ids: list[str] = []
        fields: list[dict[str, Any]] = []
        metric = None
        doing = "reading the lines beside the index"
        with database_errors(_OWNER, doing, _AGAIN), self._beside.open(encoding="utf-8") as file:
            for number, text in enumerate(file):
                line = json.loads(text)
                if number == 0 and _HEAD in line:
                    metric = line.get("metric")
                elif len(ids) < rows:
                    ids.append(str(line["id"]))
                    fields.append(dict(line.get("fields", {})))
        if len(ids) != rows or len(set(ids)) != rows:
            raise StoreError.of(_OWNER, "location", "an index with a line of its own id for each row beside it",
                                f"{len(set(ids))} ids for {rows} rows",
                                fix=f"Repair {self._beside.name}, or move it away.")  # fmt: skip
        return ids, fields, metric if metric in _METRICS else None

    def _save(
        self, index: Any, ids: list[str], fields: list[dict[str, Any]], metric: str | None
    ) -> None:
        numbered = ids == [str(row) for row in range(len(ids))] or self._maps(index)
        if self._beside.is_file() or not numbered or any(fields) or metric is not None:
            head = {_HEAD: "faiss", **({} if metric is None else {"metric": metric})}
            lines = [json.dumps(head)]
            for one, row in zip(ids, fields, strict=True):
                lines.append(json.dumps({"id": one, "fields": row}, ensure_ascii=False))
            with database_errors(_OWNER, "writing the lines beside the index", _AGAIN):
                write_text(self._beside, "\n".join(lines) + "\n")
        doing = "writing the index"
        with database_errors(_OWNER, doing, _AGAIN), atomic_path(self._path) as temporary:
            self._faiss.write_index(index, str(temporary))

    def _vectors(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        fix = "Only indexes that can reconstruct vectors can be read: flat, HNSW, scalar and product quantisers."
        with database_errors(_OWNER, "reading vectors", fix):
            return self._reconstructed(self._index, start, stop)

    def _reconstructed(self, index: Any, start: int, stop: int) -> np.ndarray[Any, Any]:
        inner = self._faiss.downcast_index(index.index) if self._maps(index) else index
        if isinstance(inner, self._faiss.IndexIVF) and inner.direct_map.no():
            inner.make_direct_map()  # else it does not know where a row is
        if stop == start:
            return np.empty((0, index.d), dtype=np.float32)
        return np.asarray(inner.reconstruct_n(start, stop - start), dtype=np.float32)

    def _maps(self, index: Any) -> bool:
        return isinstance(index, self._faiss.IndexIDMap | self._faiss.IndexIDMap2)

    def _numbers(self, ids: Sequence[str]) -> np.ndarray[Any, Any]:
        try:
            return np.asarray([int(one) for one in ids], dtype=np.int64)
        except (ValueError, OverflowError):
            raise InvalidInputError.of(
                _OWNER, "ids", "whole numbers of 64 bits for an IndexIDMap", "others"
            ) from None
