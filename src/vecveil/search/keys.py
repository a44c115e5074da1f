"""Keys of a sealed index: who wraps the file key of a segment, and which index a folder is."""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from typing import Any, Protocol

from vecveil.errors import InvalidInputError, KeyFileError
from vecveil.sealing.keystore import NONCE_BYTES, DataKey, KeyProvider, KeyStore, SingleKey, framed
from vecveil.sealing.sealer import Sealer, open_keys
from vecveil.sealing.segments import SegmentKeys


class RetiredKeyError(KeyFileError):
    """A segment's key was deleted by `SealedIndex.reseal`."""


class IndexKeys(SegmentKeys, Protocol):
    """Wraps the file keys of one index.

    Attributes:
        uuid: of the index.
        reads: whether file keys can be unwrapped. An object that can only wrap makes a process that only adds.
    """

    uuid: uuid.UUID
    reads: bool

    def current(self) -> str:
        """Return the id of the key that wraps now."""


class DataKeys:
    """The data keys of an index, under which file keys are wrapped with AES-256-GCM-SIV.

    Args:
        store: key store or single key.
        collection: name of the index in a key store.
        index: UUID of the index under a single key.
    """

    reads = True

    def __init__(self, store: KeyStore | SingleKey, collection: str = "", index: uuid.UUID | None = None) -> None:
        self.store, self.collection = store, collection
        self.uuid = index or store.read(collection).uuid

    def wrap(self, key: bytes, name: str) -> tuple[str, bytes]:
        if isinstance(self.store, KeyStore):
            self.store.reserve(self.collection, 1)
        data_key, nonce = self._keys()[0], secrets.token_bytes(NONCE_BYTES)
        return data_key.key_id.hex(), nonce + data_key.segments.encrypt(nonce, key, name.encode())

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        for data_key in self._keys():
            if data_key.key_id.hex() == key_id:
                return data_key.segments.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], name.encode())
        if isinstance(self.store, KeyStore) and self.store.is_retired(self.collection, key_id):
            raise RetiredKeyError(f"The key of {name} was renewed and deleted.", code="E-SEAL-OPEN")
        raise KeyFileError(
            f"No data key {key_id} for {name}: the key was erased, or the segment comes from another key store.",
            code="E-SEAL-OPEN",
            param="key",
        )

    def current(self) -> str:
        return self._keys()[0].key_id.hex()

    def _keys(self) -> tuple[DataKey, ...]:
        store = self.store
        return store.read(self.collection).keys if isinstance(store, KeyStore) else (store.data_key(self.uuid),)


class ProviderKeys:
    """A `KeyProvider` that wraps each file key itself, such as a cloud KMS."""

    def __init__(self, provider: KeyProvider, index: uuid.UUID) -> None:
        self._provider, self.uuid = provider, index
        self.reads = callable(getattr(provider, "unwrap", None))

    def wrap(self, key: bytes, name: str) -> tuple[str, bytes]:
        return "provider", self._provider.wrap(key, self._context(name))

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        if not self.reads:
            raise KeyFileError(
                "The key provider wraps keys and does not unwrap them: this process can add rows, not read them.",
                code="E-SEAL-OPEN",
                param="key",
            )
        return self._provider.unwrap(wrapped, self._context(name))

    def current(self) -> str:
        return "provider"

    def _context(self, name: str) -> bytes:
        return b"vecveil segment 1" + framed(self.uuid.bytes) + framed(name.encode())


class KeySource:
    """What the user gave as ``key``: opens the keys of an existing index, or makes those of a new one."""

    def __init__(self, key: Any) -> None:
        # A writer's provider may lack `unwrap`.
        provides = callable(getattr(key, "wrap", None))
        self._key: Any = key.keys if isinstance(key, Sealer) else key if provides else open_keys(key)

    def of(self, index: uuid.UUID, name: str) -> IndexKeys:
        """Return the keys of an existing index.

        Raises:
            KeyFileError: the key store has none for it.
        """
        if isinstance(self._key, KeyStore):
            for collection, entry in self._key.collections().items():
                if entry["uuid"] == str(index):
                    return DataKeys(self._key, collection)
            place = os.path.basename(self._key.path)
            raise KeyFileError(
                f"{place} has no key for the index {name}. Use the key file that the index was made with, "
                "or a backup of it.",
                code="E-SEAL-COLLECTION",
                param="key",
            )
        return self._of(index)

    def new(self, name: str) -> IndexKeys:
        """Return the keys of a new index, which a `KeyStore` notes under ``name``."""
        if isinstance(self._key, KeyStore):
            # Another process may make an index of this name at the same moment: neither may have the other's key.
            unique = f"{name} {secrets.token_hex(4)}"
            self._key.reserve(unique, 0)
            with contextlib.suppress(InvalidInputError):  # another index has the name, or its backups have
                self._key.rename(unique, name)
                unique = name
            return DataKeys(self._key, unique)
        return self._of(uuid.uuid4())

    def _of(self, index: uuid.UUID) -> IndexKeys:
        single = isinstance(self._key, SingleKey)
        return DataKeys(self._key, index=index) if single else ProviderKeys(self._key, index)

    def discard(self, keys: IndexKeys) -> None:
        """Delete the keys of `new` again: another process has made the index first."""
        if isinstance(keys, DataKeys) and isinstance(keys.store, KeyStore):
            keys.store.erase(keys.collection)
