"""Protect a table of vectors or texts, chunk by chunk."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, ReleaseError
from vecveil.io import PRIVATE, PUBLIC
from vecveil.runtime import check_room, progress
from vecveil.texts.tables.columns import (
    ColumnType,
    check_finite,
    has_number_list,
    ids_of,
    is_text,
    json_values,
    may_be_nan,
    missing_column,
)
from vecveil.texts.tables.reading import EMBEDDING, Chunk, TableFormat, TableReader, read_table
from vecveil.texts.tables.writing import EmbeddingWriter, NpyWriter, check_output, open_writer
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

ROOM = 3 << 28
"""Bytes of address space for a table: chunks in flight, a row group, and the reserve of threads."""
ID = "id"
"""Column of ids where none is named."""


@dataclass(frozen=True, slots=True)
class ProtectionCounts:
    """The result of :func:`protect_table`."""

    rows: int
    dimension: int
    """Of the clean vectors."""
    released_dimension: int
    """Of the written vectors."""
    source: str
    """The column of vectors, or of encoded texts."""
    encoded: bool
    carried: tuple[str, ...]
    """Columns written unchanged."""
    left_out: tuple[str, ...]
    """Input columns absent from the output."""

    def to_record(self) -> dict[str, Any]:
        return {**asdict(self), "carried": list(self.carried), "left_out": list(self.left_out)}


def protect_table(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    protect: Callable[[Embeddings], Embeddings] | TableProtection,
    *,
    metadata: Mapping[str, Any] | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    show_progress: bool | None = None,
    **options: Any,
) -> ProtectionCounts:
    """Write the protected vectors of ``input`` to ``output``; return the counts.

    The vectors come from the embedding column, or else from the encoded texts. The chunk bounds the memory for files of
    any size. The output appears whole or not at all. A .npy output has vectors only.

    Args:
        protect: clean vectors (N, n) in, vectors to release out, one row each; or a `TableProtection`.
        metadata: see :func:`open_writer`.
        overwrite: replace an existing output.
        show_progress: None shows a bar on a terminal.
        options: fields of `TableFormat`, and of `TableProtection`.

    Raises:
        DataFileError: the input is not usable, or the output cannot be written.
        IncompatibleError: the vectors are not of ``dimension``.
        ReleaseError: ``protect`` returned a different number of rows.
        MemoryLimitError: too little memory to begin, or decoded rows exceed ``max_memory``.
    """
    check_room(ROOM, owner="protect")
    form = {field.name: options.pop(field.name) for field in fields(TableFormat) if field.name in options}
    vectors_only = check_output(output, overwrite=overwrite, source=input) is NpyWriter
    if isinstance(protect, TableProtection):
        protection = protect
    else:
        release = protect
        # A thread writes the chunk while `protect` works on the next one, perhaps in the same array.
        protection = TableProtection(lambda X, ids, texts: copy.copy(release(X)), **options)
    reader = read_table(input, columns=[], chunk_rows=chunk_rows, **form)
    types = protection.types(reader, vectors_only=vectors_only)
    mode = PRIVATE if protection.carry or protection.keep_text else PUBLIC
    with open_writer(output, types=types, metadata=metadata, overwrite=overwrite, mode=mode) as writer:
        return protection.write(reader, types, writer, show_progress=show_progress)


@dataclass(frozen=True)
class SealedColumns:
    """A column of blobs, each of which contains a row's clean vector, its text and its other columns; filter tokens.

    Attributes:
        name: column of the blobs.
        tokens: column of the filter tokens by the column whose values they stand for.
        required: columns with tokens that the table must have; it may lack the others.
        seal: ``seal(vectors, ids=..., texts=..., metadata=...)`` returns these columns.
    """

    name: str
    tokens: Mapping[str, str]
    required: Sequence[str]
    seal: Callable[..., Mapping[str, list[Any]]] = field(repr=False)


@dataclass(frozen=True)
class TableProtection:
    """Settings for protecting a table: `types` checks it, `write` protects its rows.

    Attributes:
        protect: clean vectors (N, n), their ids and their texts (None if the table has vectors) in, a new array of
            vectors to release out, one row each.
        encode: texts to vectors; necessary for a table without vectors.
        dimension: dimension of ``protect``; other vectors fail before any work.
        carry: columns to write unchanged, whatever they contain, in addition to ``id_column``, or ``id`` where there is
            one.
        keep_text: also write the text column.
        id_column: column of the ids; None counts the rows from 0.
        only_clean: refuse a table that vecveil protected.
        sealed: columns of sealed originals. They need ``id_column``; of the other columns only ids and ``carry`` stay
            readable.
    """

    protect: Callable[[Embeddings, list[str], list[str] | None], Embeddings]
    encode: Callable[[list[str]], Embeddings] | None = None
    dimension: int | None = None
    carry: Sequence[str] = ()
    keep_text: bool = False
    id_column: str | None = None
    only_clean: bool = False
    sealed: SealedColumns | None = None

    def types(self, reader: TableReader, *, vectors_only: bool = False) -> dict[str, ColumnType]:
        """Return the columns to write next to the vectors, after all checks that need no row.

        Args:
            vectors_only: the output has no other columns.
        """
        sealed = self.sealed
        if self.only_clean and "protected" in reader.metadata:
            why, fix = (
                (
                    "A second noise costs utility and adds little protection.",
                    "Protect the clean table, or insist with --again.",
                )
                if sealed is None
                else ("Its noise would be sealed as the exact vectors.", "Seal the clean table.")
            )
            raise DataFileError(
                f"{reader.name} is protected already. {why} {fix}", code="E-DATA-FILE-PROTECTED", param="path"
            )
        if reader.embedding_column is None and self.encode is None:
            raise missing_column(reader.name, "embedding_column", None, reader.types)
        if None not in (self.dimension, reader.dimension) and self.dimension != reader.dimension:
            param = "embeddings" if reader.format == "npy" else "embedding_column"
            raise IncompatibleError(
                f"{reader.name}: `{param}` has dimension {reader.dimension}; the protector was fitted for "
                f"{self.dimension}. Use the encoder it was fitted with, or fit a new protector.",
                param=param,
            )
        if vectors_only and (self.keep_text or self.carry):
            param = "keep_text" if self.keep_text else "carry"
            raise InvalidInputError(
                f"A .npy output has vectors only: leave out `{param}`, or write .parquet to keep columns.", param=param
            )
        if self.id_column is not None and self.id_column not in reader.types:
            raise missing_column(reader.name, "id_column", self.id_column, reader.types)
        types = {} if vectors_only else _carried_types(reader, self.carry, self.keep_text, self.id_column)
        if sealed is not None:
            if {sealed.name, *sealed.tokens.values()} & reader.types.keys() or vectors_only or self.id_column is None:
                raise InvalidInputError(
                    "Sealing needs a table with ids that is not sealed yet, and a Parquet output.", param="input"
                )
            held = [name for name in self._read(reader, types).others if name != self.id_column]
            if absent := [name for name in sealed.required if name not in held]:
                raise missing_column(reader.name, "filter_field", absent[0], held)
            types[sealed.name] = "binary"
            types |= {token: "string" for name, token in sealed.tokens.items() if name in held}
        return types

    def write(
        self,
        reader: TableReader,
        types: Mapping[str, ColumnType],
        writer: EmbeddingWriter,
        *,
        show_progress: bool | None = False,
    ) -> ProtectionCounts:
        """Write the protected rows, reading the next chunk and writing the last one in other threads.

        Args:
            types: the result of `types` for this reader.
        """
        selected, width = self._read(reader, types), self.dimension
        # A column of ids that the caller did not name may contain clean vectors as text.
        examined = [
            name
            for name in {ID, self.id_column} & types.keys() - {*self.carry, reader.text_column}
            if name is not None and is_text(types[name])
        ]
        total = -(-selected.rows // selected.chunk_rows)
        written: Future[None] | None = None
        with ThreadPoolExecutor(2, thread_name_prefix="vecveil-table") as threads:
            chunks = _ahead(threads, iter(selected))
            for chunk in progress(chunks, "Protecting", total=total, show=show_progress, unit="chunk"):
                for name in examined:
                    if has_number_list(chunk.columns[name]):
                        raise DataFileError(
                            f"{reader.name}: the column {name!r} has lists of numbers, which may be clean "
                            "vectors. If they are not, name it with `carry`; otherwise rename the column: then "
                            "it is left out.",
                            param="carry",
                        )
                clean = self._clean(chunk, width)
                width, ids = clean.shape[1], self._ids(chunk, reader.name)
                # Sealed first: rows that cannot be sealed are not released and not counted.
                columns = {**chunk.columns, **self._sealed(chunk, clean, ids, reader)}
                released = self._released(clean, ids, None if reader.embedding_column else chunk.texts, reader.name)
                # One write at a time: more would hold more chunks in memory.
                if written is not None:
                    written.result()
                written = threads.submit(writer.write, released, {name: columns[name] for name in types}, owned=True)
            if written is not None:
                written.result()
        encoded = reader.embedding_column is None
        return ProtectionCounts(
            rows=writer.rows,
            dimension=width or 0,
            released_dimension=writer.dimension,
            source=str(reader.text_column if encoded else reader.embedding_column),
            encoded=encoded,
            carried=tuple(name for name in types if name in reader.types),
            left_out=tuple(name for name in reader.types if name not in types and name != reader.embedding_column),
        )

    def _read(self, reader: TableReader, types: Mapping[str, ColumnType]) -> TableReader:
        """Return a reader of the columns that are written, sealed or protected."""
        roles = (reader.text_column, reader.embedding_column)
        names = {*types, self.id_column} if self.sealed is None else set(reader.types).difference(roles)
        texts = reader.embedding_column is None or self.sealed is not None
        return reader.select(tuple(name for name in reader.types if name in names), texts=texts)

    def _clean(self, chunk: Chunk, dimension: int | None) -> Embeddings:
        if chunk.vectors is not None:
            return chunk.vectors
        assert self.encode is not None
        vectors = self.encode(chunk.texts or [])
        vectors = check_embeddings(vectors, owner="encode", param="output", dimension=dimension)
        if len(vectors) != chunk.rows:
            raise InvalidInputError(
                f"The encoder returned {len(vectors)} vectors for {chunk.rows} texts.", param="output"
            )
        return vectors

    def _ids(self, chunk: Chunk, source: str) -> list[str]:
        """Return the ids of a chunk's rows: the column's values, or row numbers from 0."""
        first = chunk.first_row
        if self.id_column is None:
            return [str(i) for i in range(first, first + chunk.rows)]
        return ids_of(chunk.columns[self.id_column], source=source, first_row=first)

    def _sealed(self, chunk: Chunk, clean: Embeddings, ids: list[str], reader: TableReader) -> Mapping[str, list[Any]]:
        """Return the sealed columns of a chunk, or nothing."""
        if self.sealed is None:
            return {}
        given = {name: values for name, values in chunk.columns.items() if name != self.id_column}
        for name, values in given.items():
            if may_be_nan(reader.types[name]):
                check_finite(values, source=reader.name, column=name, first_row=chunk.first_row)
        columns = {name: json_values(values) for name, values in given.items()}
        rows = zip(*columns.values(), strict=True)
        metadata = [dict(zip(columns, row, strict=True)) for row in rows] if columns else None
        return self.sealed.seal(clean, ids=ids, texts=chunk.texts, metadata=metadata)

    def _released(self, clean: Embeddings, ids: list[str], texts: list[str] | None, source: str) -> Embeddings:
        """Return the output of ``protect``, checked to be one finite vector per row."""
        value = self.protect(clean, ids, texts)
        try:
            released = check_embeddings(value, owner="protect", param="output")
        except InvalidInputError as error:
            raise ReleaseError(f"{source}: nothing was released. {error}") from None
        if len(released) != len(clean):
            raise ReleaseError(
                f"`protect` returned {len(released)} vectors for {len(clean)} rows. Nothing was released.",
                param="output",
            )
        return released


def _carried_types(
    reader: TableReader, carry: Sequence[str], keep_text: bool, id_column: str | None
) -> dict[str, ColumnType]:
    """Return the columns to write unchanged, with their types, in the order of the file."""
    types, text, roles = reader.types, reader.text_column, (reader.text_column, reader.embedding_column)
    names = set(carry)
    for name in carry:
        if name not in types:
            raise missing_column(reader.name, "carry", name, types)
        if name in roles and not (keep_text and name == text):
            raise InvalidInputError(
                f"`carry` {name!r} is the column of texts or of clean vectors. Keep the text with keep_text=True "
                "(--keep-text).",
                param="carry",
            )
    own = ID if id_column is None else id_column
    if own in types and own not in roles and (is_text(types[own]) or re.fullmatch(r"u?int\d+", str(types[own]))):
        names.add(own)
    if keep_text and text is not None:
        names.add(text)
    if EMBEDDING in names:
        raise InvalidInputError(
            f"`carry` cannot keep a column {EMBEDDING!r}: the protected vectors are written under that name. "
            "Rename the column.",
            param="carry",
        )
    return {name: kind for name, kind in types.items() if name in names}


def _ahead(threads: ThreadPoolExecutor, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield ``chunks``, reading the next one in a thread; an exception is raised in place of its chunk."""
    waiting: Future[Chunk | None] = threads.submit(next, chunks, None)
    while (chunk := waiting.result()) is not None:
        waiting = threads.submit(next, chunks, None)
        yield chunk
