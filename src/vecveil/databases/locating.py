"""From ``KIND:WHERE#COLLECTION`` to the store that it names."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from vecveil.databases.store import VectorStore
from vecveil.errors import InvalidInputError

__all__ = ["KINDS", "Kind", "in_this_process", "open_store", "store_of"]


class Kind(NamedTuple):
    """One database: module, class, and how a location is written."""

    module: str
    store: str
    example: str


KINDS: dict[str, Kind] = {
    "chroma": Kind("chroma", "ChromaStore", "chroma:FOLDER#COLLECTION or chroma:http://HOST:8000#COLLECTION"),
    "lancedb": Kind("lancedb", "LanceStore", "lancedb:FOLDER#TABLE"),
    "qdrant": Kind("qdrant", "QdrantStore", "qdrant:http://HOST:6333#COLLECTION or qdrant:FOLDER#COLLECTION"),
    "pgvector": Kind("pgvector", "PgvectorStore", "pgvector:postgresql://USER@HOST/DATABASE#TABLE"),
    "faiss": Kind("faiss", "FaissStore", "faiss:FILE"),
    "sqlite-vec": Kind("sqlite_vec", "SqliteVecStore", "sqlite-vec:FILE#TABLE"),
    "milvus": Kind("milvus", "MilvusStore", "milvus:FILE.db#COLLECTION or milvus:http://HOST:19530#COLLECTION"),
}  # fmt: skip


def open_store(location: str) -> VectorStore:
    """Return the store at ``KIND:WHERE#COLLECTION``; nothing is created.

    A folder of Chroma is opened by a process of its own, see `VectorStore.apart`.

    Raises:
        InvalidInputError: an unknown kind, or no place. The message does not repeat the location, which may hold a
            password.
        MissingDependencyError: the database's client is not installed.
    """
    return in_this_process(location).apart()


def in_this_process(location: str) -> VectorStore:
    """Return the store, always in this process; see `open_store`."""
    owner = "open_store"
    kind, _, rest = location.partition(":") if isinstance(location, str) else ("", "", "")
    if kind not in KINDS:
        examples = "; ".join(one.example for one in KINDS.values())
        raise InvalidInputError.of(
            owner, "location", "KIND:WHERE#COLLECTION", "another kind", fix=f"Known: {examples}."
        )
    where, _, collection = rest.partition("#")
    if not where:
        raise InvalidInputError.of(owner, "location", KINDS[kind].example, "no place")
    return store_of(kind, where, collection or None)


def store_of(kind: str, where: str, collection: str | None) -> VectorStore:
    """Return the store of a kind that is known, in this process; a path may hold any character."""
    module = importlib.import_module(f"vecveil.databases.{KINDS[kind].module}")
    store: type[VectorStore] = getattr(module, KINDS[kind].store)
    return store.open(where, collection)
