"""Batches of Arrow rows in, batches of protected rows out: what engines that bring their own batches call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vecveil.bulk.job import BulkJob, OpenJob, metadata_of
from vecveil.bulk.work import TEXT_ROWS, already_protected, table_protection
from vecveil.data.arrow import import_pyarrow, undictionaried
from vecveil.data.parquet import metadata_in
from vecveil.data.pipeline import TableProtection
from vecveil.data.reading import TableReader
from vecveil.data.sources import Batch, Source, check_names
from vecveil.data.writers import ArrowWriter
from vecveil.errors import InvalidInputError

__all__ = ["ArrowProtection"]


class ArrowProtection:
    """Protects tables and batches; vectors go from Arrow to NumPy and back without becoming Python objects.

    It may be pickled: a copy loads the protector, and reads the key, where it is used first.

    Args:
        job: what is done to each row.
    """

    def __init__(self, job: BulkJob) -> None:
        self.job = job
        self._ready: tuple[OpenJob, TableProtection, Mapping[str, Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"job": self.job, "_ready": None}

    def __call__(self, rows: Any) -> Any:
        """Return the protected rows of a ``pyarrow.Table`` or ``RecordBatch`` as a table.

        A table without rows gives one without rows, of the same columns.

        Raises:
            VecveilError: what the rows, the protector or the key raise; nothing is released.
        """
        pa = import_pyarrow()
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if not isinstance(rows, pa.Table):
            raise InvalidInputError.of(
                "protect", "rows", "a pyarrow.Table or RecordBatch", type(rows).__name__
            )
        if self._ready is None:
            opened = self.job.opened()
            about = metadata_of(opened.protector, opened.key, noise=self.job.noise)
            self._ready = opened, table_protection(opened), about
        opened, protection, about = self._ready
        reader = TableReader(
            _ArrowSource(rows),
            text_column=self.job.text_column,
            embedding_column=self.job.embedding_column,
            columns=[],
            chunk_rows=None,
        )
        if reader.embedding_column is None:
            reader = reader.in_chunks(TEXT_ROWS)
        if reader.metadata.get("protected") and self.job.check_lengths:
            raise already_protected("rows")
        prepared = protection.of(reader)
        writer = ArrowWriter("protect", prepared.types, about)
        if rows.num_rows:
            prepared.write(writer)
        kind = reader.types.get(reader.embedding_column or "")
        wide = "double" in str(kind)  # texts are encoded in float32
        dtype = np.dtype(np.float64 if wide else np.float32)
        return writer.table(dimension=opened.protector.released_dimension, dtype=dtype)

    def schema(self, rows: Any) -> Any:
        """Return the ``pyarrow.Schema`` of what rows of the schema ``rows`` become."""
        return self(rows.empty_table()).schema


class _ArrowSource(Source):
    """Rows that are in memory."""

    def __init__(self, table: Any) -> None:
        self.name, self.format = "rows", "parquet"
        self.metadata = metadata_in(table.schema.metadata)
        names = list(table.column_names)
        check_names(self.name, names)
        self.types = dict(zip(names, map(undictionaried, table.schema.types), strict=True))
        self.rows = table.num_rows
        self._table = table

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        for batch in self._table.select(list(columns)).to_batches(max_chunksize=chunk_rows):
            if batch.num_rows:
                found: Mapping[str, Any] = {
                    name: self._plain(name, batch.column(name)) for name in columns
                }
                yield batch.num_rows, found

    def _plain(self, name: str, values: Any) -> Any:
        kind = self.types[name]
        return values if values.type == kind else values.cast(kind)
