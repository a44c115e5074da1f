"""FAISS: index files, and folders that LangChain saved, as a source of scan and migrate.

LangChain pickles texts and metadata next to the index (``index.faiss`` and ``index.pkl``). The pickle is read as data:
its objects become plain values, and no class or function in it is imported or called.
"""

from __future__ import annotations

import datetime
import io
import pickle
import pickletools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, StoreError, optional_import
from vecveil.stores.store import Batch, DatabaseStore, Match, StoreInfo, Where, check_cursor, database_errors, no_place

_TEXT = "page_content"
_TIMES = {name: getattr(datetime, name) for name in ("date", "datetime", "time", "timedelta", "timezone")}
_LARGEST_ROW = 100_000  # values in the metadata of a row; references in a pickle can stand for more than its bytes


class FaissStore(DatabaseStore):
    """One index file, or a folder with one, read-only.

    Ids come from LangChain's pickle, else from an ``IndexIDMap``, else from row numbers. Fields are LangChain's
    metadata, and the text as ``NAME.pkl:page_content``.
    """

    kind: ClassVar[str] = "faiss"
    options: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[Mapping[str, Any]] = {
        "dot": "METRIC_INNER_PRODUCT",
        "euclidean": "METRIC_L2",
        "manhattan": "METRIC_L1",
    }
    noun: ClassVar[str] = "file"

    def __init__(self, path: str, collection: str | None = None) -> None:
        super().__init__(path, None)
        if collection is not None:  # a file has no collections
            raise InvalidInputError("A FAISS location is faiss:FILE or faiss:FOLDER, without #.", param="location")
        with optional_import("A FAISS index", "faiss-cpu", "faiss"):
            import faiss
        self._faiss, self._path = faiss, Path(self._where)
        if self._path.is_dir():
            self._path /= "index.faiss"  # LangChain's name
        self._name = self._path.name
        self._index: Any = None
        self._ids: list[str] = []
        self._fields: list[Mapping[str, Any]] = []

    def _names(self) -> list[str]:
        return [self._name] if self._path.is_file() else []

    def _paths(self) -> list[str]:
        return [str(self._path), str(self._path.with_suffix(".pkl"))]

    def _info(self) -> StoreInfo:
        index = self._loaded()
        known = {value: name for name, value in vars(self._faiss).items() if name.startswith("METRIC_")}
        return StoreInfo(self.kind, self._name, index.ntotal, index.d, self._metric_named(known[index.metric_type]))

    def create(self, dimension: int, *, metric: str | None = None, filter_fields: Sequence[str] = ()) -> None:
        raise StoreError(
            "A FAISS index is only read. Name a collection of another database.",
            code="E-STORE-SOURCE",
            param="location",
        )

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        self.create(dimension)

    def _write(self, batch: Batch) -> None:
        self.create(0)

    def _delete(self, ids: list[str]) -> None:
        self.create(0)

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        raise StoreError(
            "A FAISS index cannot be searched. Copy it with `vecveil migrate`.", code="E-STORE-SOURCE", param="location"
        )

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        start = check_cursor(after)
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

    def _loaded(self) -> Any:
        if self._index is None:
            if not self._path.is_file():
                raise no_place(str(self._path), "an index file")
            index: Any = self._faiss.read_index(str(self._path))
            rows, beside = index.ntotal, self._path.with_suffix(".pkl")
            if beside.is_file():
                self._ids, self._fields = self._documents(beside, rows)
            else:
                numbers = self._faiss.vector_to_array(index.id_map) if self._maps(index) else range(rows)
                self._ids, self._fields = [str(number) for number in numbers], [{}] * rows
            self._index = index
        return self._index

    def _documents(self, path: Path, rows: int) -> tuple[list[str], list[Mapping[str, Any]]]:
        try:
            docstore, names = _Plain.load(path.read_bytes())
            documents = docstore.state["_dict"]
            ids = [names[row] for row in range(rows)]
            fields: list[Mapping[str, Any]] = []
            for name in ids:
                about = documents[name].state
                about = about.get("__dict__", about)  # a pydantic model keeps its fields there
                metadata = _copied(dict(about["metadata"]), [_LARGEST_ROW])
                if not isinstance(about[_TEXT], str) or not isinstance(name, str):
                    raise TypeError
                fields.append({**metadata, f"{path.name}:{_TEXT}": about[_TEXT]})
        except Exception:  # a damaged or hostile pickle raises anything
            raise StoreError(
                f"{path.name!r} is not a pickle of plain values as LangChain's FAISS writes it. vecveil runs no class "
                "from a pickle. Move the file away to read the vectors alone.",
                code="E-STORE-PICKLE",
                param="location",
            ) from None
        return ids, fields

    def _vectors(self, index: Any, start: int, stop: int) -> npt.NDArray[np.float32]:
        inner = self._faiss.downcast_index(index.index) if self._maps(index) else index
        fix = "Only indexes that can reconstruct vectors can be read: flat, HNSW, scalar and product quantisers."
        with database_errors("reading vectors", fix):
            if isinstance(inner, self._faiss.IndexIVF) and inner.direct_map.no():
                inner.make_direct_map()  # required to reconstruct by row number
            return np.asarray(inner.reconstruct_n(start, stop - start), dtype=np.float32)

    def _maps(self, index: Any) -> bool:
        return isinstance(index, self._faiss.IndexIDMap | self._faiss.IndexIDMap2)


class _Plain:
    """Inert stand-in for an object in LangChain's pickle: holds its state only."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    @classmethod
    def load(cls, content: bytes) -> Any:
        # The unpickler allocates memory for the largest number in its memo: one that no object needs is refused.
        for seen, (operation, argument, _) in enumerate(pickletools.genops(content)):
            if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > seen:
                raise pickle.UnpicklingError("memo")
        return _Unpickler(io.BytesIO(content)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Never the class itself: it is not imported, and its methods do not run.
        if module.partition(".")[0].startswith("langchain") and name in ("Document", "InMemoryDocstore"):
            return _Plain
        if module == "datetime" and name in _TIMES:
            return _TIMES[name]
        raise pickle.UnpicklingError("class")


def _copied(value: Any, room: list[int]) -> Any:
    """Return a copy of a metadata value; raise for objects, and for more values than a row may have."""
    room[0] -= 1
    if room[0] < 0:
        raise ValueError("too many values")
    if isinstance(value, dict):
        return {str(key): _copied(inner, room) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_copied(inner, room) for inner in value]
    if value is None or isinstance(value, (str, bytes, int, float, *_TIMES.values())):
        return value
    raise TypeError("an object")
