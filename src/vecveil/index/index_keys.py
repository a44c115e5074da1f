"""Keys of an index, which wrap the random key of each object.

A `KeyStore` or single key has data keys, which wrap the object keys; a `KeyProvider` wraps each object key itself. In a
shared index, a reader's identity opens the data key; a writer's identity can only wrap.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from msgspec import Meta

from vecveil.errors import InvalidInputError, KeyFileError
from vecveil.index.keystore import (
    KEY_BYTES,
    KEY_ID_BYTES,
    NONCE_BYTES,
    CollectionKeys,
    DataKey,
    KeyProvider,
    KeyStore,
    SingleKey,
    framed,
    provider_errors,
)
from vecveil.index.members import (
    SEALED_BYTES,
    Identity,
    Member,
    MemberList,
    Members,
    envelope_context,
    exchange_key,
    public_keys,
    seal,
    unsealed,
)
from vecveil.index.sealer import Sealer, open_keys

# Of a data key, as a header says it in clear: an error may quote it.
KeyId = Annotated[str, Meta(pattern=r"^[0-9a-z]{1,64}\Z")]


class IndexKeys(Protocol):
    """Wraps and unwraps the object keys of one index; ``name`` is the object's, to which the wrapped key is bound.

    Attributes:
        uuid: UUID of the index.
        signer: identity of the key file, or None.
        reads: whether the keys can unwrap object keys. A process whose keys only wrap can only add rows.
    """

    uuid: uuid.UUID

    @property
    def signer(self) -> Identity | None: ...

    @property
    def reads(self) -> bool: ...

    def joined(self, members: Members | None, /) -> IndexKeys:
        """Return the keys under this list of members; None is an index that was never shared.

        Raises:
            KeyFileError: they have no identity, or the member's envelope does not open.
        """

    def listing(self, members: Sequence[Member], key_id: str, /, *, renew: bool) -> MemberList:
        """Return a list that has an envelope with the data key ``key_id`` for each member who reads."""

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


def unwrapped(data_key: DataKey, wrapped: bytes, name: str) -> bytes:
    """Return a key that `DataKeys.wrap` wrapped; raise `InvalidTag` if it does not unwrap."""
    return data_key.segments.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], name.encode())


def _no_data_key(key_id: str) -> KeyFileError:
    return KeyFileError(
        f"The index is written under the data key {key_id}, which this key file does not have: it is an older "
        "copy, or the key was erased. Use the present key file.",
        code="E-SEAL-OPEN",
        param="key",
    )


class _Unshared:
    """Keys that have no members: a single key, or a key provider."""

    signer: Identity | None = None

    def joined(self, members: Members | None) -> Self:
        if members is not None:
            raise without_identity()
        return self

    def listing(self, members: Sequence[Member], key_id: str, *, renew: bool) -> MemberList:
        raise without_identity()


def without_identity() -> KeyFileError:
    return KeyFileError(
        "A shared index requires a key file with an identity; this key has none. `vecveil key new FILE` makes a key "
        "file, or adds an identity to FILE. Single keys and key providers cannot open a shared index.",
        code="E-INDEX-IDENTITY",
        param="key",
    )


class DataKeys(_Unshared):
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
        raise _no_data_key(key_id)

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        for data_key in self._keys():
            if data_key.key_id.hex() == key_id:
                return unwrapped(data_key, wrapped, name)
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
        """Raise `KeyFileError` if a provider no longer unwraps the data keys, which it must do once per lifetime."""
        if isinstance(self.store, KeyStore) and self.store.provider is not None:
            self._keys()

    def secret(self, key_id: str) -> bytes | None:
        """Return a data key of a key store, for the envelopes of members; None if the store lacks it."""
        return self.store.secrets(self.collection).get(key_id) if isinstance(self.store, KeyStore) else None

    def _keys(self) -> tuple[DataKey, ...]:
        store = self.store
        if isinstance(store, KeyStore):
            return self._of_index(store.read(self.collection))
        return (store.data_key(self.uuid),)

    def _of_index(self, keys: CollectionKeys) -> tuple[DataKey, ...]:
        if keys.uuid != self.uuid:
            raise KeyFileError(
                f"The keys named {self.collection[:80]!r} now belong to another index: the keys of this index were "
                "erased or renamed. Open the index again, with its own key file.",
                code="E-SEAL-COLLECTION",
                param="key",
            )
        return keys.keys


class MemberKeys:
    """The keys of a member, with the identity of a key file.

    Before an index is shared, these are the founder's data keys. Afterwards the list in force contains the data key in
    an envelope for each reader. Object keys are sealed to the index's public key, which is derived from the data key: a
    writer who cannot read can wrap object keys, but cannot open them.

    Args:
        base: data keys that the key file has for this index, or None.
    """

    def __init__(
        self,
        signer: Identity,
        index: uuid.UUID,
        base: DataKeys | None,
        members: Members | None = None,
        opened: dict[str, _MemberKey] | None = None,
    ) -> None:
        self.signer, self.uuid, self.base = signer, index, base
        self._members = members
        self._member = members.listing.member(signer.public) if members else None
        self._opened = {} if opened is None else opened  # by key id, of every list followed so far

    @property
    def reads(self) -> bool:
        if self._members is None:
            return self.base is not None
        return self._member is not None and self._member.reads

    @property
    def is_member(self) -> bool:
        """Return whether the list of members, or the key file of an unshared index, has this identity's keys."""
        return (self.base if self._members is None else self._member) is not None

    def joined(self, members: Members | None) -> MemberKeys:
        if members is None or members is self._members:
            return self
        key_id, listing = members.key_id, members.listing
        member, public = listing.member(self.signer.public), listing.index_key
        opened = self._opened.get(key_id)
        # A list that was refused afterwards may have had another key of this id.
        known = opened is not None and opened.public.public_bytes_raw() == public
        if member is not None and member.envelope is not None and not known:
            try:
                secret = self.signer.open(member.envelope, envelope_context(self.uuid, key_id))
                key = _MemberKey(key_id, secret, self.uuid)
                own = self.base.secret(key_id) if self.base else None
                if key.public.public_bytes_raw() != public or own not in (None, secret):
                    raise InvalidTag
            except (InvalidTag, ValueError):
                raise KeyFileError(
                    f"The list of members in commit {members.place.number:,} has another data key than it says.",
                    code="E-SEAL-OPEN",
                    param="key",
                ) from None
            self._opened[key_id] = key
        return MemberKeys(self.signer, self.uuid, self.base, members, self._opened)

    def renewed(self) -> str:
        """Make a data key and return its id. The key is only in memory until a list has it in envelopes."""
        key_id = secrets.token_hex(KEY_ID_BYTES)
        self._opened[key_id] = _MemberKey(key_id, secrets.token_bytes(KEY_BYTES), self.uuid)
        return key_id

    def listing(self, members: Sequence[Member], key_id: str, *, renew: bool) -> MemberList:
        key = self._opened.get(key_id)
        secret = key.secret if key else self.base.secret(key_id) if self.base else None
        if secret is None:
            raise _no_data_key(key_id)
        context = envelope_context(self.uuid, key_id)
        entries = (
            msgspec.structs.replace(
                member, envelope=seal(secret, public_keys(member.public)[0], context) if member.reads else None
            )
            for member in members
        )
        return MemberList(exchange_key(secret, self.uuid).public_key().public_bytes_raw(), tuple(entries), renew)

    def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
        if self._members is None:
            return self._base().wrap(key, name, key_id)
        if key_id == self._members.key_id:
            public = X25519PublicKey.from_public_bytes(self._members.listing.index_key)
        elif key_id in self._opened:  # a renewal writes the objects before the list
            public = self._opened[key_id].public
        else:
            raise _no_data_key(key_id)
        return seal(key, public, self._context(name))

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        if opened := self._opened.get(key_id):
            if len(wrapped) == SEALED_BYTES:
                return unsealed(wrapped, opened.exchange, self._context(name))
            return unwrapped(opened.data_key, wrapped, name)  # from before the index was shared
        if self._members is None:
            return self._base().unwrap(wrapped, key_id, name)
        with contextlib.suppress(KeyFileError):
            if self.base is not None:
                return self.base.unwrap(wrapped, key_id, name)
        raise RetiredKeyError(f"No list of members has the key of {name} for this member.", code="E-SEAL-OPEN")

    def current(self) -> str:
        return self._base().current() if self._members is None else self._members.key_id

    def _base(self) -> DataKeys:
        if self.base is None:
            raise no_member(self.signer)
        return self.base

    def _context(self, name: str) -> bytes:
        return b"vecveil object key 1" + framed(self.uuid.bytes) + framed(name.encode())


class _MemberKey:
    """A data key of a shared index."""

    __slots__ = ("data_key", "exchange", "public", "secret")

    def __init__(self, key_id: str, secret: bytes, index: uuid.UUID) -> None:
        self.secret, self.data_key = secret, DataKey(bytes.fromhex(key_id), secret, index)
        self.exchange = exchange_key(secret, index)
        self.public = self.exchange.public_key()

    def __reduce__(self) -> NoReturn:
        raise TypeError("A key is not pickled; let each worker open the key file.")


def no_member(signer: Identity, name: str = "") -> KeyFileError:
    """Return the error for a key file that has no keys of an index and is no member."""
    return KeyFileError(
        f"The key file has no key for the index {name}".rstrip() + ", and is no member of it. Use the key file that "
        f"made the index, or ask an owner for: vecveil index share sealed:PLACE {signer.public} --role reader",
        code="E-SEAL-COLLECTION",
        param="key",
    )


class ProviderKeys(_Unshared):
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
        name: name of a new index in a `KeyStore`.
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
            entries = self._key.collections().items()
            noted = next((collection for collection, entry in entries if entry["uuid"] == str(index)), None)
            base = None if noted is None else DataKeys(self._key, noted)
            if base is not None or self._key.identity is not None:
                return self._member(index, base)
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
            made = DataKeys(self._key, unique)
            return self._member(made.uuid, made)
        return self._of(uuid.uuid4())

    def _member(self, index: uuid.UUID, base: DataKeys | None) -> IndexKeys:
        """Return the keys of a key store, with its identity if it has one."""
        secret = self._key.identity
        if secret is not None:
            return MemberKeys(Identity(secret), index, base)
        assert base is not None
        return base

    def _of(self, index: uuid.UUID) -> IndexKeys:
        single = isinstance(self._key, SingleKey)
        return DataKeys(self._key, index=index) if single else ProviderKeys(self._key, index)

    def discard(self, keys: IndexKeys) -> None:
        """Delete the keys that `new` made, after another process made the index first."""
        base = founders(keys)
        if base is not None and isinstance(base.store, KeyStore):
            base.store.erase(base.collection)


def founders(keys: IndexKeys) -> DataKeys | None:
    """Return the data keys of the key store or single key, or None."""
    return keys.base if isinstance(keys, MemberKeys) else keys if isinstance(keys, DataKeys) else None
