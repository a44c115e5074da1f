"""The sealed index, and the sealing of rows: exact vectors and texts under the user's key.

`SealedIndex` keeps the index in memory and ciphertext in the storage. `Sealer` encrypts single rows, for a database
that searches protected vectors. See docs/sealed-index.md and docs/sealed-search.md for what the storage can still see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vecveil.index.audit_log import AuditLog
from vecveil.index.blob import SqliteBlobs
from vecveil.index.keystore import KeyProvider, KeyStore
from vecveil.index.sealer import Ranking, Sealer, Unsealed
from vecveil.index.searchable import Searchable

if TYPE_CHECKING:
    from vecveil.index.async_index import AsyncSealedIndex
    from vecveil.index.sealed_index import SealedIndex

__all__ = [
    "AsyncSealedIndex",
    "AuditLog",
    "KeyProvider",
    "KeyStore",
    "Ranking",
    "SealedIndex",
    "Sealer",
    "Searchable",
    "SqliteBlobs",
    "Unsealed",
]


def __getattr__(name: str) -> Any:
    if name == "SealedIndex":  # needs pyarrow
        from vecveil.index.sealed_index import SealedIndex

        return SealedIndex
    if name == "AsyncSealedIndex":
        from vecveil.index.async_index import AsyncSealedIndex

        return AsyncSealedIndex
    raise AttributeError(name)
