"""The format of a sealed blob: one row's exact vector, text and metadata, encrypted.

::

    blob       = version (1 byte, 1) | key id (8) | nonce (12) | AES-256-GCM-SIV(plaintext) | tag (16)
    plaintext  = precision (1) | flags (1) | dimension (4) | vector | [length (4) | payload | zeros]
    associated = purpose | version | key id | collection UUID (16) | id | [generation]

The associated data bind a blob to its row: under another id, collection, key or generation it does not open.

`SqliteBlobs` keeps blobs in a SQLite file, apart from the database that contains the vectors.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sqlite3
import struct
import threading
import uuid
import zlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, StoreError
from vecveil.index.keystore import KEY_ID_BYTES, NONCE_BYTES, framed
from vecveil.io import create_private, expanded
from vecveil.texts.tables.columns import filter_value
from vecveil.types import Embeddings
from vecveil.validation import check_ids

SEALED_FIELD = "vecveil_sealed"
"""Field of a row, or column of a table, that contains its sealed blob. Databases hold base64, since not every one
stores bytes with a vector."""
VERSION = b"\x01"
HEADER_BYTES = 1 + KEY_ID_BYTES
NONCE_END = HEADER_BYTES + NONCE_BYTES
PRECISIONS = ("float16", "int8", "float32")
_HEAD = struct.Struct("<BBI")
_DEEPEST = 100  # levels of metadata
_PAYLOAD, _COMPRESSED = 1, 2
_WAIT_SECONDS = 60.0  # for another process's write to a file of blobs
_PURPOSE = b"vecveil sealed blob"
# The spellings of a UUID that databases normalise: Qdrant and pgvector return the form with hyphens.
_UUID = re.compile(
    rb"s(?:urn:uuid:)?\{?[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}\}?", re.IGNORECASE
)


def _written(value: Any) -> Any:
    """Return a value of metadata that JSON lacks as tables are read and filters compare it."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if (text := filter_value(value)) is value:
        raise TypeError
    return text


JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_written).encode


def canonical_ids(ids: Any, rows: int, *, owner: str) -> list[bytes]:
    """Return ids as typed, length-prefixed bytes: ``1`` and ``"1"`` differ, spellings of a UUID agree."""
    if isinstance(ids, Sequence) and not isinstance(ids, str | bytes):
        ids = [str(item) if isinstance(item, uuid.UUID) else item for item in ids]
    return [
        framed(b"u" + uuid.UUID(item[1:].decode()).bytes if _UUID.fullmatch(item) else item)
        for item in check_ids(ids, rows, owner=owner)
    ]


def uuid_spellings(name: str) -> list[str]:
    """Return the usual spellings of a UUID, and nothing for another id."""
    if not _UUID.fullmatch(b"s" + name.encode("utf-8", "surrogatepass")):
        return []
    value = uuid.UUID(name)
    return [form for each in (str(value), value.hex) for form in (each, each.upper())]


def associated_prefix(header: bytes, collection: uuid.UUID) -> bytes:
    """Return the part of the associated data that the blobs of one key share; ``header`` is version and key id."""
    return framed(_PURPOSE) + header + collection.bytes


def check_range(X: npt.NDArray[np.floating[Any]], precision: str, owner: str) -> None:
    """Raise for a vector that ``precision`` cannot hold."""
    largest = np.abs(X).max(axis=1)
    # Below 2⁻¹⁴ float16 keeps fewer bits: a row of such values would lose its direction. The squares of a row, summed
    # for its cosine, must be within the range of float32.
    least, most = (2.0**-10, 65504.0) if precision == "float16" else (2.0**-50, 2.0**50)
    if ((largest > most) | ((largest > 0) & (largest < least))).any():
        raise InvalidInputError(
            f"{owner}: a vector is beyond the range of {precision}. Normalise the vectors.",
            code="E-SEAL-RANGE",
            param="vectors",
        )


def quantised(
    X: npt.NDArray[np.floating[Any]], precision: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """Return the values (N, n) of ``X`` as they are stored, and for int8 the scale of each row."""
    if precision != "int8":
        with np.errstate(under="ignore"):
            return X.astype("<f2" if precision == "float16" else "<f4"), None
    scale = np.abs(X).max(axis=1).astype(np.float32) / np.float32(127)  # 0 for a row of zeros
    return np.rint(X / np.where(scale > 0, scale, 1)[:, None]).clip(-127, 127).astype(np.int8), scale


def encode_vectors(X: Embeddings, precision: str, *, owner: str) -> list[bytes]:
    """Return head and values of each row of ``X`` (N, n)."""
    check_range(X, precision, owner)
    body, scale = quantised(X, precision)
    return [row.tobytes() for row in (body if scale is None else np.hstack([scale[:, None].view(np.int8), body]))]


def metadata_json(row: Any, owner: str, index: int) -> str:
    """Return one row's metadata as JSON; an error names the row ``index`` and the field.

    Times, decimals and UUIDs become texts, as those of tables do, and NumPy's numbers Python's.
    """
    try:
        if row is not None and (not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row)):
            raise TypeError
        record = None if row is None else dict(row)
        text = JSON(record)
        # Deeper, whoever opens the row could run out of stack.
        if text.count("{") + text.count("[") > _DEEPEST and _is_deep(record):
            raise ValueError
        return text
    except (TypeError, ValueError, RecursionError):  # the message may quote a value
        raise InvalidInputError(
            f"{owner}: `metadata` has {_fault(row)} in row {index + 1} (counted from 1). Each row is a JSON object "
            f"with string keys, at most {_DEEPEST} levels deep. Times, decimals and UUIDs are "
            "written as texts; write None for NaN and infinity.",
            code="E-SEAL-METADATA",
            param="metadata",
        ) from None


def _fault(row: Any) -> str:
    """Return what is wrong with ``row``, and in which field."""
    if not isinstance(row, Mapping):
        return f"the type {type(row).__name__}"
    for name, value in row.items():
        if not isinstance(name, str):
            return f"a key of the type {type(name).__name__}"
        if _is_deep(value, _DEEPEST - 1):
            return f"too many levels in the field {name[:60]!r}"
        try:
            JSON(value)
        except (TypeError, ValueError):
            return f"a value that JSON cannot contain in the field {name[:60]!r}"
    return "a value that JSON cannot contain"


def _is_deep(value: Any, left: int = _DEEPEST) -> bool:
    within = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return left < 0 or any(_is_deep(each, left - 1) for each in within)


def head(precision: str, n: int, *, payload: bool, compressed: bool) -> bytes:
    """Return the first six bytes of a plaintext."""
    return _HEAD.pack(PRECISIONS.index(precision), payload * _PAYLOAD + compressed * _COMPRESSED, n)


def decode_vectors(plaintexts: Sequence[bytes]) -> npt.NDArray[np.float32]:
    """Return the vectors (N, n) of plaintexts that share precision and dimension, as their heads say."""
    precision, _, n = _HEAD.unpack_from(plaintexts[0])
    end = _vector_end(plaintexts[0])
    raw = np.frombuffer(b"".join([plain[_HEAD.size : end] for plain in plaintexts]), np.uint8)
    raw = raw.reshape(len(plaintexts), -1)
    if PRECISIONS[precision] == "int8":
        scale = np.ascontiguousarray(raw[:, :4]).view("<f4")
        scaled: npt.NDArray[np.float32] = raw[:, 4:].view(np.int8).astype(np.float32) * scale
        return scaled
    stored = raw.view("<f2" if PRECISIONS[precision] == "float16" else "<f4")
    return stored.reshape(len(plaintexts), n).astype(np.float32)


def key_id_of(blob: bytes) -> bytes:
    """Return the id of the data key in the header of a blob."""
    return blob[1:HEADER_BYTES]


def dimension_of(plain: bytes) -> int:
    """Return the dimension of the vector in a plaintext."""
    return int(_HEAD.unpack_from(plain)[2])


def _vector_end(plain: bytes) -> int:
    precision, _, n = _HEAD.unpack_from(plain)
    size: int = {"float16": 2 * n, "int8": 4 + n, "float32": 4 * n}[PRECISIONS[precision]]
    return _HEAD.size + size


def encode_payload(
    text: str | None, metadata: Mapping[str, Any] | None, index: int, *, padding: int, compress: bool, owner: str
) -> bytes:
    """Return text and metadata as JSON behind their length, padded with zeros to `padded_length`."""
    body = f'{{"text":{JSON(text)},"metadata":{metadata_json(metadata, owner, index)}}}'
    data = body.encode("utf-8", "surrogatepass")
    if compress:
        data = zlib.compress(data)
    # Padding comes last: the length of compressed text reveals something of its content.
    return framed(data).ljust(padded_length(len(data) + 4, padding), b"\0")


def decode_payload(plain: bytes) -> tuple[str | None, dict[str, Any] | None]:
    """Return the text and the metadata of a plaintext, or None for each that it has not."""
    _, flags, _ = _HEAD.unpack_from(plain)
    if not flags & _PAYLOAD:
        return None, None
    start = _vector_end(plain)
    length = int.from_bytes(plain[start : start + 4], "little")
    data = plain[start + 4 : start + 4 + length]
    if flags & _COMPRESSED:
        data = zlib.decompress(data)
    record = json.loads(data.decode("utf-8", "surrogatepass"))
    return record["text"], record["metadata"]


def padded_length(length: int, padding: int) -> int:
    """Return ``length`` rounded up: to ``padding`` at least, above it to Padmé's next length.

    Padmé (Nikitin et al., PURBs, PoPETs 2019, algorithm 1) keeps the leading bits of a length, so that it reveals
    O(log log L) bits and adds at most 12 %. ``padding`` 0 adds nothing.
    """
    if padding == 0 or length <= padding:
        return max(length, padding)
    exponent = length.bit_length() - 1
    last = exponent - exponent.bit_length()
    return (length + (1 << last) - 1) >> last << last


def is_blob(value: Any) -> bool:
    """Return whether a field has the form of a blob, which says nothing of its key."""
    blob = decoded(value)
    return blob[:1] == VERSION and len(blob) > NONCE_END + _HEAD.size + 16  # the tag


def decoded(value: Any) -> bytes:
    """Return the blob in a field, as bytes or base64, or nothing if it is missing or damaged."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""  # refused like a damaged blob


class SqliteBlobs(MutableMapping[str, bytes]):
    """Blobs by id in one SQLite file, for ``blobs=`` of `ProtectedCollection`.

    `update` writes all its blobs in one transaction. Processes and threads may share the file on a local disk.

    Args:
        path: made if it does not exist.

    Raises:
        StoreError: the file is no SQLite file, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.realpath(expanded(path))
        with suppress(OSError):  # that SQLite explains
            create_private(Path(self._path))
        self._local = threading.local()
        with self._cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")  # readers do not wait for a writer
            cursor.execute("CREATE TABLE IF NOT EXISTS blobs (id BLOB PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID")

    def __repr__(self) -> str:
        return f"SqliteBlobs({os.path.basename(self._path)!r})"

    def __reduce__(self) -> Any:
        return SqliteBlobs, (self._path,)

    def __getitem__(self, name: str) -> bytes:
        with self._cursor() as cursor:
            row = cursor.execute("SELECT blob FROM blobs WHERE id = ?", [_key(name)]).fetchone()
        if row is None:
            raise KeyError(name)
        return bytes(row[0])

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.update({name: blob})

    def __delitem__(self, name: str) -> None:
        with self._cursor() as cursor:
            if not cursor.execute("DELETE FROM blobs WHERE id = ?", [_key(name)]).rowcount:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        with self._cursor() as cursor:  # all at once, so that no read stays open
            rows = cursor.execute("SELECT id FROM blobs").fetchall()
        return iter([row[0].decode("utf-8", "surrogatepass") for row in rows])

    def __len__(self) -> int:
        with self._cursor() as cursor:
            return int(cursor.execute("SELECT count(*) FROM blobs").fetchone()[0])

    def update(self, other: Any = (), /, **more: bytes) -> None:
        """Write all blobs in one transaction."""
        rows = [(_key(name), bytes(blob)) for name, blob in dict(other, **more).items()]
        with self._cursor() as cursor, transaction(self._local.connection):
            cursor.executemany("INSERT OR REPLACE INTO blobs VALUES (?, ?)", rows)

    def compact(self) -> None:
        """Overwrite what the file and its log keep of deleted blobs."""
        with self._cursor() as cursor:
            cursor.execute("VACUUM")
            empty_log(cursor, os.path.basename(self._path))

    def files(self) -> list[str]:
        """Return the file and its log."""
        return [self._path, f"{self._path}-wal"]

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        if getattr(self._local, "pid", None) == os.getpid():
            self._local.connection.close()
            self._local.pid = None

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Cursor]:
        # SQLite's connections belong to one thread, and none may cross a fork.
        try:
            if getattr(self._local, "pid", None) != os.getpid():
                self._local.connection = sqlite3.connect(self._path, _WAIT_SECONDS, isolation_level=None)
                self._local.connection.execute("PRAGMA secure_delete = ON")  # overwrite deleted blobs
                self._local.pid = os.getpid()
            cursor = self._local.connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()
        except sqlite3.Error as error:
            name = os.path.basename(self._path)
            raise StoreError(
                f"{name} cannot be opened as a SQLite file to read and write ({type(error).__name__}).",
                code="E-STORE-DATABASE",
                param="path",
            ) from None


@contextmanager
def transaction(connection: Any) -> Iterator[None]:
    """Run the block in one transaction of a SQLite connection in autocommit mode: committed, or rolled back."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A COMMIT that fails, as a reader holds the file, leaves the transaction open: what later calls write would end
        # in it, and be lost with it. If the rollback fails too, the next BEGIN does, and rolls back first.
        if connection.in_transaction:
            with suppress(Exception):
                connection.execute("ROLLBACK")
        raise


def empty_log(connection: Any, name: str) -> None:
    """Write the log of the SQLite file ``name`` to the file; raise StoreError while another connection reads it."""
    if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:  # no error of SQLite
        raise StoreError(
            f"Another program reads {name}, and so keeps what was deleted in it. Stop that program, and repeat the "
            "call.",
            code="E-STORE-DATABASE",
            param="path",
        )


def _key(name: str) -> bytes:
    # As bytes: SQLite's texts contain no lone surrogates.
    return name.encode("utf-8", "surrogatepass")
