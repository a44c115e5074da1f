"""Protect rows as a job describes: a part of a file, or a batch of Arrow rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.bulk.manifest import PartResult
from vecveil.bulk.places import Folder, Part, open_input, source_of, unchanged
from vecveil.data import RowItems, TableReader, open_writer, read_table
from vecveil.data.columns import (
    ColumnBatch,
    TableSource,
    check_names,
    import_pyarrow,
    undictionaried,
)
from vecveil.data.files import NoRowsError
from vecveil.data.parquet import metadata_in
from vecveil.data.pipeline import TableProtection
from vecveil.data.writing import ArrowWriter
from vecveil.errors import (
    DataFileError,
    IncompatibleError,
    InvalidInputError,
    LedgerCapError,
    wrong_type,
)
from vecveil.protector import Protector, load
from vecveil.randomness import NoiseKey, NoiseKeys
from vecveil.types import Embeddings
from vecveil.version import __version__

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.encoders import TextEncoder

__all__ = [
    "ArrowProtection", "BulkJob", "OpenJob", "PartWorker", "already_protected", "metadata_of", "reader_of",
    "row_protection", "table_protection",
]  # fmt: skip

TEXT_ROWS = 2048
"""Texts that are encoded at once."""
_ENVIRONMENT = "env:"
_NOT_RECORDED = ("protector", "key", "key_id", "check_lengths", "cache", "max_memory")
"""Secrets, what the metadata names, and options that refuse rows: none of them changes what a row becomes."""


@dataclass(frozen=True)
class BulkJob:
    """A protector and how tables are read, in a form that travels to workers: names of keys, never keys.

    Args:
        protector: bytes of a protector's file; see `BulkJob.of`.
        text_column: None takes ``text``, or the only column.
        embedding_column: None takes ``embedding`` if it holds vectors; without one, texts are encoded.
        carry: other columns to write unchanged; None carries all but the text, and refuses what may hold vectors.
        keep_text: also write the texts.
        id_column: names the item of each row, for keyed noise.
        key: where each worker finds the key: ``env:NAME`` or the path of a key file. The key itself is not sent.
        key_id: which key of the file; None is the current one.
        noise: False applies the map alone.
        check_lengths: refuse vectors longer than those of the fit.
        encoder: None is the protector's own.
        precision: of the encoder.
        format: of the inputs; None goes by their suffixes.
        encoding: of text files.
        delimiter: of CSV files.
        cache: keep clean vectors of texts in the cache of this machine.
        max_memory: bytes that decoded Parquet columns of a chunk may take; see `vecveil.data.read_table`.

    Raises:
        InvalidInputError: keyed noise without a column of ids, or options that exclude each other.
    """

    protector: bytes = field(repr=False)
    text_column: str | None = None
    embedding_column: str | None = None
    carry: tuple[str, ...] | None = None
    keep_text: bool = False
    id_column: str | None = None
    key: str | None = None
    key_id: str | None = None
    noise: bool = True
    check_lengths: bool = True
    encoder: str | None = None
    precision: str | None = None
    format: str | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None
    cache: bool = False
    max_memory: int | None = None

    def __post_init__(self) -> None:
        if self.key is not None and self.id_column is None:
            raise InvalidInputError.of(
                "protect", "id_column", "given for keyed noise", "None",
                "Row numbers change when somebody sorts or splits the files: then every row is a further release.",
                "Name the column that names the item of each row.",
            )  # fmt: skip
        if self.key is not None and not self.noise:
            raise InvalidInputError.of("protect", "key", "left out without noise", "a key")

    @classmethod
    def of(cls, protector: Protector | str | os.PathLike[str], **options: Any) -> BulkJob:
        """Return the job of a protector or its file.

        Raises:
            ProtectorFileError, InvalidInputError: see `vecveil.load` and the class.
        """
        return cls((protector if isinstance(protector, Protector) else load(protector)).to_bytes(), **options)

    def pinned(self) -> BulkJob:
        """Return the job with the current key's id: a key added later would make other releases."""
        if self.key is None or self.key_id is not None:
            return self
        key = self.noise_key()
        return self if key is None else replace(self, key_id=key.key_id)

    def noise_key(self) -> NoiseKey | None:
        """Return the key, read from where the job says, or None for fresh noise."""
        if self.key is None:
            return None
        if self.key.startswith(_ENVIRONMENT):
            return NoiseKeys.from_environment(self.key.removeprefix(_ENVIRONMENT)).key(self.key_id)
        return NoiseKeys.from_file(self.key).key(self.key_id)

    def opened(self) -> OpenJob:
        """Return the job with its protector loaded; a worker does that once."""
        return OpenJob(self)

    def to_record(self) -> dict[str, Any]:
        """Return the job as JSON values, for manifests: names of key and protector, not their contents."""
        opened = self.opened()
        about = {name: value for name, value in vars(self).items() if name not in _NOT_RECORDED}
        about["carry"] = None if self.carry is None else list(self.carry)
        about["key_check"] = None if opened.key is None else opened.key.check_value
        return {**about, **metadata_of(opened.protector, opened.key, noise=self.noise)}


class OpenJob:
    """A job in a process that works on it.

    Attributes:
        job: the job.
        protector: loaded.
        key: read from where the job says, or None.
    """

    def __init__(self, job: BulkJob) -> None:
        self.job = job
        self.protector = Protector.from_bytes(job.protector)
        self.key = job.noise_key()
        self._encoder: TextEncoder | None = None

    def encoder(self) -> TextEncoder:
        """Return the encoder, loaded and compared with the protector's."""
        if self._encoder is None:
            self._encoder = self.protector.encoder_for(self.job.encoder, self.job.precision, self.job.cache)
        return self._encoder

    def check_clean(self, reader: TableReader, name: str) -> TableReader:
        """Return ``reader`` in chunks of a good size; refuse a table that is protected already."""
        if reader.metadata.get("protected") and self.job.check_lengths:
            raise already_protected(name)
        return reader.in_chunks(TEXT_ROWS) if reader.embedding_column is None else reader


def metadata_of(protector: Protector, key: NoiseKey | None, *, noise: bool) -> Mapping[str, Any]:
    """Return the metadata of a file of protected vectors."""
    guarantee = protector.guarantee if key is None else protector.guarantee.with_keyed_noise()
    noisy = noise and protector.rewriter is None
    return {
        "vecveil": __version__,
        "protected": noise,
        "noise": noisy,
        "randomness": None if not noisy else "secure" if key is None else "keyed",
        "key_id": None if key is None else key.key_id,
        "method": protector.method,
        "concept": protector.concept,
        "protector": protector.fingerprint,
        "encoder": protector.encoder_info.to_record(),
        "guarantee": guarantee.statement if noise else None,
        "conditional_on": list(guarantee.conditional_on) if noise else None,
        "not_promised": list(guarantee.not_promised) if noise else None,
    }


def already_protected(name: str) -> DataFileError:
    """Return the error for a table that is protected already."""
    return DataFileError.of(name, "path", "a table of clean vectors or texts", "one that vecveil has protected",
                            "More noise on top of noise protects worse than it costs.",
                            "Protect the clean table, or insist with --again.")  # fmt: skip


def row_protection(
    protector: Protector,
    *,
    key: NoiseKey | None = None,
    ledger: Ledger | None = None,
    noise: bool = True,
    lengths: bool = True,
) -> Callable[[Embeddings, RowItems], Embeddings]:
    """Return the function that protects a chunk of rows.

    Args:
        key: for keyed noise; None draws fresh noise.
        ledger: counts the rows before they are released.
        noise: False applies the map alone.
        lengths: refuse rows longer than those of the fit.
    """
    if protector.rewriter is not None:
        return lambda X, rows: X if rows.texts is not None else protector.protect(X)
    takes_ids = key is not None or ledger is not None
    takes_texts = key is not None and protector.encoder_info.fingerprint is not None
    counted = 0

    def protect(X: Embeddings, rows: RowItems) -> Embeddings:
        nonlocal counted
        if lengths:
            protector.check_norms(X, owner="protect")
        ids, texts = rows.ids if takes_ids else None, rows.texts if takes_texts else None
        try:
            # lengths=False: they were checked above, or need not be.
            released = protector.protect(
                X, noise=noise, ids=ids, key=key, texts=texts, ledger=ledger, lengths=False
            )
        except LedgerCapError as error:
            if not counted:
                raise
            raise LedgerCapError(
                f"{error} Before them {counted:,} rows of this run were counted; nothing of it is written.",
                items=error.items,
            ) from None
        counted += len(X)
        return released

    return protect


def table_protection(opened: OpenJob, ledger: Ledger | None = None) -> TableProtection:
    """Return how a job protects a table."""
    job, protector = opened.job, opened.protector

    def encode(texts: list[str]) -> Embeddings:
        rewritten = texts if protector.rewriter is None else protector.rewrite(texts)
        vectors: Embeddings = opened.encoder().encode(rewritten, show_progress=False)
        return vectors

    protect = row_protection(
        protector, key=opened.key, ledger=ledger, noise=job.noise, lengths=job.check_lengths
    )
    return TableProtection(
        protect, encode=encode, dimension=protector.dimension, carry=job.carry, keep_text=job.keep_text,
        with_items=True, id_column=job.id_column, owned=True,
    )  # fmt: skip


# Parts of files ----------------------------------------------------------------------------------


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
        self, job: BulkJob, out: Folder, run: str, inputs: Mapping[str, Any], ledger: Ledger | None = None
    ) -> None:
        self._opened = job.opened()
        self._out, self._run, self._inputs = out, run, inputs
        self._protection = table_protection(self._opened, ledger)
        self._about = metadata_of(self._opened.protector, self._opened.key, noise=job.noise)

    def __call__(self, part: Part) -> PartResult:
        """Return the result of ``part``; one whose file exists is left as it is.

        A task that is tried again after its file appeared must not release its rows a second time.

        Raises:
            DataFileError: the input changed, or a row of it cannot be used; or the output cannot be written.
        """
        if (done := _finished(self._out, part, self._run)) is not None:
            return done
        try:
            reader = reader_of(self._opened.job, part, self._inputs)
        except NoRowsError:
            self._check_input(part, 0, 0)
            return PartResult.of(part.index, 0, None)
        reader = self._opened.check_clean(reader, part.input.name)
        try:
            prepared = self._protection.of(reader)
        except IncompatibleError as error:
            if reader.embedding_column is None:
                raise  # the encoder does not fit, for no part
            raise DataFileError(f"{part.input.name}: {error}") from None
        about = {**self._about, "run": self._run, "part": part.index}
        try:
            with self._out.writing(part.output) as path:
                with open_writer(path, types=prepared.types, metadata=about, only_new=True) as writer:
                    counts = prepared.write(writer)
                    self._check_input(part, counts.rows, reader.rows)
                with open(path, "rb") as written:
                    return PartResult.of(part.index, counts.rows, written)
        except FileExistsError:  # another worker has released these rows just now: its file counts
            done = _finished(self._out, part, self._run)
            assert done is not None
            return done

    def _check_input(self, part: Part, rows: int, expected: int) -> None:
        same = unchanged(part.input, self._inputs)
        if not same or rows != expected or part.rows not in (None, rows):
            got = "one that changed" if rows == expected else f"{rows} rows in place of {expected}"
            constraint = "a file that stays the same while it is read"
            raise DataFileError.of(part.input.name, "path", constraint, got)


def reader_of(job: BulkJob, part: Part, inputs: Mapping[str, Any]) -> TableReader:
    """Return the reader of a part's rows.

    Raises:
        DataFileError: its file cannot be read.
    """
    file = open_input(part.input, inputs, format=job.format)
    return read_table(
        file, source=source_of(part, file, job.max_memory), text_column=job.text_column,
        embedding_column=job.embedding_column, encoding=job.encoding, delimiter=job.delimiter,
        max_memory=job.max_memory,
    )  # fmt: skip


def _finished(out: Folder, part: Part, run: str) -> PartResult | None:
    """Return the result of a part whose file exists, or None.

    Raises:
        DataFileError: the file is of another run.
    """
    if not out.has(part.output):
        return None
    pa = import_pyarrow()
    with out.open(part.output) as file:
        try:
            parquet = pa.parquet.ParquetFile(file)
            about, rows = metadata_in(parquet.schema_arrow.metadata), parquet.metadata.num_rows
        except (pa.ArrowException, OSError, ValueError):
            about, rows = {}, 0
        if (about.get("run"), about.get("part")) != (run, part.index) or part.rows not in (None, rows):
            raise DataFileError.of("protect", "out", "a folder of this run alone", f"another file named {part.output}",
                                   "It was not written by this run.", "Give another folder.")  # fmt: skip
        file.seek(0)
        return PartResult.of(part.index, rows, file)


# Batches of Arrow rows ---------------------------------------------------------------------------


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
            raise wrong_type("protect", "rows", "a pyarrow.Table or RecordBatch", rows)
        if self._ready is None:
            opened = self.job.opened()
            about = metadata_of(opened.protector, opened.key, noise=self.job.noise)
            self._ready = opened, table_protection(opened), about
        opened, protection, about = self._ready
        reader = TableReader(
            _ArrowSource(rows), text_column=self.job.text_column, embedding_column=self.job.embedding_column,
            columns=[], chunk_rows=None,
        )  # fmt: skip
        prepared = protection.of(opened.check_clean(reader, "rows"))
        writer = ArrowWriter("protect", prepared.types, about)
        if rows.num_rows:
            prepared.write(writer)
        kind = reader.types.get(reader.embedding_column or "")
        dtype = np.float64 if "double" in str(kind) else np.float32  # texts are encoded in float32
        return writer.table(dimension=opened.protector.released_dimension, dtype=np.dtype(dtype))

    def schema(self, rows: Any) -> Any:
        """Return the ``pyarrow.Schema`` that protected rows of the schema ``rows`` have."""
        return self(rows.empty_table()).schema


class _ArrowSource(TableSource):
    """Rows in memory."""

    def __init__(self, table: Any) -> None:
        self.name, self.format = "rows", "parquet"
        self.metadata = metadata_in(table.schema.metadata)
        names = list(table.column_names)
        check_names(self.name, names)
        self.types = dict(zip(names, map(undictionaried, table.schema.types), strict=True))
        self.rows = table.num_rows
        self._table = table

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        for batch in self._table.select(list(columns)).to_batches(max_chunksize=chunk_rows):
            if batch.num_rows:
                yield batch.num_rows, {name: self._plain(name, batch.column(name)) for name in columns}

    def _plain(self, name: str, values: Any) -> Any:
        kind = self.types[name]
        return values if values.type == kind else values.cast(kind)
