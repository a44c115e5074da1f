"""Labels of texts as a 0/1 array: one column a class."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings, TokenLabels

__all__ = ["MIN_CLASS", "classes_of", "with_classes"]

MIN_CLASS = 10
"""Fewest texts that must hold a class: nothing reliable is learnt of a rarer one."""


def classes_of(labels: Any, rows: int, *, owner: str) -> TokenLabels:
    """Return (rows, V) 0/1 labels; a row without a label has zeros only.

    Args:
        labels: one string, integer or None for each row, whose V different values become columns in sorted order; or
            a 0/1 array (rows, V).

    Raises:
        InvalidInputError: not one for each row, none at all, or a class that fewer than ten rows hold.
    """
    marks = _array(labels, rows) if getattr(labels, "ndim", 1) == 2 else _one_hot(labels, rows)
    if marks is None:
        raise InvalidInputError.of(owner, "labels",
                                   f"{rows} strings, integers or None, or a 0/1 array ({rows}, V)",
                                   _kind(labels))  # fmt: skip
    held = marks.sum(axis=0)
    if not held.size or held.min() < MIN_CLASS:
        got = "none" if not held.size else f"one that {int(held.min())} hold"
        raise InvalidInputError.of(owner, "labels", f"classes that at least {MIN_CLASS} texts hold each", got,
                                   "From so few nothing reliable can be learnt.")  # fmt: skip
    return marks


def with_classes(
    X: Embeddings, labels: TokenLabels, background: Embeddings | None, *, owner: str
) -> tuple[Embeddings, TokenLabels, Embeddings | None]:
    """Return the rows that hold a label, their labels, and the others with the background behind them.

    A single class is told from what does not hold it: the others then count as a second class.
    """
    held = labels.any(axis=1)
    others = X[~held]
    if background is not None:
        others = np.concatenate([others, background])
    if labels.shape[1] > 1:
        constant = labels[held].all(axis=0)
        if constant.any():
            raise InvalidInputError.of(owner, "labels", "columns that differ between rows with a label",
                                       f"{int(constant.sum())} that hold in each")  # fmt: skip
        return X[held], labels[held], others if len(others) else None
    if len(others) < MIN_CLASS:
        raise InvalidInputError.of(owner, "labels", "two classes or more, or one and texts without it",
                                   "one alone", "There is nothing to tell it from.")  # fmt: skip
    both = np.concatenate([X[held], others])
    marks = np.zeros((len(both), 2), dtype=np.uint8)
    marks[: held.sum(), 0] = marks[held.sum() :, 1] = 1
    return both, marks, None


def _array(labels: Any, rows: int) -> TokenLabels | None:
    marks = np.asarray(labels)
    if marks.dtype.kind not in "biuf" or len(marks) != rows or not np.isin(marks, (0, 1)).all():
        return None
    return marks.astype(np.uint8)


def _one_hot(labels: Any, rows: int) -> TokenLabels | None:
    if isinstance(labels, str | bytes | dict) or not hasattr(labels, "__len__"):
        return None
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    known = all(
        value is None or (isinstance(value, str | int | np.integer) and not isinstance(value, bool))
        for value in values
    )
    if len(values) != rows or not known:
        return None
    texts = [None if value is None or value == "" else str(value) for value in values]
    names = sorted({name for name in texts if name is not None})
    marks = np.zeros((rows, len(names)), dtype=np.uint8)
    column = {name: j for j, name in enumerate(names)}
    for i, name in enumerate(texts):
        if name is not None:
            marks[i, column[name]] = 1
    return marks


def _kind(labels: Any) -> str:
    shape = getattr(labels, "shape", None)
    count = f"{len(labels)} of them, " if shape is None and hasattr(labels, "__len__") else ""
    return f"{count}{type(labels).__name__}" + ("" if shape is None else f" of shape {shape}")
