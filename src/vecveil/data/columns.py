"""Columns of a table: names, types, and conversion between Arrow, NumPy and Python values."""

from __future__ import annotations

import base64
import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from vecveil.data.files import LONGEST, NoRowsError
from vecveil.errors import DataFileError, MissingDependencyError
from vecveil.types import Embeddings

ColumnType: TypeAlias = Any
"""A pyarrow type (Parquet), or one of "string", "int64", "float64", "bool_", "json", "vector"."""

ColumnBatch: TypeAlias = Mapping[str, Any]
"""Column name to values: a list (text formats), a pyarrow array (Parquet), an array (.npy)."""

WIDEST = 1 << 20
"""Largest dimension of a vector: a damaged or planted file may declare any number."""
SHOWN = 20
# Eight numbers in a row count as a vector. Only the first 100 texts are examined, long ones at their beginning.
FEWEST_NUMBERS, EXAMINED_ROWS, EXAMINED_CHARACTERS = 8, 100, 2_000

_NAME = re.compile(r"[^\W\d][\w./:#()\-]{0,39}")
_PUNCTUATION = str.maketrans(dict.fromkeys("[](){},;|\"'", " "))


class TableSource(ABC):
    """A checked table file. Each call of ``batches`` starts from the first row."""

    name: str
    format: str
    rows: int
    first_row: int = 0
    """Position of the first row in the file."""
    types: dict[str, ColumnType]
    metadata: dict[str, Any]

    @abstractmethod
    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        """Yield (number of rows, the named columns) with at most ``chunk_rows`` rows each."""


# Names -------------------------------------------------------------------------------------------


def row_number(index: int) -> str:
    """Return the name of the row at position ``index`` in messages; a header is not a row."""
    return f"row {index + 1} (counted from 1)"


def is_word(name: str) -> bool:
    """Return whether ``name`` looks like a column's name rather than data."""
    return _NAME.fullmatch(name) is not None


def _listed(names: Sequence[str]) -> str:
    """Return a sentence that lists column names, or only counts them if one is not a single word.

    Without a header the first row stands in place of the names, and messages must not contain data.
    """
    if not names:
        return "It has no columns."
    if not all(map(is_word, names)):
        return (
            f"It has {len(names)} columns, not listed because some are not single words: "
            "check that the file starts with a header."
        )
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"It has the columns {', '.join(map(repr, names[:SHOWN]))}{more}."


def missing_column(source: str, param: str, missing: str | None, names: Iterable[str]) -> DataFileError:
    """Return the error for a missing column, with the existing ones and the nearest name."""
    names = list(names)
    listed = _listed(names)
    if missing is None:
        return DataFileError(
            f"{source}: no column was found for `{param}`. {listed} Name it with {param} "
            f"(--{param.replace('_', '-')}).",
            param=param,
        )
    lowered = {name.lower(): name for name in names}
    # A near match shows a name: where names may be data, only an almost exact match may.
    nearness = 0.9 if "not listed" in listed else 0.6
    close = get_close_matches(missing.lower(), lowered, n=1, cutoff=nearness)
    fix = f" Did you mean {lowered[close[0]]!r}?" if close else ""
    return DataFileError(f"{source} has no column {missing!r} (`{param}`). {listed}{fix}", param=param)


def check_names(source: str, names: Sequence[str]) -> None:
    """Raise DataFileError for column names that occur twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        which = f": {', '.join(map(repr, repeated[:SHOWN]))}" if all(map(is_word, names)) else ""
        raise DataFileError(
            f"{source} has {len(repeated)} column names twice{which}. Rename them; if the first line is data, add "
            "a header line.",
            param="path",
        )


def check_rows(source: str, rows: int, columns: int | None = None) -> None:
    """Raise NoRowsError for a table without rows."""
    if rows == 0:
        width = "1 column" if columns == 1 else f"{columns} columns"
        got = "has no rows" if columns is None else f"has a header ({width}) and no rows"
        raise NoRowsError(f"{source} {got}.", param="path")


# Types -------------------------------------------------------------------------------------------


def import_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError("Reading and writing Parquet", "pyarrow", "files") from None
    return pyarrow


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column; JSON values become text."""
    pa = import_pyarrow()
    if not isinstance(kind, str):
        return kind
    return pa.string() if kind == "json" else getattr(pa, kind)()


def vector_width(kind: ColumnType) -> int | None:
    """Return the list length of a float list type, 0 if rows may differ, None for other types."""
    if isinstance(kind, str):
        return None
    pa = import_pyarrow()
    # Extension types, such as tensors, wrap a storage type.
    kind = getattr(kind, "storage_type", kind)
    if pa.types.is_fixed_size_list(kind):
        width = int(kind.list_size)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        width = 0
    else:
        return None
    return width if pa.types.is_floating(kind.value_type) else None


def is_text(kind: ColumnType) -> bool:
    if isinstance(kind, str):
        return kind in ("string", "json")
    types = import_pyarrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_plain(kind: ColumnType) -> bool:
    """Return whether each value of a column of this type is one number, text, time or null.

    Every other type (lists, structs, maps, bytes, extensions) may contain a vector.
    """
    if isinstance(kind, str):
        return kind in ("string", "int64", "float64", "bool_")
    types = import_pyarrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    names = ("null", "boolean", "integer", "floating", "decimal", "date", "time", "timestamp", "duration")
    return is_text(kind) or any(getattr(types, f"is_{name}")(kind) for name in names)


def undictionaried(kind: Any) -> Any:
    """Return an Arrow type with value types in place of dictionaries, also inside lists and structs.

    A dictionary may contain values of dropped rows, which would be written too.
    """
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


# Values ------------------------------------------------------------------------------------------


def as_type(values: Any, kind: Any) -> Any:
    """Return an Arrow array of the type ``kind``, such as plain values for a dictionary."""
    return values if values.type == kind else values.cast(kind)


def python_values(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list) else list(values.to_pylist())


def json_values(values: Any) -> list[Any]:
    """Return the values of a column as JSON contains them: bytes in base64, times and decimals as text, NaN as null."""
    pa = import_pyarrow() if not isinstance(values, list) else None
    if pa is not None and (pa.types.is_temporal(values.type) or pa.types.is_decimal(values.type)):
        values = values.cast(pa.int64() if pa.types.is_duration(values.type) else pa.string())
    return [_json_value(value) for value in python_values(values)]


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _json_value(inner) for name, inner in value.items()}
    return [_json_value(inner) for inner in value] if isinstance(value, list) else value


def ids_of(values: Any, *, source: str, first_row: int) -> list[str]:
    """Return the values of an id column as text."""
    plain = python_values(values)
    for i, value in enumerate(plain):
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            got = "nothing" if value is None or value == "" else type(value).__name__
            raise DataFileError(
                f"{source}: `id_column` has {got} at {row_number(first_row + i)}. An id is a text or a whole number.",
                param="id_column",
            )
    # A CSV's "7" and a Parquet file's 7 are one item: the format must not change an id.
    return [str(value) for value in plain]


def arrow_column(values: Any, kind: ColumnType, source: str) -> Any:
    pa = import_pyarrow()
    if isinstance(values, pa.Array):
        return values
    if kind == "json":
        values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
    try:
        return pa.array(values, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataFileError(f"{source} changed while it was read.", param="path") from None


def texts_from_arrow(values: Any) -> list[str | None]:
    pa = import_pyarrow()
    # Large strings: views and dictionaries may exceed the 2 GiB offsets of plain ones.
    return list((values if pa.types.is_string(values.type) else values.cast(pa.large_string())).to_pylist())


def vectors_from_arrow(values: Any, *, source: str, column: str, first_row: int, dimension: int | None) -> Embeddings:
    """Return a column of float lists as an (N, n) array, without a copy where Arrow allows it.

    float16 becomes float32. All rows must have ``dimension`` values (None: as many as the first).
    """
    pa = import_pyarrow()
    values = getattr(values, "storage", values)

    def refuse(index: int, got: str) -> DataFileError:
        where = f"{row_number(first_row + index)} of {column!r}"
        return DataFileError(f"{source}: {where} has {got}. Drop or repair such rows.", param="embedding_column")

    if values.null_count:
        index = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise refuse(index, "no vector")
    if pa.types.is_fixed_size_list(values.type):
        width = int(values.type.list_size)
        if dimension is not None and width != dimension:
            raise refuse(0, f"{width} values instead of {dimension}")
    else:
        # Offsets give every length without a Python object per row.
        lengths = np.diff(values.offsets.to_numpy())
        width = int(lengths[0]) if dimension is None else dimension
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            raise refuse(int(wrong[0]), f"{lengths[wrong[0]]} values instead of {width}")
    if width == 0:
        raise refuse(0, "a vector without values")
    if width > WIDEST:
        raise refuse(0, f"{width:,} values; {WIDEST:,} are the most")
    # flatten, not values: it honours the offset of a sliced array.
    flat = values.flatten()
    if flat.null_count:
        index = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False))) // width
        raise refuse(index, "a missing value")
    array: np.ndarray = flat.to_numpy(zero_copy_only=False).reshape(-1, width)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def check_lengths(source: str, columns: ColumnBatch) -> None:
    """Refuse a text in Arrow columns longer than a line may be: a tokeniser takes a hundred times its bytes."""
    pa = import_pyarrow()
    for name, values in columns.items():
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        if is_text and (pa.compute.max(pa.compute.binary_length(values)).as_py() or 0) > LONGEST:
            raise DataFileError(
                f"{source}: column {name!r} has a text over {LONGEST >> 20} MiB. Cut it into pieces.", param="path"
            )


def has_number_list(values: Any) -> bool:
    """Return whether one of the first texts of a column is a list of numbers."""
    if not isinstance(values, list):
        values = values.drop_null().slice(0, EXAMINED_ROWS).to_pylist()
    texts = (text for text in values if isinstance(text, str))
    return any(map(is_number_list, islice(texts, EXAMINED_ROWS)))


def is_number_list(text: str) -> bool:
    """Return whether ``text`` consists of at least eight numbers and punctuation.

    After an opening bracket at the beginning, or after one word such as ``array(``, any text may follow the eight
    numbers. Long texts are judged by their beginning.
    """
    start = text[:EXAMINED_CHARACTERS]
    opening = start.find("[", 0, 20)
    numbers = start[opening + 1 :].translate(_PUNCTUATION).split()
    if len(text) > EXAMINED_CHARACTERS:
        numbers = numbers[:-1]  # the last token may be cut in two
    if opening >= 0:
        numbers = numbers[:FEWEST_NUMBERS]
    return len(numbers) >= FEWEST_NUMBERS and all(map(_is_number, numbers))


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
