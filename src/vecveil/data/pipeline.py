"""Protect a table of vectors or texts, chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from vecveil.data.columns import (
    ColumnType,
    has_number_list,
    is_plain,
    is_text,
    missing_column,
    row_number,
    shown_name,
)
from vecveil.data.reading import EMBEDDING, Chunk, TableReader, read_table
from vecveil.data.writing import EmbeddingWriter, NpyWriter, check_output, open_writer
from vecveil.errors import (
    DataFileError,
    IncompatibleError,
    InvalidInputError,
    ReleaseError,
    message,
)
from vecveil.runtime import check_room, progress
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

__all__ = [
    "ROOM",
    "Carried",
    "PreparedTable",
    "ProtectionCounts",
    "RowItems",
    "TableProtection",
    "ahead",
    "behind",
    "carried_columns",
    "check_id_column",
    "ids_of",
    "protect_table",
]

T = TypeVar("T")
P = ParamSpec("P")


@contextmanager
def ahead(pieces: Iterator[T]) -> Iterator[Iterator[T]]:
    """Yield an iterator of the same pieces, the next of which is taken from ``pieces`` in a thread.

    An exception of ``pieces`` is raised where its piece would have come.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="vecveil-read") as thread:

        def taken() -> Iterator[T]:
            end = object()
            waiting: Future[T | object] = thread.submit(next, pieces, end)
            while (piece := waiting.result()) is not end:
                waiting = thread.submit(next, pieces, end)
                yield piece  # type: ignore[misc]

        yield taken()


@contextmanager
def behind(work: Callable[P, None]) -> Iterator[Callable[P, None]]:
    """Yield a function that does ``work`` in a thread, one call after the other.

    It waits for the call before; an exception is raised by the next call, or at the end of the block.
    """
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


@dataclass(frozen=True, slots=True)
class RowItems:
    """What the rows of a chunk are. Its repr shows no contents."""

    ids: list[str] = field(repr=False)
    """The values of the id column, or the numbers of the rows in the file, from 0."""
    texts: list[str] | None = field(repr=False)
    """What the vectors were encoded from, or None for a file of vectors."""


def check_id_column(reader: TableReader, id_column: str | None) -> None:
    """Refuse an id column that is not there."""
    if id_column is not None and id_column not in reader.types:
        raise missing_column(reader.name, "id_column", id_column, reader.types)


def ids_of(chunk: Chunk, id_column: str | None, source: str) -> list[str]:
    """Return the ids of a chunk's rows: the column's values, or the numbers of the rows from 0."""
    if id_column is None:
        return [str(i) for i in range(chunk.first_row, chunk.first_row + chunk.rows)]
    values = chunk.columns[id_column]
    listed = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    for i, value in enumerate(listed):
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            what = "nothing" if value is None or value == "" else type(value).__name__
            raise DataFileError.of(source, "id_column", "a column of texts or whole numbers",
                                   f"{what} in {row_number(chunk.first_row + i)}",
                                   "It names the item of each row.")  # fmt: skip
    # A CSV's "7" and a Parquet file's 7 are one item: what the format makes of an id must not matter.
    return [str(value) for value in listed]


MANY_NUMBERS = 8
"""So many columns of fractions may be a vector, one value a column."""


class Carried:
    """The columns to write as they are.

    Attributes:
        types: name to type, in the order of the file.
    """

    def __init__(
        self, reader: TableReader, types: Mapping[str, ColumnType], *, chosen: bool
    ) -> None:
        self.types = dict(types)
        self._reader = reader
        self._sniffed = [
            name
            for name, kind in self.types.items()
            if not chosen and name != reader.text_column and is_text(kind)
        ]

    def of(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to write of a chunk's columns.

        Raises:
            DataFileError: texts that nobody asked for by name are lists of numbers.
        """
        for name in self._sniffed:
            if has_number_list(columns[name]):
                raise _perhaps_vectors(self._reader, name, "lists of numbers as text")
        return {name: columns[name] for name in self.types}


def carried_columns(reader: TableReader, carry: Sequence[str] | None, keep_text: bool) -> Carried:
    """Return the columns of ``reader`` to carry; see :func:`vecveil.data.protect_table`."""
    return Carried(reader, _carried(reader, carry, keep_text), chosen=carry is not None)


def _carried(
    reader: TableReader, carry: Sequence[str] | None, keep_text: bool
) -> dict[str, ColumnType]:
    """Return the columns to write as they are, with their types, in the order of the file."""
    roles = (reader.text_column, reader.embedding_column)
    if carry is None:
        wanted = {name for name in reader.types if name not in roles}
        for name, kind in reader.types.items():
            if name in wanted and not is_plain(kind):
                what = "lists, objects or mixed values" if kind == "json" else "another type"
                raise _perhaps_vectors(reader, name, what)
        numbers = [
            name for name in reader.types if name in wanted and _is_float(reader.types[name])
        ]
        if len(numbers) >= MANY_NUMBERS:
            raise _perhaps_vectors(reader, numbers[0], f"numbers, one of {len(numbers)} such")
    else:
        wanted = set(carry)
        for name in carry:
            if name not in reader.types:
                raise missing_column(reader.name, "carry", name, reader.types)
            if name in roles and not (keep_text and name == reader.text_column):
                raise InvalidInputError(
                    message(
                        "protect_table",
                        "carry",
                        "without the text and the clean vectors",
                        repr(name),
                        fix="Keep the text with keep_text=True (--keep-text).",
                    )
                )
    if keep_text and reader.text_column is not None:
        wanted.add(reader.text_column)
    if EMBEDDING in wanted:
        raise InvalidInputError(
            message(
                "protect_table",
                "carry",
                f"without a column {EMBEDDING!r}",
                "one",
                "The protected vectors are written under that name.",
                "Rename the column.",
            )
        )
    return {name: kind for name, kind in reader.types.items() if name in wanted}


def _is_float(kind: ColumnType) -> bool:
    return str(kind) in ("float64", "double", "float", "float32", "halffloat", "float16")


def _perhaps_vectors(reader: TableReader, name: str, what: str) -> DataFileError:
    return DataFileError(
        message(
            reader.name,
            "carry",
            "columns of single numbers, texts or times",
            f"the column {shown_name(name, reader.types)} of {what}",
            "It may hold clean vectors, which would be released unprotected.",
            "Name the columns to carry with carry=[...] (--carry) if this one is harmless, or to "
            "leave it out.",
        )
    )


ROOM = 3 << 28
"""Bytes of address space that a table may need: chunks on their way, a row group, and what threads reserve."""


@dataclass(frozen=True, slots=True)
class ProtectionCounts:
    """What :func:`protect_table` did."""

    rows: int
    dimension: int
    """Of the vectors that were protected."""
    released_dimension: int
    """Of the vectors that were written."""
    source: str
    """The column that was protected, or that was encoded first."""
    encoded: bool
    carried: tuple[str, ...]
    """Columns that stand in the output as they were."""
    left_out: tuple[str, ...]
    """Columns of the input that the output does not have."""

    def to_record(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {
            "rows": self.rows,
            "dimension": self.dimension,
            "released_dimension": self.released_dimension,
            "source": self.source,
            "encoded": self.encoded,
            "carried": list(self.carried),
            "left_out": list(self.left_out),
        }


def protect_table(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    protect: Callable[..., Embeddings],
    *,
    encode: Callable[[list[str]], Embeddings] | None = None,
    dimension: int | None = None,
    text_column: str | None = None,
    embedding_column: str | None = None,
    carry: Sequence[str] | None = None,
    keep_text: bool = False,
    metadata: Mapping[str, Any] | None = None,
    with_items: bool = False,
    id_column: str | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    format: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    show_progress: bool | None = None,
) -> ProtectionCounts:
    """Write the protected vectors of ``input`` to ``output``; return what was done.

    The vectors are those of the embedding column, or else the encoded texts. Memory is bounded by
    the chunk, whatever the size of the file. The output is there whole or not at all.

    Args:
        protect: clean vectors (N, n) in, vectors to release out, one row each.
        encode: texts to vectors; needed if the input has no vectors.
        dimension: the dimension that ``protect`` takes; other vectors are refused before any work.
        carry: other columns to write as they are, whatever they hold; None carries all but the
            text, and refuses columns that may hold clean vectors: of lists, objects or bytes, and
            texts that are lists of numbers.
        keep_text: also write the text column. A .npy output has vectors only.
        metadata: see :func:`open_writer`.
        with_items: call ``protect(vectors, items)``, where `RowItems` has the rows' ids and texts.
        id_column: column of these ids; None counts the rows from 0.
        chunk_rows: None chooses by size.
        overwrite: replace an existing output.
        show_progress: None shows a bar on a terminal.

    The other arguments are those of :func:`read_table`.

    Raises:
        DataFileError: the input cannot be used, or the output cannot be written.
        IncompatibleError: the vectors are not of ``dimension``.
        ReleaseError: ``protect`` returned other rows than it was given.
        MemoryLimitError: a limit on this process leaves too little memory to begin.
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
    )
    prepared = protection.of(reader)
    with open_writer(
        output, types=prepared.types, metadata=metadata, overwrite=overwrite
    ) as writer:
        return prepared.write(writer, show_progress=show_progress)


@dataclass(frozen=True)
class TableProtection:
    """What is done to a table, whichever it is; the arguments of :func:`protect_table` say what they mean.

    Attributes:
        vectors_only: the output has no other columns.
        owned: ``protect`` returns a new array each time, which need not be copied before the next call.
    """

    protect: Callable[..., Embeddings]
    encode: Callable[[list[str]], Embeddings] | None = None
    dimension: int | None = None
    carry: Sequence[str] | None = None
    keep_text: bool = False
    vectors_only: bool = False
    with_items: bool = False
    id_column: str | None = None
    owned: bool = False

    def of(self, reader: TableReader) -> PreparedTable:
        """Return what is left to do with the table of ``reader``, after all checks that need no row."""
        _check_vectors(reader, self.encode, self.dimension)
        if self.vectors_only and (self.keep_text or self.carry):
            param = "keep_text" if self.keep_text else "carry"
            raise InvalidInputError.of("protect_table", param, "left out for a .npy output", "columns to keep",
                                       "A .npy file has vectors only.", "Write .parquet to keep columns.")  # fmt: skip
        if self.vectors_only:
            carried = Carried(reader, {}, chosen=True)
        else:
            carried = carried_columns(reader, self.carry, self.keep_text)
        check_id_column(reader, self.id_column)
        named = () if self.id_column is None else (self.id_column,)
        read = dict.fromkeys((*carried.types, *named))
        encoded = reader.embedding_column is None
        selected = reader.select(
            tuple(name for name in reader.types if name in read), texts=encoded
        )
        return PreparedTable(self, reader, selected, carried)


@dataclass(frozen=True)
class PreparedTable:
    """A table that is ready to be protected."""

    protection: TableProtection
    reader: TableReader
    selected: TableReader
    carried: Carried

    @property
    def types(self) -> dict[str, ColumnType]:
        """The columns that stand in the output as they were, with their types."""
        return self.carried.types

    def write(
        self, writer: EmbeddingWriter, *, show_progress: bool | None = False
    ) -> ProtectionCounts:
        """Write the protected rows; reading and writing go on while rows are protected."""
        reader, width = self.reader, self.protection.dimension
        with (
            ahead(iter(self.selected)) as chunks,
            behind(partial(writer.write, given_away=True)) as write,
        ):
            for chunk in progress(
                chunks,
                "Protecting",
                total=-(-self.selected.rows // self.selected.chunk_rows),
                show=show_progress,
                unit="chunk",
            ):
                columns = self.carried.of(chunk.columns)
                clean = _clean(chunk, self.protection.encode, width)
                width = clean.shape[1]
                write(self._released(chunk, clean), columns)
        encoded = reader.embedding_column is None
        used = reader.text_column if encoded else reader.embedding_column
        replaced = None if encoded else reader.embedding_column
        return ProtectionCounts(
            rows=writer.rows,
            dimension=width or 0,
            released_dimension=writer.dimension,
            source=str(used),
            encoded=encoded,
            carried=tuple(self.types),
            left_out=tuple(
                name for name in reader.types if name not in self.types and name != replaced
            ),
        )

    def _released(self, chunk: Chunk, clean: Embeddings) -> Embeddings:
        """Return what ``protect`` makes, after checking that it is one finite vector per row."""
        items: list[RowItems] = []
        if self.protection.with_items:
            ids = ids_of(chunk, self.protection.id_column, self.reader.name)
            encoded = self.reader.embedding_column is None
            items.append(RowItems(ids, chunk.texts if encoded else None))
        value = self.protection.protect(clean, *items)
        try:
            released = check_embeddings(value, owner="protect", param="output")
        except InvalidInputError as error:
            raise ReleaseError(f"{self.reader.name}: nothing was released. {error}") from None
        if len(released) != len(clean):
            raise ReleaseError.of("protect", "output", f"one vector for each of {len(clean)} rows",
                                  f"{len(released)}", "Nothing was released.")  # fmt: skip
        # It is written while the next piece is protected, perhaps into the same array.
        return released if self.protection.owned else released.copy()


def _check_vectors(reader: TableReader, encode: object, dimension: int | None) -> None:
    if reader.embedding_column is None and encode is None:
        raise missing_column(reader.name, "embedding_column", None, reader.types)
    if None not in (dimension, reader.dimension) and dimension != reader.dimension:
        raise IncompatibleError.of(reader.name, "embeddings", f"of dimension {dimension}",
                                   f"dimension {reader.dimension}",
                                   "The protector was fitted for vectors of another encoder.",
                                   "Use the encoder it was fitted with, or fit a new protector.")  # fmt: skip


def _clean(
    chunk: Chunk,
    encode: Callable[[list[str]], Embeddings] | None,
    dimension: int | None,
) -> Embeddings:
    if chunk.vectors is not None:
        return chunk.vectors
    if encode is None or chunk.texts is None:
        raise InvalidInputError.of("protect_table", "encode", "given for a table of texts", "None")
    vectors = check_embeddings(
        encode(chunk.texts), owner="encode", param="output", dimension=dimension
    )
    if len(vectors) != chunk.rows:
        raise InvalidInputError.of(
            "encode", "output", f"one vector for each of {chunk.rows} texts", f"{len(vectors)}"
        )
    return vectors
