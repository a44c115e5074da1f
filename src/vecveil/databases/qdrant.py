"""Qdrant: collections on a server or in a folder, and a protecting client.

Qdrant's ids are numbers or UUIDs. Any other id is mapped to a UUID (version 5) and kept in the payload as
``vecveil_id``. For cosines a server stores unit vectors: reading returns the written directions only.

The store reads a server's key from ``QDRANT_API_KEY`` and sends it over https only.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from vecveil.databases.clients import Items, ProtectedClient
from vecveil.databases.release import PolicyOptions, open_policy, with_policy
from vecveil.databases.store import (
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    database_errors,
    distance_of,
    invalid_cursor,
    plain,
)
from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    StoreError,
    unknown_name,
)
from vecveil.protector import Protector
from vecveil.protector.policy import ReleasePolicy
from vecveil.types import Embeddings, Texts

_ID = "vecveil_id"
_NUMBERS = 2**64  # numeric ids are unsigned 64-bit integers
_END = "end"  # cursor behind the last row
_CHUNK = 256  # rows per request: a server accepts 32 MiB
_CLIENT = "ProtectedQdrant"
_DISTANCES = ("Cosine", "Dot", "Euclid", "Manhattan")
_local: dict[str, tuple[Any, int]] = {}
"""Clients of folders with their reference counts: Qdrant locks a folder for one client."""
_stale: set[str] = set()
"""Folders whose client holds unit vectors in memory since a write or search; the files have the written ones."""


def _qdrant() -> Any:
    try:
        import qdrant_client
    except ImportError:
        raise MissingDependencyError("Qdrant", "qdrant-client", "qdrant") from None
    return qdrant_client


class QdrantStore(DatabaseStore):
    """One collection in a folder or at ``http://HOST:6333``, with one vector per row."""

    kind: ClassVar[str] = "qdrant"
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "Cosine", "dot": "Dot", "euclidean": "Euclid"}
    place: ClassVar[str] = "a folder that Qdrant wrote"
    page: ClassVar[int] = _CHUNK

    def __init__(self, where: str, collection: str | None = None) -> None:
        super().__init__(where, collection)
        self._qdrant = _qdrant()
        # One spelling per folder: it is the key of the shared client.
        self._where = where if self._remote else os.path.realpath(where)
        self._connected: Any = None

    @property
    def normalises(self) -> bool:
        """True for collections with cosine distance on a server; folders keep the vectors as written."""
        return self._remote and self.info().metric == "cosine"

    def close(self) -> None:
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
        if self._connected is None and self._remote:
            # Without TLS the key would cross the network in clear.
            key = os.environ.get("QDRANT_API_KEY") if self._where.startswith("https") else None
            self._connected = _opened(self._where, key)
        elif self._connected is None:
            client, users = _local.get(self._where, (None, 0))
            self._connected = client or _opened(self._where, None)
            _local[self._where] = (self._connected, users + 1)
        return self._connected if self._remote else _local[self._where][0]

    def _reader(self) -> Any:
        """Return a client whose vectors are those of the folder, the same in every process."""
        client = self._client()
        if self._where in _stale:
            _stale.discard(self._where)
            client.close()
            client = _opened(self._where, None)
            _local[self._where] = (client, _local[self._where][1])
        return client

    def _changes(self) -> Any:
        """Return a client for a request after which it may hold unit vectors."""
        if not self._remote:
            _stale.add(self._where)
        return self._client()

    def _vectors(self) -> tuple[str, Any]:
        """Return name (empty for unnamed vectors) and parameters of the collection's vectors."""
        vectors = self._client().get_collection(self._known()).config.params.vectors
        return _only_vectors(vectors, None, owner=self._owner)

    def _metric(self, params: Any) -> str | None:
        distance = str(getattr(params.distance, "value", params.distance))
        return self._metric_named(distance)

    def _others(self, name: str) -> list[str]:
        # Sparse vectors are not read, and would be lost.
        sparse = self._client().get_collection(name).config.params.sparse_vectors
        return [*super()._others(name), *(sparse or {})]

    def _info(self) -> StoreInfo:
        _, params = self._vectors()
        count = int(self._client().count(self._name, exact=True).count)
        return StoreInfo(self.kind, self._name, count, int(params.size), self._metric(params))

    def dimension(self) -> int:
        return int(self._vectors()[1].size)

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        config = _vectors_config(dimension, self.metrics[metric or "cosine"], None)
        self._client().create_collection(self._name, vectors_config=config)
        for name in filter_fields if self._remote else ():  # a folder has no payload index and scans
            self._client().create_payload_index(self._name, name, self._qdrant.models.PayloadSchemaType.KEYWORD)

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

    def _offset(self, after: str) -> int | str | None:
        if not after:
            return None
        if after == _END:
            return _END
        point, original = _point_id(after) if isinstance(after, str) else (0, "")
        if original is not None:
            raise invalid_cursor(self._owner)
        return point

    def _read(self, ids: list[str]) -> Batch:
        points = [_point_id(name)[0] for name in ids]
        return self._batch(
            self._reader().retrieve(self._known(), points, with_payload=True, with_vectors=True)
        )

    def _batch(self, records: list[Any], cursor: str = "") -> Batch:
        name, params = self._vectors()
        X = np.empty((len(records), int(params.size)), dtype=np.float32)
        ids, fields = [], []
        for at, record in enumerate(records):
            X[at] = record.vector[name] if name else record.vector
            payload = dict(record.payload or {})
            ids.append(str(payload.pop(_ID, record.id)))
            fields.append(payload)
        return Batch(tuple(ids), X, tuple(fields), cursor)

    def _write(self, batch: Batch) -> None:
        payloads = [plain(row, owner=self._owner) for row in batch.fields]
        points = _points(self._vectors()[0], map(_point_id, batch.ids), batch.vectors, payloads)
        for start in range(0, len(points), _CHUNK):
            # wait: a migration records the batch as durable afterwards.
            self._changes().upsert(self._name, points[start : start + _CHUNK], wait=True)

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        name, params = self._vectors()
        models = self._qdrant.models
        conditions = [
            models.FieldCondition(key=field, match=models.MatchAny(any=list(values))) for field, values in where.items()
        ]
        answer = self._changes().query_points(
            self._name, query=vector.tolist(), limit=k, with_payload=True, using=name or None,
            query_filter=models.Filter(must=conditions) if conditions else None,
        )  # fmt: skip
        _restore_ids(answer.points, payload=True)
        metric = self._metric(params)
        return [Match(str(p.id), distance_of(p.score, metric), p.payload) for p in answer.points]

    def _delete(self, ids: list[str]) -> None:
        points = [_point_id(name)[0] for name in ids]
        self._client().delete(self._known(), points_selector=points, wait=True)


class ProtectedQdrant(ProtectedClient):
    """A ``QdrantClient`` with protected points and queries.

    Only the methods below protect; ``client`` is the underlying client.

    Args:
        client: a ``QdrantClient`` (not asynchronous), ``:memory:``, a folder, or the URL of a server.
        protector: protector, path of its file, or a `ReleasePolicy`.
        encoder: encoder of texts; None uses the protector's.
        api_key: key for a server given by URL.
        vector_name: name of the vectors; None uses a collection's only vectors.
        text_field: payload field of the text.
        keep_text: also store the text in the payload, in clear.
        policy: keywords of `PolicyOptions`.
    """

    @with_policy
    def __init__(
        self,
        client: Any,
        protector: Protector | ReleasePolicy | str | os.PathLike[str],
        *,
        encoder: Any = None,
        api_key: str | None = None,
        vector_name: str | None = None,
        text_field: str = "text",
        keep_text: bool = False,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        items = Items(open_policy(protector, **policy), encoder, owner=_CLIENT)
        own = isinstance(client, str | os.PathLike)
        if inspect.iscoroutinefunction(getattr(client, "upsert", None)):
            raise InvalidInputError.of(_CLIENT, "client", "a QdrantClient", "an asynchronous one")
        if own:
            fix = "See that the folder can be written and no other process has it."
            with database_errors(_CLIENT, "client", fix):
                client = _opened(os.fspath(client), api_key)
        super().__init__(client, items, text_field=text_field, keep_text=keep_text, own=own)
        self.vector_name = vector_name
        self._vectors: dict[str, str] = {}

    def create_collection(
        self,
        collection_name: str,
        *,
        distance: str = "Cosine",
        vectors_config: Any = None,
        **options: Any,
    ) -> Any:
        """Create a collection with the dimension of the released vectors.

        Args:
            distance: ``Cosine``, ``Dot``, ``Euclid`` or ``Manhattan``.
            vectors_config, options: arguments of ``QdrantClient.create_collection``; the former replaces ``distance``.

        Raises:
            IncompatibleError: ``vectors_config`` has another dimension.
            StoreError: the collection exists, or the database does not answer.
        """
        if vectors_config is None:
            if distance not in _DISTANCES:
                raise unknown_name(_CLIENT, "distance", _DISTANCES, distance)
            vectors_config = _vectors_config(self.items.dimension, distance, self.vector_name)
        self._vectors_name(vectors_config)
        return self._call(
            "create_collection", collection_name, vectors_config=vectors_config, **options
        )

    def upsert(self, collection_name: str, points: Any, **options: Any) -> Any:
        """Protect and upsert points; return the client's last answer.

        Args:
            points: ``PointStruct`` objects or mappings, each with a clean vector or with a text in the payload's
                ``text_field``; or a ``Batch``.
            options: keyword arguments of the client's method.

        Raises:
            InvalidInputError: duplicate or invalid ids, a point with neither vector nor text, or NaN.
            IncompatibleError: a dimension differs from the protector's.
            StoreError: the database failed.
        """
        ids, items, payloads = self._rows_of(points, self._vectors_of(collection_name))
        return self._write(collection_name, ids, items, payloads, options)

    def add(
        self,
        collection_name: str,
        ids: Sequence[Any],
        items: Texts | Embeddings,
        payloads: Sequence[Mapping[str, Any] | None] | None = None,
        **options: Any,
    ) -> Any:
        """Protect and upsert ``items``, texts or clean vectors (N, n); raises as `upsert`."""
        self._vectors_of(collection_name)
        rows = len(items)
        if len(ids) != rows or (payloads is not None and len(payloads) != rows):
            got = f"{len(ids)} ids for {rows} items"
            raise InvalidInputError.of(
                f"{_CLIENT}.add", "ids", "one for each item, as payloads", got
            )
        return self._write(collection_name, ids, items, payloads or [None] * rows, options)

    def query_points(
        self,
        collection_name: str,
        query: str | Embeddings | Sequence[float],
        *,
        limit: int = 10,
        with_payload: Any = True,
        **options: Any,
    ) -> Any:
        """Return the client's answer to a text or a clean vector (n,): an object with ``points``.

        Args:
            with_payload, options: arguments of ``QdrantClient.query_points``, such as ``query_filter``; ``prefetch``
                is refused.
        """
        if options.get("prefetch") is not None:
            raise InvalidInputError.of(f"{_CLIENT}.query_points", "prefetch", "None", "another",
                                       "Its vectors would not be protected.",
                                       "Protect them with items.query, and use client.query_points.")  # fmt: skip
        name = self._vectors_of(collection_name)
        if name:
            options["using"] = name
        # The original id is in the payload, so that field is always requested.
        selection = with_payload or [_ID]
        if isinstance(selection, list | tuple):
            selection = [*selection, _ID]
        answer = self._call(
            "query_points", collection_name, query=self.items.query(query).tolist(), limit=limit,
            with_payload=selection, **options,
        )  # fmt: skip
        _restore_ids(answer.points, payload=bool(with_payload))
        return answer

    def count(self, collection_name: str, **options: Any) -> int:
        """Return the number of points."""
        return int(self._call("count", collection_name, **options).count)

    def _write(
        self,
        collection_name: str,
        ids: Sequence[Any],
        items: Any,
        payloads: Sequence[Mapping[str, Any] | None],
        options: dict[str, Any],
    ) -> Any:
        places = [_place(value) for value in ids]  # raises before the ledger counts a release
        # Compared as points: 7 and "7" are one, and the second would replace the first.
        different = len({place for place, _ in places})
        if different != len(places):
            got = f"{different} different ones for {len(places)} items"
            raise InvalidInputError.of(_CLIENT, "ids", "one for each item", got)
        if any(payload and _ID in payload for payload in payloads):
            raise InvalidInputError.of(
                _CLIENT, "payload", f"without {_ID!r}, which holds ids", "one with it"
            )
        vectors, texts = self.items.documents(items, ids)
        of_rows: Sequence[str | None] = texts or [None] * len(ids)
        stored = [self._payload(*row) for row in zip(payloads, of_rows, strict=True)]
        self.items.warn_if_text(
            [dict(enumerate(_strings(payload))) for payload in stored], texts,  # type: ignore[arg-type]
            f"the Qdrant collection {collection_name!r}",
            kept=self.keep_text and any(self.text_field in payload for payload in stored),
        )  # fmt: skip
        points = _points(self._vectors[collection_name], places, vectors, stored)
        result = None
        for start in range(0, len(points), _CHUNK):
            result = self._call(
                "upsert", collection_name, points[start : start + _CHUNK], **options
            )
        return result

    def _payload(self, given: Mapping[str, Any] | None, text: str | None) -> dict[str, Any]:
        payload = dict(given or {})
        if not self.keep_text:
            payload.pop(self.text_field, None)
        elif text is not None:
            payload[self.text_field] = text
        return payload

    def _vectors_of(self, collection_name: str) -> str:
        """Return the name of the collection's vectors, cached."""
        if collection_name not in self._vectors:
            config = self._call("get_collection", collection_name).config
            self._vectors[collection_name] = self._vectors_name(config.params.vectors)
        return self._vectors[collection_name]

    def _vectors_name(self, config: Any) -> str:
        name, params = _only_vectors(config, self.vector_name, owner=_CLIENT)
        self.items.check_dimension(getattr(params, "size", None), "collection")
        return name

    def _rows_of(self, points: Any, name: str) -> tuple[list[Any], Any, list[Any]]:
        """Return ids, clean vectors or texts, and payloads of points, mappings or a ``Batch``."""
        if hasattr(points, "ids") and hasattr(points, "vectors"):
            vectors = _own_vector(points.vectors, name)
            payloads = list(points.payloads or [None] * len(vectors))
            if not len(points.ids) == len(vectors) == len(payloads):
                raise InvalidInputError.of(
                    _CLIENT, "points", "as many ids as vectors and payloads", "others"
                )
            return list(points.ids), self._vectors_or_texts(vectors, [], "points", np.float32), payloads
        listed = [points] if isinstance(points, Mapping) else list(points)
        ids, payloads, vectors = (
            [_part(p, key) for p in listed] for key in ("id", "payload", "vector")
        )
        vectors = [_own_vector(vector, name) for vector in vectors]
        texts = [(payload or {}).get(self.text_field) for payload in payloads]
        return ids, self._vectors_or_texts(vectors, texts, "points", np.float32), payloads


def _opened(where: str, api_key: str | None) -> Any:
    client = _qdrant().QdrantClient
    if "://" in where:
        return client(url=where, api_key=api_key, check_compatibility=False)
    return client(where) if where == ":memory:" else client(path=where)


def _vectors_config(dimension: int, distance: str, name: str | None) -> Any:
    models = _qdrant().models
    params = models.VectorParams(size=dimension, distance=models.Distance(distance))
    return {name: params} if name else params


def _only_vectors(config: Any, name: str | None, *, owner: str) -> tuple[str, Any]:
    """Return name and parameters of the vectors ``name``, or of the only vectors for None."""
    named = config if isinstance(config, Mapping) else {"": config}
    if name is None and len(named) == 1:
        name = next(iter(named))
    if name is None or name not in named:
        got = ", ".join(repr(str(other)) for other in named)[:80] or "no vectors"
        kind = IncompatibleError if owner == _CLIENT else StoreError
        raise kind.of(owner, "vector_name", "that of the collection's vectors", repr(name)[:40],
                      f"The collection has {got}.", "Pass vector_name.")  # fmt: skip
    return name, named[name]


def _points(
    name: str, places: Any, vectors: Any, payloads: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Return the points; ``places`` holds id and original id of each."""
    point = _qdrant().models.PointStruct
    rows = []
    for (place, original), vector, payload in zip(places, vectors, payloads, strict=True):
        values = vector.tolist()
        beside = payload if original is None else {**payload, _ID: original}
        rows.append(point(id=place, vector={name: values} if name else values, payload=beside))
    return rows


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


def _place(value: Any) -> tuple[int | str, str | None]:
    """Return `_point_id` of a caller's id."""
    if isinstance(value, uuid.UUID):
        return str(value), None
    if (
        isinstance(value, int | np.integer)
        and not isinstance(value, bool)
        and 0 <= value < _NUMBERS
    ):
        return int(value), None
    if isinstance(value, str):
        return _point_id(value)
    got = "another number" if isinstance(value, int | np.integer) else type(value).__name__
    raise InvalidInputError.of(_CLIENT, "ids", "whole numbers from 0, UUIDs or texts", got)


def _restore_ids(points: Sequence[Any], *, payload: bool) -> None:
    """Restore the original ids of points; drop their payloads unless ``payload``."""
    for point in points:
        beside = dict(point.payload or {})
        point.id = beside.pop(_ID, point.id)
        point.payload = beside if payload else None


def _part(point: Any, name: str) -> Any:
    if isinstance(point, Mapping):
        return point.get(name)
    if not hasattr(point, name):
        expected = "PointStructs, or mappings with the same names"
        raise InvalidInputError.of(_CLIENT, "points", expected, "others")
    return getattr(point, name)


def _own_vector(vector: Any, name: str) -> Any:
    """Return the vectors ``name`` of named vectors; raise for further names, which would stay clean."""
    if not isinstance(vector, Mapping):
        return vector
    if set(vector) != {name}:
        expected = (
            f"points with the vectors {name!r} alone" if name else "points with unnamed vectors"
        )
        raise InvalidInputError.of(
            _CLIENT, "points", expected, "others", "Other vectors would not be protected."
        )
    return vector[name]


def _strings(value: Any) -> Iterator[str]:
    """Yield every string inside a payload."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner)
