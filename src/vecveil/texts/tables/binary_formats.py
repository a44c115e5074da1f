"""Read .npy and Parquet in batches of bounded size, also from a file of a few KB that expands to gigabytes.

A .npy file is not mapped: mapped pages count as memory of the process, and a mapped file that shrinks kills it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO, Any

import numpy as np

from vecveil.errors import DataFileError, MemoryLimitError, VecveilError
from vecveil.texts.tables.columns import (
    WIDEST,
    ColumnBatch,
    TableSource,
    as_type,
    check_lengths,
    check_names,
    check_rows,
    import_pyarrow,
    undictionaried,
)
from vecveil.texts.tables.files import InputFile, readable
from vecveil.types import Embeddings
from vecveil.validation import check_count

DEFAULT_LIMIT = 1 << 30
CODE = "E-MEMORY-TABLE"

memory_limit: ContextVar[int | None] = ContextVar("vecveil_max_memory", default=None)
"""Limit of every file that is read without ``max_memory``, in bytes; the option ``--max-memory`` sets it."""


def default_max_memory() -> int:
    """Return `memory_limit`, else the smaller of 1 GiB and a quarter of the machine's memory, in bytes."""
    if (limit := memory_limit.get()) is not None:
        return limit
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return DEFAULT_LIMIT
    return min(DEFAULT_LIMIT, memory // 4)


class MemoryAccount:
    """Sum of the bytes of one file's decoded columns; a limit of None takes `default_max_memory`."""

    def __init__(self, source: str, limit: int | None = None) -> None:
        self.limit = (
            default_max_memory() if limit is None else check_count(limit, owner="read_table", param="max_memory")
        )
        self.held = 0
        self._source = source

    def add(self, *columns: Any) -> None:
        """Count columns that stay in memory (arrays or lists); raise MemoryLimitError beyond the limit."""
        for values in columns:
            arrow_or_numpy = hasattr(values, "nbytes")
            self.held += int(values.nbytes if arrow_or_numpy else sum(map(sys.getsizeof, values)))
        self.check(self.held)

    def check(self, size: int) -> None:
        """Raise MemoryLimitError if ``size`` bytes at once exceed the limit."""
        if size > self.limit:
            raise MemoryLimitError(
                f"{self._source}: `max_memory` is {self.limit >> 20:,} MiB, and the file expands to more. Give fewer "
                "rows, or raise it (--max-memory) if you trust the file.",
                code=CODE,
                param="max_memory",
            )


class NpySource(TableSource):
    """A two-dimensional array of float32, float64 or float16 (read as float32), in either order."""

    def __init__(self, file: InputFile, span: tuple[int, int] | None = None) -> None:
        """Read the header; ``span`` is (first row, end), None all rows."""
        self.name, self.format, self.metadata = file.name, file.format, {}
        self.types = {"embedding": "vector"}
        self._open = file.opener
        with readable(self.name), self._open() as opened:
            shape, self._by_column, self._dtype = self._header(opened)
            self._start = opened.tell()
            size = opened.seek(0, 2)
        if self._dtype.kind != "f" or self._dtype.itemsize not in (2, 4, 8):
            raise self._unfit(f"dtype {self._dtype}; vectors are float32. Convert it with .astype(numpy.float32).")
        if len(shape) != 2 or min(shape) < 0:
            raise self._unfit(f"shape {shape} instead of (N, n).")
        check_rows(self.name, shape[0])
        if shape[1] == 0:
            raise self._unfit(f"shape {shape}; n is at least 1.")
        # Rows are read whole, and a sparse file may declare any length.
        if shape[1] > WIDEST:
            raise self._unfit(f"shape {shape}; n is at most {WIDEST:,}.")
        self._all, self.dimension = shape
        self.first_row, stop = (0, self._all) if span is None else span
        self.rows = stop - self.first_row
        needed = self._start + self._all * self.row_bytes
        if size < needed:
            raise DataFileError(
                f"{self.name} is truncated: it has {size} of {needed} bytes. Copy or write it again.", param="path"
            )

    @property
    def row_bytes(self) -> int:
        return self.dimension * self._dtype.itemsize

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        with readable(self.name), self._open() as file:
            for start in range(0, self.rows, chunk_rows):
                count = min(chunk_rows, self.rows - start)
                first = self.first_row + start
                yield count, {name: self._piece(file, first, count) for name in columns}

    def _piece(self, file: IO[bytes], start: int, count: int) -> Embeddings:
        if not self._by_column:
            piece = np.empty((count, self.dimension), self._dtype)
            self._fill(file, piece, start * self.dimension)
        else:
            # Fortran order stores a column of the array contiguously: one seek per dimension.
            piece = np.empty((self.dimension, count), self._dtype)
            for column in range(self.dimension):
                self._fill(file, piece[column], column * self._all + start)
            piece = np.ascontiguousarray(piece.T)
        # Files of other machines may have the other byte order.
        dtype = np.float32 if self._dtype.itemsize == 2 else self._dtype.newbyteorder("=")
        return piece.astype(dtype, copy=False)

    def _fill(self, file: IO[bytes], piece: np.ndarray, position: int) -> None:
        file.seek(self._start + position * self._dtype.itemsize)
        if file.readinto(piece.reshape(-1).view(np.uint8).data) != piece.nbytes:  # type: ignore[attr-defined]
            raise DataFileError(f"{self.name} got shorter while it was read.", param="path")

    def _header(self, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if np.lib.format.read_magic(file) == (1, 0):
                    return np.lib.format.read_array_header_1_0(file)
                return np.lib.format.read_array_header_2_0(file)
        except Exception:  # the header is Python source: a damaged one fails in any way
            raise DataFileError(
                f"{self.name} has a damaged .npy header. Write it again with numpy.save.", param="path"
            ) from None

    def _unfit(self, got: str) -> DataFileError:
        return DataFileError(f"{self.name} has {got}", param="embeddings")


METADATA_KEY = b"vecveil"
READ_AHEAD = 1 << 20
BATCH_BYTES = 1 << 26
EXPANDED_BYTES = 1 << 29
"""Bytes of a batch if each of its texts is the longest in its dictionary."""
FREELY = 1 << 24
ROWS_A_BYTE = 100
"""A file may declare FREELY rows, beyond that this many per byte: texts and vectors take bytes."""
PROBED_ROWS = 1000


class ParquetSource(TableSource):
    """A Parquet file; columns keep their Arrow types, but dictionaries become plain values."""

    def __init__(self, file: InputFile, groups: Sequence[int] | None = None, max_memory: int | None = None) -> None:
        """Read the footer; ``groups`` are the row groups to read, in order, None all."""
        self.name, self.format = file.name, file.format
        self._open = file.opener
        self._account = MemoryAccount(file.name, max_memory)
        with self._opened() as parquet, self._guarded():
            schema, footer = parquet.schema_arrow, parquet.metadata
            every = [footer.row_group(i) for i in range(footer.num_row_groups)]
            sizes = self.row_groups = [group.num_rows for group in every]
            self.group_bytes = [group.total_byte_size for group in every]  # before compression
            self._groups = list(range(len(sizes)) if groups is None else groups)
            self.first_row = sum(sizes[: self._groups[0]]) if self._groups else 0
            self.rows = sum(sizes[i] for i in self._groups)
            check_names(self.name, schema.names)
            self.types = dict(zip(schema.names, map(undictionaried, schema.types), strict=True))
            check_rows(self.name, self.rows, len(schema.names))
            leaves = [parquet.schema.column(i) for i in range(len(parquet.schema.names))]
            self._text_paths = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            # Bytes per row before compression bound the rows of a batch.
            size = max((self.group_bytes[i] // max(1, sizes[i]) for i in self._groups), default=1)
            self._most = max(1, BATCH_BYTES // max(1, size))
            self.metadata = metadata_in(schema.metadata)

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        width = max((_fixed_bytes(self.types[name]) for name in columns), default=0)
        longest = self._longest_entry(columns)
        # A single text or vector beyond the limit fails here, before it is expanded.
        self._account.check(max(longest, width))
        expanded = min(EXPANDED_BYTES, self._account.limit // 4)
        count = max(1, min(chunk_rows, self._most, expanded // max(1, longest), BATCH_BYTES // max(1, width)))
        seen = 0
        with self._opened() as parquet:
            batches = parquet.iter_batches(
                batch_size=count, row_groups=self._groups, columns=list(columns), use_threads=False
            )
            while True:
                with self._guarded():
                    batch = next(batches, None)
                    if batch is None:
                        break
                    self._account.check(batch.nbytes)
                    # A damaged file may decode to invalid offsets or UTF-8, which no later step checks.
                    batch.validate(full=True)
                    plain = {name: as_type(batch.column(name), self.types[name]) for name in columns}
                check_lengths(self.name, plain)
                seen += batch.num_rows
                if batch.num_rows:
                    yield batch.num_rows, plain
        # The footer may declare other rows than the pages hold.
        if columns and seen != self.rows:
            raise self._damaged()

    def _longest_entry(self, columns: Sequence[str]) -> int:
        """Return the bytes of the longest text that rows may share through a dictionary, 0 for none.

        PyArrow gives a column's dictionary with its first rows if it may keep the column dictionary-encoded.
        """
        paths = [path for path in self._text_paths if any(f"{path}.".startswith(f"{name}.") for name in columns)]
        longest = 0
        if not paths:
            return 0
        pa = import_pyarrow()
        with self._opened(paths) as parquet:
            for group in self._groups:
                if self.group_bytes[group] <= longest:  # no value is longer than its row group
                    continue
                for path in paths:
                    try:
                        rows = parquet.iter_batches(
                            batch_size=PROBED_ROWS, row_groups=[group], columns=[path], use_threads=False
                        )
                        longest = max(longest, next(filter(None, map(_longest_in, rows)), 0))
                    except (pa.ArrowException, OSError, RuntimeError, ValueError):
                        # Delta encodings have no dictionary: a value may repeat the whole previous one. A damaged
                        # file fails when it is read.
                        longest = max(longest, self.group_bytes[group])
        return longest

    @contextmanager
    def _opened(self, dictionaries: Sequence[str] = ()) -> Iterator[Any]:
        pa = import_pyarrow()
        with readable(self.name), self._open() as file:
            size = file.seek(0, 2)
            file.seek(0)
            with self._guarded():
                parquet = pa.parquet.ParquetFile(
                    file, buffer_size=READ_AHEAD, pre_buffer=False, read_dictionary=list(dictionaries)
                )
                if parquet.metadata.num_rows > FREELY + ROWS_A_BYTE * size:
                    raise DataFileError(
                        f"{self.name} declares many more rows than it has room for. If you trust it, write it "
                        "again in a different format.",
                        param="path",
                    )
            yield parquet

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn pyarrow's exceptions on a damaged file into one error; theirs may quote values."""
        pa = import_pyarrow()
        try:
            yield
        except VecveilError:
            raise
        except MemoryError:
            raise DataFileError(
                f"{self.name} needs more memory than there is. Raise the limit of memory; if there is enough, the "
                "file is damaged: write it again.",
                param="path",
            ) from None
        # RuntimeError: C++ exceptions that pyarrow has no class for.
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, RuntimeError):
            raise self._damaged() from None

    def _damaged(self) -> VecveilError:
        return DataFileError(
            f"{self.name} is a truncated or damaged Parquet file. Copy or write it again.", param="path"
        )


def _longest_in(batch: Any) -> int:
    """Return the bytes of the longest dictionary entry of a record batch."""
    pa = import_pyarrow()
    longest, waiting = 0, list(batch.columns)
    while waiting:
        array = waiting.pop()
        kind = array.type
        if pa.types.is_dictionary(kind):
            longest = max(longest, max(map(len, array.dictionary.cast(pa.binary()).to_pylist()), default=0))
        elif pa.types.is_struct(kind):
            waiting += [array.field(i) for i in range(kind.num_fields)]
        elif pa.types.is_map(kind):
            waiting += [array.keys, array.items]
        elif hasattr(array, "values"):
            waiting.append(array.values)
    return longest


def _fixed_bytes(kind: Any) -> int:
    """Return the bytes of a value of a fixed-size list or binary type, 0 for other types."""
    pa = import_pyarrow()
    kind = getattr(kind, "storage_type", kind)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * max(8, _fixed_bytes(kind.value_type))
    return int(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 0


def metadata_in(raw: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Return vecveil's metadata in the metadata of a schema, or nothing."""
    try:
        record = json.loads((raw or {}).get(METADATA_KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
