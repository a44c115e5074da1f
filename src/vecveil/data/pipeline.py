"""Protect a table of vectors or texts, chunk by chunk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from vecveil.data.columns import ColumnType, has_number_list, ids_of, is_text, json_values, missing_column
from vecveil.data.reading import EMBEDDING, Chunk, TableReader, read_table
from vecveil.data.writing import EmbeddingWriter, NpyWriter, check_output, open_writer
from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, ReleaseError
from vecveil.io import PRIVATE, PUBLIC
from vecveil.runtime import check_room, progress
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
    protect: Callable[..., Embeddings],
    *,
    encode: Callable[[list[str]], Embeddings] | None = None,
    dimension: int | None = None,
    text_column: str | None = None,
    embedding_column: str | None = None,
    carry: Sequence[str] = (),
    keep_text: bool = False,
    metadata: Mapping[str, Any] | None = None,
    with_items: bool = False,
    id_column: str | None = None,
    sealed: SealedColumns | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    format: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    max_memory: int | None = None,
    show_progress: bool | None = None,
) -> ProtectionCounts:
    """Write the protected vectors of ``input`` to ``output``; return the counts.

    The vectors are those of the embedding column, or else the encoded texts. The chunk bounds the memory for files of
    any size. The output appears whole or not at all.

    Args:
        protect: clean vectors (N, n) in, vectors to release out, one row each.
        encode: texts to vectors; necessary for an input without vectors.
        dimension: dimension of ``protect``; other vectors fail before any work.
        carry: columns to write unchanged, whatever they hold, beside ``id_column``, or ``id`` where there is one.
        keep_text: also write the text column. A .npy output has vectors only.
        metadata: see :func:`open_writer`.
        with_items: call ``protect(vectors, items)``, where `RowItems` has the rows' ids and texts.
        id_column: column of these ids; None counts the rows from 0.
        sealed: also write the sealed originals; see `TableProtection`.
        overwrite: replace an existing output.
        show_progress: None shows a bar on a terminal.

    The other arguments are those of :func:`read_table`.

    Raises:
        DataFileError: the input is not usable, or the output cannot be written.
        IncompatibleError: the vectors are not of ``dimension``.
        ReleaseError: ``protect`` returned another number of rows.
        MemoryLimitError: too little memory to begin, or decoded rows exceed ``max_memory``.
    """
    check_room(ROOM, owner="protect")
    vectors_only = check_output(output, overwrite=overwrite, source=input) is NpyWriter
    reader = read_table(
        input,
        text_column=text_column,
        embedding_column=embedding_column,
        columns=[],
        chunk_rows=chunk_rows,
        format=format,
        encoding=encoding,
        delimiter=delimiter,
        max_memory=max_memory,
    )
    protection = TableProtection(
        protect,
        encode=encode,
        dimension=dimension,
        carry=carry,
        keep_text=keep_text,
        vectors_only=vectors_only,
        with_items=with_items,
        id_column=id_column,
        sealed=sealed,
    )
    prepared = protection.of(reader)
    mode = PRIVATE if carry or keep_text else PUBLIC
    with open_writer(output, types=prepared.types, metadata=metadata, overwrite=overwrite, mode=mode) as writer:
        return prepared.write(writer, show_progress=show_progress)


@dataclass(frozen=True)
class SealedColumns:
    """A column of blobs, each of which holds a row's clean vector, its text and its other columns; filter tokens.

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
    """Settings for protecting a table: the arguments of :func:`protect_table`.

    Attributes:
        vectors_only: the output has no other columns.
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
            raise IncompatibleError.of(
                reader.name,
                param,
                f"of dimension {self.dimension}",
                f"dimension {reader.dimension}",
                "The protector was fitted for vectors of another encoder.",
                "Use the encoder it was fitted with, or fit a new protector.",
            )
        if self.vectors_only and (self.keep_text or self.carry):
            param = "keep_text" if self.keep_text else "carry"
            raise InvalidInputError.of(
                "protect_table",
                param,
                "left out for a .npy output",
                "columns to keep",
                "A .npy file has vectors only.",
                "Write .parquet to keep columns.",
            )
        if self.id_column is not None and self.id_column not in reader.types:
            raise missing_column(reader.name, "id_column", self.id_column, reader.types)
        sealed = self.sealed
        if sealed is not None:
            added = {sealed.name, *sealed.tokens.values()}
            if added & reader.types.keys() or self.vectors_only or self.id_column is None:
                raise InvalidInputError.of(
                    "seal", "input", "a table with ids, not sealed yet, sealed into Parquet", "another table or output"
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
        # A column of ids that the caller did not name may hold clean vectors as text.
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
                        raise DataFileError.of(
                            reader.name,
                            "carry",
                            f"with {name!r}, if its lists of numbers are no clean vectors",
                            "without it",
                            fix="Otherwise rename the column: then it is left out.",
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
            constraint = f"one vector for each of {chunk.rows} texts"
            raise InvalidInputError.of("encode", "output", constraint, f"{len(vectors)}")
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
            constraint = f"one vector for each of {len(clean)} rows"
            raise ReleaseError.of("protect", "output", constraint, f"{len(released)}", "Nothing was released.")
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
            raise InvalidInputError.of(
                "protect_table",
                "carry",
                "without the text and the clean vectors",
                repr(name),
                fix="Keep the text with keep_text=True (--keep-text).",
            )
    own = ID if id_column is None else id_column
    if own in types and own not in roles and (is_text(types[own]) or re.fullmatch(r"u?int\d+", str(types[own]))):
        names.add(own)
    if keep_text and text is not None:
        names.add(text)
    if EMBEDDING in names:
        why = "The protected vectors are written under that name."
        constraint = f"without a column {EMBEDDING!r}"
        raise InvalidInputError.of("protect_table", "carry", constraint, "one", why, "Rename the column.")
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
