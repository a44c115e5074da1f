"""Columns of a table: names, types, and conversion between Arrow, NumPy and Python values."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import re
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from vecveil.errors import DataFileError, MissingDependencyError
from vecveil.texts.tables.files import LONGEST, NoRowsError
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
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?", re.ASCII)  # not 007, which is a name
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
            f"{source}: no column was found for `{param}`. {listed} Name it with {param}= "
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
        import pyarrow.compute  # pandas imports it too, where it is installed
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError("Reading and writing Parquet", "pyarrow", "files") from None
    return pyarrow


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column; JSON values become text."""
    pa = import_pyarrow()
    if not isinstance(kind, str):
        return kind
    return pa.string() if kind in ("json", "vector") else getattr(pa, kind)()


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


def python_values(values: Any) -> list[Any]:
    return values if isinstance(values, list) else list(values.to_pylist())


def json_values(values: Any) -> list[Any]:
    """Return the values of a column, a list or an Arrow array, as `json_value` does.

    A map becomes an object if each key is a text and occurs once, otherwise a list of pairs, and so does a struct. A
    duration is a whole number in the unit of its column.
    """
    if isinstance(values, list):
        return [json_value(value) for value in values]
    pa = import_pyarrow()
    types, kind = pa.types, values.type
    if types.is_dictionary(kind):
        return json_values(values.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return json_values(pa.compute.run_end_decode(values))
    # UUIDs and booleans of a byte have Python values of their own; tensors and the like are the values that they wrap.
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name not in ("arrow.uuid", "arrow.bool8"):
        return json_values(values.storage)
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_date(kind):
        return _times(values)
    if types.is_duration(kind):
        return list(values.cast(pa.int64()).to_pylist())
    if types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        rows = json_values(values.cast(pa.list_(entry)))
        return [row if row is None else _object([list(pair.values()) for pair in row]) for row in rows]
    if types.is_struct(kind):
        names, columns = [field.name for field in kind], [json_values(column) for column in values.flatten()]
        return [
            _object([[name, column[i]] for name, column in zip(names, columns, strict=True)]) if valid else None
            for i, valid in enumerate(values.is_valid().to_pylist())
        ]
    if types.is_nested(kind) and not types.is_union(kind):  # lists of every kind
        items_in_order = iter(json_values(values.flatten()))
        lengths = pa.compute.list_value_length(values).to_pylist()
        return [None if length is None else list(islice(items_in_order, length)) for length in lengths]
    return [json_value(value) for value in values.to_pylist()]


def json_value(value: Any) -> Any:
    """Return a Python value as JSON contains it.

    Bytes become base64; decimals and UUIDs become texts; NaN, NaT and infinity become null. Times become texts of ISO
    8601 (`time_text`), and a timedelta its whole microseconds.

    Raises:
        TypeError: JSON has nothing like the value; the message is the name of its type.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.date | datetime.time):
        return time_text(value) if value == value else None  # noqa: PLR0124: pandas.NaT is a datetime
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): json_value(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    raise TypeError(type(value).__name__)


def may_be_nan(kind: ColumnType) -> bool:
    """Return whether `check_finite` examines columns of this type: numbers and lists of numbers, and JSON lines."""
    if isinstance(kind, str):
        return kind in ("float64", "json", "vector")
    return vector_width(kind) is not None or bool(import_pyarrow().types.is_floating(kind))


def check_finite(values: Any, *, source: str, column: str, first_row: int) -> None:
    """Raise DataFileError for NaN or infinity in a column of metadata, which JSON does not have."""
    for i, value in enumerate(python_values(values)):
        if not _is_finite(value):
            raise DataFileError(
                f"{source}: {row_number(first_row + i)} has NaN or infinity in {column!r}. Write null for a missing "
                "number, or leave out the column.",
                param="metadata",
            )


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def filter_value(value: Any) -> Any:
    """Return a value of a filter as `json_value` writes it in metadata: times, decimals and UUIDs as texts."""
    if isinstance(value, list | tuple):
        return [filter_value(each) for each in value]
    written = isinstance(value, datetime.date | datetime.time | decimal.Decimal | uuid.UUID)
    return json_value(value) if written else value


def time_text(value: datetime.date | datetime.time) -> str:
    """Return ISO 8601 with a T, a datetime with a zone in UTC: ``2025-03-30T12:00:00+00:00``.

    Such texts of one kind sort by time, also with fractions of a second: ``+`` comes before ``.`` and the digits, which
    a Z would not.
    """
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        with suppress(OverflowError):  # of the first or last day that Python knows, which has no other zone
            value = value.astimezone(datetime.UTC)
    return value.isoformat()


def _times(values: Any) -> list[str | None]:
    """Return timestamps, dates or times of a day as `time_text` writes them; nanoseconds have nine digits."""
    pa = import_pyarrow()
    pc, kind = pa.compute, values.type
    # By Arrow, since Python's datetime has neither nanoseconds nor years beyond 9999.
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp(kind.unit))  # in UTC
    elif pa.types.is_date(kind):
        values = values.cast(pa.date32())
    texts = pc.replace_substring(values.cast(pa.string()), " ", "T")
    if getattr(kind, "unit", None) == "ms":
        texts = pc.binary_join_element_wise(texts, "000", "")
    texts = pc.replace_substring_regex(texts, r"\.0+$|(\.\d{6})000$", r"\1")
    zone = "" if getattr(kind, "tz", None) is None else "+00:00"
    return list(pc.binary_join_element_wise(texts, zone, "").to_pylist())


def _object(pairs: list[list[Any]]) -> dict[str, Any] | list[list[Any]]:
    names = [name for name, _ in pairs]
    unique = len(set(map(str, names))) == len(names)
    return dict(pairs) if unique and all(isinstance(name, str) for name in names) else pairs


def printed_number(text: str) -> int | float | None:
    """Return the number that ``text`` is, or None if it would not print as the same characters: 007, 3.10, 1e3, -0."""
    if not _DECIMAL.fullmatch(text):
        return None
    number: int | float = json.loads(text)
    if number == 0 and text.startswith("-"):  # 0 has another text, which must stay different
        return None
    return number if format(decimal.Decimal(repr(number)), "f") == text else None


def ids_of(values: Any, *, source: str, first_row: int) -> list[str]:
    """Return the values of an id column as text."""
    plain = [str(value) if isinstance(value, uuid.UUID) else value for value in python_values(values)]
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
    if kind in ("json", "vector"):
        values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in values]
    try:
        return pa.array(values, arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataFileError(f"{source} changed while it was read.", param="path") from None


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
