"""The keys of an index: what wraps the random key of each of its objects.

A `KeyStore` or single key has data keys, under which object keys are wrapped; a `KeyProvider` wraps each itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from pathlib import Path
from typing import Annotated, Any, Protocol

from msgspec import Meta

from vecveil.errors import InvalidInputError, KeyFileError
from vecveil.index.keystore import (
    NONCE_BYTES,
    CollectionKeys,
    DataKey,
    KeyProvider,
    KeyStore,
    SingleKey,
    framed,
    provider_errors,
)
from vecveil.index.sealer import Sealer, open_keys

# Of a data key, as a header says it in clear: an error may quote it.
KeyId = Annotated[str, Meta(pattern=r"^[0-9a-z]{1,64}\Z")]


class IndexKeys(Protocol):
    """Wraps and unwraps the object keys of one index; ``name`` is the object's, to which the wrapped key is bound.

    Attributes:
        uuid: of the index.
        reads: whether object keys can be unwrapped. An object that can only wrap makes a process that only adds.
    """

    uuid: uuid.UUID
    reads: bool

    def current(self) -> str:
        """Return the id of the key that wraps now."""

    def wrap(self, key: bytes, name: str, key_id: str, /) -> bytes:
        """Return the key, wrapped under the data key ``key_id``; never make a data key.

        Raises:
            KeyFileError: the index has no such data key.
        """

    def unwrap(self, wrapped: bytes, key_id: str, name: str, /) -> bytes:
        """Return the key; raise `InvalidTag`, `KeyFileError` or `ValueError` if it does not unwrap."""


class RetiredKeyError(KeyFileError):
    """A segment's key was deleted by `SealedIndex.reseal`."""


class DataKeys:
    """The data keys of an index, under which object keys are wrapped with AES-256-GCM-SIV.

    Args:
        store: key store or single key.
        collection: name of the index in a key store.
        index: UUID of the index under a single key.
    """

    reads = True

    def __init__(self, store: KeyStore | SingleKey, collection: str = "", index: uuid.UUID | None = None) -> None:
        self.store, self.collection = store, collection
        self.uuid = index or store.read(collection).uuid

    def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
        store, nonce = self.store, secrets.token_bytes(NONCE_BYTES)
        reserved = self._of_index(store.reserve(self.collection, 1)) if isinstance(store, KeyStore) else self._keys()
        for data_key in reserved:
            if data_key.key_id.hex() == key_id:
                return nonce + data_key.segments.encrypt(nonce, key, name.encode())
        raise KeyFileError(
            f"The index is written under the data key {key_id}, which this key file does not have: it is an older "
            "copy, or the key was erased. Use the present key file.",
            code="E-SEAL-OPEN",
            param="key",
        )

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        for data_key in self._keys():
            if data_key.key_id.hex() == key_id:
                return data_key.segments.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], name.encode())
        if isinstance(self.store, KeyStore) and self.store.is_retired(self.collection, key_id):
            raise RetiredKeyError(f"The key of {name} was renewed and deleted.", code="E-SEAL-OPEN")
        raise KeyFileError(
            f"No data key {key_id} for {name}: the key was erased, or the segment comes from a different key store.",
            code="E-SEAL-OPEN",
            param="key",
        )

    def current(self) -> str:
        return self._keys()[0].key_id.hex()

    def check(self) -> None:
        """Raise `KeyFileError` if a provider no longer unwraps the data keys, which it is asked once a lifetime."""
        if isinstance(self.store, KeyStore) and self.store.provider is not None:
            self._keys()

    def _keys(self) -> tuple[DataKey, ...]:
        store = self.store
        if isinstance(store, KeyStore):
            return self._of_index(store.read(self.collection))
        return (store.data_key(self.uuid),)

    def _of_index(self, keys: CollectionKeys) -> tuple[DataKey, ...]:
        if keys.uuid != self.uuid:
            raise KeyFileError(
                f"The keys of {self.collection[:80]!r} are of another index now: those of this one were erased or "
                "renamed. Open the index again, with its own key file.",
                code="E-SEAL-COLLECTION",
                param="key",
            )
        return keys.keys


class ProviderKeys:
    """A `KeyProvider` that wraps each object key itself, such as a cloud KMS."""

    def __init__(self, provider: KeyProvider, index: uuid.UUID) -> None:
        self._provider, self.uuid = provider, index
        self.reads = callable(getattr(provider, "unwrap", None))

    def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
        with provider_errors():
            return self._provider.wrap(key, self._context(name))

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        if not self.reads:
            raise KeyFileError(
                "The key provider wraps keys and does not unwrap them: this process can add rows, not read them.",
                code="E-SEAL-OPEN",
                param="key",
            )
        with provider_errors():
            return self._provider.unwrap(wrapped, self._context(name))

    def current(self) -> str:
        return "provider"

    def _context(self, name: str) -> bytes:
        return b"vecveil segment 1" + framed(self.uuid.bytes) + framed(name.encode())


class KeySource:
    """The user's ``key``: opens the keys of an existing index, or makes the keys of a new one.

    Args:
        name: under which a `KeyStore` notes a new index.
    """

    def __init__(self, key: Any, name: str) -> None:
        self._name = name
        # A writer's provider may lack `unwrap`.
        provides = callable(getattr(key, "wrap", None))
        self._key: Any = key.keys if isinstance(key, Sealer) else key if provides else open_keys(key)

    @property
    def file(self) -> Path | None:
        """The key file, if there is one."""
        return Path(self._key.path) if isinstance(self._key, KeyStore) else None

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

    def new(self) -> IndexKeys:
        """Return the keys of a new index."""
        if isinstance(self._key, KeyStore):
            # Another process may make an index of this name at the same moment: neither may have the other's key.
            name, unique = self._name, f"{self._name} {secrets.token_hex(4)}"
            self._key.create(unique)
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
