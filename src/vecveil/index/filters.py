"""Filters over metadata: ``{"year": {"gte": 2024}, "tenant": ["a", "b"]}``, or an expression of pyarrow.compute.

Operators may begin with a dollar sign, as in the filters of many databases and of LangChain's stores; ``$and``, ``$or``
and ``$not`` join such mappings. Times, decimals and UUIDs are compared as the texts that metadata has for them.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator as operators
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.index.searchable import check_fields
from vecveil.texts.folding import without_surrogates
from vecveil.texts.tables.columns import filter_value

with optional_import("A sealed index", "pyarrow", "index"):
    import pyarrow as pa
    import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Where = Mapping[str, Any] | Any
Key = tuple[str, str]  # field and kind
Column = tuple[npt.NDArray[np.int32], Any]
_ORDERS: dict[str, tuple[Any, Callable[..., Any]]] = {  # for texts, for numbers
    "gt": (pc.greater, operators.gt),
    "gte": (pc.greater_equal, operators.ge),
    "lt": (pc.less, operators.lt),
    "lte": (pc.less_equal, operators.le),
}
_ABSENT = re.compile(r"No match for FieldRef\.Name\((.*)\) in ", re.DOTALL)
_KINDS = ("text", "number", "truth")
_NAMES = {"text": "texts", "number": "numbers", "truth": "true or false", "other": "objects"}
_TEXTS = pa.schema([("value", pa.string())])
_WITHIN = {"contains": False, "icontains": True}  # operator: without regard to case
_OPERATORS = ("eq", "ne", *_ORDERS, "in", "nin", "exists", *_WITHIN)
_JOINS = ("$and", "$or", "$not")
_DEEPEST = 64
# Large, and never compared with: what LlamaIndex and the adapter of Haystack keep of an item.
_STORED_ONLY = ("_node_content", "_haystack_document")


def check_where(where: Where, owner: str, depth: int = 0, *, null: bool = True) -> None:
    """Raise `InvalidInputError` for a filter that `MetadataTable.mask` cannot evaluate.

    Args:
        depth: number of enclosing joins.
        null: accept comparisons with null.
    """
    if isinstance(where, pc.Expression):
        return
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise InvalidInputError(
            f"{owner}: `where` is a mapping of metadata fields to conditions, or a pyarrow.compute expression.",
            code="E-INPUT-TYPE",
            param="where",
        )
    for name, condition in where.items():
        if name in _JOINS:
            if depth == _DEEPEST:
                raise _refused(owner, f"Conditions are joined at most {_DEEPEST} deep.")
            for part in _parts(condition):
                if not isinstance(part, Mapping):
                    raise _refused(owner, f"{name!r} takes a list of mappings.")
                check_where(part, owner, depth + 1, null=null)
            continue
        if name.startswith("$"):
            raise _refused(owner, f"Unknown operator {name!r}. Known: {', '.join(_JOINS)}.")
        for operator, operand in _conditions(condition):
            if operator not in _OPERATORS:
                raise _refused(owner, f"Unknown operator {operator!r} for {name!r}. Known: {', '.join(_OPERATORS)}.")
            listed = operand if operator in ("in", "nin") else [operand]
            if operator in ("in", "nin") and (isinstance(operand, str) or not isinstance(operand, Sequence)):
                raise _refused(owner, f"The operator {operator!r} of {name!r} takes a list.")
            if operator == "exists" and not isinstance(operand, bool):
                raise _refused(owner, f"The operator 'exists' of {name!r} takes True or False.")
            if operator in _WITHIN and not isinstance(operand, str):
                raise _refused(owner, f"The operator {operator!r} of {name!r} takes a text.")
            if operator in _ORDERS and (isinstance(operand, bool) or not isinstance(operand, str | int | float)):
                raise _refused(owner, f"The operator {operator!r} of {name!r} takes a number, a text or a time.")
            if not null and any(value is None for value in listed):
                raise _refused(owner, f"{name!r} is compared with null. For rows without it use {{exists: false}}.")
            if any(not _is_value(value) for value in listed):
                raise _refused(
                    owner,
                    f"A condition on {name!r} compares with texts without half a surrogate pair, "
                    "finite numbers of Python, times, True and False.",
                )


def is_empty(where: Where) -> bool:
    """Return whether every row matches because ``where`` states no condition, or joins by ``$or`` one that does not."""

    def says_nothing(name: str, condition: Any) -> bool:
        if name not in _JOINS:
            return not _conditions(condition)
        parts = [is_empty(part) for part in _parts(condition)]
        return name != "$not" and (any(parts) if name == "$or" else all(parts))

    return isinstance(where, Mapping) and all(itertools.starmap(says_nothing, where.items()))


def check_forced(where: Any, owner: str, param: str) -> None:
    """Raise `InvalidInputError` for a filter that cannot restrict access: empty, no mapping, or a null in it."""
    # A program that lacks its user's tenant would otherwise select the rows that have none.
    check_where(where, owner, null=False)
    if not isinstance(where, Mapping) or is_empty(where):
        raise InvalidInputError(
            f"{owner}: `where` must be a mapping with a condition: an empty one matches every row. To give access to "
            "all rows use no filter.",
            param=param,
        )


class _Sections(Protocol):
    """The part of a segment that `MetadataTable` uses."""

    def content(self, section: str) -> bytes: ...

    def array(self, section: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]: ...

    def parsed(self) -> AbstractContextManager[None]: ...


class MetadataTable:
    """The metadata of a segment, in columns by field and type.

    A list in the metadata matches by each of its values. A field of an object within is named ``outer.inner``.

    Args:
        columns: by field and kind, a function that returns the rows with a value, and the values: an Arrow array for
            texts, else a NumPy array; None for values that no condition compares with, such as objects.
        lists: fields that contain lists.
        count: number of rows.
    """

    def __init__(self, columns: Mapping[Key, Callable[[], Column]], lists: Iterable[str], count: int) -> None:
        self._columns = {key: functools.cache(column) for key, column in columns.items()}
        self._lists, self._count = set(lists), count
        self._whole: Any = None

    @classmethod
    def of(cls, texts: Sequence[str]) -> MetadataTable:
        """Return the table of JSON texts, one a row."""
        columns, lists = _columns(texts)
        return cls({key: functools.partial(columns.__getitem__, key) for key in columns}, lists, len(texts))

    @classmethod
    def read(cls, segment: _Sections, count: int) -> MetadataTable:
        """Return the table of a segment; a column is read when a condition needs it."""

        def column(i: int, kind: str, dtype: str) -> Column:
            with segment.parsed():
                rows = segment.array(f"fields.{i}.rows", "<i4")
                values = stored(segment.content(f"fields.{i}.values"), kind, dtype) if kind in _KINDS else None
                if ((rows < 0) | (rows >= count)).any() or len(rows) != len(rows if values is None else values):
                    raise ValueError
                return rows, values

        def stored(content: bytes, kind: str, dtype: str) -> Any:
            if kind == "text":
                batch = pa.ipc.read_record_batch(pa.py_buffer(content), _TEXTS)
                batch.validate(full=True)  # Arrow would read beyond the content
                return batch["value"]
            if dtype != "object":
                return np.frombuffer(content, {"bool": np.bool_, "int64": np.int64, "float64": np.float64}[dtype])
            listed = json.loads(content)
            if not all(isinstance(value, int | float) for value in listed):
                raise ValueError
            return np.array(listed, object)

        fields = json.loads(segment.content("fields"))
        if not all(isinstance(name, str) and kind in (*_NAMES, "none") for name, kind, _ in fields["columns"]):
            raise ValueError
        columns = {
            (name, kind): functools.partial(column, i, kind, dtype)
            for i, (name, kind, dtype) in enumerate(fields["columns"])
        }
        return cls(columns, fields["lists"], count)

    def mask(self, where: Where) -> Mask:
        """Return which rows match. A comparison is true for values of one type only: 1 and "1" differ.

        Numbers are compared exactly, as Python compares them. An expression sees a field with lists as a column of
        lists, and one of several types, or of numbers that neither int64 nor float64 holds, as texts.
        """
        if isinstance(where, pc.Expression):
            return self._expression(where)
        mask = np.ones(self._count, np.bool_)
        for name, condition in where.items():
            if name in _JOINS:
                masks = np.array([self.mask(part) for part in _parts(condition)]).reshape(-1, self._count)
                joined = masks.any(axis=0) if name == "$or" else masks.all(axis=0)
                mask &= ~joined if name == "$not" else joined
                continue
            for operator, operand in _conditions(condition):
                mask &= self._condition(name, operator, operand)
        return mask

    @property
    def names(self) -> set[str]:
        """Names of the fields."""
        return {name for name, _ in self._columns}

    def among(self, visible: Mask) -> MetadataTable:
        """Return the table of the rows in ``visible``: it has no field, type or value that only other rows have.

        How long a comparison takes then depends on these rows alone, but for the length of the mask.
        """
        columns: dict[Key, Column] = {}
        for key, column in self._columns.items():
            rows, values = column()
            kept = visible[rows]
            if kept.any():
                some = values.filter(pa.array(kept)) if key[1] == "text" else None if values is None else values[kept]
                columns[key] = rows[kept], some
        return MetadataTable(
            {key: functools.partial(columns.__getitem__, key) for key in columns}, self._lists, self._count
        )

    def fields(self, mask: Mask) -> set[Key]:
        """Return the fields that have a value in a row of ``mask``, with the kinds of the values."""
        return {key for key, column in self._columns.items() if mask[column()[0]].any()}

    def _condition(self, name: str, operator: str, operand: Any) -> Mask:
        if operator == "exists":
            return self._exists(name) if operand else ~self._exists(name)
        if operator in ("ne", "nin"):
            return ~self._condition(name, "in", [operand] if operator == "ne" else operand)
        if operator in ("eq", "in"):
            return self._among(name, [operand] if operator == "eq" else operand)
        mask = np.zeros(self._count, np.bool_)
        if (key := (name, _kind(operand))) in self._columns:
            rows, column = self._columns[key]()
            if operator in _WITHIN:
                matching = pc.match_substring(column, operand, ignore_case=_WITHIN[operator]).to_numpy(False)
            elif key[1] == "text":
                matching = _ORDERS[operator][0](column, operand).to_numpy(False)
            elif (exact := _held(column.dtype, operand)) is not None:
                matching = _ORDERS[operator][1](column, exact)
            else:
                matching = _ORDERS[operator][1](column.astype(object), operand).astype(np.bool_)
            mask[rows[matching]] = True
        return mask

    def _among(self, name: str, values: Iterable[Any]) -> Mask:
        """Return the rows with one of ``values``; None stands for a row without the field."""
        by_kind: dict[str, list[Any]] = {}
        for value in values:
            by_kind.setdefault(_kind(value), []).append(value)
        mask = ~self._exists(name) if "none" in by_kind else np.zeros(self._count, np.bool_)
        for kind, some in by_kind.items():
            if kind not in _KINDS or (name, kind) not in self._columns:
                continue
            rows, column = self._columns[name, kind]()
            if kind == "text":
                matching = pc.is_in(column, pa.array(some, pa.string())).to_numpy(False)
            elif column.dtype.kind == "O":  # by hash, which is equal for equal numbers of Python
                matching = np.fromiter(map(set(some).__contains__, column), np.bool_, len(column))
            else:
                held = [exact for value in some if (exact := _held(column.dtype, value)) is not None]
                matching = np.isin(column, np.array(held, column.dtype))
            mask[rows[matching]] = True
        return mask

    def _exists(self, name: str) -> Mask:
        mask = np.zeros(self._count, np.bool_)
        for (field, _), column in self._columns.items():
            if field == name:
                mask[column()[0]] = True
        return mask

    def _expression(self, where: Any) -> Mask:
        if self._whole is None:
            columns: dict[str, list[list[Any]]] = {}
            for (name, kind), read in self._columns.items():
                if kind in _KINDS:
                    rows, column = read()
                    values = columns.setdefault(name, [[] for _ in range(self._count)])
                    for row, value in zip(rows.tolist(), column.tolist(), strict=True):
                        values[row].append(value)
            natural = {name: self._natural(name, values) for name, values in columns.items()}
            self._whole = pa.table(natural or {"": pa.nulls(self._count)})  # without a column there are no rows
        try:
            try:
                return _evaluated(self._whole, self._count, where, pa.null())
            except (pa.ArrowTypeError, pa.ArrowNotImplementedError):  # functions of texts take no nulls
                return _evaluated(self._whole, self._count, where, pa.string())
        except pa.ArrowException as error:
            raise InvalidInputError(
                "`where`: pyarrow cannot evaluate this expression over the metadata. Compare a field with values of "
                "its own type. A mapping, as in {'tags': 'a'}, also compares the values of lists, and numbers exactly.",
                param="where",
            ) from error

    def _natural(self, name: str, rows: list[list[Any]]) -> Any:
        """Return a field as a column for expressions."""
        # Two fields may have one name, as {"a.b": 1, "a": {"b": 2}} has.
        several = name in self._lists or any(len(values) > 1 for values in rows)

        def column(cells: list[list[Any]]) -> Any:
            return pa.array([(cell if several else cell[0]) if cell else None for cell in cells])

        try:
            return column(rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return column([list(map(str, values)) for values in rows])


def field_sections(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the sections of a segment that `MetadataTable.read` reads, for the JSON texts of its rows."""
    columns, lists = _columns(texts)
    fields = [(name, kind, str(getattr(values, "dtype", ""))) for (name, kind), (_, values) in columns.items()]
    yield "fields", json.dumps({"columns": fields, "lists": sorted(lists)}).encode()
    for i, ((_, kind), (rows, values)) in enumerate(columns.items()):
        yield f"fields.{i}.rows", rows
        if kind == "text":
            yield f"fields.{i}.values", pa.record_batch([values], schema=_TEXTS).serialize()
        elif values is not None:
            yield f"fields.{i}.values", json.dumps(values.tolist()).encode() if values.dtype == object else values


def _columns(texts: Sequence[str]) -> tuple[dict[Key, Column], set[str]]:
    """Return the columns of `MetadataTable`, and the fields that contain lists."""
    lists: set[str] = set()
    places: dict[Key, list[int]] = {}
    values: dict[Key, list[Any]] = {}
    for row, text in enumerate(texts):
        for name, value in metadata_fields(json.loads(text)) if text not in ("null", "{}") else ():
            if isinstance(value, list):
                lists.add(name)
            for item in value if isinstance(value, list) else [value]:
                if (kind := _kind(item)) != "none":
                    places.setdefault((name, kind), []).append(row)
                    values.setdefault((name, kind), []).append(item)
    columns = {
        key: (np.array(at, np.int32), _array(key[1], values[key]) if key[1] in _KINDS else None)
        for key, at in places.items()
    }
    return columns, lists


def check_compared(where: Where, stored: Mapping[str, Collection[str]]) -> None:
    """Raise for a field that no row has, or of which no row has a value of the type that ``where`` compares with.

    Args:
        stored: kinds of the values of each field.
    """
    compared = compared_fields(where)
    check_fields(compared, [stored])
    for name, kinds in sorted(compared.items()):
        if kinds and "none" not in kinds and kinds.isdisjoint(stored[name]):
            theirs, ours = (" and ".join(sorted(map(_NAMES.__getitem__, some))) for some in (stored[name], kinds))
            raise InvalidInputError(
                f"The rows have {theirs} in {name[:60]!r}, and `where` compares it with {ours}.",
                code="E-INPUT-TYPE",
                param="where",
            )


def compared_fields(where: Where) -> dict[str, set[str]]:
    """Return the fields whose values ``where`` compares, each with the kinds of values that it may be equal to.

    ``exists`` may ask for a field that no row has. Of an expression, and of a value that is only to differ, the kinds
    are unknown.
    """
    fields: dict[str, set[str]] = {}
    if not isinstance(where, pc.Expression):
        for name, condition in where.items():
            if name in _JOINS:
                for part in _parts(condition):
                    for inner, kinds in compared_fields(part).items():
                        fields.setdefault(inner, set()).update(kinds)
                continue
            for operator, operand in _conditions(condition):
                if operator != "exists":
                    values = operand if operator == "in" else [] if operator in ("ne", "nin") else [operand]
                    fields.setdefault(name, set()).update(map(_kind, values))
        return fields
    from pyarrow.dataset import dataset  # imports pandas where it is installed

    while True:  # an expression does not list its fields: evaluating it names one that the table lacks
        try:
            dataset(pa.table({name: pa.nulls(0) for name in fields})).to_table(filter=where)
        except pa.ArrowException as error:
            if (unknown := _ABSENT.search(str(error))) is not None and unknown[1] not in fields:
                fields[unknown[1]] = set()
                continue
        return fields


def named_fields(where: Where) -> set[str]:
    """Return every field that ``where`` names, also those that ``exists`` asks for."""
    if isinstance(where, pc.Expression):
        return set(compared_fields(where))
    joined = [part for name, condition in where.items() if name in _JOINS for part in _parts(condition)]
    return {name for name in where if name not in _JOINS}.union(*map(named_fields, joined))


def _evaluated(table: Any, rows: int, where: Any, absent: Any) -> Mask:
    """Return which rows match. Fields that no row has are nulls of the type ``absent``."""
    from pyarrow.dataset import dataset

    try:
        column = dataset(table).to_table(columns={"matches": where})["matches"]
        return np.asarray(column.fill_null(False).to_numpy(), np.bool_)
    except pa.ArrowInvalid as error:
        unknown = _ABSENT.search(str(error))
        if unknown is None or unknown[1] in table.column_names:
            raise
    return _evaluated(table.append_column(unknown[1], pa.nulls(rows, absent)), rows, where, absent)


def metadata_fields(record: Mapping[str, Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a row and of the objects within, with their values."""
    for name, value in record.items():
        if name not in _STORED_ONLY:
            yield outer + name, value
            if isinstance(value, dict):
                yield from metadata_fields(value, f"{outer}{name}.")


def _parts(condition: Any) -> Sequence[Any]:
    return condition if isinstance(condition, list | tuple) else [condition]


def _conditions(condition: Any) -> list[tuple[str, Any]]:
    if isinstance(condition, Mapping):
        return [(str(operator).removeprefix("$"), filter_value(operand)) for operator, operand in condition.items()]
    if isinstance(condition, list | tuple | set | frozenset):
        return [("in", filter_value(list(condition)))]
    return [("eq", filter_value(condition))]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "none" if value is None else "other"


def _is_value(value: Any) -> bool:
    kind = _kind(value)
    if kind == "text":
        return bool(without_surrogates(value) == value)
    return kind in ("none", "truth") or (kind == "number" and abs(value) <= sys.float_info.max)


def _array(kind: str, values: list[Any]) -> Any:
    """Return texts in Arrow, others in NumPy: numbers as objects if int64 or float64 would change one."""
    if kind == "text":
        return pa.array(values, pa.string())
    dtype = np.bool_ if kind == "truth" else np.float64 if float in set(map(type, values)) else np.int64
    with suppress(OverflowError):
        array = np.array(values, dtype)
        if array.tolist() == values:
            return array
    return np.array(values, object)


def _held(dtype: np.dtype[Any], value: float) -> Any:
    """Return ``value`` as a number of ``dtype``, or None if that would change it."""
    if dtype.kind == "O":
        return value
    with suppress(OverflowError):
        exact = dtype.type(value)
        if exact.item() == value:
            return exact
    return None


def _refused(owner: str, sentence: str) -> InvalidInputError:
    return InvalidInputError(f"{owner}: {sentence}", param="where")
