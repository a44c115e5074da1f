"""Protect rows as a job describes, in parts of files or batches of Arrow rows, and open sealed ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, KeyFileError, LedgerCapError, wrong_type
from vecveil.gateway.bulk.places import Folder, Part, PartResult, open_input, unchanged
from vecveil.index import Sealer
from vecveil.index.blob import SEALED_FIELD, decoded
from vecveil.index.keystore import token_fields
from vecveil.index.sealer import OnInvalid, filter_tokens
from vecveil.io import PRIVATE, PUBLIC
from vecveil.keys import KeyFile, NoiseKey
from vecveil.privacy.accounting import Ledger
from vecveil.privacy.protector import Protector, load
from vecveil.runtime import progress
from vecveil.texts.encoders import TextEncoder
from vecveil.texts.tables import TableReader, open_writer
from vecveil.texts.tables.binary_formats import NpySource, ParquetSource, metadata_in
from vecveil.texts.tables.columns import (
    ColumnBatch,
    TableSource,
    as_type,
    check_names,
    ids_of,
    import_pyarrow,
    missing_column,
    python_values,
    undictionaried,
)
from vecveil.texts.tables.files import InputFile, NoRowsError
from vecveil.texts.tables.pipeline import SealedColumns, TableProtection
from vecveil.texts.tables.reading import TableFormat
from vecveil.texts.tables.writing import ArrowWriter, EmbeddingWriter
from vecveil.types import Embeddings
from vecveil.version import __version__

_OPENED_ROWS = 4096  # of a chunk of sealed rows
_TYPES = {"id": "string", "text": "string", "metadata": "json"}  # of opened rows, except their vectors
_NOT_RECORDED = ("protector", "key", "key_id", "check_lengths", "cache", "max_memory", "seal_key")
"""Secrets, fields of the metadata, and options that only refuse rows: none changes the release of a row."""


@dataclass(frozen=True, kw_only=True)
class BulkJob(TableFormat):
    """A protector and table options in a form that travels to workers: it names keys and never contains them.

    Args:
        protector: bytes of a protector's file; see `BulkJob.of`.
        carry: columns to write unchanged, in addition to ``id_column``, or ``id`` where there is one.
        keep_text: also write the texts.
        id_column: names the item of each row, for keyed noise.
        key: source of the key for each worker: ``env:NAME`` or the path of a key file.
        key_id: id of the key in its file; None is the current one.
        noise: False applies the map alone.
        check_lengths: refuse vectors longer than the fit's.
        encoder, encoder_options, precision: by default the protector's own.
        cache: keep clean vectors of texts in the cache of this machine.
        seal_key: also write sealed originals, under this key store: a path or ``env:NAME:PATH`` that each worker has.
            Of the columns only ids and ``carry`` stay readable. NaN in a sealed column is refused, as JSON has none.
        seal_name: collection in the key store.
        filter_fields: columns to write filter tokens of, in addition to the key store's.
        seal_uuid: UUID of the collection, which each worker compares; see `pinned`.

    Raises:
        InvalidInputError: keyed noise without a column of ids, or without noise.
    """

    protector: bytes = field(repr=False)
    carry: tuple[str, ...] = ()
    keep_text: bool = False
    id_column: str | None = None
    key: str | None = None
    key_id: str | None = None
    noise: bool = True
    check_lengths: bool = True
    encoder: str | None = None
    encoder_options: tuple[tuple[str, Any], ...] = ()
    precision: str | None = None
    cache: bool = False
    seal_key: str | None = None
    seal_name: str | None = None
    filter_fields: tuple[str, ...] = ()
    seal_uuid: str | None = None

    def __post_init__(self) -> None:
        if self.seal_key is not None and None in (self.seal_name, self.id_column):
            raise InvalidInputError(
                "`seal_key` needs `seal_name` and `id_column`: a blob is bound to its collection and id.",
                param="seal_name",
            )
        if self.filter_fields and self.seal_key is None:
            raise InvalidInputError("`filter_fields` needs `seal_key`.", param="filter_fields")
        if self.key is not None and self.id_column is None:
            raise InvalidInputError(
                "Keyed noise needs `id_column`, the column that names the item of each row: row numbers change "
                "when somebody sorts the files.",
                param="id_column",
            )
        if self.key is not None and not self.noise:
            raise InvalidInputError("`key` is for noise: leave it out without noise.", param="key")

    @classmethod
    def of(cls, protector: Protector | str | os.PathLike[str], **options: Any) -> BulkJob:
        """Return the job of a protector or its file."""
        opened = protector if isinstance(protector, Protector) else load(protector)
        return cls(protector=opened.to_bytes(), **options)

    def pinned(self) -> BulkJob:
        """Return the job with the id of the current key and the UUID of the sealed collection, made if it is new.

        A key added later would make other releases, and workers that make the collection each on their own would seal
        under keys that nobody else has.
        """
        job = self
        if job.key is not None and job.key_id is None and (key := job.noise_key()) is not None:
            job = replace(job, key_id=key.key_id)
        if job.seal_key is not None and job.seal_uuid is None:
            _, uuid = sealed_columns(Protector.from_bytes(job.protector), job)
            job = replace(job, seal_uuid=uuid)
        return job

    def noise_key(self) -> NoiseKey | None:
        """Return the key from its source, or None for fresh noise."""
        return None if self.key is None else KeyFile.of(self.key).key(self.key_id)

    @property
    def mode(self) -> int:
        """Mode of the output files: closed to others unless they contain only ids, protected and sealed data."""
        return PRIVATE if self.carry or self.keep_text else PUBLIC

    def to_record(self) -> dict[str, Any]:
        """Return the job for manifests: names of key and protector, not their contents."""
        opened = OpenJob(self)
        about = {name: value for name, value in vars(self).items() if name not in _NOT_RECORDED}
        about["carry"] = list(self.carry)
        about["filter_fields"], about["encoder_options"] = list(self.filter_fields), dict(self.encoder_options)
        # Another key under the same id would give other releases: its check value shows that.
        about["key_check"] = None if opened.key is None else opened.key.check_value
        return {**about, **opened.metadata}


class OpenJob:
    """A job in its worker process, with the protector loaded and the keys read.

    Attributes:
        protection: the treatment of a table's rows.
        metadata: of files of protected vectors.
    """

    def __init__(self, job: BulkJob, *, key: NoiseKey | None = None, ledger: Ledger | None = None) -> None:
        """Load the job.

        Args:
            key: replaces the job's.
            ledger: counts the rows before they are released.
        """
        self.job, self._ledger, self._counted = job, ledger, 0
        self.protector = Protector.from_bytes(job.protector)
        self.key = key or job.noise_key()
        self.metadata = metadata_of(self.protector, self.key, noise=job.noise)
        sealed = None if job.seal_key is None else sealed_columns(self.protector, job)[0]
        # Rewriting belongs to the released vectors alone: sealed ones are of the original texts.
        self._rewrites_late = self.protector.rewriter is not None and sealed is not None
        self.protection = TableProtection(
            self._protect,
            encode=self._encode if self._rewrites_late else self._encode_rewritten,
            dimension=self.protector.dimension,
            carry=job.carry,
            keep_text=job.keep_text,
            id_column=job.id_column,
            only_clean=job.check_lengths or sealed is not None,
            sealed=sealed,
        )

    @cached_property
    def encoder(self) -> TextEncoder:
        """The encoder, compared with the protector's."""
        job = self.job
        return self.protector.encoder_for(job.encoder, job.precision, job.cache, options=dict(job.encoder_options))

    def _encode(self, texts: list[str]) -> Embeddings:
        vectors: Embeddings = self.encoder.encode(texts, show_progress=False)
        return vectors

    def _encode_rewritten(self, texts: list[str]) -> Embeddings:
        return self._encode(self.protector.seen(texts))

    def _protect(self, X: Embeddings, ids: list[str], texts: list[str] | None) -> Embeddings:
        job, protector = self.job, self.protector
        if self._rewrites_late and texts is not None:
            X = self._encode_rewritten(texts)
        if job.check_lengths:
            protector.check_norms(X, owner="protect")
        # Keyed noise may depend on texts only for a known encoder; see Protector.protect.
        takes_texts = self.key is not None and protector.encoder_info.fingerprint is not None
        try:
            released = protector.protect(
                X,
                noise=job.noise,
                ids=None if self.key is None and self._ledger is None else ids,
                key=self.key,
                texts=texts if takes_texts else None,
                ledger=self._ledger,
                lengths=False,  # checked above, or not wanted
                rewritten=texts is not None,
            )
        except LedgerCapError as error:
            if not self._counted:
                raise
            raise LedgerCapError(
                f"{error} Before them {self._counted:,} rows of this run were counted; nothing of it is written.",
                items=error.items,
            ) from None
        self._counted += len(X)
        return released


def metadata_of(protector: Protector, key: NoiseKey | None, *, noise: bool) -> Mapping[str, Any]:
    """Return the metadata of a file of protected vectors."""
    guarantee = protector.guarantee if key is None else protector.guarantee.with_keyed_noise()
    noisy = noise and not protector.text_only
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


def sealed_columns(protector: Protector, job: BulkJob) -> tuple[SealedColumns, str]:
    """Return the columns of sealed originals and the UUID of their collection, made for a job without one if it is new.

    Raises:
        KeyFileError: the collection has a different UUID than the job, or none.
        IncompatibleError: the collection contains vectors of a different protector.
    """
    sealer, collection, uuid = Sealer(str(job.seal_key)), str(job.seal_name), job.seal_uuid
    encoder = protector.encoder_info.fingerprint
    sealer.keys.check_protector(collection, protector.fingerprint, adding=uuid is None, encoder=encoder)
    present = str(sealer.keys.read(collection).uuid)
    if uuid not in (None, present):
        raise KeyFileError(
            "The run began with a different key store. Give all workers one key file.",
            code="E-SEAL-COLLECTION",
            param="seal_key",
        )
    fields = tuple(dict.fromkeys([*sealer.keys.read(collection).filter_fields, *job.filter_fields]))
    tokens = dict(zip(fields, token_fields(fields, owner="seal"), strict=True))

    def seal(vectors: Embeddings, **row: Any) -> dict[str, list[Any]]:
        blobs = sealer.seal(vectors, collection=collection, **row)
        values = filter_tokens(sealer.keys.read(collection), fields, blobs, row["metadata"])
        sealer.keys.note_filter_fields(collection, job.filter_fields)
        return {SEALED_FIELD: blobs, **{name: [each.get(name) for each in values] for name in tokens.values()}}

    return SealedColumns(SEALED_FIELD, tokens, job.filter_fields, seal), present


# Parts of files ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The input of an engine.

    Attributes:
        name: fingerprint of the run.
        inputs: fsspec options for the inputs.
        ledger: of this machine, or None.
    """

    job: BulkJob
    out: Folder
    name: str
    inputs: Mapping[str, Any] = field(repr=False)
    ledger: Ledger | None = None


class PartWorker:
    """Protects parts, one after another."""

    def __init__(self, run: Run) -> None:
        self._opened, self._run = OpenJob(run.job, ledger=run.ledger), run

    def __call__(self, part: Part) -> PartResult:
        """Return the result of ``part``, leaving an existing file unchanged.

        A repeated task whose file exists must not release its rows a second time.
        """
        if (done := self._finished(part)) is not None:
            return done
        try:
            reader = reader_of(self._opened.job, part, self._run.inputs)
        except NoRowsError:
            self._check_input(part, 0, 0)
            return PartResult.of(part.index, 0, None)
        protection = self._opened.protection
        try:
            types = protection.types(reader)
        except IncompatibleError as error:
            if reader.embedding_column is None:
                raise  # the encoder fits no part, so the run ends
            raise DataFileError(str(error)) from None
        # Run and part in the file identify it after a crash, before the manifest lists it.
        about = {**self._opened.metadata, "run": self._run.name, "part": part.index}
        try:
            with self._run.out.writing(part.output) as path:
                options: Any = {"metadata": about, "only_new": True, "mode": self._opened.job.mode}
                with open_writer(path, types=types, **options) as writer:
                    counts = protection.write(reader, types, writer)
                    # Inside the block: if the input changed, the file never appears.
                    self._check_input(part, counts.rows, reader.rows)
                with open(path, "rb") as written:
                    return PartResult.of(part.index, counts.rows, written)
        except FileExistsError:  # another worker was faster: its file counts
            done = self._finished(part)
            assert done is not None
            return done

    def _check_input(self, part: Part, rows: int, expected: int) -> None:
        same = unchanged(part.input, self._run.inputs)
        if not same or rows != expected or part.rows not in (None, rows):
            got = "its size or time differs" if rows == expected else f"{rows} rows in place of {expected}"
            raise DataFileError(
                f"{part.input.name} changed while it was read: {got}.", code="E-DATA-FILE-CHANGED", param="path"
            )

    def _finished(self, part: Part) -> PartResult | None:
        """Return the result of a part whose file exists, or None; raise DataFileError for another run's."""
        out = self._run.out
        if not out.has(part.output):
            return None
        pa = import_pyarrow()
        with out.open(part.output) as file:
            try:
                parquet = pa.parquet.ParquetFile(file)
                about, rows = metadata_in(parquet.schema_arrow.metadata), parquet.metadata.num_rows
            except (pa.ArrowException, OSError, ValueError):
                about, rows = {}, 0
            if (about.get("run"), about.get("part")) != (self._run.name, part.index) or part.rows not in (None, rows):
                raise DataFileError(
                    f"`out` has a file named {part.output} that this run did not write. Give another folder.",
                    param="out",
                )
            file.seek(0)
            return PartResult.of(part.index, rows, file)


def reader_of(job: BulkJob, part: Part, inputs: Mapping[str, Any]) -> TableReader:
    file = open_input(part.input, inputs, format=job.format)
    source: TableSource
    if part.stop is None:
        source = job.source(file)
    elif file.format == "parquet":
        source = ParquetSource(file, range(part.start, part.stop), job.max_memory)
    else:
        source = NpySource(file, (part.start, part.stop))
    return TableReader(source, job)


# Batches of Arrow rows ---------------------------------------------------------------------------


class ArrowProtection:
    """Protects tables and batches; vectors pass between Arrow and NumPy without Python objects.

    It can be pickled: a copy loads the protector and reads the key on first use.
    """

    def __init__(self, job: BulkJob) -> None:
        self.job = job
        self._opened: OpenJob | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The opened job contains the key, which must not travel to workers.
        return {"job": self.job, "_opened": None}

    def __call__(self, rows: Any) -> Any:
        """Return the protected rows of a ``pyarrow.Table`` or ``RecordBatch`` as a table.

        A table without rows gives an empty one with the same columns. On an error nothing is released.
        """
        source = _ArrowSource(rows, "protect")
        self._opened = self._opened or OpenJob(self.job)
        reader = TableReader(source, self.job, columns=[])
        types = self._opened.protection.types(reader)
        writer = ArrowWriter("protect", types, self._opened.metadata)
        if rows.num_rows:
            self._opened.protection.write(reader, types, writer)
        kind = reader.types.get(reader.embedding_column or "")
        dtype = np.float64 if "double" in str(kind) else np.float32  # texts are encoded in float32
        return writer.table(dimension=self._opened.protector.released_dimension, dtype=dtype)

    def schema(self, rows: Any) -> Any:
        """Return the ``pyarrow.Schema`` of protected rows of the schema ``rows``."""
        return self(rows.empty_table()).schema


class _ArrowSource(TableSource):
    """Rows in memory."""

    def __init__(self, table: Any, owner: str) -> None:
        pa = import_pyarrow()
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise wrong_type(owner, "rows", "a pyarrow.Table or RecordBatch", table)
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
                yield batch.num_rows, {name: as_type(batch.column(name), self.types[name]) for name in columns}


# Sealed rows -------------------------------------------------------------------------------------


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
        writer = ArrowWriter("unseal", _TYPES)
        self._open(_ArrowSource(rows, "unseal"), writer, show_progress=False)
        return writer.table()

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
        with open_writer(output, types=_TYPES, overwrite=overwrite) as writer:
            skipped = self._open(source, writer, show_progress=show_progress)
            return writer.rows, skipped

    def _open(self, source: TableSource, writer: EmbeddingWriter, *, show_progress: bool | None) -> list[str]:
        """Write the opened rows; return the ids of the others."""
        for param, name in (("id_column", self.id_column), ("sealed_column", SEALED_FIELD)):
            if name not in source.types:
                raise missing_column(source.name, param, name, source.types)
        self._sealer = self._sealer or Sealer(self.seal_key)
        skipped: list[str] = []
        total, first = -(-source.rows // _OPENED_ROWS), 0
        chunks = source.batches((self.id_column, SEALED_FIELD), _OPENED_ROWS)
        for rows, columns in progress(chunks, "Opening", total=total, show=show_progress, unit="chunk"):
            opened = self._sealer.unseal(
                [decoded(blob) for blob in python_values(columns[SEALED_FIELD])],
                ids=ids_of(columns[self.id_column], source=source.name, first_row=first),
                collection=self.seal_name,
                on_invalid=self.on_invalid,
            )
            if opened.ids:
                texts = {"id": opened.ids, "text": opened.texts, "metadata": opened.metadata}
                writer.write(opened.vectors, texts, owned=True)
            skipped += opened.skipped
            first += rows
        return skipped
