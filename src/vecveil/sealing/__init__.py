"""Sealed search: the store proposes candidates by protected vectors, the key's holder ranks the exact ones.

With each protected vector the database stores a sealed blob: the exact vector of the original text and, if
wanted, the text and its metadata, encrypted. A database, its operator and its backups read ciphertext and
protected vectors only; see docs/sealed-search.md for what they can still see and do.
"""

from vecveil.sealing.blob import SqliteBlobs
from vecveil.sealing.keystore import KeyProvider, KeyStore
from vecveil.sealing.sealer import Ranking, Sealer, Unsealed

__all__ = ["KeyProvider", "KeyStore", "Ranking", "Sealer", "SqliteBlobs", "Unsealed"]
