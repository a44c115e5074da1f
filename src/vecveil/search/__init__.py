"""Search for whoever holds a key: `SealedIndex` keeps the index in memory and ciphertext in the storage."""

from vecveil.search.sealed_index import SealedIndex

__all__ = ["SealedIndex"]
