"""Segments of a sealed index: immutable Parquet files with modular encryption and padded sizes.

A segment is an ordinary Parquet file with uniform encryption (AES-256-GCM, encrypted footer); docs/formats.md specifies
it. Its file key is random. The key material in the file contains that key, wrapped for the segment's own name: under
another name the file does not open. The footer's ``vecveil`` entry is the segment's record, a JSON object.

The format states the length of each encrypted page in clear. All row groups of a segment therefore have one shape, a
number of rows and of bytes in each column of texts, which follows from Padmé lengths of the segment's rows and bytes.
Padding rows fill each group, and groups of padding rows bring their number to a Padmé length. Columns are not
compressed and have no statistics.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag

from vecveil.errors import InvalidInputError, KeyFileError, SealingError, StoreError, optional_import
from vecveil.index.blob import padded_length, quantised
from vecveil.index.keystore import NONCE_BYTES, CollectionKeys, DataKey, KeyProvider, KeyStore, SingleKey, framed
from vecveil.index.sealer import Sealer, open_keys

with optional_import("A sealed index", "pyarrow", "index"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

FORMAT = 2
LIVE, DELETED, PADDING = 0, 1, 2
"""Values of the column ``deleted``: a row, a deletion, a padding row."""
PRECISIONS = ("float16", "int8")
_OWNER = "SealedIndex"
_RECORD = "vecveil"
_ENCRYPTED = b"PARE"  # begins a Parquet file with an encrypted footer
_GROUP_ROWS, _GROUP_BYTES = (8, 2048), 1 << 18  # small: a hit opens the texts of its row group
_LEAST = {"id": 256, "text": 1024, "metadata": 256}  # bytes of a column of texts in a row group
_SPARE = 1.25  # bytes of a row group, per bytes of as many average rows
_LEAST_RECORD = 1024
_PAGE_BYTES = 1 << 30  # one page a column and row group
Positions = npt.NDArray[np.int64]
BinaryFile = IO[bytes] | RawIOBase


class IndexKeys(Protocol):
    """Wraps and unwraps the file keys of one index; ``name`` is the segment's, to which the wrapped key is bound.

    Attributes:
        uuid: of the index.
        reads: whether file keys can be unwrapped. An object that can only wrap makes a process that only adds.
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
        """Return the file key; raise `InvalidTag`, `KeyFileError` or `ValueError` if it does not unwrap."""


class _Wrapping(pe.KmsClient):  # type: ignore[misc]
    """Hands pyarrow's file key to `IndexKeys`; keeps the error, which pyarrow turns into text."""

    def __init__(self, keys: IndexKeys, name: str, state: dict[str, Any], key_id: str) -> None:
        super().__init__()
        self._keys, self._name, self._state, self._key_id = keys, name, state, key_id

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        try:
            wrapped = self._keys.wrap(key_bytes, self._name, self._key_id)
        except Exception as error:
            self._state["error"] = error
            raise
        return f"{self._key_id}:{base64.b64encode(wrapped).decode()}"

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        key_id, _, wrapped = wrapped_key.partition(":")
        try:
            return self._keys.unwrap(base64.b64decode(wrapped), key_id, self._name)
        except Exception as error:
            self._state["error"] = error
            raise


def _factory(keys: IndexKeys, name: str, key_id: str = "") -> tuple[Any, Any, dict[str, Any]]:
    state: dict[str, Any] = {}
    return pe.CryptoFactory(lambda _: _Wrapping(keys, name, state, key_id)), pe.KmsConnectionConfig(), state


def schema(n: int, precision: str) -> Any:
    """Return the Arrow schema of a segment of dimension ``n``."""
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("deleted", pa.int8(), nullable=False),
        pa.field("vector", pa.binary(n * (2 if precision == "float16" else 1)), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("has_text", pa.bool_(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
    ]
    if precision == "int8":
        fields.insert(3, pa.field("scale", pa.float32(), nullable=False))
    return pa.schema(fields)


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows, and of bytes in each column of texts."""

    rows: int
    bytes: Mapping[str, int]

    @classmethod
    def of(cls, rows: Any) -> Sizes:
        """Return the sizes of an Arrow table."""
        return cls(len(rows), {name: int(ends[-1]) if len(ends) else 0 for name, ends in _ends(rows).items()})

    def part(self, rows: int) -> Sizes:
        """Return the sizes of ``rows`` average rows."""
        return Sizes(rows, {name: -(-size * rows // max(self.rows, 1)) for name, size in self.bytes.items()})

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(self.rows + other.rows, {name: size + other.bytes[name] for name, size in self.bytes.items()})


NO_ROWS = Sizes(0, dict.fromkeys(_LEAST, 0))


class _Shape:
    """The shape of all row groups of a segment; it depends on Padmé lengths of its rows and bytes only.

    Attributes:
        rows: most rows of a group; one padding row or more follow.
        bytes: of each column of texts.
        groups: that rows of about equal size fill.
    """

    def __init__(self, sizes: Sizes) -> None:
        rows = padded_length(sizes.rows + 1, 1)
        bytes_ = {name: padded_length(size, _LEAST[name]) for name, size in sizes.bytes.items()}
        least, self.rows = _GROUP_ROWS
        while self.rows > least and self.rows * sum(bytes_.values()) > rows * _GROUP_BYTES:
            self.rows //= 2
        self.groups, self.bytes = 1, bytes_
        if rows > self.rows + 1:
            self.groups = padded_length(-(-rows // self.rows), 1)
            self.rows = -(-rows // self.groups)
            average = {name: int(size * self.rows * _SPARE) // rows for name, size in bytes_.items()}
            self.bytes = {name: padded_length(size, _LEAST[name]) for name, size in average.items()}
        else:
            self.rows = rows - 1


class SegmentWriter:
    """Writes the segment ``name`` to a file, row group by row group.

    Args:
        file: empty, open for writing and reading.
        key_id: of the data key that wraps the file key.
        record: entry ``vecveil`` of the footer; `close` adds to it the format, the name, the rows and their bytes.
        expected: about the sizes of all rows; None if they come in one table, or are few.
    """

    def __init__(
        self,
        file: IO[bytes],
        name: str,
        keys: IndexKeys,
        *,
        key_id: str,
        n: int,
        precision: str,
        record: Mapping[str, Any],
        expected: Sizes | None = None,
    ) -> None:
        self.name, self._file, self._record = name, file, dict(record, dimension=n, precision=precision)
        self._schema, self._expected = schema(n, precision), expected
        self._sizes, self._groups = NO_ROWS, 0
        self._shape: _Shape | None = None
        self._waiting = self._schema.empty_table()
        factory, connection, state = _factory(keys, name, key_id)
        encryption = pe.EncryptionConfiguration(
            footer_key="index",
            uniform_encryption=True,
            plaintext_footer=False,
            double_wrapping=False,
            data_key_length_bits=256,
        )
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression="none",
                use_dictionary=False,
                write_statistics=False,
                data_page_size=_PAGE_BYTES,
                max_rows_per_page=_GROUP_ROWS[1] * 2,
                encryption_properties=factory.file_encryption_properties(connection, encryption),
            )
        except BaseException as error:
            raise state.get("error") or error from None

    @property
    def rows(self) -> int:
        """Number of rows, without padding."""
        return self._sizes.rows

    def add(self, rows: Any) -> None:
        """Append an Arrow table of the segment's schema."""
        self._sizes += Sizes.of(rows)
        self._waiting = pa.concat_tables([self._waiting, rows])
        if len(self._waiting) > _GROUP_ROWS[1]:
            self._write_groups(last=False)

    def close(self) -> None:
        """Write the rows that wait and the footer, and pad the file."""
        self._write_groups(last=True)
        record = {**self._record, "format": FORMAT, "name": self.name, **asdict(self._sizes)}
        text = json.dumps(record, separators=(",", ":"))
        self._writer.add_key_value_metadata({_RECORD: text.ljust(padded_length(len(text), _LEAST_RECORD))})
        self._writer.close()
        _pad(self._file)

    def abandon(self) -> None:
        """Leave the file unfinished."""
        self._writer.is_open = False  # when it is collected, it would write the footer and print what fails

    def _write_groups(self, *, last: bool) -> None:
        """Write full row groups of the rows that wait; the ``last`` may be short, and groups of padding follow it."""
        if self._shape is None:
            self._shape = _Shape(self._sizes if last or self._expected is None else self._expected)
        shape, rows, start = self._shape, self._waiting, 0
        ends = _ends(rows)
        while start < len(rows):
            # A text larger than a group gets its own group.
            within = (
                np.searchsorted(ends[name], shape.bytes[name] + (ends[name][start - 1] if start else 0), "right")
                for name in ends
            )
            end = max(min(start + shape.rows, *map(int, within)), start + 1)
            if end == len(rows) < start + shape.rows and not last:
                break
            self._write_group(rows.slice(start, end - start), shape)
            start = end
        self._waiting = rows.slice(start)
        while last and self._sizes.rows and self._groups < padded_length(max(self._groups, shape.groups), 1):
            self._write_group(self._waiting, shape)

    def _write_group(self, rows: Any, shape: _Shape) -> None:
        extra = shape.rows + 1 - len(rows)
        columns = []
        for field in self._schema:
            if field.name in _LEAST:
                size = int(pc.sum(pc.binary_length(rows[field.name])).as_py() or 0)
                fill = " " * (padded_length(max(size, shape.bytes[field.name]), 1) - size)
                padding = pa.array([fill, *[""] * (extra - 1)], field.type)
            else:
                value = PADDING if field.name == "deleted" else 0
                if pa.types.is_fixed_size_binary(field.type):
                    padding = _fixed(np.zeros((extra, field.type.byte_width), np.uint8), field.type.byte_width)
                else:
                    padding = pa.array(np.full(extra, value)).cast(field.type)
            columns.append(padding)
        group = pa.concat_tables([rows, pa.table(columns, schema=self._schema)]).combine_chunks()
        self._writer.write_table(group, row_group_size=len(group))
        self._groups += 1


def _ends(rows: Any) -> dict[str, npt.NDArray[np.int64]]:
    """Return the cumulated bytes of each column of texts."""
    return {name: np.cumsum(pc.binary_length(rows[name]).to_numpy(), dtype=np.int64) for name in _LEAST}


def _pad(file: IO[bytes]) -> None:
    """Insert a block before the footer, framed as an encrypted module, so that the size is a Padmé length."""
    # Offsets of pages count from the start of the file and the footer is found from its end: readers skip the block.
    file.flush()
    size = file.seek(0, os.SEEK_END)
    file.seek(size - 8)
    footer = int.from_bytes(file.read(4), "little") + 8
    file.seek(size - footer)
    tail = file.read(footer)
    more = padded_length(size + 32, 1) - size
    file.seek(size - footer)
    file.write((more - 4).to_bytes(4, "little") + secrets.token_bytes(more - 4) + tail)


class Segment:
    """An open segment: its record, and its rows by position. The file stays open, also when somebody deletes it.

    Args:
        file: the open file, which is read at positions.
        again: fetches the file anew; called where a local copy is damaged after it was opened.

    Attributes:
        name: of the object.
        record: entry ``vecveil`` of the footer.

    Raises:
        SealingError: the file is damaged, of another name or index, or of a newer format.
        KeyFileError: no key of the index opens it.
        FileNotFoundError: there is no such file.
    """

    def __init__(
        self, file: BinaryFile, name: str, keys: IndexKeys, *, again: Callable[[], BinaryFile] | None = None
    ) -> None:
        self.name, self._keys, self._again = name, keys, again
        self.unlock()
        self.record = self._open(file)
        self._ends: Positions = np.zeros(1, np.int64)  # of the rows in each row group

    def unlock(self) -> None:
        """Make the lock anew, in a forked process: another thread may have held it at the fork."""
        self._lock = threading.Lock()  # a ParquetFile has one position

    def _open(self, source: BinaryFile) -> dict[str, Any]:
        """Open the file, and return the record."""
        factory, connection, state = _factory(self._keys, self.name)
        stream = pa.PythonFile(source, "r")
        try:
            if source.read(4) != _ENCRYPTED:
                raise ValueError("not encrypted")
            # Threads that read ahead would still hold the Python file when the interpreter ends, and abort it.
            decryption = factory.file_decryption_properties(connection)
            file = pq.ParquetFile(stream, pre_buffer=False, decryption_properties=decryption)
            record = json.loads(file.metadata.metadata[_RECORD.encode()])
            if record["format"] != FORMAT or record["name"] != self.name:
                raise ValueError
        except Exception as error:
            stream.close()
            raise _not_opened(self.name, state.get("error") or error) from error
        self._source, self._file = stream, file
        return dict(record)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self._file.schema_arrow.names)

    def columns(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield a table a row group with these columns and without padding rows.

        Raises:
            SealingError: a page is damaged.
        """
        left, ends = self.record["rows"], [0]
        for group in range(self._file.num_row_groups if left else 0):
            table = self._read(group, [*names, *(["deleted"] if "deleted" not in names else [])])
            real = len(table) - int(pc.sum(pc.equal(table["deleted"], PADDING)).as_py() or 0)
            ends.append(ends[-1] + real)
            yield table.slice(0, real).select(list(names))
            if ends[-1] == left:  # padding alone follows
                break
        self._ends = np.array(ends, np.int64)

    def sizes(self) -> Sizes:
        """Return the sizes of all rows; they are measured if the record lacks them."""
        if "bytes" in self.record:
            return Sizes(self.record["rows"], self.record["bytes"])
        return sum(map(Sizes.of, self.columns(list(_LEAST))), NO_ROWS)

    def rows(self, positions: Sequence[int], names: Sequence[str]) -> Any:
        """Return a table of the rows at ``positions``, in their order, of a segment whose `columns` were read.

        Raises:
            SealingError: a page is damaged.
        """
        parts, order = [self._file.schema_arrow.empty_table().select(list(names))], [np.empty(0, np.int64)]
        for group, mine, rows in self._groups(np.asarray(positions, np.int64)):
            parts.append(self._read(group, list(names)).take(pa.array(rows)))
            order.append(mine)
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order))))

    def stored_vectors(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the ciphertext of the vectors of the rows at ``positions`` (N, bytes of a vector), for an audit."""
        at = self._file.schema_arrow.get_field_index("vector")
        width = self._file.schema_arrow.field(at).type.byte_width
        stored = np.empty((len(positions), width), np.uint8)
        for group, mine, rows in self._groups(positions):
            layout = self._file.metadata.row_group(group)
            chunk = layout.column(at)
            with self._lock:
                self._source.seek(chunk.data_page_offset)
                raw = self._source.read(chunk.total_compressed_size)
            # The chunk ends with the only page: values, whose places encryption keeps, and a tag of 16 bytes.
            stored[mine] = np.frombuffer(raw, np.uint8)[-16 - layout.num_rows * width : -16].reshape(-1, width)[rows]
        return stored

    def _groups(self, positions: npt.NDArray[np.int64]) -> Iterator[tuple[int, Positions, Positions]]:
        """Yield each row group of ``positions`` with the indices in it of its rows, and their places in the group."""
        groups = np.searchsorted(self._ends, positions, "right") - 1
        for group in np.unique(groups).tolist():
            mine = np.flatnonzero(groups == group)
            yield group, mine, positions[mine] - self._ends[group]

    def _read(self, group: int, names: list[str]) -> Any:
        with self._lock:
            if self._source.closed:
                raise closed(self.name)
            for again in (self._again, None):
                try:
                    return self._file.read_row_group(group, columns=names, use_threads=False)
                except (OSError, pa.ArrowException) as error:
                    if again is None:
                        raise _not_opened(self.name, error) from error
                    self._open(again())

    def close(self) -> None:
        with self._lock:
            self._file.close(force=True)


def closed(name: str) -> StoreError:
    """Return the error of an index that was closed."""
    return StoreError(f"The index is closed: {name}. Open it again with SealedIndex(...).", code="E-INDEX-CLOSED")


def _not_opened(name: str, error: Exception) -> SealingError | KeyFileError | Exception:
    if isinstance(error, KeyFileError | FileNotFoundError):
        return error
    if isinstance(error, InvalidTag):
        return KeyFileError(
            f"No key of this index opens {name}. The file was renamed, comes from another index, or was written "
            "under another key.",
            code="E-SEAL-OPEN",
            param="key",
        )
    return SealingError(
        f"{name} does not open: the file was cut, altered or exchanged. Restore it from a backup of the storage.",
        code="E-SEAL-OPEN",
    )


def encode_vectors(X: npt.NDArray[np.floating[Any]], precision: str) -> tuple[Any, Any]:
    """Return ``X`` (N, n) as the columns ``vector`` and ``scale``; the scale is None for float16."""
    body, scale = quantised(X, precision)
    column = _fixed(np.ascontiguousarray(body), body.itemsize * X.shape[1])
    return column, None if scale is None else pa.array(scale, pa.float32())


def vectors_of(column: Any, n: int, precision: str) -> npt.NDArray[Any]:
    """Return the stored values (N, n), float16 or int8, of a chunk of the column ``vector``."""
    dtype = "<f2" if precision == "float16" else "i1"
    width = n * (2 if precision == "float16" else 1)
    raw = np.frombuffer(column.buffers()[1], np.uint8, count=len(column) * width, offset=column.offset * width)
    return raw.view(dtype).reshape(len(column), n)


def _fixed(body: npt.NDArray[Any], width: int) -> Any:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(body), [None, pa.py_buffer(body)])


# Keys of an index ---------------------------------------------------------------------------------


class RetiredKeyError(KeyFileError):
    """A segment's key was deleted by `SealedIndex.reseal`."""


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
    """A `KeyProvider` that wraps each file key itself, such as a cloud KMS."""

    def __init__(self, provider: KeyProvider, index: uuid.UUID) -> None:
        self._provider, self.uuid = provider, index
        self.reads = callable(getattr(provider, "unwrap", None))

    def wrap(self, key: bytes, name: str, key_id: str) -> bytes:
        with _provider_errors():
            return self._provider.wrap(key, self._context(name))

    def unwrap(self, wrapped: bytes, key_id: str, name: str) -> bytes:
        if not self.reads:
            raise KeyFileError(
                "The key provider wraps keys and does not unwrap them: this process can add rows, not read them.",
                code="E-SEAL-OPEN",
                param="key",
            )
        with _provider_errors():
            return self._provider.unwrap(wrapped, self._context(name))

    def current(self) -> str:
        return "provider"

    def _context(self, name: str) -> bytes:
        return b"vecveil segment 1" + framed(self.uuid.bytes) + framed(name.encode())


@contextlib.contextmanager
def _provider_errors() -> Iterator[None]:
    """Raise KeyFileError for a failing key provider; a key that does not unwrap stays InvalidTag."""
    try:
        yield
    except (InvalidTag, KeyFileError):
        raise
    except Exception as error:
        raise KeyFileError(
            f"The key provider failed: {type(error).__name__}. Try again when it is available.",
            code="E-SEAL-PROVIDER",
            param="key",
        ) from error


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
