"""FAISS: a store of index files with ids and fields, and a protecting index for programs.

``X.index`` holds the vectors. ``X.index.jsonl``, optional, holds a header and a line ``{"id": ..., "fields": {...}}``
per row, in the order of rows. Without it the ids are those of an ``IndexIDMap``, else row numbers.

Each write rewrites both files, so write in large batches. A migration writes a twentieth of the rows at once. Processes
write one after the other, each upon what the other left (not without POSIX locks, on Windows).
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt

from vecveil.databases.store import (
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    as_json,
    check_cursor,
    database_errors,
    integer_id,
    no_place,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.io import atomic_path, locked, write_text

_HEAD = "vecveil"
_SUM = "crc32"  # of the index file that the lines belong to
_WRITINGS = 20  # writes of a copy; each rewrites the whole file, so k writes cost about k/2 times its size
def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingDependencyError("A FAISS index", "faiss-cpu", "faiss") from None
    return faiss


class FaissStore(DatabaseStore):
    """One index file."""

    kind: ClassVar[str] = "faiss"
    metrics: ClassVar[Mapping[str, Any]] = {
        "cosine": "IndexFlatIP",
        "dot": "IndexFlatIP",
        "euclidean": "IndexFlatL2",
    }
    noun: ClassVar[str] = "file"

    def __init__(self, path: str, collection: str | None = None) -> None:
        super().__init__(path, None)
        if collection is not None:  # a file has no collections
            raise InvalidInputError.of(self._owner, "location", "faiss:FILE", "something behind #")
        self._faiss = _faiss()
        self._path = Path(path)
        self._name = self._path.name
        self._beside, self._coming = Path(f"{path}.jsonl"), Path(f"{path}.jsonl.new")
        self._index: Any = None
        self._ids: list[str] = []
        self._fields: list[dict[str, Any]] = []
        self._metric: str | None = None
        self._stamp: tuple[int, ...] = ()
        self._norms: npt.NDArray[np.float32] | None = None
        self._places: dict[str, dict[str, list[int]]] = {}  # rows by field and value

    def rows_at_once(self, batch: int, total: int) -> int:
        """Return a twentieth of a copy: more writes cost more than a crash loses."""
        return max(batch, -(-total // _WRITINGS))

    def _names(self) -> list[str]:
        return [self._name] if self._path.is_file() else []

    def _paths(self) -> list[str]:
        return [str(self._path), str(self._beside), str(self._coming)]

    def _info(self) -> StoreInfo:
        index = self._loaded()
        known = {self._faiss.METRIC_INNER_PRODUCT: "dot", self._faiss.METRIC_L2: "euclidean"}
        metric = self._metric or known.get(index.metric_type)
        return StoreInfo(self.kind, self._name, index.ntotal, index.d, metric)

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        flat = getattr(self._faiss, self.metrics[metric or "euclidean"])
        with locked(self._path):
            if not self._path.is_file():  # another process may have made and filled it
                self._save(flat(dimension), [], [], metric)

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        start = check_cursor(after, owner=self._owner)
        index = self._loaded()
        while start < index.ntotal:
            stop = min(start + size, index.ntotal)
            ids, fields = tuple(self._ids[start:stop]), tuple(self._fields[start:stop])
            yield Batch(ids, self._vectors(index, start, stop), fields, str(stop))
            start = stop

    def _read(self, ids: list[str]) -> Batch:
        index = self._loaded()
        place = {name: at for at, name in enumerate(self._ids)}
        rows = [place[name] for name in ids if name in place]
        vectors = [self._vectors(index, at, at + 1) for at in rows]
        X = np.concatenate(vectors) if vectors else np.empty((0, index.d), dtype=np.float32)
        return Batch(tuple(self._ids[at] for at in rows), X, tuple(self._fields[at] for at in rows))

    def _write(self, batch: Batch) -> None:
        with locked(self._path):
            self._replace(batch)

    def _replace(self, batch: Batch) -> None:
        index = self._loaded()
        fields = [json.loads(as_json(row, owner=self._owner)) for row in batch.fields]
        place = {name: at for at, name in enumerate(self._ids)}
        old = [at for at, name in enumerate(batch.ids) if name in place]
        new = [at for at, name in enumerate(batch.ids) if name not in place]
        ids = [*self._ids, *(batch.ids[at] for at in new)]
        beside = [*self._fields, *(fields[at] for at in new)]
        for at in old:
            beside[place[batch.ids[at]]] = fields[at]
        added = batch.vectors[new]
        # FAISS cannot replace vectors in every kind of index: read all, change some, and fill the index again.
        if old:
            stored = self._vectors(index, 0, index.ntotal)
            stored[[place[batch.ids[at]] for at in old]] = batch.vectors[old]
            added = np.concatenate([stored, added])
        self._rebuild(index, ids, beside, added, reset=bool(old))

    def _delete(self, ids: list[str]) -> None:
        with locked(self._path):
            index, gone = self._loaded(), set(ids)
            rows = [at for at, name in enumerate(self._ids) if name not in gone]
            vectors = self._vectors(index, 0, index.ntotal)[rows]
            ids, fields = [self._ids[at] for at in rows], [self._fields[at] for at in rows]
            self._rebuild(index, ids, fields, vectors, reset=True)

    def _rebuild(
        self,
        index: Any,
        ids: list[str],
        fields: list[dict[str, Any]],
        added: npt.NDArray[np.float32],
        *,
        reset: bool,
    ) -> None:
        """Add vectors for the last ids, to an emptied index if ``reset``, and write both files."""
        metric = self._metric
        numbers = [integer_id(name, owner=self._owner) for name in ids[len(ids) - len(added) :]] if (
            self._maps(index)
        ) else []  # fmt: skip
        self._index, self._stamp = None, ()  # the index changes in place: after a failure, read the files again
        if reset:
            index.reset()
        added = np.ascontiguousarray(added)
        if self._maps(index):
            index.add_with_ids(added, np.asarray(numbers, dtype=np.int64))
        else:
            index.add(added)
        self._save(index, ids, fields, metric)

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        index = self._loaded()
        rows = self._matching(where)
        hits = self._nearest_cosines if self._metric == "cosine" else self._nearest
        return [
            Match(self._ids[at], distance, dict(self._fields[at])) for at, distance in hits(index, vector, k, rows)
        ]

    def _nearest_cosines(self, index: Any, vector: Any, k: int, rows: Any) -> list[tuple[int, float]]:
        # FAISS has no cosine metric; an inner-product index would rank by length as well. Exact, over all rows.
        inner = self._inner(index)
        flat = isinstance(inner, self._faiss.IndexFlat) and index.ntotal
        if flat:  # a view of FAISS's own memory
            X = self._faiss.rev_swig_ptr(inner.get_xb(), index.ntotal * index.d)
            X = X.reshape(index.ntotal, index.d)
        else:
            X = self._vectors(index, 0, index.ntotal)
        if self._norms is None:
            self._norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        norms = self._norms * np.linalg.norm(vector)
        distances = 1 - (X @ vector) / np.where(norms > 0, norms, 1)
        if rows is not None:
            order = rows[np.argsort(distances[rows], kind="stable")[:k]]
        else:
            order = np.argsort(distances, kind="stable")[:k]
        return [(int(at), float(distances[at])) for at in order]

    def _nearest(self, index: Any, vector: Any, k: int, rows: Any) -> list[tuple[int, float]]:
        sign = -1 if index.metric_type == self._faiss.METRIC_INNER_PRODUCT else 1
        most, allowed = max(index.ntotal, 1), None if rows is None else set(rows.tolist())
        take = min(k, most)
        while True:
            distances, labels = self._inner(index).search(vector[None], take)
            hits = [
                (int(at), sign * float(d))
                for at, d in zip(labels[0], distances[0], strict=True)
                # FAISS fills up missing results with -1
                if at >= 0 and (allowed is None or int(at) in allowed)
            ][:k]
            # Not every kind of index filters: fetch more until k rows match.
            if allowed is None or len(hits) == min(k, len(allowed)) or take == most:
                return hits
            take = min(4 * take, most)

    def _matching(self, where: Where) -> npt.NDArray[np.intp] | None:
        """Return the rows that match, in order, or None for all."""
        rows = None
        for name, values in where.items():
            if name not in self._places:
                places: dict[str, list[int]] = {}
                for at, fields in enumerate(self._fields):
                    if isinstance(value := fields.get(name), str):
                        places.setdefault(value, []).append(at)
                self._places[name] = places
            listed = sorted({at for value in values for at in self._places[name].get(value, ())})
            these = np.asarray(listed, dtype=np.intp)
            rows = these if rows is None else np.intersect1d(rows, these)
        return rows

    def _loaded(self) -> Any:
        """Return the index, read again if a file has changed."""
        if not self._path.is_file():
            raise no_place(str(self._path), "an index file", owner=self._owner)
        stamp = tuple(
            number
            for path in (self._path, self._beside)
            if path.is_file()
            # The inode too: a rename within the clock's resolution keeps time and maybe size.
            for number in (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino)
        )
        if self._index is None or stamp != self._stamp:
            index: Any = self._faiss.read_index(str(self._path))
            ids, fields, metric = self._lines(index.ntotal)
            if self._maps(index):
                ids = [str(number) for number in self._faiss.vector_to_array(index.id_map)]
            self._ids = ids or [str(row) for row in range(index.ntotal)]
            self._fields = fields or [{} for _ in range(index.ntotal)]
            self._index, self._metric, self._stamp = index, metric, stamp
            self._norms, self._places = None, {}
        return self._index

    def _lines(self, rows: int) -> tuple[list[str], list[dict[str, Any]], str | None]:
        """Return ids, fields and metric of the file beside the index; empty without one."""
        beside = self._opened()
        if beside is None:
            return [], [], None
        ids: list[str] = []
        fields: list[dict[str, Any]] = []
        metric = None
        with beside as file:
            for number, text in enumerate(file):
                line = json.loads(text)
                if number == 0 and _HEAD in line:
                    metric = line.get("metric")
                elif len(ids) < rows:  # further lines are of a write that crashed before its vectors
                    ids.append(str(line["id"]))
                    fields.append(dict(line.get("fields", {})))
        if len(ids) != rows or len(set(ids)) != rows:
            raise StoreError.of(self._owner, "location", "an index with a line of its own id for each row beside it",
                                f"{len(set(ids))} ids for {rows} rows",
                                fix=f"Repair {self._beside.name}, or move it away.")  # fmt: skip
        return ids, fields, metric if metric in self.metrics else None

    def _opened(self) -> IO[str] | None:
        """Return the open file of the lines that belong to the index, or None without one."""
        if self._arrived():
            # Another writer may rename it meanwhile: then it is the file beside the index.
            with contextlib.suppress(FileNotFoundError):
                return self._coming.open(encoding="utf-8")
        return self._beside.open(encoding="utf-8") if self._beside.is_file() else None

    def _arrived(self) -> bool:
        """Return whether lines that were written before their index belong to the index that is there now."""
        damaged = (OSError, ValueError, LookupError, TypeError)
        with contextlib.suppress(*damaged), self._coming.open(encoding="utf-8") as file:
            return bool(json.loads(file.readline())[_SUM] == _checksum(self._path))
        return False

    def _save(
        self, index: Any, ids: list[str], fields: list[dict[str, Any]], metric: str | None
    ) -> None:
        numbered = ids == [str(row) for row in range(len(ids))] or self._maps(index)
        if self._arrived():  # of a write that crashed behind its index
            os.replace(self._coming, self._beside)
        with atomic_path(self._path) as temporary:
            self._faiss.write_index(index, str(temporary))
            if lines := self._beside.is_file() or not numbered or any(fields) or metric is not None:
                head = {_HEAD: "faiss", _SUM: _checksum(temporary), **({} if metric is None else {"metric": metric})}
                rows = ({"id": name, "fields": row} for name, row in zip(ids, fields, strict=True))
                text = "\n".join(json.dumps(line, ensure_ascii=False) for line in (head, *rows))
                write_text(self._coming, text + "\n")
        if lines:
            os.replace(self._coming, self._beside)

    def _vectors(self, index: Any, start: int, stop: int) -> npt.NDArray[np.float32]:
        if stop == start:
            return np.empty((0, index.d), dtype=np.float32)
        inner = self._inner(index)
        fix = "Only indexes that can reconstruct vectors can be read: flat, HNSW, scalar and product quantisers."
        with database_errors(self._owner, "reading vectors", fix):
            if isinstance(inner, self._faiss.IndexIVF) and inner.direct_map.no():
                inner.make_direct_map()  # required to reconstruct by row number
            return np.asarray(inner.reconstruct_n(start, stop - start), dtype=np.float32)

    def _maps(self, index: Any) -> bool:
        return isinstance(index, self._faiss.IndexIDMap | self._faiss.IndexIDMap2)

    def _inner(self, index: Any) -> Any:
        return self._faiss.downcast_index(index.index) if self._maps(index) else index


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    total = 0
    with path.open("rb") as file:
        while part := file.read(1 << 24):
            total = zlib.crc32(part, total)
    return total
