"""The map that an aligner learns from released to clean vectors, and how matching uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "AffineMap",
    "choose_map",
    "cosines",
    "fit_scale",
    "folds",
    "reached",
    "separation",
    "unit_rows",
]

FloatArray = npt.NDArray[np.float64]

_CUT_OFF = 1e-9  # share of the largest singular value below which a direction is not reached
_FOLDS = 5
_ENOUGH = 100  # pairs from which on one held-out fifth says enough


@dataclass(frozen=True, eq=False)
class AffineMap:
    """The map y -> (y - source) @ weights + target.

    Attributes:
        weights: (m, n).
        source: (m,) subtracted from released vectors.
        target: (n,) added to recovered ones.
        choice: What was chosen while fitting, in words.
        reach: (n, r) orthonormal directions that the map reaches; None: all.
    """

    weights: FloatArray
    source: FloatArray
    target: FloatArray
    choice: str = ""
    reach: FloatArray | None = None

    def __call__(self, Y: npt.NDArray[Any]) -> FloatArray:
        """Return clean vectors as recovered from ``Y``, (N, n) float64."""
        recovered: FloatArray = self._centred(Y) + self.target
        return recovered

    def _centred(self, Y: npt.NDArray[Any]) -> FloatArray:
        moved: FloatArray = (np.asarray(Y, dtype=np.float64) - self.source) @ self.weights
        return moved

    def views(self, Y: npt.NDArray[Any], clean: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return unit rows for released and for clean vectors, whose products are the cosines.

        Both are taken relative to ``target`` and within the directions that the map reaches. Few pairs
        tell the map in few directions only, and there a true match is a match none the less; the rest of a
        candidate would only blur the comparison.
        """
        recovered = self._centred(Y)
        candidates = np.asarray(clean, dtype=np.float64) - self.target
        if self.reach is not None:
            recovered, candidates = recovered @ self.reach, candidates @ self.reach
        return unit_rows(recovered), unit_rows(candidates)


def reached(weights: FloatArray) -> FloatArray | None:
    """Return orthonormal directions (n, r) of what ``weights`` (m, n) reaches; None if that is everything."""
    _, values, axes = np.linalg.svd(weights, full_matrices=False)
    kept = values > _CUT_OFF * max(values.max(initial=0.0), np.finfo(np.float64).tiny)
    return None if kept.sum() == weights.shape[1] else axes[kept].T


def unit_rows(rows: FloatArray) -> FloatArray:
    """Return the rows over their norms; zeros stay."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return unit


def cosines(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the cosines of unit rows, rounded so that equal candidates tie."""
    scores: FloatArray = left @ right.T
    np.round(scores, 12, out=scores)
    return scores


def fit_scale(moved: FloatArray, clean: FloatArray) -> float:
    """Return the least-squares s of ``clean ~ s * moved``; 0 where ``moved`` is zero."""
    square = float((moved * moved).sum())
    return float((moved * clean).sum()) / square if square > 0 else 0.0


def folds(rows: int) -> list[npt.NDArray[np.bool_]]:
    """Return masks of the held-out pairs: fifths of few pairs, one fifth of many."""
    parts = min(_FOLDS, rows)
    part = np.arange(rows) % parts
    return [part == i for i in range(1 if rows >= _ENOUGH else parts)]


def separation(
    found: AffineMap, Y: FloatArray, clean: FloatArray, others: FloatArray
) -> FloatArray:
    """Return for each pair how far the true cosine stands above those of ``others``, in deviations.

    It grows with top-1 accuracy, and a few pairs measure it where they could not measure a share.
    """
    recovered, pool = found.views(Y, np.concatenate([clean, others]))
    right = (recovered * pool[: len(clean)]).sum(axis=1)
    scores = recovered @ pool[len(clean) :].T
    spread = np.maximum(scores.std(axis=1), 1e-12)
    distance: FloatArray = np.minimum((right - scores.mean(axis=1)) / spread, 1e6)
    return distance


def choose_map(
    Y: FloatArray,
    clean: FloatArray,
    variants: Callable[[FloatArray, FloatArray], dict[str, AffineMap]],
) -> AffineMap:
    """Return the variant, fitted on all pairs, that separates held-out pairs best from the others.

    Args:
        variants: Returns by name the maps that come into question, fitted on the given pairs; names that
            are not fitted in every fold cannot win.
    """
    scores: dict[str, list[float]] = {}
    masks = folds(len(Y))
    for held in masks:
        for name, found in variants(Y[~held], clean[~held]).items():
            values = separation(found, Y[held], clean[held], clean[~held])
            scores.setdefault(name, []).append(float(values.mean()))
    fitted = variants(Y, clean)
    full = {name: sum(s) for name, s in scores.items() if len(s) == len(masks) and name in fitted}
    return fitted[max(full, key=lambda name: full[name])]
