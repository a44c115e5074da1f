"""Chroma: collections in a folder or on a server.

Rows are read in the order of insertion, by their ids, which stay in memory. Under cosine distance Chroma stores unit
vectors and norms separately, so values read differ from values written in the last bits. Chroma's client takes a
server's token from ``CHROMA_CLIENT_AUTH_PROVIDER`` and ``CHROMA_CLIENT_AUTH_CREDENTIALS``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from vecveil.errors import InvalidInputError, StoreError, optional_import
from vecveil.index.blob import SEALED_FIELD, is_blob
from vecveil.stores.apart import StoreApart
from vecveil.stores.store import (
    OPENING,
    PROTECTOR_FIELD,
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    VectorStore,
    Where,
    check_cursor,
    stacked,
    unlisted,
)

with optional_import("Chroma", "chromadb", "chroma"):
    import chromadb
    from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
    from chromadb.config import DEFAULT_DATABASE, DEFAULT_TENANT
    from chromadb.utils.embedding_functions import register_embedding_function

Value = str | int | float | bool
_DIMENSION = "vecveil:dimension"
# Fields for the document and the URI of a row; Chroma reserves the prefix.
_TEXT, _URI = "chroma:document", "chroma:uri"
_BESIDE = {_TEXT: "documents", _URI: "uris"}
_COLUMNS = ("metadatas", *_BESIDE.values())
_BATCH = 500

# No embedding function is used here, so a user can do nothing about one that Chroma cannot build.
warnings.filterwarnings("ignore", "Could not reconstruct (sparse )?embedding function")


class ChromaStore(DatabaseStore):
    """One collection of Chroma in a folder, or at ``http://HOST:PORT``.

    Fields are the metadata, the text as ``chroma:document`` and the URI as ``chroma:uri``.
    """

    kind: ClassVar[str] = "chroma"
    options: ClassVar[tuple[str, ...]] = ("tenant", "database")
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "cosine", "euclidean": "l2", "dot": "ip"}
    place: ClassVar[str] = "a folder that Chroma wrote"
    page: ClassVar[int] = _BATCH

    def __init__(self, where: str, collection: str | None = None, *, tenant: str = "", database: str = "") -> None:
        super().__init__(where, collection)
        self._options = {"tenant": tenant or DEFAULT_TENANT, "database": database or DEFAULT_DATABASE}
        self._connected: Any = None
        self._opened: Any = None

    def apart(self) -> VectorStore:
        if self._remote:
            return self
        self.close()  # Chroma allows one process per folder
        return StoreApart(self.kind, os.path.abspath(self._where), self._name or None, self._options)

    @property
    def normalises(self) -> bool:
        return self.info().metric == "cosine"

    def close(self) -> None:
        client, self._connected, self._opened = self._connected, None, None
        if client is None:
            return
        # Chroma's close leaves the sockets of a remote client and its admin client open; no other client uses them.
        for part in (client, getattr(client, "_admin_client", None)) if self._remote else ():
            session = getattr(getattr(part, "_server", None), "_session", None)
            if session is not None:
                session.close()
        if hasattr(client, "close"):
            client.close()

    def _place_exists(self) -> bool:
        return self._remote or (Path(self._where) / "chroma.sqlite3").is_file()

    def _names(self) -> list[str]:
        return [str(collection.name) for collection in self._client().list_collections()]

    def _client(self) -> Any:
        with OPENING:
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> Any:
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        parts = urlsplit(self._where)
        ssl = parts.scheme == "https"
        port = parts.port or (443 if ssl else 8000) if self._remote else 0

        def connect(**options: str) -> Any:
            if not self._remote:
                return chromadb.PersistentClient(self._where, settings, **options)
            return chromadb.HttpClient(parts.hostname or "", port, ssl, settings=settings, **options)  # type: ignore[arg-type]

        try:
            return connect(**self._options)
        except chromadb.errors.NotFoundError:
            databases = connect()._admin_client.list_databases(tenant=self._options["tenant"])
            names = [str(one["name"]) for one in databases]
            option = "database" if names else "tenant"
            raise unlisted("location", option, self._options[option], names) from None

    def _collection(self) -> Any:
        if self._opened is None:
            name = self._known()
            # None: reading needs no embedding function, and building the saved one would open its files.
            self._opened = self._client().get_collection(name, embedding_function=None)
        return self._opened

    def _info(self) -> StoreInfo:
        collection = self._collection()
        settings = collection.configuration_json  # `configuration` would load an embedding function
        space = (settings.get("hnsw") or settings.get("spann") or {}).get("space")
        if space == "l2":  # also where Chroma before 1.0 wrote the metric to the metadata only
            space = (collection.metadata or {}).get("hnsw:space", space)
        metric = self._metric_named(space)
        count = collection.count()
        # An empty collection of Chroma has no dimension, so `_create` stores it in the metadata.
        dimension = int((collection.metadata or {}).get(_DIMENSION, 0))
        if count:
            dimension = self._get(limit=1).vectors.shape[1]
        return StoreInfo(self.kind, collection.name, count, dimension, metric)

    def dimension(self) -> int:
        return int((self._collection().metadata or {}).get(_DIMENSION, 0)) or self._info().dimension

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        self._opened = self._client().create_collection(
            self._name,
            embedding_function=_NoTexts(),
            metadata={_DIMENSION: dimension},
            configuration={"hnsw": {"space": self.metrics[metric or "euclidean"]}},
        )

    def _check_reuse(self, filter_fields: Sequence[str]) -> None:
        # Programs that add texts use the collection's function, which would write clean vectors.
        theirs = self._collection().configuration_json.get("embedding_function") or {}
        if theirs.get("name") != _NoTexts.name():
            raise StoreError(
                "The collection exists, and Chroma embeds texts there without protection. Remove it, or "
                "name a different collection.",
                param="collection",
            )

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        # By id: pages by position would skip a row for each row deleted in between.
        start = check_cursor(after)
        first = self._get(limit=size, offset=start)  # before the list, since some callers request one row
        if not len(first):
            return
        yield replace(first, cursor=str(start := start + len(first)))
        read = set(first.ids)
        (names,) = self._listed()
        names = [name for name in (names[start - len(first) :] if after else names) if name not in read]
        for at in range(0, len(names), size):
            part = names[at : at + size]
            batch = self._get(ids=part)
            place = {name: i for i, name in enumerate(batch.ids)}
            if place:
                rows = batch.rows([place[name] for name in part if name in place])
                yield replace(rows, cursor=str(start + at + len(part)))

    def _listed(self) -> Iterator[list[str]]:
        yield list(map(str, self._collection().get(include=[])["ids"]))

    def _read(self, ids: list[str]) -> Batch:
        return self._get(ids=ids)

    def _get(self, **selection: Any) -> Batch:
        rows = self._collection().get(**selection, include=["embeddings", *_COLUMNS])
        ids = tuple(str(name) for name in rows["ids"])
        given = rows["embeddings"]
        vectors = stacked(given, next((len(vector) for vector in given if vector is not None), 0))
        return Batch(ids, vectors, tuple(_fields(len(ids), *(rows[name] for name in _COLUMNS))))

    def _write(self, batch: Batch) -> None:
        collection = self._collection()
        rows = [_checked(fields) for fields in batch.fields]
        for start in range(0, len(batch), _BATCH):
            part = slice(start, start + _BATCH)
            ids = list(batch.ids[part])
            new = dict(zip(ids, rows[part], strict=True))
            # Chroma's upsert merges metadata and keeps an old text, which a protected row must not inherit.
            old = collection.get(ids=ids, include=list(_COLUMNS))
            fields = _fields(len(old["ids"]), *(old[name] for name in _COLUMNS))
            if stale := [name for name, row in zip(old["ids"], fields, strict=True) if row.keys() - new[name].keys()]:
                collection.delete(ids=stale)
            beside = {column: [row.pop(name, None) for row in rows[part]] for name, column in _BESIDE.items()}
            given = {name: values for name, values in beside.items() if any(value is not None for value in values)}
            metadata = [row or None for row in rows[part]]
            collection.upsert(ids=ids, embeddings=batch.vectors[part], metadatas=metadata, **given)

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        conditions = [{name: {"$in": list(values)}} for name, values in where.items()]
        answer = self._collection().query(
            query_embeddings=[vector],
            n_results=k,
            include=["distances", *_COLUMNS],
            where={"$and": conditions} if len(conditions) > 1 else conditions[0] if conditions else None,
        )
        ids, distances = answer["ids"][0], answer["distances"][0]
        fields = _fields(len(ids), *(answer[name] and answer[name][0] for name in _COLUMNS))
        return [Match(name, float(distance), row) for name, distance, row in zip(ids, distances, fields, strict=True)]

    def _delete(self, ids: list[str]) -> None:
        self._collection().delete(ids=ids)

    def beside(self) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
        """Yield unmarked rows in Chroma's write queue that were replaced or deleted, until Chroma purges it."""
        if self._remote:
            return
        topic = f"%/{self._collection().id}"
        where = f"{(Path(self._where) / 'chroma.sqlite3').absolute().as_uri()}?mode=ro"
        with self._guard("reading the queue"), contextlib.closing(sqlite3.connect(where, uri=True)) as connection:
            select = "SELECT id, vector, metadata FROM embeddings_queue WHERE topic LIKE ? AND encoding = 'FLOAT32'"
            yield "embeddings_queue", self._replaced(connection.execute(select, [topic]))

    def _replaced(self, queue: sqlite3.Cursor) -> Iterator[dict[str, Any]]:
        while rows := queue.fetchmany(_BATCH):
            batch = self._get(ids=list({row[0] for row in rows}))
            now = dict(zip(batch.ids, batch.vectors.astype(np.float64), strict=True))
            for name, stored, metadata in rows:
                vector, fields = np.frombuffer(stored, "<f4").astype(np.float64), json.loads(metadata or "{}")
                # Not by value: Chroma scales vectors under cosines.
                norms = np.linalg.norm(vector) * np.linalg.norm(now.get(name, np.nan))
                is_current = name in now and vector @ now[name] >= (1 - 1e-6) * norms
                if not (is_current or PROTECTOR_FIELD in fields or is_blob(fields.get(SEALED_FIELD))):
                    yield {**fields, "vector": vector.tolist()}


def _fields(rows: int, metadatas: Any, documents: Any, uris: Any) -> list[dict[str, Any]]:
    fields = [dict(row or {}) for row in metadatas or [{}] * rows]
    for name, column in zip(_BESIDE, (documents, uris), strict=True):
        for row, value in zip(fields, column or (), strict=False):
            if value is not None:
                row[name] = value
    return fields


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None; raise for a value that Chroma's metadata cannot hold."""
    row = {str(k): v.item() if isinstance(v, np.generic) else v for k, v in fields.items() if v is not None}
    for value in row.values():
        if not all(isinstance(one, Value) for one in (value if isinstance(value, list) and value else [value])):
            raise InvalidInputError(
                f"A field contains a {type(value).__name__}. Chroma takes texts, numbers, booleans and lists of these.",
                param="fields",
            )
    return row


@register_embedding_function  # Chroma warns at each write of a function that it does not know
class _NoTexts(EmbeddingFunction[Documents]):
    """Refuses texts, which would become clean vectors; Chroma rejects programs that do not have this function."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: Documents) -> Embeddings:
        raise StoreError(
            "Vectors that Chroma embeds are clean. Add and search with vecveil.ProtectedCollection.", param="collection"
        )

    @staticmethod
    def name() -> str:
        return "vecveil"

    def default_space(self) -> Space:
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> _NoTexts:
        return _NoTexts()
