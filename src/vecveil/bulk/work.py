"""The work on one part, and on one batch of Arrow rows: the same on every engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vecveil.bulk.job import BulkJob, OpenJob, metadata_of
from vecveil.bulk.manifest import PartResult
from vecveil.bulk.places import Folder, open_input, unchanged
from vecveil.bulk.planning import Part, source_of
from vecveil.bulk.rows import row_protection
from vecveil.data.arrow import import_pyarrow
from vecveil.data.formats import NoRowsError
from vecveil.data.opening import read_input
from vecveil.data.parquet import METADATA_KEY
from vecveil.data.pipeline import TableProtection
from vecveil.data.reading import TableReader
from vecveil.data.writing import open_writer
from vecveil.errors import DataFileError, IncompatibleError, message
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from vecveil.accounting import Ledger

__all__ = ["TEXT_ROWS", "PartWorker", "already_protected", "reader_of", "table_protection"]

TEXT_ROWS = 2048
"""Texts that are encoded at once."""
_CHUNK = 1 << 20


def table_protection(opened: OpenJob, ledger: Ledger | None = None) -> TableProtection:
    """Return what a job does to a table."""
    job, protector = opened.job, opened.protector

    def encode(texts: list[str]) -> Embeddings:
        written = texts if protector.rewriter is None else protector.rewrite(texts)
        vectors: Embeddings = opened.encoder().encode(written, show_progress=False)
        return vectors

    return TableProtection(
        row_protection(
            protector, key=opened.key, ledger=ledger, noise=job.noise, lengths=job.check_lengths
        ),
        encode=encode,
        dimension=protector.dimension,
        carry=job.carry,
        keep_text=job.keep_text,
        with_items=True,
        id_column=job.id_column,
        owned=True,
    )


class PartWorker:
    """Protects parts, one after another.

    Args:
        job: what is done to each row.
        out: the folder.
        run: fingerprint of the run, which each file holds.
        inputs: fsspec's options for the inputs.
        ledger: counts rows before they are released; of this machine.
    """

    def __init__(
        self,
        job: BulkJob,
        out: Folder,
        run: str,
        inputs: Mapping[str, Any],
        ledger: Ledger | None = None,
    ) -> None:
        self._opened = job.opened()
        self._out, self._run, self._inputs = out, run, inputs
        self._protection = table_protection(self._opened, ledger)
        self._about = metadata_of(self._opened.protector, self._opened.key, noise=job.noise)

    def __call__(self, part: Part) -> PartResult:
        """Return what was written; a part that is there already is left as it is.

        A task that is tried again after its file appeared must not release its rows a second time.

        Raises:
            DataFileError: the input changed, or a row of it cannot be used; or the output cannot be written.
        """
        kept = finished(self._out, part, self._run)
        if kept is not None:
            return kept
        job = self._opened.job
        try:
            reader = reader_of(job, part, self._inputs)
        except NoRowsError:
            self._check_input(part, 0, 0)
            return PartResult(part.index, 0, 0, hashlib.sha256().hexdigest())
        if reader.embedding_column is None:
            reader = reader.in_chunks(TEXT_ROWS)
        if reader.metadata.get("protected") and job.check_lengths:
            raise already_protected(part.input.name)
        try:
            prepared = self._protection.of(reader)
        except IncompatibleError as error:
            if reader.embedding_column is None:
                raise  # the encoder does not fit, for no part
            raise DataFileError(f"{part.input.name}: {error}") from None
        about = {**self._about, "run": self._run, "part": part.index}
        try:
            with self._out.writing(part.output) as path:
                with open_writer(
                    path, types=prepared.types, metadata=about, only_new=True
                ) as writer:
                    counts = prepared.write(writer)
                    self._check_input(part, counts.rows, reader.rows)
                with open(path, "rb") as written:
                    return _result(part, counts.rows, written)
        except FileExistsError:  # another worker has released these rows just now: theirs counts
            kept = finished(self._out, part, self._run)
            assert kept is not None
            return kept

    def _check_input(self, part: Part, rows: int, expected: int) -> None:
        same = unchanged(part.input, self._inputs)
        if not same or rows != expected or part.rows not in (None, rows):
            got = "one that changed" if rows == expected else f"{rows} rows in place of {expected}"
            raise DataFileError.of(
                part.input.name, "path", "a file that stays the same while it is read", got
            )


def already_protected(name: str) -> DataFileError:
    """Return the error for rows that are protected already."""
    return DataFileError(
        message(name, "path", "a table of clean vectors or texts", "one that vecveil has protected",
                "More noise on top of noise protects worse than it costs.",
                "Protect the clean table, or insist with --again.")
    )  # fmt: skip


def reader_of(job: BulkJob, part: Part, inputs: Mapping[str, Any]) -> TableReader:
    """Return the reader of a part's rows.

    Raises:
        DataFileError: its file cannot be read.
    """
    file = open_input(part.input, inputs, format=job.format)
    return read_input(
        file,
        source_of(part, file),
        text_column=job.text_column,
        embedding_column=job.embedding_column,
        encoding=job.encoding,
        delimiter=job.delimiter,
    )


def finished(out: Folder, part: Part, run: str) -> PartResult | None:
    """Return the result of a part whose file is there, or None.

    Raises:
        DataFileError: the file is of another run.
    """
    if not out.has(part.output):
        return None
    pa = import_pyarrow()
    with out.open(part.output) as file:
        try:
            parquet = pa.parquet.ParquetFile(file)
            about = json.loads((parquet.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
            rows = parquet.metadata.num_rows
        except (pa.ArrowException, OSError, ValueError):
            about, rows = {}, 0
        if (
            about.get("run") != run
            or about.get("part") != part.index
            or part.rows not in (None, rows)
        ):
            raise DataFileError.of("protect", "out", "a folder of this run alone",
                                   f"another file named {part.output}", "It was not written by this run.",
                                   "Give another folder.")  # fmt: skip
        file.seek(0)
        return _result(part, rows, file)


def _result(part: Part, rows: int, file: Any) -> PartResult:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return PartResult(part.index, rows, size, digest.hexdigest())
