"""Where the contract suite of vector stores finds an empty place of each kind: one entry a kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["STORES", "StoreCase"]


@dataclass(frozen=True)
class StoreCase:
    """How the suite treats a kind.

    Attributes:
        locate: returns the location of a collection that does not exist yet, from a folder of the kind's own that
            lasts for the session, and a name that no other test has.
        text_ids: whether ids may be any text; else only whole numbers, and others are refused.
        fields: whether rows have fields; else only ids and vectors.
        many: rows of the test of many; more than a store writes in one request.
    """

    locate: Callable[[Path, str], str]
    text_ids: bool = True
    fields: bool = True
    many: int = 3000


@functools.cache
def _postgres() -> str:
    """Return a database of the session."""
    from harness.postgres import fresh_database

    return fresh_database()


STORES: dict[str, StoreCase] = {
    "chroma": StoreCase(lambda folder, name: f"chroma:{folder}#{name}"),
    "lancedb": StoreCase(lambda folder, name: f"lancedb:{folder}#{name}"),
    # Qdrant's client waits for the disk once for each row of a folder; 300 are more than one request of the store.
    "qdrant": StoreCase(lambda folder, name: f"qdrant:{folder}#{name}", many=300),
    "pgvector": StoreCase(lambda folder, name: f"pgvector:{_postgres()}#{name}"),
    "faiss": StoreCase(lambda folder, name: f"faiss:{folder / name}.index"),
    "sqlite-vec": StoreCase(lambda folder, name: f"sqlite-vec:{folder}/rows.db#{name}"),
    "milvus": StoreCase(lambda folder, name: f"milvus:{folder}/rows.db#{name}"),
}
