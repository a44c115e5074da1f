"""Chroma: collections in a folder, or behind a server.

Rows come in the order in which Chroma first got them. Under cosines Chroma keeps unit vectors and lengths apart:
what is read differs from what was written in the last bits.

The server's token is taken from where Chroma's own client takes it: the variables ``CHROMA_CLIENT_AUTH_PROVIDER`` and
``CHROMA_CLIENT_AUTH_CREDENTIALS``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.chroma_fields import TEXT, URI, Value, optional, split
from vecveil.databases.named_function import named_function
from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    check_cursor,
    database_errors,
    in_order,
    no_place,
    not_there,
    only_one,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.validation import check_count, check_embeddings

__all__ = ["ChromaStore"]

_OWNER = "ChromaStore"
_SPACES = {"cosine": "cosine", "l2": "euclidean", "ip": "dot"}
_DIMENSION = "vecveil:dimension"
_FILE = "chroma.sqlite3"
_CHUNK = 500
_AGAIN = "Start the database, and run again: what was done stays done."


class ChromaStore(VectorStore):
    """One collection of Chroma.

    Fields are the metadata, and under Chroma's own names ``chroma:document`` the text and ``chroma:uri`` the address.

    Args:
        where: a folder, or ``http://HOST:PORT``.
        collection: its name; None takes the only one.

    Raises:
        MissingDependencyError: chromadb is not installed.
    """

    kind: ClassVar[str] = "chroma"
    embedding_function: Any = None

    def __init__(self, where: str, collection: str | None = None) -> None:
        try:
            import chromadb
        except ImportError:
            raise MissingDependencyError("Reading Chroma", "chromadb", "chroma") from None
        self._chroma: Any = chromadb
        self._where = where
        self._remote = where.startswith(("http://", "https://"))
        self._name = collection
        self._connected: Any = None
        self._opened: Any = None

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is connected or created yet."""
        return cls(where, collection)

    def apart(self) -> VectorStore:
        """Return a folder's collection in a process of its own: index files hold memory that Chroma has not set."""
        if self._remote:
            return self
        from vecveil.databases.apart import StoreApart

        self.close()  # one process at a time
        apart = StoreApart(self.kind, os.path.abspath(self._where), self._name)
        if self.embedding_function is not None:
            apart.name_function(self.embedding_function)
        return apart

    def name_function(self, function: Any) -> None:
        """Let `create` name ``function`` for texts; where none is named, Chroma attaches its own default model.

        Args:
            function: of Chroma's kind, or the configuration of one of ours, which is named and not loaded then.
        """
        loaded = not isinstance(function, Mapping)
        self.embedding_function = function if loaded else named_function(function)

    def info(self) -> StoreInfo:
        """Return what the collection says about itself."""
        collection = self._collection()
        with self._guard("the collection's description"):
            count = collection.count()
        kept = (collection.metadata or {}).get(_DIMENSION, 0)
        dimension = self._rows(collection, limit=1)[0].shape[1] if count else int(kept)
        return StoreInfo(self.kind, collection.name, count, dimension, self._metric(collection))

    @property
    def normalises(self) -> bool:
        """Whether the collection measures cosines."""
        return self._metric(self._collection()) == "cosine"

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows in the order in which they were first written."""
        size = check_count(size, owner=_OWNER, param="size")
        offset = check_cursor(after, owner=_OWNER)
        collection = self._collection()
        while True:
            vectors, ids, fields = self._rows(collection, limit=size, offset=offset)
            if not ids:
                return
            offset += len(ids)
            yield Batch(tuple(ids), vectors, tuple(fields), str(offset))

    def exists(self) -> bool:
        """Return whether the collection is there; with no name, whether there is just one."""
        if not self._remote and not (Path(self._where) / _FILE).is_file():
            return False
        names = self._names()
        return len(names) == 1 if self._name is None else self._name in names

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty collection; without a metric Chroma's own default."""
        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        spaces = {ours: theirs for theirs, ours in _SPACES.items()}
        if metric is not None and metric not in spaces:
            raise InvalidInputError.of(
                _OWNER, "metric", "one of " + ", ".join(spaces), repr(metric)[:40]
            )
        if self.exists():
            there = self.info().dimension
            if there not in (0, dimension):
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the collection", str(dimension),
                                    fix="Name another collection.")  # fmt: skip
            self._check_function()
            return
        if self._name is None:
            raise InvalidInputError.of(_OWNER, "location", "one with a collection behind #", "none")
        with self._guard("making the collection"):
            if metric is None and self.embedding_function is not None:
                metric = "euclidean"  # Chroma's default; the function has another one
            self._opened = self._client().create_collection(
                self._name,
                embedding_function=self.embedding_function,
                metadata={_DIMENSION: dimension},
                configuration=None if metric is None else {"hnsw": {"space": spaces[metric]}},
            )

    def _check_function(self) -> None:
        """Refuse a collection that is there and names another function: a program that adds texts would use that."""
        if self.embedding_function is None:
            return
        ours = self.embedding_function
        kept = self._collection().configuration_json.get("embedding_function") or {}
        if kept.get("name") != ours.name():
            raise StoreError.of(_OWNER, "collection", "new, or made with a protected embedding function",
                                "one that is there without",
                                "Chroma would embed texts there without protection.",
                                "Remove it, or name another collection: it is made with the function.")  # fmt: skip
        ours.validate_config_update(kept.get("config") or {}, ours.get_config())

    def write(self, batch: Batch) -> None:
        """Write the rows; fields that are None are left out, as Chroma has no such value."""
        collection = self._collection()
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        kept = (collection.metadata or {}).get(_DIMENSION, vectors.shape[1])
        if vectors.shape[1] != kept:
            raise StoreError.of(
                _OWNER, "vectors", f"of dimension {kept}", f"dimension {vectors.shape[1]}"
            )
        rows = [split(fields) for fields in batch.fields]
        for start in range(0, len(batch), _CHUNK):
            part = slice(start, start + _CHUNK)
            ids = list(batch.ids[part])
            with self._guard("writing rows"):
                self._forget(collection, ids, rows[part])
                collection.upsert(
                    ids=ids,
                    embeddings=vectors[part],
                    metadatas=[row[0] or None for row in rows[part]],
                    **optional("documents", [row[1] for row in rows[part]]),
                    **optional("uris", [row[2] for row in rows[part]]),
                )

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        collection = self._collection()
        vectors: list[np.ndarray[Any, Any]] = []
        fields: list[dict[str, Any]] = []
        for start in range(0, len(ids), _CHUNK):
            asked = list(ids[start : start + _CHUNK])
            X, found, beside = self._rows(collection, ids=list(dict.fromkeys(asked)))
            order = in_order(asked, found, owner=_OWNER)
            vectors.append(X[order])
            fields += [beside[at] for at in order]
        X = np.concatenate(vectors) if vectors else np.empty((0, 0), dtype=np.float32)
        return Batch(tuple(ids), X, tuple(fields))

    def close(self) -> None:
        """Let go of the client."""
        client, self._connected, self._opened = self._connected, None, None
        if client is None:
            return
        # Chroma's own close leaves the sockets of a remote client open; no other client shares them.
        session = getattr(getattr(client, "_server", None), "_session", None)
        if self._remote and session is not None:
            session.close()
        if hasattr(client, "close"):
            client.close()

    def _guard(self, doing: str) -> Any:
        return database_errors(_OWNER, doing, _AGAIN)

    def _client(self) -> Any:
        if self._connected is None:
            with self._guard("the connection"):
                settings = self._chroma.config.Settings(anonymized_telemetry=False)
                if not self._remote:
                    self._connected = self._chroma.PersistentClient(self._where, settings)
                    return self._connected
                from urllib.parse import urlsplit

                parts = urlsplit(self._where)
                ssl = parts.scheme == "https"
                self._connected = self._chroma.HttpClient(
                    host=parts.hostname or "",
                    port=parts.port or (443 if ssl else 8000),
                    ssl=ssl,
                    settings=settings,
                )
        return self._connected

    def _names(self) -> list[str]:
        with self._guard("the list of collections"):
            return [str(one.name) for one in self._client().list_collections()]

    def _collection(self) -> Any:
        if self._opened is None:
            if not self._remote and not (Path(self._where) / _FILE).is_file():
                raise no_place(self._where, "a folder that Chroma wrote", owner=_OWNER)
            name = self._name or only_one(self._names(), owner=_OWNER, what="collection")
            names = self._names()
            if name not in names:
                raise not_there(name, names, owner=_OWNER, what="collection")
            with self._guard("opening the collection"):
                self._opened = self._client().get_collection(name, embedding_function=None)
        return self._opened

    def _metric(self, collection: Any) -> str | None:
        kept = collection.configuration_json  # `configuration` would load an embedding function
        index = kept.get("hnsw") or kept.get("spann") or {}
        return _SPACES.get(index.get("space", ""))

    def _rows(
        self, collection: Any, **which: Any
    ) -> tuple[np.ndarray[Any, Any], list[str], list[dict[str, Any]]]:
        with self._guard("reading rows"):
            got = collection.get(**which, include=["embeddings", "metadatas", "documents", "uris"])
        ids = [str(one) for one in got["ids"]]
        vectors = np.asarray(got["embeddings"], dtype=np.float32)
        vectors = vectors.reshape(len(ids), vectors.size // max(len(ids), 1))
        fields: list[dict[str, Any]] = [
            dict(one or {}) for one in got["metadatas"] or [{}] * len(ids)
        ]
        for name, column in ((TEXT, got["documents"]), (URI, got["uris"])):
            for row, value in zip(fields, column or (), strict=False):
                if value is not None:
                    row[name] = value
        return vectors, ids, fields

    def _forget(
        self, collection: Any, ids: list[str], rows: list[tuple[dict[str, Value], Any, Any]]
    ) -> None:
        """Delete the rows of which an upsert would keep something: it merges metadata and leaves old texts."""
        old = collection.get(ids=ids, include=["metadatas", "documents", "uris"])
        new = dict(zip(ids, rows, strict=True))
        gone = []
        columns = (old["metadatas"], old["documents"], old["uris"])
        for at, name in enumerate(old["ids"]):
            metadata, text, uri = (column[at] if column else None for column in columns)
            fields, new_text, new_uri = new[name]
            left = set(metadata or {}) - set(fields)
            lost = (text is not None and new_text is None) or (uri is not None and new_uri is None)
            if left or lost:
                gone.append(name)
        if gone:
            collection.delete(ids=gone)
