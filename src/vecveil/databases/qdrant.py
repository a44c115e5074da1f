"""Qdrant: collections of a server, or of a folder that Qdrant's client keeps itself.

A row's id is a number or UUID in Qdrant. Any other id becomes a UUID derived from it, and lies in the payload as
``vecveil_id``. Under cosines Qdrant keeps unit vectors: what is read agrees in direction with what was written.

A server's key is read from ``QDRANT_API_KEY`` and sent over https alone.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    database_errors,
    in_order,
    no_place,
    not_there,
    only_one,
    plain,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.validation import check_count, check_embeddings

__all__ = ["QdrantStore"]

_OWNER = "QdrantStore"
_METRICS = {"Cosine": "cosine", "Dot": "dot", "Euclid": "euclidean"}
_ID = "vecveil_id"  # `vecveil.integrations.qdrant_points` has the same ids
_NUMBERS = 2**64
_END = "end"
_CHUNK = 256
_AGAIN = "Start the database, and run again: what was done stays done."
_local: dict[str, tuple[Any, int]] = {}
"""Clients of folders and how many stores use each: Qdrant locks a folder for one client."""


class QdrantStore(VectorStore):
    """One collection of Qdrant; of several named vectors only a collection with one is taken.

    Args:
        where: ``http://HOST:6333``, or a folder.
        collection: its name; None takes the only one.

    Raises:
        MissingDependencyError: qdrant-client is not installed.
    """

    kind: ClassVar[str] = "qdrant"

    def __init__(self, where: str, collection: str | None = None) -> None:
        try:
            import qdrant_client
        except ImportError:
            raise MissingDependencyError("Reading Qdrant", "qdrant-client", "qdrant") from None
        self._qdrant = qdrant_client
        self._remote = where.startswith(("http://", "https://"))
        self._where = where if self._remote else os.path.realpath(where)
        self._name = collection
        self._connected: Any = None

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is connected or created yet."""
        return cls(where, collection)

    def info(self) -> StoreInfo:
        """Return what the collection says about itself."""
        name = self._known()
        _, params = self._vector(name)
        with self._guard("the number of rows"):
            count = int(self._client().count(name, exact=True).count)
        metric = _METRICS.get(str(getattr(params.distance, "value", params.distance)))
        return StoreInfo(self.kind, name, count, int(params.size), metric)

    @property
    def normalises(self) -> bool:
        """Whether the collection measures cosines."""
        return self.info().metric == "cosine"

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows in the order of Qdrant's ids."""
        size = check_count(size, owner=_OWNER, param="size")
        offset = _offset(after)
        name = self._known()
        while offset != _END:
            with self._guard("reading rows"):
                records, following = self._client().scroll(
                    name, limit=size, offset=offset, with_payload=True, with_vectors=True
                )
            offset = _END if following is None else following
            if records:
                yield self._batch(name, records, str(offset))

    def exists(self) -> bool:
        """Return whether the collection is there; with no name, whether there is just one."""
        names = self._names()
        return len(names) == 1 if self._name is None else self._name in names

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty collection; without a metric for cosines."""
        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        distances = {ours: theirs for theirs, ours in _METRICS.items()}
        if metric is not None and metric not in distances:
            wanted = "one of " + ", ".join(distances)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        if self.exists():
            there = self.info().dimension
            if there != dimension:
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the collection", str(dimension),
                                    fix="Name another collection.")  # fmt: skip
            return
        if self._name is None:
            raise InvalidInputError.of(_OWNER, "location", "one with a collection behind #", "none")
        models = self._qdrant.models
        distance = models.Distance(distances[metric or "cosine"])
        with self._guard("making the collection"):
            self._client(create=True).create_collection(
                self._name, vectors_config=models.VectorParams(size=dimension, distance=distance)
            )

    def write(self, batch: Batch) -> None:
        """Write the rows; fields that are None are left out."""
        name = self._known()
        vector, params = self._vector(name)
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        if vectors.shape[1] != params.size:
            got = f"dimension {vectors.shape[1]}"
            raise StoreError.of(_OWNER, "vectors", f"of dimension {params.size}", got)
        points = []
        for one, row, fields in zip(batch.ids, vectors, batch.fields, strict=True):
            point = _point_id(one)
            payload = plain(fields, owner=_OWNER)
            if str(point) != one:
                payload[_ID] = one
            values = [float(value) for value in row]
            points.append(
                self._qdrant.models.PointStruct(
                    id=point, vector={vector: values} if vector else values, payload=payload
                )
            )
        for start in range(0, len(points), _CHUNK):
            with self._guard("writing rows"):
                self._client().upsert(name, points[start : start + _CHUNK], wait=True)

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        name = self._known()
        records: list[Any] = []
        unique = list(dict.fromkeys(ids))
        for start in range(0, len(unique), _CHUNK):
            asked = [_point_id(one) for one in unique[start : start + _CHUNK]]
            with self._guard("reading rows"):
                records += self._client().retrieve(
                    name, asked, with_payload=True, with_vectors=True
                )
        found = self._batch(name, records, "")
        order = in_order(ids, found.ids, owner=_OWNER)
        return Batch(tuple(ids), found.vectors[order], tuple(found.fields[at] for at in order))

    def close(self) -> None:
        """Let go of the client."""
        client, self._connected = self._connected, None
        if client is None:
            return
        if self._remote:
            client.close()
            return
        _, users = _local[self._where]
        if users > 1:
            _local[self._where] = (client, users - 1)
        else:
            del _local[self._where]
            client.close()

    def _guard(self, doing: str) -> Any:
        return database_errors(_OWNER, doing, _AGAIN)

    def _client(self, *, create: bool = False) -> Any:
        if self._connected is not None:
            return self._connected
        with self._guard("the connection"):
            if self._remote:
                key = os.environ.get("QDRANT_API_KEY") if self._where.startswith("https") else None
                self._connected = self._qdrant.QdrantClient(
                    url=self._where, api_key=key, check_compatibility=False
                )
            else:
                if not create and not self._there():
                    raise no_place(self._where, "a folder that Qdrant wrote", owner=_OWNER)
                known = _local.get(self._where)
                client = known[0] if known else self._qdrant.QdrantClient(path=self._where)
                _local[self._where] = (client, known[1] + 1 if known else 1)
                self._connected = client
        return self._connected

    def _there(self) -> bool:
        return self._remote or (Path(self._where) / "meta.json").is_file()

    def _names(self) -> list[str]:
        if not self._there():
            return []
        with self._guard("the list of collections"):
            return [str(one.name) for one in self._client().get_collections().collections]

    def _known(self) -> str:
        names = self._names()
        name = self._name or only_one(names, owner=_OWNER, what="collection")
        if name not in names:
            raise not_there(name, names, owner=_OWNER, what="collection")
        return name

    def _vector(self, name: str) -> tuple[str, Any]:
        """Return the name of the vectors, empty if they have none, and their parameters."""
        with self._guard("the collection's description"):
            vectors = self._client().get_collection(name).config.params.vectors
        if not isinstance(vectors, dict):
            return "", vectors
        if len(vectors) != 1:
            raise StoreError.of(
                _OWNER, "collection", "one with one vector a row", f"{len(vectors)} vectors"
            )
        return next(iter(vectors.items()))

    def _batch(self, name: str, records: list[Any], cursor: str) -> Batch:
        vector, params = self._vector(name)
        X = np.empty((len(records), int(params.size)), dtype=np.float32)
        ids, fields = [], []
        for at, record in enumerate(records):
            X[at] = record.vector[vector] if vector else record.vector
            payload = dict(record.payload or {})
            ids.append(str(payload.pop(_ID, record.id)))
            fields.append(payload)
        return Batch(tuple(ids), X, tuple(fields), cursor)


def _point_id(one: str) -> int | str:
    if re.fullmatch(r"0|[1-9][0-9]{0,19}", one) and int(one) < _NUMBERS:
        return int(one)
    try:
        if str(uuid.UUID(one)) == one:
            return one
    except ValueError:
        pass
    return str(uuid.uuid5(uuid.NAMESPACE_OID, one))


def _offset(after: str) -> int | str | None:
    if not after:
        return None
    point = _point_id(after) if isinstance(after, str) else ""
    if after != _END and str(point) != after:
        raise InvalidInputError.of(_OWNER, "after", "a cursor of this store", "something else")
    return _END if after == _END else point
