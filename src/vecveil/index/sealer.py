"""`Sealer`: seal exact vectors and texts, open them again, and rank candidates by exact cosines."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag

from vecveil.errors import InvalidInputError, KeyFileError, SealingError, renamed, unknown_name, wrong_type
from vecveil.index.blob import (
    HEADER_BYTES,
    NONCE_END,
    PRECISIONS,
    VERSION,
    associated_prefix,
    canonical_ids,
    decode_payload,
    decode_vectors,
    dimension_of,
    encode_payload,
    encode_vectors,
    head,
    key_id_of,
)
from vecveil.index.key_services import open_service
from vecveil.index.keystore import (
    FILTER_PREFIX,
    NONCE_BYTES,
    CollectionKeys,
    KeyProvider,
    KeyStore,
    MasterKeys,
    SingleKey,
)
from vecveil.keys import KeyFile, split_source
from vecveil.types import Embeddings
from vecveil.validation import (
    check_count,
    check_embeddings,
    check_same_length,
    check_sequence,
    check_texts,
    check_unmasked,
)

OnInvalid = Literal["raise", "skip"]


@dataclass(frozen=True, repr=False, eq=False)
class Unsealed:
    """Opened rows.

    Attributes:
        ids: ids of the opened rows, as given.
        vectors: exact vectors (N, n), float32.
        texts: text of each row, or None.
        metadata: metadata of each row, or None.
        skipped: ids of blobs that did not open (``on_invalid="skip"``).
    """

    ids: list[Any]
    vectors: npt.NDArray[np.float32]
    texts: list[str | None]
    metadata: list[dict[str, Any] | None]
    skipped: list[Any]

    def rows(self, order: Sequence[int]) -> Self:
        """Return these rows; ``skipped`` stays."""
        at = list(order)
        chosen: dict[str, Any] = {
            name: column[at] if isinstance(column, np.ndarray) else [column[i] for i in at]
            for name, column in vars(self).items()
            if name != "skipped"
        }
        return replace(self, **chosen)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.ids)} rows, {len(self.skipped)} skipped)"


@dataclass(frozen=True, repr=False, eq=False)
class Ranking(Unsealed):
    """Candidates in the order of their exact cosines, largest first.

    Attributes:
        scores: cosine of the query and each exact vector, float32; 0 for a vector of zeros.
    """

    scores: npt.NDArray[np.float32]


class Sealer:
    """Seals rows under the data key of their collection, with AES-256-GCM-SIV and random nonces.

    Args:
        key: path of a key store (a key file of `vecveil key new`), a `KeyStore`, a `KeyProvider` together with
            ``store``, ``env:NAME:STORE`` for a master key in an environment variable (base64 of 32 bytes, or the JSON
            of a key file), ``awskms:NAME:STORE`` or another key service, or 32 random bytes (one data key for all
            collections, no erasure by collection).
        store: path of the file for the data keys that a `KeyProvider` or the key of a variable or service wraps.
        precision: of the sealed vector: ``float16`` (2 bytes a value), ``int8`` (1 byte and a scale a row) or
            ``float32``.
        padding: least length of text and metadata in bytes; longer ones are padded by Padmé. 0: no padding, so
            that a blob's length reveals the text's.
        compress: compress text and metadata before padding.

    Attributes:
        keys: key store, for rotation and erasure.

    Guarantee:
        Without the key a blob reveals its length, its key id and nothing else (AES-256-GCM-SIV; equal rows get
        different blobs). A blob that was changed, or moved to another id or collection, does not open. The
        database can still withhold rows, return deleted ones, and return an older blob of the same id; pass
        ``generations`` to detect the last.
    """

    def __init__(
        self,
        key: str | os.PathLike[str] | KeyStore | KeyProvider | bytes,
        *,
        store: str | os.PathLike[str] | None = None,
        precision: str = "float16",
        padding: int = 256,
        compress: bool = False,
    ) -> None:
        if precision not in PRECISIONS:
            raise unknown_name("Sealer", "precision", PRECISIONS, precision)
        self.keys = open_keys(key, store)
        self._precision, self._compress = precision, bool(compress)
        self._padding = check_count(padding, owner="Sealer", param="padding", minimum=0)

    def __repr__(self) -> str:
        return f"Sealer({self.keys!r}, precision={self._precision!r})"

    def seal(
        self,
        vectors: Embeddings,
        *,
        ids: Any,
        collection: str,
        texts: Sequence[str | None] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        generations: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return one blob for each row of ``vectors`` (N, n).

        Args:
            ids: str, int, bytes or UUID for each row.
            collection: name; a data key is made for a new one. Of a collection whose keys were erased or renamed while
                this process used them, no row is sealed.
            generations: number for each row that the caller keeps and passes again to `unseal` and `rank`.

        Raises:
            InvalidInputError: vectors are not finite, beyond the range of the precision, or protected by this process;
                lengths differ.
            KeyFileError: the key file cannot be read or written, or no longer has the collection's keys.
        """
        owner = "Sealer.seal"
        X = check_embeddings(vectors, owner=owner, param="vectors")
        columns = {"vectors": X, "texts": texts, "metadata": metadata, "generations": generations}
        check_same_length(owner, **{name: column for name, column in columns.items() if column is not None})
        items = _bound_ids(ids, generations, len(X), owner)
        if len(set(canonical_ids(ids, len(X), owner=owner))) != len(X):
            raise InvalidInputError(
                "Some ids are equal, and the blobs of equal ids could be exchanged. A UUID is one id in any spelling.",
                code="E-INPUT-IDS",
                param="ids",
            )
        if texts is not None:
            texts = check_sequence(texts, "a sequence of strings", owner=owner, param="texts")
            check_texts([text for text in texts if text is not None], owner=owner, min_rows=0)
        bodies = encode_vectors(X, self._precision, owner=owner)
        payload = texts is not None or metadata is not None
        front = head(self._precision, X.shape[1], payload=payload, compressed=payload and self._compress)
        if payload:
            blank = [None] * len(X)
            rows = zip(bodies, blank if texts is None else texts, blank if metadata is None else metadata, strict=True)
            options: Any = {"padding": self._padding, "compress": self._compress, "owner": owner}
            bodies = [body + encode_payload(text, row, i, **options) for i, (body, text, row) in enumerate(rows)]
        self.keys.create(collection, exist_ok=True)
        return self._sealed([front + body for body in bodies], items, collection)

    def unseal(
        self,
        blobs: Sequence[bytes],
        *,
        ids: Any,
        collection: str,
        generations: Sequence[int] | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> Unsealed:
        """Return the rows of ``blobs``.

        Raises:
            SealingError: a blob does not open: changed, moved, of a different collection, key or generation.
            KeyFileError: the collection has no data key.
        """
        names, _, plaintexts, skipped = self._open(blobs, ids, collection, generations, on_invalid, "Sealer.unseal")
        return Unsealed(names, _stacked(plaintexts), *_payloads(plaintexts), skipped)

    def rank(
        self,
        query: npt.NDArray[np.floating[Any]],
        blobs: Sequence[bytes],
        *,
        ids: Any,
        collection: str,
        top: int = 10,
        generations: Sequence[int] | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> Ranking:
        """Return the ``top`` rows by the cosine of ``query`` (n,) and their exact vectors; ties keep the given order.

        Raises:
            SealingError: as `unseal`.
        """
        owner = "Sealer.rank"
        check_unmasked(query, owner, "query")
        top, query = check_count(top, owner=owner, param="top"), np.asarray(query)
        q = check_embeddings(np.atleast_2d(query), owner=owner, param="query")[0].astype(np.float32)
        length = float(np.linalg.norm(q))
        if length == 0 or query.ndim != 1:
            text = f"{owner}: `query` is one vector (n,) that is not zero; its shape is {query.shape}."
            raise InvalidInputError(text, param="query")
        names, _, plaintexts, skipped = self._open(blobs, ids, collection, generations, on_invalid, owner, len(q))
        X = _stacked(plaintexts).reshape(-1, len(q))
        norms = np.sqrt(np.einsum("ij,ij->i", X, X)) * length
        scores = np.divide(X @ q, norms, out=np.zeros(len(X), np.float32), where=norms > 0)
        order = np.argsort(-scores, kind="stable")[:top]
        payloads = _payloads([plaintexts[i] for i in order])
        return Ranking([names[i] for i in order], X[order], *payloads, skipped, scores[order])

    def reseal(
        self, blobs: Sequence[bytes], *, ids: Any, collection: str, generations: Sequence[int] | None = None
    ) -> dict[Any, bytes]:
        """Return by id the blobs that open, sealed again under the current data key, their content unchanged."""
        names, items, plaintexts, _ = self._open(blobs, ids, collection, generations, "skip", "Sealer.reseal")
        return dict(zip(names, self._sealed(plaintexts, items, collection), strict=True))

    def _sealed(self, plaintexts: list[bytes], items: list[bytes], collection: str) -> list[bytes]:
        keys = self.keys.reserve(collection, len(items))
        header = VERSION + keys.current.key_id
        prefix, encrypt = associated_prefix(header, keys.uuid), keys.current.cipher.encrypt
        random = secrets.token_bytes(NONCE_BYTES * len(items))  # one system call
        nonces = [random[i : i + NONCE_BYTES] for i in range(0, len(random), NONCE_BYTES)]
        return [
            header + nonce + encrypt(nonce, plain, prefix + item)
            for nonce, plain, item in zip(nonces, plaintexts, items, strict=True)
        ]

    def _open(
        self,
        blobs: Sequence[bytes],
        ids: Any,
        collection: str,
        generations: Sequence[int] | None,
        on_invalid: OnInvalid,
        owner: str,
        dimension: int | None = None,
    ) -> tuple[list[Any], list[bytes], list[bytes], list[Any]]:
        """Return ids, bound ids and plaintexts of the blobs that open, and the ids of the others."""
        if on_invalid not in ("raise", "skip"):
            raise unknown_name(owner, "on_invalid", ("raise", "skip"), on_invalid)
        if isinstance(blobs, bytes | str) or not isinstance(blobs, Sequence):
            raise wrong_type(owner, "blobs", "a sequence of bytes", blobs)
        items = _bound_ids(ids, generations, len(blobs), owner)
        given = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        ciphers = _ciphers(self.keys.read(collection)) if items else {}
        opened: list[tuple[Any, bytes, bytes]] = []
        skipped: list[Any] = []
        for position, (blob, item) in enumerate(zip(blobs, items, strict=True)):
            try:
                decrypt, prefix = ciphers[bytes(blob[:HEADER_BYTES])]
                plain = decrypt(blob[HEADER_BYTES:NONCE_END], blob[NONCE_END:], prefix + item)
                size = dimension_of(plain)
                if size != (dimension := dimension or size):
                    raise ValueError
            except (KeyError, InvalidTag, ValueError, TypeError):
                if on_invalid == "raise":
                    raise SealingError(
                        f"The blob at position {position} does not open: it was changed, or is of "
                        "another id, collection, generation, key or size. Seal the row again, or pass "
                        "on_invalid='skip'.",
                        code="E-SEAL-OPEN",
                        param="blobs",
                    ) from None
                skipped.append(given[position])
                continue
            opened.append((given[position], item, plain))
        names, bound, plaintexts = ([row[part] for row in opened] for part in range(3))
        return names, bound, plaintexts, skipped


def filter_tokens(
    keys: CollectionKeys, filter_fields: Iterable[str], blobs: Sequence[bytes], metadata: Sequence[Any] | None
) -> list[dict[str, str]]:
    """Return for each row the tokens of its metadata by field of the database."""
    # Under the blob's key: another process may have made a new one since.
    by_id = {key.key_id: key for key in keys.keys}
    return [
        {
            f"{FILTER_PREFIX}{field}": by_id[key_id_of(blob)].token(field, row[field])
            for field in filter_fields
            if row and row.get(field) is not None
        }
        for blob, row in zip(blobs, metadata or [None] * len(blobs), strict=True)
    ]


def _ciphers(keys: CollectionKeys) -> dict[bytes, tuple[Any, bytes]]:
    headers = {VERSION + key.key_id: key for key in keys.keys}
    return {name: (key.cipher.decrypt, associated_prefix(name, keys.uuid)) for name, key in headers.items()}


def _payloads(plaintexts: list[bytes]) -> tuple[list[str | None], list[dict[str, Any] | None]]:
    payloads = [decode_payload(plain) for plain in plaintexts]
    return [text for text, _ in payloads], [metadata for _, metadata in payloads]


def _stacked(plaintexts: list[bytes]) -> npt.NDArray[np.float32]:
    """Return the vectors of plaintexts of one dimension, which may differ in precision, (N, n)."""
    groups: dict[bytes, list[int]] = {}
    for i, plain in enumerate(plaintexts):
        groups.setdefault(plain[:1], []).append(i)
    if len(groups) <= 1:
        return decode_vectors(plaintexts) if plaintexts else np.zeros((0, 0), np.float32)
    X = np.empty((len(plaintexts), dimension_of(plaintexts[0])), np.float32)
    for rows in groups.values():
        X[rows] = decode_vectors([plaintexts[i] for i in rows])
    return X


def _bound_ids(ids: Any, generations: Sequence[int] | None, rows: int, owner: str) -> list[bytes]:
    items = canonical_ids(ids, rows, owner=owner)
    if generations is None:
        return items
    numbers = [
        check_count(number, owner=owner, param="generations", minimum=0, maximum=2**64 - 1) for number in generations
    ]
    check_same_length(owner, ids=items, generations=numbers)
    return [item + b"g" + number.to_bytes(8, "little") for item, number in zip(items, numbers, strict=True)]


def open_keys(key: Any, store: Any = None) -> KeyStore | SingleKey:
    """Return the keys that ``key`` and ``store`` name; see `Sealer`."""
    origin, path = split_source(key) if isinstance(key, str | os.PathLike) else (None, "")
    if origin is not None:
        in_variable = origin.startswith("env:")
        key = MasterKeys(KeyFile.from_environment(origin[4:])) if in_variable else open_service(origin)
        store = store or path or None
    if isinstance(key, KeyProvider):
        if store is None:
            raise InvalidInputError(
                "A KeyProvider needs a file for its wrapped data keys: pass store='search.keys', "
                "or name the file at the end of the key, as in env:NAME:search.keys.",
                param="store",
            )
        return KeyStore(store, key)
    if store is not None:
        raise InvalidInputError("`store` is only valid with a KeyProvider.", param="store")
    if isinstance(key, KeyStore):
        return key
    if isinstance(key, bytes):
        return SingleKey(key)
    if isinstance(key, str | os.PathLike):
        with renamed("path", "key"):
            return KeyStore(key)
    raise KeyFileError("A key is a path, a KeyStore, a KeyProvider or 32 bytes.", param="key")
