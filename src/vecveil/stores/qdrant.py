"""Qdrant: collections on a server or in a folder.

Qdrant's ids are numbers or UUIDs. Any other id is mapped to a UUID (version 5) and kept in the payload as
``vecveil_id``. Under cosine distance a server stores unit vectors: reading returns directions only. A point's further
vectors, dense and sparse, are fields ``vector:NAME``. A server's key comes from ``QDRANT_API_KEY`` and is sent over
https only.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vecveil.errors import optional_import
from vecveil.stores.store import (
    LISTED,
    OPENING,
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    distance_of,
    invalid_cursor,
    plain,
    sparse_rows,
    stacked,
)

_ID = "vecveil_id"
_BESIDE = "vector:"
_NUMBERS = 2**64  # numeric ids are unsigned 64-bit integers
_END = "end"  # cursor behind the last row
_CHUNK = 256  # rows per request: a server accepts 32 MiB
_local: dict[str, tuple[Any, int]] = {}
"""Clients of folders with their reference counts: Qdrant locks a folder for one client."""
_stale: set[str] = set()
"""Folders whose client contains unit vectors in memory since a write or search; the files have the written ones."""


class QdrantStore(DatabaseStore):
    """One collection in a folder or at ``http://HOST:6333``, read by one of its vectors."""

    kind: ClassVar[str] = "qdrant"
    metrics: ClassVar[Mapping[str, Any]] = dict(cosine="Cosine", dot="Dot", euclidean="Euclid", manhattan="Manhattan")
    place: ClassVar[str] = "a folder that Qdrant wrote"
    page: ClassVar[int] = _CHUNK

    def __init__(self, where: str, collection: str | None = None, *, vector: str = "") -> None:
        super().__init__(where, collection, vector=vector)
        with optional_import("Qdrant", "qdrant-client", "qdrant"):
            import qdrant_client
        self._qdrant: Any = qdrant_client
        # One spelling per folder: it is the key of the shared client.
        self._where = where if self._remote else os.path.realpath(where)
        self._connected: Any = None

    @property
    def normalises(self) -> bool:
        """True for cosine distance on a server; folders keep the vectors as written."""
        return self._remote and self.info().metric == "cosine"

    def close(self) -> None:
        with OPENING:
            self._close()

    def _close(self) -> None:
        connected, self._connected = self._connected, None
        if connected is None:
            return
        client, users = _local.get(self._where, (connected, 1))
        if users > 1:
            _local[self._where] = (client, users - 1)
        else:
            _local.pop(self._where, None)
            _stale.discard(self._where)
            client.close()

    def _place_exists(self) -> bool:
        return self._remote or (Path(self._where) / "meta.json").is_file()

    def _names(self) -> list[str]:
        return [str(collection.name) for collection in self._client().get_collections().collections]

    def _client(self) -> Any:
        return self._open() if self._remote else _OneAtATime(self._open)

    def _open(self) -> Any:
        with OPENING:
            if self._connected is None and self._remote:
                # Without TLS the key would cross the network in clear.
                key = os.environ.get("QDRANT_API_KEY") if self._where.startswith("https") else None
                self._connected = self._qdrant.QdrantClient(url=self._where, api_key=key, check_compatibility=False)
            elif self._connected is None:
                client, users = _local.get(self._where, (None, 0))
                self._connected = client or self._qdrant.QdrantClient(path=self._where)
                _local[self._where] = (self._connected, users + 1)
            return self._connected if self._remote else _local[self._where][0]

    def _reader(self) -> Any:
        """Return a client whose vectors equal the folder's, in every process."""
        return self._open() if self._remote else _OneAtATime(self._open_anew)

    def _open_anew(self) -> Any:
        client = self._open()
        if self._where in _stale:
            _stale.discard(self._where)
            client.close()
            client = self._qdrant.QdrantClient(path=self._where)
            _local[self._where] = (client, _local[self._where][1])
        return client

    def _changes(self) -> Any:
        """Return a client for a request that may leave unit vectors in its memory."""
        return self._open() if self._remote else _OneAtATime(self._open_to_change)

    def _open_to_change(self) -> Any:
        _stale.add(self._where)
        return self._open()

    def _vectors(self) -> tuple[str, Any]:
        """Return name (empty for unnamed vectors) and parameters of the collection's vectors."""
        named = self._all_vectors()
        # A multivector is a field: a row has several of them.
        name = self._only_vector(name for name, params in named.items() if _is_single(params))
        return name, named[name]

    def _all_vectors(self) -> dict[str, Any]:
        """Return the parameters of the collection's vectors, dense and sparse, by name."""
        params = self._client().get_collection(self._known()).config.params
        vectors = params.vectors or {}
        named = vectors if isinstance(vectors, Mapping) else {"": vectors}
        return {**named, **(params.sparse_vectors or {})}

    def _metric(self, params: Any) -> str | None:
        distance = str(getattr(params.distance, "value", params.distance))
        return self._metric_named(distance)

    def _info(self) -> StoreInfo:
        _, params = self._vectors()
        count = int(self._client().count(self._name, exact=True).count)
        return StoreInfo(self.kind, self._name, count, int(params.size), self._metric(params))

    def dimension(self) -> int:
        return int(self._vectors()[1].size)

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        models = self._qdrant.models
        params = models.VectorParams(size=dimension, distance=models.Distance(self.metrics[metric or "cosine"]))
        config = {self._vector: params} if self._vector else params
        self._client().create_collection(self._name, vectors_config=config)
        for name in filter_fields if self._remote else ():  # a folder has no payload index and scans
            self._client().create_payload_index(self._name, name, models.PayloadSchemaType.KEYWORD)

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        offset = self._offset(after)
        name = self._known()
        while offset != _END:
            records, following = self._reader().scroll(
                name, limit=size, offset=offset, with_payload=True, with_vectors=True
            )
            offset = _END if following is None else following
            if records:
                yield self._batch(records, str(offset))

    def _listed(self) -> Iterator[list[str]]:
        offset, name = None, self._known()
        while offset != _END:
            records, following = self._reader().scroll(
                name, limit=LISTED, offset=offset, with_payload=[_ID], with_vectors=False
            )
            offset = _END if following is None else following
            yield [_id_of(dict(record.payload or {}), record.id) for record in records]

    def _offset(self, after: str) -> int | str | None:
        if not after:
            return None
        if after == _END:
            return _END
        point, original = _point_id(after) if isinstance(after, str) else (0, "")
        if original is not None:
            raise invalid_cursor()
        return point

    def _read(self, ids: list[str]) -> Batch:
        points = [_point_id(name)[0] for name in ids]
        return self._batch(self._reader().retrieve(self._known(), points, with_payload=True, with_vectors=True))

    def _batch(self, records: list[Any], cursor: str = "") -> Batch:
        name, params = self._vectors()
        ids, vectors, fields = [], [], []
        for record in records:
            given = record.vector or {}
            named = dict(given) if isinstance(given, Mapping) else {"": given}
            payload = dict(record.payload or {})
            ids.append(_id_of(payload, record.id))
            vectors.append(named.pop(name, None))
            fields.append(payload | {_BESIDE + other: _array(vector) for other, vector in named.items()})
        return Batch(tuple(ids), stacked(vectors, int(params.size)), tuple(fields), cursor)

    def _write(self, batch: Batch) -> None:
        name, known = self._vectors()[0], self._all_vectors()
        points = []
        for id_, vector, row in zip(batch.ids, batch.vectors, batch.fields, strict=True):
            # An upsert replaces the point with its further vectors: those that were read are written again.
            others = {
                field: field.removeprefix(_BESIDE)
                for field, value in row.items()
                if isinstance(value, np.ndarray) and field.removeprefix(_BESIDE) in known
            }
            vectors = {other: self._further(known[other], row[field]) for field, other in others.items()}
            place, original = _point_id(id_)
            payload = plain({k: v for k, v in row.items() if k not in others})
            payload |= {} if original is None else {_ID: original}
            values = {name: vector.tolist(), **vectors} if name or vectors else vector.tolist()
            points.append(self._qdrant.models.PointStruct(id=place, vector=values, payload=payload))
        for start in range(0, len(points), _CHUNK):
            # wait: a migration records the batch as durable afterwards.
            self._changes().upsert(self._name, points[start : start + _CHUNK], wait=True)

    def _further(self, params: Any, rows: Any) -> Any:
        if hasattr(params, "size"):
            return rows.tolist()
        return self._qdrant.models.SparseVector(indices=rows[:, 0].astype(int).tolist(), values=rows[:, 1].tolist())

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        name, params = self._vectors()
        models = self._qdrant.models
        conditions = [
            models.FieldCondition(key=field, match=models.MatchAny(any=list(values))) for field, values in where.items()
        ]
        answer = self._changes().query_points(
            self._name,
            query=vector.tolist(),
            limit=k,
            with_payload=True,
            using=name or None,
            query_filter=models.Filter(must=conditions) if conditions else None,
        )
        metric, matches = self._metric(params), []
        for point in answer.points:
            fields = dict(point.payload or {})
            name = _id_of(fields, point.id)
            matches.append(Match(name, distance_of(point.score, metric), fields))
        return matches

    def _delete(self, ids: list[str]) -> None:
        points = [_point_id(name)[0] for name in ids]
        self._client().delete(self._known(), points_selector=points, wait=True)


class _OneAtATime:
    """A folder's client that serves one request at a time, because another thread could close it."""

    def __init__(self, open_client: Callable[[], Any]) -> None:
        self._open = open_client

    def __getattr__(self, request: str) -> Any:
        def send(*arguments: Any, **options: Any) -> Any:
            with OPENING:
                return getattr(self._open(), request)(*arguments, **options)

        return send


def _is_single(params: Any) -> bool:
    return hasattr(params, "size") and getattr(params, "multivector_config", None) is None


def _array(vector: Any) -> Any:
    if hasattr(vector, "indices"):
        return sparse_rows(dict(zip(vector.indices, vector.values, strict=True)))
    return np.asarray(vector)


def _id_of(payload: dict[str, Any], point: Any) -> str:
    """Remove and return a row's id from its payload; without one, return the id of the point."""
    name = payload.pop(_ID, None)
    return name if isinstance(name, str) else str(point)


def _point_id(name: str) -> tuple[int | str, str | None]:
    """Return the point id of a row, and the row's id if the payload must keep it."""
    # Only canonical spellings stay as they are: "007" and 7, or a UUID in capitals, are different ids here.
    decimal = name.isascii() and name.isdecimal() and len(name) <= 20
    if decimal and str(int(name)) == name and int(name) < _NUMBERS:
        return int(name), None
    try:
        if str(uuid.UUID(name)) == name:
            return name, None
    except ValueError:
        pass
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name)), name
