"""Argument checks: each returns the checked value or raises one error that names the argument."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, not_finite, out_of_range, wrong_shape, wrong_type
from vecveil.types import Embeddings, Texts

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_SMALL = 65_536  # values


def check_embeddings(
    value: Any, *, owner: str, param: str, dimension: int | None = None, min_rows: int = 0, finite: bool = True
) -> Embeddings:
    """Return ``value`` as a C-contiguous float32 or float64 array of shape (N, n), all finite.

    With ``finite=False`` the caller checks for NaN and infinity.

    Raises:
        InvalidInputError: not a NumPy array, not two-dimensional, another dtype, NaN or infinite.
        IncompatibleError: the second dimension is not ``dimension``.
    """
    if not isinstance(value, np.ndarray):
        fix = "Convert it with numpy.asarray(..., dtype=numpy.float32)."
        raise wrong_type(owner, param, "a NumPy array", value, fix=fix)
    check_unmasked(value, owner, param)
    value = np.asarray(value)  # a subclass (matrix) could hide values from the checks
    if value.dtype not in _FLOATS:
        raise InvalidInputError(
            f"{owner}: `{param}` has dtype {value.dtype}; it must be float32 or float64. Convert it with "
            ".astype(numpy.float32).",
            code="E-INPUT-TYPE",
            param=param,
        )
    if value.ndim != 2:
        fix = "Pass a single vector as vector[None, :]." if value.ndim == 1 else ""
        raise wrong_shape(owner, param, "(N, n)", value.shape, fix=fix)
    if value.shape[0] < min_rows:
        raise InvalidInputError(
            f"{owner}: `{param}` needs at least {min_rows} rows; it has {value.shape[0]}.",
            code="E-INPUT-SHAPE",
            param=param,
        )
    if value.shape[1] == 0:
        raise wrong_shape(owner, param, "(N, n) with n of at least 1", value.shape)
    if dimension is not None and value.shape[1] != dimension:
        raise IncompatibleError(
            f"{owner}: `{param}` has dimension {value.shape[1]}; the protector was fitted for {dimension}. Use "
            "the encoder it was fitted with, or fit a new protector.",
            param=param,
        )
    if not finite:
        return np.ascontiguousarray(value)
    if not all_finite(value):
        bad = np.flatnonzero(~np.isfinite(value).all(axis=1))
        if bad.size:
            raise not_finite(
                owner,
                param,
                f"{bad.size} rows with values that are not finite (NaN or infinity), the first is row {bad[0]}",
                fix="Drop or repair these rows.",
            )
    return np.ascontiguousarray(value)


def check_unmasked(value: Any, owner: str, param: str) -> None:
    """Raise for a masked array, or a list of them, with masked values."""
    # numpy.asarray drops the mask and exposes the values under it.
    if any(map(np.ma.is_masked, value if isinstance(value, list | tuple) else [value])):
        raise InvalidInputError(
            f"{owner}: `{param}` has masked values. Drop their rows, or replace them with .filled(...).",
            code="E-INPUT-TYPE",
            param=param,
        )


def all_finite(value: Embeddings) -> bool:
    """Return whether every value is finite; False also for finite values whose sum overflows."""
    if value.size <= _SMALL:
        return bool(np.logical_and.reduce(np.isfinite(value), axis=None))
    # A sum is finite only if every summand is, and takes no memory.
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(float(value.sum(dtype=np.float64)))


def check_numbers(value: Any, *, owner: str, param: str) -> npt.NDArray[np.float64]:
    """Return ``value`` as a float64 array of any shape, all finite."""
    check_unmasked(value, owner, param)
    try:
        numbers = np.asarray(value)
    except ValueError:  # rows of different lengths
        numbers = np.empty(0, dtype=object)
    if numbers.dtype.kind not in "biuf":
        raise wrong_type(owner, param, "an array of numbers", value)
    if not np.isfinite(numbers).all():
        raise not_finite(owner, param)
    return numbers.astype(np.float64, copy=False)


def check_sequence(value: Any, expected: str, *, owner: str, param: str, fix: str = "") -> list[Any]:
    """Return ``value`` as a list; raise for a bare string, and tables and dicts, which iterate their names."""
    if isinstance(value, Mapping) or getattr(value, "ndim", 1) != 1 or hasattr(value, "columns"):
        raise wrong_type(owner, param, expected, value, fix='Pass one column of it, such as table["text"].')
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise wrong_type(owner, param, expected, value, fix=fix)
    return list(value)


def check_texts(value: Any, *, owner: str, param: str = "texts", min_rows: int = 1) -> Texts:
    """Return ``value`` as a list of strings; raise for a bare string, other types and fewer than ``min_rows`` texts."""
    fix = "Pass a list, even for a single text."
    texts = check_sequence(value, "a sequence of strings", owner=owner, param=param, fix=fix)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInputError(
                f"{owner}: `{param}` has a {type(text).__name__} at position {i}; it takes strings.",
                code="E-INPUT-TYPE",
                param=param,
            )
    if len(texts) < min_rows:
        raise InvalidInputError(
            f"{owner}: `{param}` needs at least {min_rows} texts; it has {len(texts)}.",
            code="E-INPUT-SHAPE",
            param=param,
        )
    return texts


def check_groups(value: Any, rows: int, *, owner: str, param: str = "groups") -> list[Any]:
    """Return one id for each of ``rows`` rows; a missing one (None, NaN, NA, an empty or blank string) becomes None."""
    expected = f"one id for each of {rows} rows"
    ids = check_sequence(value, expected, owner=owner, param=param)
    if len(ids) != rows:
        raise wrong_shape(owner, param, expected, (len(ids),))
    for i, each in enumerate(ids):
        try:
            hash(each)  # a tuple that contains a list is an instance of Hashable
        except TypeError:
            raise InvalidInputError(
                f"{owner}: `{param}` has a {type(each).__name__} at position {i}; ids are strings, numbers or other "
                "hashable values.",
                code="E-INPUT-TYPE",
                param=param,
            ) from None
    return [None if _is_missing(each) else each for each in ids]


def _is_missing(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return not value.strip()
    try:
        return value is None or bool(value != value)  # NaN and NaT differ from themselves
    except TypeError:  # pandas.NA, whose comparison is NA again
        return True


def number_groups(*columns: Sequence[Any]) -> list[npt.NDArray[np.intp]]:
    """Return a number from 0 on for each id, one for equal ids of all columns; each None gets its own number."""
    names = list(dict.fromkeys(each for column in columns for each in column if each is not None))
    with suppress(TypeError):  # ids of several types have no order
        names.sort()
    numbers: dict[Any, int] = {name: i for i, name in enumerate(names)}
    return [
        np.array(
            [numbers.setdefault(object() if each is None else each, len(numbers)) for each in column], dtype=np.intp
        )
        for column in columns
    ]


def connected_groups(left: npt.NDArray[Any], right: npt.NDArray[Any], count: int) -> npt.NDArray[np.intp]:
    """Return the connected component of each of ``count`` nodes, numbered from 0 in the order of their first nodes.

    ``left[i]`` and ``right[i]`` are connected.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.intp)


def check_positive(value: Any, *, owner: str, param: str, allow_zero: bool = False) -> float:
    """Return ``value`` as a finite float greater than zero (or at least zero)."""
    allowed = "a finite number of at least 0" if allow_zero else "a finite number above 0"
    numeric = int | float | np.integer | np.floating
    if isinstance(value, bool | np.bool_) or not isinstance(value, numeric):
        raise wrong_type(owner, param, allowed, value)
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of a float
        number = math.inf
    if not math.isfinite(number) or number < 0 or (number == 0 and not allow_zero):
        raise out_of_range(owner, param, allowed, number)
    return number


def check_probability(value: Any, *, owner: str, param: str, open_interval: bool = False) -> float:
    """Return ``value`` as a float in [0, 1], or in (0, 1) with ``open_interval``."""
    number = check_positive(value, owner=owner, param=param, allow_zero=True)
    if number > 1 or (open_interval and not 0 < number < 1):
        raise out_of_range(owner, param, "a number between 0 and 1" + ", exclusive" * open_interval, number)
    return number


def check_count(value: Any, *, owner: str, param: str, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` as an integer of at least ``minimum`` and at most ``maximum``."""
    allowed = f"an integer of at least {minimum}" + ("" if maximum is None else f" and at most {maximum}")
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise wrong_type(owner, param, allowed, value)
    number = int(value)
    if number < minimum or (maximum is not None and number > maximum):
        raise out_of_range(owner, param, allowed, number)
    return number


def check_seed(value: Any, *, owner: str) -> int:
    """Return ``value`` as a seed that NumPy, torch and a saved file all take: an integer from 0 to 2⁶³ − 1."""
    return check_count(value, owner=owner, param="seed", minimum=0, maximum=2**63 - 1)


def check_same_length(owner: str, **arrays: Sequence[Any] | np.ndarray) -> int:
    """Return the common length of ``arrays``; raise for different lengths."""
    for name, array in arrays.items():
        if not hasattr(array, "__len__"):
            raise wrong_type(owner, name, "a sequence", array)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        first = next(iter(lengths))
        raise InvalidInputError(
            f"{owner}: the arguments differ in length: {listed}.", code="E-INPUT-SHAPE", param=first
        )
    return next(iter(lengths.values()))


def checked_vectors(value: Any, *, rows: int, owner: str, dimension: int | None = None) -> npt.NDArray[np.float32]:
    """Return an encoder's result for ``rows`` texts as a finite float32 array of shape (rows, n).

    Accepts NumPy arrays, torch tensors (any device, any float type) and lists of either or of numbers.
    """

    def refuse(kind: str, got: str) -> InvalidInputError:
        text = f"{owner} returned {got}. Make encode(texts) return one finite vector per text, all of one dimension."
        return InvalidInputError(text, code=f"E-INPUT-{kind}", param="encode")

    if any(map(np.ma.is_masked, value if isinstance(value, list | tuple) else [value])):
        raise refuse("TYPE", "masked values")
    try:
        array = np.asarray(_to_numpy(value))
        if array.dtype.kind not in "fiu":
            raise TypeError
        # A float64 beyond float32's range becomes infinite and is rejected below.
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        raise refuse("TYPE", f"a {type(value).__name__} instead of an array of numbers") from None
    if array.ndim != 2 or array.shape[1] == 0:
        raise refuse("SHAPE", f"an array of shape {array.shape}")
    if array.shape[0] != rows:
        raise refuse("SHAPE", f"{array.shape[0]} rows for {rows} texts")
    if dimension is not None and array.shape[1] != dimension:
        raise refuse("SHAPE", f"dimension {array.shape[1]} after {dimension}")
    # all_finite tests a sum, which can overflow for finite values.
    if not all_finite(array) and not (finite := np.isfinite(array).all(axis=1)).all():
        raise refuse("FINITE", f"{int((~finite).sum())} rows with NaN or infinity")
    return array


def _to_numpy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_numpy(row) for row in value] if value and hasattr(value[0], "__len__") else value
    if hasattr(value, "detach"):  # a torch tensor; NumPy has no bfloat16
        return value.detach().cpu().float().numpy()
    return value


ItemId = str | int | bytes


def check_ids(ids: Any, rows: int, *, owner: str) -> list[bytes]:
    """Return each id (str, int or bytes, one per row) as bytes, distinct across types."""
    ordered = isinstance(ids, Sequence) or (isinstance(ids, np.ndarray) and ids.ndim == 1)
    if isinstance(ids, str | bytes) or not ordered or len(ids) != rows:
        got = f"{len(ids)} ids" if ordered else type(ids).__name__
        raise InvalidInputError(
            f"{owner}: {rows} rows need {rows} `ids`, one each, not {got}. Pass the primary keys of the rows.",
            param="ids",
        )
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    return [_id_bytes(item, i, owner) for i, item in enumerate(listed)]


def _id_bytes(value: Any, position: int, owner: str) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        size = number.bit_length() // 8 + 1
        return b"i" + number.to_bytes(size, "little", signed=True)
    raise InvalidInputError(
        f"{owner}: `ids` has a {type(value).__name__} at position {position}; it takes strings, integers or bytes.",
        param="ids",
    )
