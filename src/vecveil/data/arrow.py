"""The way between Arrow columns and the texts, vectors and values that are used elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from vecveil.data.formats import not_usable
from vecveil.data.sources import ColumnType, row_number
from vecveil.errors import DataFileError, MissingDependencyError, message
from vecveil.types import Embeddings

__all__ = [
    "arrow_column",
    "arrow_type",
    "import_pyarrow",
    "is_plain",
    "is_text",
    "python_values",
    "texts_from_arrow",
    "undictionaried",
    "vector_width",
    "vectors_from_arrow",
]


def import_pyarrow() -> Any:
    """Return the module pyarrow with ``pyarrow.parquet`` loaded."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError("Reading and writing Parquet", "pyarrow", "files") from None
    return pyarrow


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column; JSON values are written as text."""
    pa = import_pyarrow()
    if not isinstance(kind, str):
        return kind
    return pa.string() if kind == "json" else getattr(pa, kind)()


def arrow_column(values: Any, kind: ColumnType, source: str) -> Any:
    """Return ``values`` as an Arrow array of the type that ``kind`` stands for."""
    pa = import_pyarrow()
    if isinstance(values, pa.Array):
        return values
    if kind == "json":
        values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
    try:
        return pa.array(values, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise not_usable(
            source, "a file that stays the same while it is read", "values of another type"
        ) from None


def vector_width(kind: ColumnType) -> int | None:
    """Return how long the lists of a float list type are, 0 if rows may differ; None for others."""
    if isinstance(kind, str):
        return None
    pa = import_pyarrow()
    kind = getattr(kind, "storage_type", kind)
    if pa.types.is_fixed_size_list(kind):
        width = int(kind.list_size)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        width = 0
    else:
        return None
    return width if pa.types.is_floating(kind.value_type) else None


def is_plain(kind: ColumnType) -> bool:
    """Return whether each value of a column of this type is one number, text or time, or null.

    What is not listed here is not plain: lists of any kind, structs, maps, bytes, extensions.
    """
    if isinstance(kind, str):
        return kind in ("string", "int64", "float64", "bool_")
    pa = import_pyarrow()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
        pa.types.is_decimal, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp,
        pa.types.is_duration,
    )  # fmt: skip
    return is_text(kind) or any(test(kind) for test in tests)


def undictionaried(kind: Any) -> Any:
    """Return an Arrow type with value types in place of dictionaries, also inside lists."""
    pa = import_pyarrow()
    if pa.types.is_dictionary(kind):
        return undictionaried(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(undictionaried(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(undictionaried(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(undictionaried(field.type)) for field in kind])
    return kind


def is_text(kind: ColumnType) -> bool:
    """Return whether a column of this type can hold texts."""
    if isinstance(kind, str):
        return kind in ("string", "json")
    pa = import_pyarrow()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def texts_from_arrow(values: Any) -> list[str | None]:
    """Return the strings of an Arrow column."""
    pa = import_pyarrow()
    if not pa.types.is_string(values.type):
        values = values.cast(pa.large_string())
    return list(values.to_pylist())


def vectors_from_arrow(
    values: Any, *, source: str, column: str, first_row: int, dimension: int | None
) -> Embeddings:
    """Return a column of float lists as an (N, n) array, without a copy where Arrow allows it.

    float16 becomes float32. All rows must have ``dimension`` values (None: as many as the first).
    """
    pa = import_pyarrow()
    values = getattr(values, "storage", values)

    def refuse(index: int, constraint: str, got: str) -> DataFileError:
        what = f"{got} in {row_number(first_row + index)}"
        return DataFileError(
            message(
                source,
                "embedding_column",
                constraint,
                f"{what} of {column!r}",
                fix="Drop or repair such rows.",
            )
        )

    if values.null_count:
        index = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise refuse(index, "a column with a vector in each row", "none")
    if pa.types.is_fixed_size_list(values.type):
        width = int(values.type.list_size)
        if dimension is not None and width != dimension:
            raise refuse(0, f"a column of vectors of dimension {dimension}", f"{width} values")
    else:
        lengths = np.diff(values.offsets.to_numpy())
        width = int(lengths[0]) if dimension is None else dimension
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            got = f"{lengths[wrong[0]]} values"
            raise refuse(int(wrong[0]), f"a column of vectors of one dimension (here {width})", got)
    if width == 0:
        raise refuse(0, "a column of vectors with at least one value", "0 values")
    flat = values.flatten()
    if flat.null_count:
        index = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))) // width
        raise refuse(index, "a column of vectors without gaps", "a missing value")
    array: np.ndarray = flat.to_numpy(zero_copy_only=False).reshape(-1, width)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def python_values(values: Any) -> Sequence[Any]:
    """Return the values of a column as Python objects."""
    return values if isinstance(values, list) else list(values.to_pylist())
