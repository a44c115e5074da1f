"""Dispatch the arithmetic of noise to the compiled kernel, or to NumPy without one.

Both give the same bits (`tests/unit/randomness/test_kernel.py`); the compiled form is several times
faster and releases the interpreter lock, so threads help.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from types import ModuleType

import numpy as np

from vecveil.randomness import elementary
from vecveil.randomness.elementary import NoiseKind as NoiseKind
from vecveil.randomness.elementary import Words
from vecveil.types import Embeddings, Vector

_compiled: ModuleType | None = None
if os.environ.get("VECVEIL_KERNEL") != "numpy":
    with contextlib.suppress(ImportError):
        _compiled = importlib.import_module("vecveil.randomness._kernel")

_NOTHING = b""  # stands for no root in the C call


def compiled() -> bool:
    """Return whether the compiled kernel is in use."""
    return _compiled is not None


def normals(words: Words, pairs: int) -> Embeddings:
    """See `elementary.normals`."""
    if _compiled is None:
        return elementary.normals(words, pairs)
    out = np.empty((len(words), 2 * pairs))
    _compiled.normals(words, out, len(words), words.shape[1], pairs)
    return out


def exponentials(words: Words) -> Vector:
    """See `elementary.exponentials`; ``words`` is (rows,)."""
    if _compiled is None:
        return elementary.exponentials(words)
    contiguous, out = np.ascontiguousarray(words), np.empty(len(words))
    _compiled.exponentials(contiguous, out, len(words))
    return out


def gammas(words: Words, first: int, tries: int, shape: float) -> Vector:
    """See `elementary.gammas`."""
    if _compiled is None:
        return elementary.gammas(words, first, tries, shape)
    out = np.empty(len(words))
    _compiled.gammas(words, out, len(words), words.shape[1], first, tries, shape)
    return out


def release(
    kind: NoiseKind,
    X: Embeddings,
    words: Words | Embeddings,
    factors: Vector,
    root: Vector | None,
    step: float,
    out: Embeddings,
) -> bool:
    """Write the noisy rows of `elementary.release` to ``out``; return whether all are finite.

    All arrays must be C-contiguous, since the kernel takes raw buffers; ``out`` has the shape and dtype of ``X``.
    """
    if _compiled is None:
        out[:], finite = elementary.release(kind, X, words, factors, root, step)
        return finite
    rows, n = X.shape
    wide = X.dtype == np.float64
    scale = _NOTHING if root is None else root
    ok: bool = _compiled.release(int(kind), X, words, factors, scale, out, rows, n, words.shape[1], wide, step)
    return ok


def counters(starts: Words, blocks: int, first: int) -> Words:
    """See `elementary.counters`."""
    if _compiled is None:
        return elementary.counters(starts, blocks, first)
    out = np.empty((len(starts), blocks, 2), dtype=np.uint64)
    _compiled.counters(starts, out, len(starts), blocks, first)
    return out
