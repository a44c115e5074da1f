"""Parquet: batches of bounded size, also from a file that is one huge row group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vecveil.data.arrow import import_pyarrow, undictionaried
from vecveil.data.formats import InputFile, not_usable, readable
from vecveil.data.parquet_bounds import largest_values, promises_too_much, read_footer
from vecveil.data.sources import Batch, Source, check_names, check_rows
from vecveil.errors import VecveilError

__all__ = ["METADATA_KEY", "ParquetSource", "metadata_in"]

METADATA_KEY = b"vecveil"
READ_AHEAD = 1 << 20
BATCH_BYTES = 1 << 26
EXPANDED_BYTES = 1 << 29
"""What the texts of a batch may take if all of them are the longest that a dictionary may hold."""


class ParquetSource(Source):
    """A Parquet file; columns keep their Arrow types, but dictionaries become plain values.

    Attributes:
        row_groups: the rows of each, all of the file's.
        group_bytes: what each takes before compression.

    A dictionary may hold values that no row has, such as those of rows that were dropped; they
    would be written with the column.
    """

    def __init__(self, file: InputFile, groups: Sequence[int] | None = None) -> None:
        """Read the header; ``groups``: the row groups to read, one after another, None all."""
        self.name, self.format = file.name, file.format
        self._open = file.opener
        with self._opened() as (parquet, opened), self._guarded():
            schema = parquet.schema_arrow
            every = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
            sizes = self.row_groups = [group.num_rows for group in every]
            self.group_bytes = [group.total_byte_size for group in every]
            self._groups = list(range(len(sizes)) if groups is None else groups)
            self.first_row = sum(sizes[: self._groups[0]]) if self._groups else 0
            self.rows = sum(sizes[i] for i in self._groups)
            names = list(schema.names)
            check_names(self.name, names)
            self.types = dict(zip(names, map(undictionaried, schema.types), strict=True))
            check_rows(self.name, self.rows, len(names))
            self._footer, size = read_footer(opened)
            if promises_too_much(self._footer, size, self._groups):
                raise not_usable(
                    self.name,
                    "a Parquet file with about as many values as it has room for",
                    "one that declares many more",
                    fix="If you trust it, write it again in another format.",
                )
            size = max((self.group_bytes[i] // max(1, sizes[i]) for i in self._groups), default=1)
            self._most = max(1, BATCH_BYTES // max(1, size))
            self.metadata = metadata_in(schema.metadata)

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        count = min(chunk_rows, self._most)
        with self._opened() as (parquet, opened):
            with self._guarded():
                longest = largest_values(opened, self._footer, self._groups, columns)
            count = max(1, min(count, EXPANDED_BYTES // max(1, longest)))
            batches = parquet.iter_batches(
                batch_size=count,
                row_groups=self._groups,
                columns=list(columns),
                use_threads=False,
            )
            seen = 0
            while True:
                with self._guarded():
                    batch = next(batches, None)
                    if batch is None:
                        break
                    batch.validate(full=True)
                    found = {name: self._plain(name, batch.column(name)) for name in columns}
                seen += batch.num_rows
                if batch.num_rows:
                    yield batch.num_rows, found
        if columns and seen != self.rows:
            raise self._damaged()

    def _plain(self, name: str, values: Any) -> Any:
        kind = self.types[name]
        return values if values.type == kind else values.cast(kind)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        pa = import_pyarrow()
        with readable(self.name), self._open() as file:
            with self._guarded():
                parquet = pa.parquet.ParquetFile(file, buffer_size=READ_AHEAD, pre_buffer=False)
            yield parquet, file

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn what pyarrow raises on a damaged file into one error; its own may quote values."""
        pa = import_pyarrow()
        try:
            yield
        except VecveilError:
            raise
        except MemoryError:
            raise not_usable(
                self.name,
                "a whole Parquet file whose row groups fit into memory",
                "one that asks for more memory than there is",
                fix="Raise the limit of memory; if there is enough, the file is damaged: write it again.",
            ) from None
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            OverflowError,
            RuntimeError,  # what its C++ throws that is of no class of its own
        ):
            raise self._damaged() from None

    def _damaged(self) -> VecveilError:
        return not_usable(
            self.name,
            "a whole Parquet file",
            "a truncated or damaged one",
            fix="Copy or write it again.",
        )


def metadata_in(raw: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Return what vecveil wrote into the metadata of a schema, or nothing."""
    try:
        found = json.loads((raw or {}).get(METADATA_KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
