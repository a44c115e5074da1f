"""Vectors longer than those that the noise was fitted to: the same noise hides less of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, message
from vecveil.types import Embeddings, Vector
from vecveil.validation import check_embeddings

if TYPE_CHECKING:
    from vecveil.protector.protector import Protector

__all__ = ["check_lengths", "length_range", "within_lengths"]

_ONE_LENGTH = 1.01
"""Ratio of longest to shortest below which an encoder normalises."""
_SLACK_OF_UNIT, _SLACK = 1.1, 2.0
"""How much longer a row may be than all rows of the fit: where all had one length, and where they had several."""


def length_range(*arrays: Embeddings | None) -> tuple[float, float]:
    """Return the least and the largest norm of the rows of all arrays (N, n); None is skipped."""
    norms = [np.linalg.norm(X, axis=1) for X in arrays if X is not None]
    return float(min(n.min() for n in norms)), float(max(n.max() for n in norms))


def check_lengths(protector: Protector, X: Embeddings, *, owner: str) -> None:
    """Refuse rows of ``X`` (N, n) that are longer than what ``protector`` was fitted on.

    An encoder of the same directions that does not normalise would otherwise be released nearly clean. Protectors that
    normalise or clip their input, and those that do not know (fitted before lengths were kept), are not checked.

    Raises:
        InvalidInputError: a row is not finite.
        IncompatibleError: a row is longer; the message holds its number and no value of it.
    """
    most = _most(protector)
    if most is None or not len(X):
        return
    lengths = _lengths(X)
    if not np.logical_and.reduce(lengths <= most):
        check_embeddings(X, owner=owner, param="X")
        longest = int(np.argmax(lengths))
        raise IncompatibleError(
            message(owner, "X", f"rows of norm at most {most:.4g}", f"a longer one at row {longest}",
                    "The noise was fitted to vectors of other lengths, and hides little of longer ones.",
                    "Use vectors of the same encoder and normalisation, or fit a new protector.")
        )  # fmt: skip


def within_lengths(protector: Protector, X: Embeddings) -> npt.NDArray[np.bool_]:
    """Return for each row of ``X`` (N, n), finite, whether `check_lengths` lets it pass: (N,)."""
    most = _most(protector)
    if most is None:
        return np.ones(len(X), dtype=bool)
    return np.asarray(_lengths(X) <= most, dtype=bool)


def _most(protector: Protector) -> float | None:
    known = protector.encoder_info.norms
    if not known:
        return None
    low, high = known
    return high * (_SLACK_OF_UNIT if high <= _ONE_LENGTH * low else _SLACK)


def _lengths(X: Embeddings) -> Vector:
    with np.errstate(over="ignore"):  # what has no square in the dtype is longer than any fit's
        lengths: Vector = np.sqrt(np.einsum("ij,ij->i", X, X))  # no second copy of X
    return lengths
