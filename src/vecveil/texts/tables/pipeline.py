"""Protect a table of vectors or texts, chunk by chunk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, ReleaseError
from vecveil.io import PRIVATE, PUBLIC
from vecveil.runtime import check_room, progress
from vecveil.texts.tables.columns import ColumnType, has_number_list, ids_of, is_text, json_values, missing_column
from vecveil.texts.tables.reading import EMBEDDING, Chunk, TableFormat, TableReader, read_table
from vecveil.texts.tables.writing import EmbeddingWriter, NpyWriter, check_output, open_writer
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

T = TypeVar("T")
P = ParamSpec("P")

ROOM = 3 << 28
"""Bytes of address space for a table: chunks in flight, a row group, and the reserve of threads."""
ID = "id"
"""Column of ids where none is named."""


@dataclass(frozen=True, slots=True)
class RowItems:
    """Ids and texts of the rows of a chunk. Its repr shows no contents."""

    ids: list[str] = field(repr=False)
    """The values of the id column, or the numbers of the rows in the file, from 0."""
    texts: list[str] | None = field(repr=False)
    """Source texts of the vectors, or None for a file of vectors."""


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
    protect: Callable[..., Embeddings] | TableProtection,
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
    protection = protect if isinstance(protect, TableProtection) else TableProtection(protect, **options)
    protection = replace(protection, vectors_only=vectors_only)
    prepared = protection.of(read_table(input, columns=[], chunk_rows=chunk_rows, **form))
    mode = PRIVATE if protection.carry or protection.keep_text else PUBLIC
    with open_writer(output, types=prepared.types, metadata=metadata, overwrite=overwrite, mode=mode) as writer:
        return prepared.write(writer, show_progress=show_progress)


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
    """Settings for protecting a table.

    Attributes:
        protect: clean vectors (N, n) in, vectors to release out, one row each.
        encode: texts to vectors; necessary for a table without vectors.
        dimension: dimension of ``protect``; other vectors fail before any work.
        carry: columns to write unchanged, whatever they contain, in addition to ``id_column``, or ``id`` where there is
            one.
        keep_text: also write the text column.
        vectors_only: the output has no other columns.
        with_items: call ``protect(vectors, items)``, where `RowItems` has the rows' ids and texts.
        id_column: column of these ids; None counts the rows from 0.
        owned: ``protect`` returns a new array each time, so no copy is necessary before the next call.
        sealed: columns of sealed originals. They need ``id_column``; of the other columns only ids and ``carry`` stay
            readable.
    """

    protect: Callable[..., Embeddings]
    encode: Callable[[list[str]], Embeddings] | None = None
    dimension: int | None = None
    carry: Sequence[str] = ()
    keep_text: bool = False
    vectors_only: bool = False
    with_items: bool = False
    id_column: str | None = None
    owned: bool = False
    sealed: SealedColumns | None = None

    def of(self, reader: TableReader) -> PreparedTable:
        """Return the table of ``reader`` after all checks that need no row."""
        encoded = reader.embedding_column is None
        if encoded and self.encode is None:
            raise missing_column(reader.name, "embedding_column", None, reader.types)
        if None not in (self.dimension, reader.dimension) and self.dimension != reader.dimension:
            param = "embeddings" if reader.format == "npy" else "embedding_column"
            raise IncompatibleError(
                f"{reader.name}: `{param}` has dimension {reader.dimension}; the protector was fitted for "
                f"{self.dimension}. Use the encoder it was fitted with, or fit a new protector.",
                param=param,
            )
        if self.vectors_only and (self.keep_text or self.carry):
            param = "keep_text" if self.keep_text else "carry"
            raise InvalidInputError(
                f"A .npy output has vectors only: leave out `{param}`, or write .parquet to keep columns.", param=param
            )
        if self.id_column is not None and self.id_column not in reader.types:
            raise missing_column(reader.name, "id_column", self.id_column, reader.types)
        sealed = self.sealed
        if sealed is not None:
            added = {sealed.name, *sealed.tokens.values()}
            if added & reader.types.keys() or self.vectors_only or self.id_column is None:
                raise InvalidInputError(
                    "Sealing needs a table with ids that is not sealed yet, and a Parquet output.", param="input"
                )
        types = {} if self.vectors_only else _carried_types(reader, self.carry, self.keep_text, self.id_column)
        roles = (reader.text_column, reader.embedding_column)
        read = {*types, self.id_column} if sealed is None else set(reader.types) - set(roles)
        selected = reader.select(
            tuple(name for name in reader.types if name in read), texts=encoded or sealed is not None
        )
        if sealed is not None:
            held = [name for name in selected.others if name != self.id_column]
            if absent := [name for name in sealed.required if name not in held]:
                raise missing_column(reader.name, "filter_field", absent[0], held)
            types[sealed.name] = "binary"
            types |= {token: "string" for name, token in sealed.tokens.items() if name in held}
        return PreparedTable(self, reader, selected, types)


@dataclass(frozen=True)
class PreparedTable:
    """A checked table; ``types`` are the columns to write unchanged, in the order of the file."""

    protection: TableProtection
    reader: TableReader
    selected: TableReader
    types: dict[str, ColumnType]

    def write(self, writer: EmbeddingWriter, *, show_progress: bool | None = False) -> ProtectionCounts:
        """Write the protected rows, reading the next chunk and writing the last one in parallel."""
        reader, protection, width = self.reader, self.protection, self.protection.dimension
        # A column of ids that the caller did not name may contain clean vectors as text.
        examined = [
            name
            for name in {ID, protection.id_column} & self.types.keys() - {*protection.carry, reader.text_column}
            if name is not None and is_text(self.types[name])
        ]
        total = -(-self.selected.rows // self.selected.chunk_rows)
        with _ahead(iter(self.selected)) as chunks, _behind(partial(writer.write, owned=True)) as write:
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
                width = clean.shape[1]
                # Sealed first: rows that cannot be sealed are not released and not counted.
                columns = {**chunk.columns, **self._sealed(chunk, clean)}
                write(self._released(chunk, clean), {name: columns[name] for name in self.types})
        encoded = reader.embedding_column is None
        absent = [name for name in reader.types if name not in self.types and name != reader.embedding_column]
        return ProtectionCounts(
            rows=writer.rows,
            dimension=width or 0,
            released_dimension=writer.dimension,
            source=str(reader.text_column if encoded else reader.embedding_column),
            encoded=encoded,
            carried=tuple(name for name in self.types if name in reader.types),
            left_out=tuple(absent),
        )

    def _clean(self, chunk: Chunk, dimension: int | None) -> Embeddings:
        if chunk.vectors is not None:
            return chunk.vectors
        assert self.protection.encode is not None
        vectors = self.protection.encode(chunk.texts or [])
        vectors = check_embeddings(vectors, owner="encode", param="output", dimension=dimension)
        if len(vectors) != chunk.rows:
            raise InvalidInputError(
                f"The encoder returned {len(vectors)} vectors for {chunk.rows} texts.", param="output"
            )
        return vectors

    def _ids(self, chunk: Chunk) -> list[str]:
        """Return the ids of a chunk's rows: the column's values, or row numbers from 0."""
        column, first = self.protection.id_column, chunk.first_row
        if column is None:
            return [str(i) for i in range(first, first + chunk.rows)]
        return ids_of(chunk.columns[column], source=self.reader.name, first_row=first)

    def _sealed(self, chunk: Chunk, clean: Embeddings) -> Mapping[str, list[Any]]:
        """Return the sealed columns of a chunk, or nothing."""
        sealed = self.protection.sealed
        if sealed is None:
            return {}
        names = [name for name in self.selected.others if name != self.protection.id_column]
        columns = [json_values(chunk.columns[name]) for name in names]
        metadata = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if names else None
        return sealed.seal(clean, ids=self._ids(chunk), texts=chunk.texts, metadata=metadata)

    def _released(self, chunk: Chunk, clean: Embeddings) -> Embeddings:
        """Return the output of ``protect``, checked to be one finite vector per row."""
        items: list[RowItems] = []
        if self.protection.with_items:
            encoded = self.reader.embedding_column is None
            items.append(RowItems(self._ids(chunk), chunk.texts if encoded else None))
        value = self.protection.protect(clean, *items)
        try:
            released = check_embeddings(value, owner="protect", param="output")
        except InvalidInputError as error:
            raise ReleaseError(f"{self.reader.name}: nothing was released. {error}") from None
        if len(released) != len(clean):
            raise ReleaseError(
                f"`protect` returned {len(released)} vectors for {len(clean)} rows. Nothing was released.",
                param="output",
            )
        # The writer thread reads it while `protect` works on the next chunk, perhaps in the same array.
        return released if self.protection.owned else released.copy()


# Columns -----------------------------------------------------------------------------------------


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


# Overlap of reading, protecting and writing ------------------------------------------------------


@contextmanager
def _ahead(pieces: Iterator[T]) -> Iterator[Iterator[T]]:
    """Yield an iterator of the same pieces that reads the next one in a thread.

    An exception of ``pieces`` is raised in place of its piece.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="vecveil-read") as thread:

        def read() -> Iterator[T]:
            # A sentinel: StopIteration cannot pass through a Future.
            end = object()
            waiting: Future[T | object] = thread.submit(next, pieces, end)
            while (piece := waiting.result()) is not end:
                waiting = thread.submit(next, pieces, end)
                yield piece  # type: ignore[misc]

        yield read()


@contextmanager
def _behind(work: Callable[P, None]) -> Iterator[Callable[P, None]]:
    """Yield a function that calls ``work`` in a thread, after waiting for its previous call.

    An exception is raised by the next call, or at the end of the block.
    """
    # One call in flight: more would hold more chunks in memory.
    last: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="vecveil-write") as thread:

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            nonlocal last
            if last is not None:
                last.result()
            last = thread.submit(work, *args, **kwargs)

        yield call
        if last is not None:
            last.result()
