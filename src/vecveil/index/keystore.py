"""Keys of sealed search: a master key wraps data keys, a random data key seals the rows of a collection.

A key store is a JSON file outside of the database. It extends the key file of `vecveil key new`, whose current
key is the master key, by one member::

    {"schema": "vecveil.keys/1", "current": "2026-11", "keys": {"2026-11": "<base64 of 32 bytes>"},
     "collections": {"notes": {"uuid": "…", "encoder": "<fingerprint>", "current": "<key id>",
                               "keys": {"<key id>": {"wrapped": "<base64>", "sealed": 3000,
                                                     "protector": "<fingerprint>"}}}}}

With a `KeyProvider`, such as a cloud KMS or `MasterKeys` of an environment variable, the file has no ``keys``: the
provider wraps and unwraps. Unwrapped data keys stay in memory for a limited time, after which it has to unwrap them
again: a provider that refuses stops reads and writes.

No data key is derived from the master key or stored with the rows. Deleting a data key therefore makes its
rows unreadable, those in backups of the database included, once no backup of the key store is left either.
"""

from __future__ import annotations

import base64
import hmac
import math
import os
import re
import secrets
import struct
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vecveil.errors import IncompatibleError, InvalidInputError, KeyFileError, MissingDependencyError
from vecveil.io import expanded, locked, parse_json, write_bytes
from vecveil.keys import SCHEMA, KeyFile, key_file_content, key_file_errors
from vecveil.validation import check_positive

FILTER_PREFIX = "vecveil_filter_"
"""Start of the field that contains the token of a metadata field."""

KEY_BYTES = 32
KEY_ID_BYTES = 8
NONCE_BYTES = 12
# RFC 8452 §6 allows 2^32 random nonces a key and more; renewal leaves a wide margin.
MOST_BLOBS = 2**31
# A process reserves an eighth of the blobs so far at once, and at most this number, so that few writes of the file do.
_SHARE = 2**16
_SPARE = 2**20  # bytes of a full file that new collections leave to the rotation of keys
_LONGEST_NAME = 1000
_MOST_FIELDS = 64
_FILTER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OWNER = "KeyStore"


def aead(key: bytes) -> AESGCMSIV:
    """Return AES-256-GCM-SIV (RFC 8452) under ``key``; raise where OpenSSL lacks it."""
    try:
        return AESGCMSIV(key)
    except UnsupportedAlgorithm:
        raise MissingDependencyError("AES-GCM-SIV (OpenSSL 3.2 or later)", "cryptography>=42", "all") from None


def framed(part: bytes) -> bytes:
    """Return ``part`` behind its length, so that a concatenation of parts is unambiguous."""
    return len(part).to_bytes(4, "little") + part


def unframed(content: bytes) -> tuple[bytes, bytes]:
    """Return the part at the start of ``content`` that `framed` wrote, and the rest."""
    end = 4 + int.from_bytes(content[:4], "little")
    return content[4:end], content[end:]


def typed_value(value: str | bool | int | float, *, param: str = "metadata") -> bytes:
    """Return a metadata value as bytes that begin with its type.

    Numbers are compared by value, as JSON does not tell 1 from 1.0; ``1``, ``"1"`` and ``True`` differ. Strings are
    compared by code points.

    Raises:
        InvalidInputError: a different type, or a number that is not finite.
    """
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return b"f" + struct.pack("<d", value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return b"i" + f"{int(value):x}".encode()
    raise InvalidInputError(
        f"`{param}`: filter fields take a text, a finite number, true or false, not {type(value).__name__}. `where` "
        "also takes a list of them.",
        code="E-SEAL-FILTER",
        param=param,
    )


def check_filter_field(name: Any, *, owner: str, param: str) -> None:
    """Raise for a name that some database would have to quote, nest or cut."""
    if not isinstance(name, str) or not _FILTER.fullmatch(name):
        text = f"{owner}: the name of a field in `{param}` has at most 63 letters, digits and _. Rename the field."
        raise InvalidInputError(text, param=param)


def token_fields(filter_fields: Sequence[str], *, owner: str) -> list[str]:
    """Return the database's fields for the tokens of ``filter_fields``; raise for names that it cannot have."""
    # SQL folds the case of columns.
    distinct = len({str(name).lower() for name in filter_fields})
    if isinstance(filter_fields, str) or distinct < len(filter_fields) or distinct > _MOST_FIELDS:
        text = f"{owner}: `filter_fields` is a list of at most {_MOST_FIELDS} distinct names."
        raise InvalidInputError(text, param="filter_fields")
    names = [f"{FILTER_PREFIX}{name}" for name in filter_fields]
    for name in names:
        check_filter_field(name, owner=owner, param="filter_fields")
    return names


def _derived(secret: bytes, purpose: bytes) -> bytes:
    # HKDF separates the purposes of one secret, and these from keyed noise under the same key file.
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=b"vecveil sealing 1", info=purpose).derive(secret)


@runtime_checkable
class KeyProvider(Protocol):
    """Wraps data keys under a master key that vecveil never sees, such as one in a cloud KMS or in Vault.

    ``context`` contains the UUID of the collection or index and the id of the data key, as printable ASCII of a
    `KeyStore`; it is not secret. `unwrap` must raise for a context other than `wrap`'s (associated data, encryption
    context).
    """

    def wrap(self, key: bytes, context: bytes, /) -> bytes:
        """Return ``key`` encrypted."""

    def unwrap(self, wrapped: bytes, context: bytes, /) -> bytes:
        """Return the key that `wrap` encrypted."""


@contextmanager
def provider_errors() -> Iterator[None]:
    """Raise KeyFileError for a failing key provider; a key that does not unwrap stays InvalidTag."""
    try:
        yield
    except (InvalidTag, KeyFileError, MissingDependencyError):
        raise
    except Exception as error:
        raise KeyFileError(
            f"The key provider failed: {type(error).__name__}. Try again when it is available.",
            code="E-SEAL-PROVIDER",
            param="key",
        ) from error


def check_provider(provider: KeyProvider) -> None:
    """Wrap a random key and unwrap it, also with another context, which the provider must refuse.

    Raises:
        KeyFileError: the provider fails, returns another key, or ignores the context.
    """
    key, collection = secrets.token_bytes(KEY_BYTES), str(uuid.uuid4())
    with provider_errors():
        wrapped = provider.wrap(key, _context(collection, "check"))
        same = provider.unwrap(wrapped, _context(collection, "check")) == key
    if not same or key in wrapped:
        problem = "returned another key than it wrapped"
    else:
        try:
            provider.unwrap(wrapped, _context(collection, "another"))
        except Exception:
            return
        problem = "ignores the context, so that the key of one collection opens as that of another"
    raise KeyFileError(f"The key provider {problem}. Use a different one.", code="E-SEAL-PROVIDER", param="key")


def _master_of(wrapped: bytes) -> str:
    """Return the id of the master key that `MasterKeys` wrapped a data key under."""
    return unframed(wrapped)[0].decode(errors="replace")


class MasterKeys:
    """The `KeyProvider` of a key file or variable: wraps under its current key, unwraps under every one."""

    def __init__(self, keys: KeyFile) -> None:
        self._keys, self.identity = keys, keys.identity

    def wrap(self, key: bytes, context: bytes) -> bytes:
        name = self._keys.current.encode()
        nonce = secrets.token_bytes(NONCE_BYTES)
        return framed(name) + nonce + self._cipher(self._keys.current).encrypt(nonce, key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        name = _master_of(wrapped)
        if name not in self._keys.keys:
            raise InvalidTag
        _, body = unframed(wrapped)
        return self._cipher(name).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], context)

    def _cipher(self, key_id: str) -> AESGCMSIV:
        secret = self._keys.key(key_id).secret_for_noise()
        return aead(_derived(secret, b"wrap" + framed(key_id.encode())))


class DataKey:
    """One data key of a collection: the cipher of its blobs, of its segments' file keys, and the key of its tokens."""

    __slots__ = ("_filters", "cipher", "key_id", "protector", "segments")

    def __init__(self, key_id: bytes, secret: bytes, collection: uuid.UUID, protector: str | None = None) -> None:
        self.key_id, self.protector = key_id, protector
        self.cipher = aead(_derived(secret, b"blob" + collection.bytes))
        self.segments = aead(_derived(secret, b"segment" + collection.bytes))
        self._filters = _derived(secret, b"filter" + collection.bytes)

    def token(self, field: str, value: str | bool | int | float) -> str:
        """Return the token of a metadata value: 128 bits of HMAC-SHA256 over ``field`` and `typed_value`.

        Equal values of one field and collection have equal tokens; nothing else is comparable without the key.
        """
        # The key is derived from the collection's UUID, which the message need not repeat.
        framed_field = framed(field.encode("utf-8", "surrogatepass"))
        return hmac.digest(self._filters, framed_field + framed(typed_value(value)), "sha256")[:16].hex()

    def __repr__(self) -> str:
        return f"DataKey({self.key_id.hex()!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("DataKey: a key is not pickled; let each worker open the key store.")


@dataclass(frozen=True)
class CollectionKeys:
    """The data keys of one collection, the current one first, its filter fields, and the encoder of its sealed vectors.

    A key also records the protector of its rows' candidate vectors. Protector and encoder are fingerprints, if noted.
    """

    uuid: uuid.UUID
    keys: tuple[DataKey, ...]
    filter_fields: tuple[str, ...] = ()
    encoder: str | None = None

    @property
    def current(self) -> DataKey:
        return self.keys[0]

    @property
    def protector(self) -> str | None:
        return self.current.protector


class SingleKey:
    """One data key of 32 bytes for all collections: no renewal, no rotation, no erasure by collection.

    The name of a collection takes the place of its UUID.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES or len(set(secret)) < 8:
            text = f"A key has {KEY_BYTES} random bytes. Make it with secrets.token_bytes({KEY_BYTES})."
            raise KeyFileError(text, param="key")
        self._secret = secret

    def __repr__(self) -> str:
        return "SingleKey()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("SingleKey: a key is not pickled; let each worker read it.")

    def read(self, collection: str) -> CollectionKeys:
        named = uuid.UUID(bytes=_derived(self._secret, b"collection" + _checked(collection).encode())[:16])
        return CollectionKeys(named, (self.data_key(named),))

    def data_key(self, collection: uuid.UUID) -> DataKey:
        """Return the data key for the collection or index with this UUID."""
        return DataKey(_derived(self._secret, b"key id")[:KEY_ID_BYTES], self._secret, collection)

    def create(self, collection: str, *, exist_ok: bool = False) -> CollectionKeys:
        return self.read(collection)

    def reserve(self, collection: str, blobs: int) -> CollectionKeys:
        return self.read(collection)

    def collection_of(self, key_ids: Iterable[bytes]) -> str | None:
        """Return None: every collection has the same key."""
        return None

    def check_protector(self, collection: str, fingerprint: str, *, adding: bool, encoder: str | None = None) -> None:
        """Do nothing: without a file no protector is noted."""

    def note_filter_fields(self, collection: str, fields: Iterable[str]) -> None:
        """Do nothing, as above."""


def _lifetime() -> float:
    text = os.environ.get("VECVEIL_KEY_LIFETIME", "300")
    try:
        return float(text)
    except ValueError:
        said = "VECVEIL_KEY_LIFETIME is not a number of seconds. Set it to one, such as 60."
        raise InvalidInputError(said, param="lifetime") from None


Wrapped = tuple[str, str, str]
"""A data key in a key store: UUID of the collection, key id, and the wrapped key in base64."""


@dataclass(frozen=True, repr=False)
class _Unwrapped:
    """The keys of a collection, of which the first was unwrapped at ``since``, from the file as ``stamp`` tells it."""

    stamp: tuple[int, ...]
    since: float
    secrets: dict[Wrapped, bytes]
    keys: CollectionKeys | None = None


def _collection_keys(entry: dict[str, Any], secrets: Mapping[Wrapped, bytes]) -> CollectionKeys:
    named = uuid.UUID(entry["uuid"])
    keys = {
        key_id: DataKey(bytes.fromhex(key_id), secret, named, entry["keys"][key_id].get("protector"))
        for (_, key_id, _), secret in secrets.items()
    }
    current = keys.pop(entry["current"])
    return CollectionKeys(named, (current, *keys.values()), tuple(entry.get("filter_fields", ())), entry.get("encoder"))


@dataclass(repr=False)
class KeyStore:
    """The wrapped data keys of all collections, in one file.

    Args:
        path: key file of `vecveil key new`; with ``provider``, a file that need not exist yet.
        provider: wraps the data keys instead of the key file's master key.
        lifetime (300): seconds after which the store unwraps a data key again; the variable VECVEIL_KEY_LIFETIME sets
            the default. Withdrawn rights stop reads and writes within this time. A longer lifetime bridges longer
            failures of the provider. 0 unwraps at each use.

    Several processes may use one file: each change locks its folder, reads the file anew and replaces it atomically.
    A file system without locks is refused. On Windows one process at a time may seal, rotate or erase.

    Raises:
        KeyFileError: the file is missing, damaged or readable by other users.
    """

    path: str | os.PathLike[str]
    provider: KeyProvider | None = None
    lifetime: float = field(default_factory=_lifetime)
    _used: dict[str, uuid.UUID] = field(default_factory=dict, init=False)  # by the name under which it was read first
    _reserved: dict[tuple[bytes, int, int], int] = field(default_factory=dict, init=False)  # blobs, see `_reserver`
    _cached: dict[str, _Unwrapped] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.lifetime = check_positive(self.lifetime, owner=_OWNER, param="lifetime", allow_zero=True)
        self.path = Path(os.path.realpath(expanded(self.path)))
        self._load()

    def __repr__(self) -> str:
        return f"KeyStore({Path(self.path).name!r})"

    def collections(self) -> dict[str, dict[str, Any]]:
        """Return the collections that have a data key, with what the file says of each.

        The fields are ``uuid``, ``data_keys`` (their number), ``sealed_at_most`` (rows sealed under them, or files of
        a sealed index, and what processes have reserved beyond) and ``protector`` (the fingerprint noted, or None).
        """
        return {
            name: {
                "uuid": entry["uuid"],
                "data_keys": len(entry["keys"]),
                "sealed_at_most": sum(key["sealed"] for key in entry["keys"].values()),
                "protector": entry["keys"][entry["current"]].get("protector"),
            }
            for name, entry in self._load()["collections"].items()
        }

    def collection_of(self, key_ids: Iterable[bytes]) -> str | None:
        """Return the first collection that has one of the data keys ``key_ids``, or None."""
        listed = {key_id.hex() for key_id in key_ids}
        collections = self._load()["collections"].items()
        return next((name for name, entry in collections if listed & entry["keys"].keys()), None)

    def read(self, collection: str) -> CollectionKeys:
        """Return the keys of ``collection`` as the file has them now, unwrapped at most ``lifetime`` ago.

        Raises:
            KeyFileError: the collection has no key, or the master key or provider does not unwrap it.
        """
        # Another process may rotate or erase keys at any time; a stat is cheap enough for every search.
        stamp, now = self._stamp(), time.monotonic()
        cached = self._cached.get(_checked(collection))
        if cached is None or cached.stamp != stamp or now - cached.since >= self.lifetime:
            self._cached.pop(collection, None)  # an erased key, or a refused one, does not stay in memory
            if cached is None or self.provider is None or now - cached.since >= self.lifetime:
                cached = _Unwrapped(stamp, now, {})
            entry = self._entry(collection, self._load())
            opened = self._unwrapped_bytes(entry, cached.secrets)  # other writers change the file often
            cached = _Unwrapped(stamp, cached.since, opened, _collection_keys(entry, opened))
            self._cached[collection] = cached
            self._used.setdefault(collection, uuid.UUID(entry["uuid"]))
        assert cached.keys is not None
        return cached.keys

    def _stamp(self) -> tuple[int, ...]:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size

    @property
    def identity(self) -> bytes | None:
        """Secret of the key file's identity as a member of indexes, or None."""
        provider = self._provider()
        return provider.identity if isinstance(provider, MasterKeys) else None

    def secrets(self, collection: str) -> dict[str, bytes]:
        """Return the data keys of ``collection`` by id, for the envelopes of an index's members."""
        opened = self._unwrapped_bytes(self._entry(collection, self._load()))
        return {key_id: secret for (_, key_id, _), secret in opened.items()}

    def create(self, collection: str, *, exist_ok: bool = False) -> CollectionKeys:
        """Make a collection with its first data key.

        Args:
            exist_ok: return the keys of a collection that the file has already.

        Raises:
            InvalidInputError: the file has a collection of this name.
            KeyFileError: ``exist_ok``, and this object has used keys of this name that the file no longer has.
        """
        if exist_ok:
            used = self._used.get(collection)  # before the file is read: another thread may create the collection
            try:
                return self._same(collection)
            except KeyFileError as error:
                if error.code != "E-SEAL-COLLECTION" or used is not None:
                    raise
        with self._changing(_SPARE) as record:
            if _checked(collection) not in record["collections"]:
                entry = record["collections"][collection] = {"uuid": str(uuid.uuid4()), "current": "", "keys": {}}
                self._new_key(entry)
                self._used.pop(collection, None)
            elif not exist_ok:
                raise _taken(collection, "collection")
        return self.read(collection)

    def reserve(self, collection: str, blobs: int) -> CollectionKeys:
        """Return keys whose current one may seal ``blobs`` rows; make a new key as needed.

        Raises:
            KeyFileError: the collection has no key, or others than this object has used: they were erased or renamed.
        """
        keys = self._same(collection)
        if self._reserved.get(_reserver(keys.current.key_id), 0) < blobs:
            with self._changing() as record:
                entry = self._entry(collection, record)
                sealed = entry["keys"][entry["current"]]["sealed"]
                share = max(blobs, min(_SHARE, sealed // 8))
                if sealed + share > MOST_BLOBS:
                    self._new_key(entry)
                entry["keys"][entry["current"]]["sealed"] += share
            reserved = _reserver(bytes.fromhex(entry["current"]))
            self._reserved[reserved] = self._reserved.get(reserved, 0) + share
            keys = self._same(collection)
        reserved = _reserver(keys.current.key_id)
        self._reserved[reserved] = self._reserved.get(reserved, 0) - blobs
        return keys

    def _same(self, collection: str) -> CollectionKeys:
        """Return the keys of ``collection``; raise unless they are those that this object has used."""
        used = self._used.get(collection)
        try:
            keys = self.read(collection)
            if used in (None, keys.uuid):
                return keys
        except KeyFileError as error:
            if error.code != "E-SEAL-COLLECTION" or used is None:
                raise
        raise KeyFileError(
            f"The keys of collection {collection[:80]!r} in {Path(self.path).name} were erased, renamed or replaced "
            "while this process used them. Start it again with the collection's present name, or make new keys with "
            "KeyStore.create.",
            code="E-SEAL-COLLECTION",
            param="collection",
        )

    def check_protector(self, collection: str, fingerprint: str, *, adding: bool, encoder: str | None = None) -> None:
        """Raise if the collection's candidate vectors are a different protector's: its queries would find other rows.

        Args:
            adding: make the collection if it is new, and note its first protector and the protector's ``encoder``.
        """
        keys = self.create(collection, exist_ok=True) if adding else self.read(collection)
        noted = keys.protector
        if noted is None and adding:
            self.note_protector(collection, fingerprint, encoder)
        elif any(key.protector not in (None, noted) for key in keys.keys):
            raise IncompatibleError(
                "The collection is being reprotected. Repeat `reprotect` until it ends.",
                code="E-INCOMPATIBLE-REPROTECT",
                param="collection",
            )
        elif noted not in (None, fingerprint):
            raise IncompatibleError(
                f"Protector {str(noted)[:12]} filled the collection, and {fingerprint[:12]} would "
                "find other candidates. Use the protector file that filled it.",
                code="E-INCOMPATIBLE-PROTECTOR",
                param="protector",
            )

    def note_protector(self, collection: str, fingerprint: str, encoder: str | None = None) -> None:
        """Note the protector of the collection's candidate vectors, so that a query by another one is noticed.

        Args:
            encoder: fingerprint of the encoder of the sealed vectors, which `reprotect` compares.
        """
        with self._changing() as record:
            entry = self._entry(collection, record)
            for row in entry["keys"].values():
                row["protector"] = fingerprint
            if encoder is not None:
                entry["encoder"] = encoder

    def note_filter_fields(self, collection: str, fields: Iterable[str]) -> None:
        """Add to the metadata fields that have tokens, so that all writers and resealing write them."""
        added = set(fields)
        if added - set(self.read(collection).filter_fields):
            with self._changing() as record:
                entry = self._entry(collection, record)
                noted = sorted(added.union(entry.get("filter_fields", ())))
                token_fields(noted, owner=_OWNER)
                entry["filter_fields"] = noted

    def rotate(self, collection: str, *, protector: str | None = None) -> CollectionKeys:
        """Make a new data key current, wrapped under the current master key; older keys still open their blobs.

        Args:
            protector: fingerprint of the protector of the rows to come; None keeps the current key's.
        """
        with self._changing() as record:
            entry = self._entry(collection, record)
            # Older keys move to the current master key.
            for (_, key_id, _), secret in self._unwrapped_bytes(entry).items():
                entry["keys"][key_id]["wrapped"] = self._rewrapped(secret, entry["uuid"], key_id)
                if protector is not None:
                    entry["keys"][key_id].setdefault("protector", "unknown")  # not the protector of the rows to come
            self._new_key(entry, protector)
        return self.read(collection)

    def retire(self, collection: str, *, keep: bytes) -> int:
        """Delete the data keys of ``collection`` but the current one and ``keep``, a key id; return how many.

        Blobs under them open no more: delete a key only when no row is sealed with it and no writer still holds it.
        """
        with self._changing() as record:
            entry = self._entry(collection, record)
            older = [key_id for key_id in entry["keys"] if key_id not in (entry["current"], keep.hex())]
            for key_id in older:
                del entry["keys"][key_id]
            # A segment that a writer appended under a retired key was appended again before `add` returned.
            entry["retired"] = [*entry.get("retired", []), *older]
        return len(older)

    def is_retired(self, collection: str, key_id: str) -> bool:
        """Return whether `retire` has deleted this data key."""
        return key_id in self._entry(collection, self._load()).get("retired", ())

    def rewrap(self, dest: KeyStore) -> list[str]:
        """Copy all collections to ``dest``, whose provider or master key then wraps their data keys; return the names.

        The data keys stay the same: whoever has a copy of this file and its master key still opens the rows, until they
        are resealed under ``dest``.

        Raises:
            InvalidInputError: ``dest`` has one of the collections already.
        """
        copied = self._load()["collections"]
        for entry in copied.values():
            for (_, key_id, _), secret in self._unwrapped_bytes(entry).items():
                entry["keys"][key_id]["wrapped"] = dest._rewrapped(secret, entry["uuid"], key_id)
        with dest._changing() as record:
            there = {entry["uuid"]: name for name, entry in record["collections"].items()}
            for name, entry in copied.items():
                if name in record["collections"] or entry["uuid"] in there:
                    raise _taken(there.get(entry["uuid"], name), "dest")
            record["collections"].update(copied)
        return sorted(copied)

    def rename(self, collection: str, name: str) -> None:
        """Rename a collection; its blobs are bound to its UUID and stay valid."""
        with self._changing() as record:
            self._entry(collection, record)
            if _checked(name) in record["collections"]:
                raise _taken(name, "name")
            record["collections"][name] = record["collections"].pop(collection)
        self._cached.pop(collection, None)
        self._used.pop(name, None)

    def erase(self, collection: str) -> None:
        """Delete all data keys of ``collection``: its blobs open no more, but with a backup of this file."""
        with self._changing() as record:
            self._entry(collection, record)
            del record["collections"][collection]
        self._cached.pop(collection, None)

    def erase_master(self, key_id: str) -> None:
        """Delete an older master key of the file; keyed noise made with it cannot be repeated.

        Raises:
            InvalidInputError: the key is current or wraps a data key, or there is no such key.
        """
        with self._changing() as record:
            rows = [row for entry in record["collections"].values() for row in entry["keys"].values()]
            wrapping = {_master_of(base64.b64decode(row["wrapped"])) for row in rows}
            mine = {} if self.provider else record["keys"]
            if key_id not in mine or key_id in {record["current"], *wrapping}:
                raise InvalidInputError(
                    "This master key is the current one, or still wraps data keys. Add a new key "
                    "and reseal every collection first.",
                    param="key_id",
                )
            del record["keys"][key_id]

    def _entry(self, collection: str, record: dict[str, Any]) -> dict[str, Any]:
        if collection not in record["collections"]:
            raise _no_collection(collection, Path(self.path).name, record["collections"])
        entry: dict[str, Any] = record["collections"][collection]
        return entry

    def _new_key(self, entry: dict[str, Any], protector: str | None = None) -> None:
        key_id = secrets.token_hex(KEY_ID_BYTES)
        wrapped = self._wrapped(secrets.token_bytes(KEY_BYTES), entry["uuid"], key_id)
        protector = protector or entry["keys"].get(entry["current"], {}).get("protector")
        noted = {} if protector is None else {"protector": protector}
        entry["keys"][key_id] = {"wrapped": wrapped, "sealed": 0, **noted}
        entry["current"] = key_id

    def _wrapped(self, secret: bytes, name: str, key_id: str) -> str:
        with provider_errors():
            return base64.b64encode(self._provider().wrap(secret, _context(name, key_id))).decode()

    def _rewrapped(self, secret: bytes, name: str, key_id: str) -> str:
        """Return a data key in use, wrapped anew; raise unless it unwraps, as rows would be lost with it."""
        wrapped = self._wrapped(secret, name, key_id)
        if not hmac.compare_digest(self._unwrapped_key(name, key_id, wrapped), secret):
            raise KeyFileError("The key provider returned another key than it wrapped.", code="E-SEAL-PROVIDER")
        return wrapped

    def _unwrapped_bytes(
        self, entry: dict[str, Any], known: Mapping[Wrapped, bytes] | None = None
    ) -> dict[Wrapped, bytes]:
        """Return the data keys of a collection by what they are in the file, taken from ``known`` if they are there."""
        opened = {}
        for key_id, row in entry["keys"].items():
            wrapped = (entry["uuid"], key_id, row["wrapped"])
            opened[wrapped] = (known or {}).get(wrapped) or self._unwrapped_key(*wrapped)
        return opened

    def _unwrapped_key(self, name: str, key_id: str, wrapped: str) -> bytes:
        try:
            with provider_errors():
                secret = self._provider().unwrap(base64.b64decode(wrapped), _context(name, key_id))
            if len(secret) == KEY_BYTES:
                return secret
        except InvalidTag:
            pass
        raise KeyFileError(
            f"The master key does not unwrap the data key {key_id}. Use the key file or provider that made this key "
            "store.",
            param="path",
        )

    def _provider(self) -> KeyProvider:
        return self.provider or MasterKeys(KeyFile.from_file(self.path))

    def _load(self) -> dict[str, Any]:
        path = Path(self.path)
        if self.provider is None:
            KeyFile.from_file(path)  # checks permissions and the master keys
        elif not path.exists() and not self._used:
            return {"schema": SCHEMA, "collections": {}}
        try:
            record: dict[str, Any] = parse_json(path.read_text("utf-8"))
            if record["schema"] != SCHEMA:
                raise ValueError
            _check_collections(record.setdefault("collections", {}))
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError, InvalidInputError) as error:
            # Other errors may quote key material.
            reason = error if isinstance(error, _ContradictionError) else type(error).__name__
            raise KeyFileError(
                f"{path.name} is no readable key store ({reason}). Restore it from a backup; no blob opens without it.",
                param="path",
            ) from None
        return record

    @contextmanager
    def _changing(self, spare: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the content of the file, and write it back unless fewer than ``spare`` bytes would be left."""
        path = Path(self.path)
        with ExitStack() as stack:
            with key_file_errors(path):
                stack.enter_context(locked(path))
            record = self._load()
            yield record
            with key_file_errors(path):
                write_bytes(path, key_file_content(path, record, spare))


class _ContradictionError(ValueError):
    """The members of a key store contradict each other, as after two files were merged by hand."""


def _check_collections(collections: dict[str, Any]) -> None:
    """Raise ValueError, or what wrong types cause, unless ``collections`` is what `KeyStore` writes."""
    owners: dict[str, str] = {}  # names by UUID and by key id
    for name, entry in collections.items():
        rows, retired = entry["keys"], entry.get("retired", [])
        for row in rows.values():
            base64.b64decode(row["wrapped"], validate=True)
            if type(row["sealed"]) is not int or row["sealed"] < 0 or not isinstance(row.get("protector"), str | None):
                raise ValueError
        fields = entry.get("filter_fields", [])
        lists = isinstance(fields, list) and isinstance(retired, list)
        if not lists or not all(isinstance(field, str) for field in fields):
            raise ValueError
        token_fields(fields, owner=_OWNER)
        canonical = str(uuid.UUID(entry["uuid"])) == entry["uuid"] and all(map(_is_key_id, [*rows, *retired]))
        if not canonical or not isinstance(entry.get("encoder"), str | None):
            raise ValueError
        if entry["current"] not in rows:
            raise _ContradictionError(f"collection {_checked(name)[:80]!r} has no current key")
        if set(retired) & set(rows):
            raise _ContradictionError(f"collection {_checked(name)[:80]!r} has a key that it retired")
        for known in (entry["uuid"], *rows):
            if owners.setdefault(known, name) != name:
                raise _ContradictionError(f"collections {owners[known][:80]!r} and {name[:80]!r} share a UUID or key")


def _is_key_id(key_id: str) -> bool:
    secret = bytes.fromhex(key_id)
    return len(secret) == KEY_ID_BYTES and secret.hex() == key_id


def _reserver(key_id: bytes) -> tuple[bytes, int, int]:
    """Return a key and who reserves blobs of it: each process and thread, so that no two count on the same ones."""
    return key_id, os.getpid(), threading.get_ident()


def _context(collection: str, key_id: str) -> bytes:
    # Printable, for the logs and policies of key services; a UUID and a key id have one form.
    return f"vecveil data key 1 collection={collection} key={key_id}".encode()


def _checked(collection: str) -> str:
    valid = isinstance(collection, str) and 0 < len(collection) <= _LONGEST_NAME and collection.isprintable()
    if not valid:
        text = f"The name of a collection has 1 to {_LONGEST_NAME} printable characters."
        raise InvalidInputError(text, code="E-SEAL-NAME", param="collection")
    return collection


def _taken(name: str, param: str) -> InvalidInputError:
    return InvalidInputError(
        f"The key store has a collection {repr(name)[:60]} already.", code="E-SEAL-NAME", param=param
    )


def _no_collection(collection: str, file: str, known: Iterable[str]) -> KeyFileError:
    listed = ", ".join(repr(name)[:80] for name in sorted(known)[:5]) or "none"
    return KeyFileError(
        f"No key for collection {collection[:80]!r} in {file}. If the store was moved or renamed, pass the name under "
        "which its rows are sealed (--seal-name); otherwise check that this is its key file. "
        f"The file has keys for: {listed}.",
        code="E-SEAL-COLLECTION",
        param="collection",
    )
