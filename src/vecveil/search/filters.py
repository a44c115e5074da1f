"""Filters over metadata: ``{"year": {"gte": 2024}, "tenant": ["a", "b"]}``, or an expression of pyarrow.compute.

Operators may begin with a dollar sign, as in the filters of many databases and of LangChain's stores; ``$and``, ``$or``
and ``$not`` join such mappings.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.concepts.matching import without_surrogates
from vecveil.errors import InvalidInputError, optional_import

with optional_import("A sealed index", "pyarrow", "index"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

Mask = npt.NDArray[np.bool_]
Where = Mapping[str, Any] | Any
_ORDERS = {"gt": pc.greater, "gte": pc.greater_equal, "lt": pc.less, "lte": pc.less_equal}
_ABSENT = re.compile(r"No match for FieldRef\.Name\((.*)\) in ", re.DOTALL)
_KINDS = ("text", "number", "truth")
_WITHIN = {
    "contains": lambda column, text: pc.match_substring(column, text.as_py()),
    "icontains": lambda column, text: pc.match_substring(column, text.as_py(), ignore_case=True),
}
_OPERATORS = ("eq", "ne", *_ORDERS, "in", "nin", "exists", *_WITHIN)
_JOINS = ("$and", "$or", "$not")
_DEEPEST = 64
# Large, and never compared with: what LlamaIndex and the adapter of Haystack keep of an item.
_STORED_ONLY = ("_node_content", "_haystack_document")


def check_where(where: Where, owner: str, depth: int = 0) -> None:
    """Raise for a filter that `MetadataTable.mask` cannot evaluate; ``depth`` counts the joins around it."""
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
                check_where(part, owner, depth + 1)
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
                raise _refused(owner, f"The operator {operator!r} of {name!r} takes a number or a text.")
            if any(not _is_value(value) for value in listed):
                raise _refused(
                    owner,
                    f"A condition on {name!r} compares with texts without half a surrogate pair, "
                    "finite numbers of Python, True and False.",
                )


class MetadataTable:
    """The metadata of a segment, in columns by field and type.

    A list in the metadata matches by each of its values. A field of an object within is named ``outer.inner``.

    Args:
        rows: JSON texts, an iterable of Arrow arrays.
        count: number of rows.
    """

    def __init__(self, rows: Iterable[Any], count: int) -> None:
        self._count = count
        places: dict[tuple[str, str], list[int]] = {}
        values: dict[tuple[str, str], list[Any]] = {}
        row = 0
        for texts in rows:
            for text in texts.to_pylist():
                for name, value in metadata_fields(json.loads(text)) if text not in ("null", "{}") else ():
                    for item in value if isinstance(value, list) else [value]:
                        key = name, _kind(item)
                        places.setdefault(key, []).append(row)
                        values.setdefault(key, []).append(item)
                row += 1
        # A value that no condition compares with, such as an object, only exists.
        self._columns: dict[tuple[str, str], tuple[npt.NDArray[np.int32], Any]] = {
            key: (np.array(at, np.int32), _array(values[key]) if key[1] in _KINDS else None)
            for key, at in places.items()
            if key[1] != "none"
        }
        self._whole: Any = None

    def mask(self, where: Where) -> Mask:
        """Return which rows match. A comparison is true for values of one type only: 1 and "1" differ."""
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

    def fields(self, mask: Mask) -> set[str]:
        """Return the fields that have a value in a row of ``mask``."""
        return {name for (name, _), (rows, _values) in self._columns.items() if mask[rows].any()}

    def _condition(self, name: str, operator: str, operand: Any) -> Mask:
        if operator == "exists":
            return self._exists(name) if operand else ~self._exists(name)
        if operator in ("ne", "nin"):
            return ~self._condition(name, "in", [operand] if operator == "ne" else operand)
        if operator in ("eq", "in"):
            mask = np.zeros(self._count, np.bool_)
            for value in [operand] if operator == "eq" else operand:
                mask |= ~self._exists(name) if value is None else self._compared(name, pc.equal, value)
            return mask
        return self._compared(name, _ORDERS.get(operator) or _WITHIN[operator], operand)

    def _compared(self, name: str, comparison: Any, value: Any) -> Mask:
        mask = np.zeros(self._count, np.bool_)
        if (key := (name, _kind(value))) in self._columns:
            rows, column = self._columns[key]
            try:
                matching = comparison(column, pa.scalar(value))
            except (pa.ArrowInvalid, OverflowError):  # an integer beyond 64 bits, or mixed with fractions
                matching = comparison(column.cast(pa.float64(), safe=False), float(value))
            mask[rows[matching.to_numpy(zero_copy_only=False)]] = True
        return mask

    def _exists(self, name: str) -> Mask:
        mask = np.zeros(self._count, np.bool_)
        for (field, _), (rows, _values) in self._columns.items():
            if field == name:
                mask[rows] = True
        return mask

    def _expression(self, where: Any) -> Mask:
        if self._whole is None:
            columns: dict[str, list[Any]] = {}
            for (name, kind), (rows, column) in self._columns.items():
                if kind in _KINDS:
                    values = columns.setdefault(name, [None] * self._count)
                    for row, value in zip(rows.tolist(), column.to_pylist(), strict=True):
                        values[row] = value
            natural = {name: _natural(values) for name, values in columns.items()}
            self._whole = pa.table({**natural, "__row__": pa.array(np.arange(self._count))})
        mask = np.zeros(self._count, np.bool_)
        try:
            try:
                found = _evaluated(self._whole, where, pa.null())
            except (pa.ArrowTypeError, pa.ArrowNotImplementedError):  # functions of texts take no nulls
                found = _evaluated(self._whole, where, pa.string())
        except pa.ArrowException as error:
            raise InvalidInputError(
                "`where`: pyarrow cannot evaluate this expression over the metadata. Compare a field with values of "
                "its own type.",
                param="where",
            ) from error
        mask[found] = True
        return mask


def compared_fields(where: Where) -> set[str]:
    """Return the fields whose values ``where`` compares; ``exists`` may ask for a field that no row has."""
    names: set[str] = set()
    if not isinstance(where, pc.Expression):
        for name, condition in where.items():
            if name in _JOINS:
                names.update(*map(compared_fields, _parts(condition)))
            elif any(operator != "exists" for operator, _ in _conditions(condition)):
                names.add(name)
        return names
    while True:  # an expression does not list its fields: evaluating it names one that the table lacks
        try:
            ds.dataset(pa.table({name: pa.nulls(0) for name in ("__row__", *names)})).to_table(filter=where)
        except pa.ArrowException as error:
            if (unknown := _ABSENT.search(str(error))) is not None and unknown[1] not in names:
                names.add(unknown[1])
                continue
        return names


def _evaluated(table: Any, where: Any, absent: Any) -> npt.NDArray[Any]:
    """Return the rows that match. Fields that no row has are nulls of the type ``absent``."""
    try:
        rows = ds.dataset(table).to_table(filter=where, columns=["__row__"])
        return np.asarray(rows["__row__"].to_numpy())
    except pa.ArrowInvalid as error:
        unknown = _ABSENT.search(str(error))
        if unknown is None or unknown[1] in table.column_names:
            raise
    return _evaluated(table.append_column(unknown[1], pa.nulls(len(table), absent)), where, absent)


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
        return [(str(operator).removeprefix("$"), operand) for operator, operand in condition.items()]
    if isinstance(condition, list | tuple | set | frozenset):
        return [("in", list(condition))]
    return [("eq", condition)]


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


def _array(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError):  # integers beyond 64 bits, or integers mixed with fractions
        return pa.array(list(map(_as_float, values)))


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf if value > 0 else -math.inf


def _natural(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # several types: compared as texts
        return pa.array([None if value is None else str(value) for value in values])


def _refused(owner: str, sentence: str) -> InvalidInputError:
    return InvalidInputError(f"{owner}: {sentence}", param="where")
