"""Filters over metadata: ``{"year": {"gte": 2024}, "tenant": ["a", "b"]}``, or an expression of pyarrow.compute."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import

with optional_import("A sealed index", "pyarrow", "index"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

Mask = npt.NDArray[np.bool_]
Where = Mapping[str, Any] | Any
_ORDERS = {"gt": pc.greater, "gte": pc.greater_equal, "lt": pc.less, "lte": pc.less_equal}
_KINDS = ("text", "number", "truth")
_OPERATORS = ("eq", "ne", *_ORDERS, "in", "nin", "exists")


def check_where(where: Where, owner: str) -> None:
    """Raise for a filter that `MetadataTable.mask` cannot evaluate."""
    if isinstance(where, pc.Expression):
        return
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise InvalidInputError(
            f"{owner}: `where` is a mapping of metadata fields to conditions, or a pyarrow.compute expression.",
            code="E-INPUT-TYPE", param="where",
        )  # fmt: skip
    for name, condition in where.items():
        for operator, operand in _conditions(condition):
            if operator not in _OPERATORS:
                raise _refused(owner, f"Unknown operator {operator!r} for {name!r}. Known: {', '.join(_OPERATORS)}.")
            listed = operand if operator in ("in", "nin") else [operand]
            if operator in ("in", "nin") and (isinstance(operand, str) or not isinstance(operand, Sequence)):
                raise _refused(owner, f"The operator {operator!r} of {name!r} takes a list.")
            if operator == "exists" and not isinstance(operand, bool):
                raise _refused(owner, f"The operator 'exists' of {name!r} takes True or False.")
            if operator in _ORDERS and (isinstance(operand, bool) or not isinstance(operand, str | int | float)):
                raise _refused(owner, f"The operator {operator!r} of {name!r} takes a number or a text.")
            if any(not _is_value(value) for value in listed):
                raise _refused(owner, f"A condition on {name!r} compares with texts, finite numbers, True and False.")


class MetadataTable:
    """The metadata of a segment, in columns by field and type.

    A list in the metadata matches by each of its values.

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
                for name, value in (json.loads(text) or {}).items() if text not in ("null", "{}") else ():
                    for item in value if isinstance(value, list) else [value]:
                        key = name, _kind(item)
                        places.setdefault(key, []).append(row)
                        values.setdefault(key, []).append(item)
                row += 1
        # A value that no condition compares with, such as an object, only exists.
        self._columns: dict[tuple[str, str], tuple[npt.NDArray[np.int32], Any]] = {
            key: (np.array(at, np.int32), _array(values[key]) if key[1] in _KINDS else None)
            for key, at in places.items() if key[1] != "none"
        }  # fmt: skip
        self._whole: Any = None

    def mask(self, where: Where) -> Mask:
        """Return which rows match. A comparison is true for values of one type only: 1 and "1" differ."""
        if isinstance(where, pc.Expression):
            return self._expression(where)
        mask = np.ones(self._count, np.bool_)
        for name, condition in where.items():
            for operator, operand in _conditions(condition):
                mask &= self._condition(name, operator, operand)
        return mask

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
        return self._compared(name, _ORDERS[operator], operand)

    def _compared(self, name: str, comparison: Any, value: Any) -> Mask:
        mask = np.zeros(self._count, np.bool_)
        if (key := (name, _kind(value))) in self._columns:
            rows, column = self._columns[key]
            try:
                matching = comparison(column, pa.scalar(value))
            except (pa.ArrowInvalid, OverflowError):  # an integer beyond 64 bits, or beside fractions
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
            rows = ds.dataset(self._whole).to_table(filter=where, columns=["__row__"])["__row__"].to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if "No match for FieldRef" in str(error):  # no row of this segment has the field
                return mask
            raise InvalidInputError(
                "`where`: pyarrow cannot evaluate this expression over the metadata. Compare a field with values of "
                "its own type.", code="E-INPUT", param="where",
            ) from error  # fmt: skip
        mask[rows] = True
        return mask


def _conditions(condition: Any) -> list[tuple[str, Any]]:
    if isinstance(condition, Mapping):
        return list(condition.items())
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
    return value is None or _kind(value) in ("truth", "text") or (_kind(value) == "number" and math.isfinite(value))


def _array(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError):  # integers beyond 64 bits, or integers beside fractions
        return pa.array([float(value) for value in values])


def _natural(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # several types: compared as texts
        return pa.array([None if value is None else str(value) for value in values])


def _refused(owner: str, sentence: str) -> InvalidInputError:
    return InvalidInputError(f"{owner}: {sentence}", code="E-INPUT", param="where")
