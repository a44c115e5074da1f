"""What a file stores of a noise shape, checked before it becomes one.

Files come from others: a shape of another trace would change what ε means, and one that is not
positive definite has no norm at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.sensitivity.shapes import is_orthonormal

__all__ = ["checked_shape_arrays"]

_TRACE_TOLERANCE = 1e-6

Array = npt.NDArray[Any]


def checked_shape_arrays(arrays: Mapping[str, Array], n: int) -> dict[str, Any]:
    """Return the fields of a `NoiseShape` of dimension ``n``.

    Args:
        arrays: ``shape.diagonal``; or ``shape.matrix``; or ``shape.basis``, ``shape.weights`` and
            ``shape.floor``. Other names are left alone.

    Raises:
        ValueError: the message is the name of the array that is wrong, ``shape`` if there is none or
            more than one shape, ``trace`` for a trace other than n.
    """
    kinds = [name for name in ("shape.diagonal", "shape.matrix", "shape.basis") if name in arrays]
    if len(kinds) != 1:
        raise ValueError("shape")
    if kinds == ["shape.diagonal"]:
        diagonal = _numbers(arrays, "shape.diagonal", (n,))
        if not (diagonal > 0).all():
            raise ValueError("shape.diagonal")
        _check_trace(float((diagonal / n).sum()))
        return {"diagonal": diagonal}
    if kinds == ["shape.matrix"]:
        return {"matrix": _matrix(arrays, n)}
    return _low_rank(arrays, n)


def _matrix(arrays: Mapping[str, Array], n: int) -> Array:
    matrix = _numbers(arrays, "shape.matrix", (n, n))
    if np.abs(matrix).max() > 10 * n:  # a trace of n bounds every entry
        raise ValueError("shape.matrix")
    if not np.allclose(matrix, matrix.T) or not np.linalg.eigvalsh(matrix)[0] > 0:
        raise ValueError("shape.matrix")
    _check_trace(float(np.diag(matrix).mean()))
    return matrix


def _low_rank(arrays: Mapping[str, Array], n: int) -> dict[str, Any]:
    basis = arrays["shape.basis"]
    if basis.ndim != 2 or not 1 <= basis.shape[1] <= n:
        raise ValueError("shape.basis")
    r = int(basis.shape[1])
    basis = _numbers(arrays, "shape.basis", (n, r))
    if not is_orthonormal(basis):
        raise ValueError("shape.basis")
    weights = _numbers(arrays, "shape.weights", (r,))
    if not (weights >= 0).all():
        raise ValueError("shape.weights")
    floor = float(_numbers(arrays, "shape.floor", (1,))[0])
    if not floor > 0:
        raise ValueError("shape.floor")
    _check_trace(floor + float((weights / n).sum()))
    return {"basis": basis, "weights": weights, "floor": floor}


def _numbers(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    array = arrays.get(name)
    if array is None or array.shape != shape or array.dtype != np.float64:
        raise ValueError(name)
    if not np.isfinite(array).all():
        raise ValueError(name)
    return array


def _check_trace(mean: float) -> None:
    if not abs(mean - 1) <= _TRACE_TOLERANCE:
        raise ValueError("trace")
