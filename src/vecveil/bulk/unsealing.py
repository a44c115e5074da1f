"""Open the sealed rows of files, and of batches of Arrow rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.data import open_writer
from vecveil.data.columns import ids_of, import_pyarrow, missing_column, python_values
from vecveil.data.files import InputFile
from vecveil.data.reading import TableFormat
from vecveil.data.writing import ArrowWriter, EmbeddingWriter
from vecveil.errors import wrong_type
from vecveil.runtime import progress
from vecveil.sealing import Sealer
from vecveil.sealing.blob import SEALED_FIELD, decoded
from vecveil.sealing.sealer import OnInvalid

_ROWS = 4096
_TYPES = {"id": "string", "text": "string", "metadata": "json"}


@dataclass(unsafe_hash=True)
class Unsealing:
    """Opens sealed rows of one collection. It may be pickled: a copy reads the key on first use.

    The opened rows have the columns id, text, metadata (JSON) and embedding, the exact vectors.

    Args:
        seal_key: key file of the sealed rows, or ``env:NAME:PATH``.
        seal_name: name of the collection in the key file.
        id_column: column of the ids.
        on_invalid: ``raise`` raises `SealingError` for a blob that does not open; ``skip`` leaves out its row.
    """

    seal_key: str
    seal_name: str
    id_column: str = "id"
    on_invalid: OnInvalid = "raise"
    _sealer: Sealer | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sealer": None}  # keys do not travel to workers

    def __call__(self, rows: Any) -> Any:
        """Return the opened rows of a ``pyarrow.Table`` or ``RecordBatch`` as a table."""
        pa = import_pyarrow()
        if not isinstance(rows, pa.Table | pa.RecordBatch):
            raise wrong_type("unseal", "rows", "a pyarrow.Table or RecordBatch", rows)
        ids, blobs = map(rows.column, self._columns(rows.schema.names, "rows"))
        writer = ArrowWriter("unseal", _TYPES)
        self._write(writer, ids, blobs, "rows", 0)
        return writer.table(dimension=writer.dimension, dtype=np.dtype(np.float32))

    def file(
        self,
        input: str | os.PathLike[str] | InputFile,
        output: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        show_progress: bool | None = None,
        **options: Any,
    ) -> tuple[int, list[str]]:
        """Write the opened rows of a table to ``output``; return their number and the ids of skipped rows.

        Args:
            options: fields of `TableFormat`.
        """
        source = TableFormat(**options).source(input)
        names = self._columns(source.types, source.name)
        skipped: list[str] = []
        total, first = -(-source.rows // _ROWS), 0
        with open_writer(output, types=_TYPES, overwrite=overwrite) as writer:
            chunks = source.batches(names, _ROWS)
            for rows, columns in progress(chunks, "Opening", total=total, show=show_progress, unit="chunk"):
                ids, blobs = (columns[name] for name in names)
                skipped += self._write(writer, ids, blobs, source.name, first)
                first += rows
            return writer.rows, skipped

    def _columns(self, types: Iterable[str], source: str) -> tuple[str, str]:
        for param, name in (("id_column", self.id_column), ("sealed_column", SEALED_FIELD)):
            if name not in types:
                raise missing_column(source, param, name, types)
        return self.id_column, SEALED_FIELD

    def _write(self, writer: EmbeddingWriter, ids: Any, blobs: Any, source: str, first_row: int) -> list[Any]:
        """Write the opened rows; return the ids of the others."""
        self._sealer = self._sealer or Sealer(self.seal_key)
        opened = self._sealer.unseal(
            [decoded(blob) for blob in python_values(blobs)],
            ids=ids_of(ids, source=source, first_row=first_row),
            collection=self.seal_name,
            on_invalid=self.on_invalid,
        )
        if opened.ids:
            columns = {"id": opened.ids, "text": opened.texts, "metadata": opened.metadata}
            writer.write(opened.vectors, columns, owned=True)
        return opened.skipped
