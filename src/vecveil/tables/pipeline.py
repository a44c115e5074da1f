"""From a table of vectors or texts to a table of protected vectors, chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecveil.checks import check_embeddings
from vecveil.errors import (
    DataFileError,
    IncompatibleError,
    InvalidInputError,
    ReleaseError,
    message,
)
from vecveil.progress import progress
from vecveil.tables.arrow import is_plain, is_text
from vecveil.tables.items import RowItems, check_id_column, ids_of
from vecveil.tables.numberlists import has_number_list
from vecveil.tables.reading import EMBEDDING, Chunk, TableReader, read_table
from vecveil.tables.sources import ColumnType, missing_column, shown_name
from vecveil.tables.writing import NpyWriter, check_output, open_writer
from vecveil.types import Embeddings

__all__ = ["ProtectionCounts", "protect_table"]

MANY_NUMBERS = 8
"""So many columns of fractions may be a vector, one value a column."""


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
    """
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
    _check_vectors(reader, encode, dimension)
    if vectors_only and (keep_text or carry):
        param = "keep_text" if keep_text else "carry"
        raise InvalidInputError(
            message(
                "protect_table",
                param,
                "left out for a .npy output",
                "columns to keep",
                "A .npy file has vectors only.",
                "Write .parquet to keep columns.",
            )
        )
    carried = {} if vectors_only else _carried(reader, carry, keep_text)
    sniffed = [
        name
        for name, kind in carried.items()
        if carry is None and name != reader.text_column and is_text(kind)
    ]
    encoded = reader.embedding_column is None
    check_id_column(reader, id_column)
    read = dict.fromkeys((*carried, *(() if id_column is None else (id_column,))))
    reader = reader.select(tuple(name for name in reader.types if name in read), texts=encoded)
    chunks = progress(
        reader,
        "Protecting",
        total=-(-reader.rows // reader.chunk_rows),
        show=show_progress,
        unit="chunk",
    )
    width = 0
    with open_writer(output, types=carried, metadata=metadata, overwrite=overwrite) as writer:
        for chunk in chunks:
            for name in sniffed:
                if has_number_list(chunk.columns[name]):
                    raise _perhaps_vectors(reader, name, "lists of numbers as text")
            clean = _clean(chunk, encode, reader.name, width or dimension)
            width = clean.shape[1]
            items: list[RowItems] = []
            if with_items:
                ids = ids_of(chunk, id_column, reader.name)
                items.append(RowItems(ids, chunk.texts if encoded else None))
            released = _released(protect(clean, *items), clean, reader.name)
            writer.write(released, {name: chunk.columns[name] for name in carried})
    used = reader.text_column if encoded else reader.embedding_column
    replaced = None if encoded else reader.embedding_column
    return ProtectionCounts(
        rows=writer.rows,
        dimension=width,
        released_dimension=writer.dimension,
        source=str(used),
        encoded=encoded,
        carried=tuple(carried),
        left_out=tuple(name for name in reader.types if name not in carried and name != replaced),
    )


def _check_vectors(reader: TableReader, encode: object, dimension: int | None) -> None:
    if reader.embedding_column is None and encode is None:
        raise missing_column(reader.name, "embedding_column", None, reader.types)
    if None not in (dimension, reader.dimension) and dimension != reader.dimension:
        raise IncompatibleError(
            message(
                reader.name,
                "embeddings",
                f"of dimension {dimension}",
                f"dimension {reader.dimension}",
                "The protector was fitted for vectors of another encoder.",
                "Use the encoder it was fitted with, or fit a new protector.",
            )
        )


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


def _clean(
    chunk: Chunk,
    encode: Callable[[list[str]], Embeddings] | None,
    source: str,
    dimension: int | None,
) -> Embeddings:
    if chunk.vectors is not None:
        return chunk.vectors
    if encode is None or chunk.texts is None:
        raise InvalidInputError(
            message("protect_table", "encode", "given for a table of texts", "None")
        )
    vectors = check_embeddings(
        encode(chunk.texts), owner="encode", param="output", dimension=dimension
    )
    if len(vectors) != chunk.rows:
        raise InvalidInputError(
            message(
                "encode", "output", f"one vector for each of {chunk.rows} texts", f"{len(vectors)}"
            )
        )
    return vectors


def _released(value: Any, clean: Embeddings, source: str) -> Embeddings:
    """Return what ``protect`` made, after checking that it is one finite vector per row."""
    try:
        released = check_embeddings(value, owner="protect", param="output")
    except InvalidInputError as error:
        raise ReleaseError(f"{source}: nothing was released. {error}") from None
    if len(released) != len(clean):
        raise ReleaseError(
            message(
                "protect",
                "output",
                f"one vector for each of {len(clean)} rows",
                f"{len(released)}",
                "Nothing was released.",
            )
        )
    return released
