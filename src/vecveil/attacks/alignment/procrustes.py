"""Procrustes alignment: the rotation that brings released vectors nearest to their clean ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks.alignment.base import AlignmentAttack
from vecveil.attacks.alignment.maps import AffineMap, choose_map, fit_scale

__all__ = ["ProcrustesAlignment", "procrustes"]

FloatArray = npt.NDArray[np.float64]

_CUT_OFF = 1e-9
_SHARES = (1.0, 0.5, 0.25)  # of the directions that the pairs determine


class ProcrustesAlignment(AlignmentAttack):
    """Finds a secret rotation or reflection, perhaps into fewer dimensions, with a scale and a shift.

    Fewer pairs than dimensions determine the rotation in their own span only: beyond it the map is zero,
    not arbitrary. With noise the weaker of these directions hurt, so their number, and whether to centre,
    are chosen by leaving out pairs.
    """

    name = "procrustes-alignment"
    description = "A rotation, scale and shift fitted to known pairs by orthogonal Procrustes."
    cost = "seconds on one core; exact from as many known pairs as dimensions"
    source = "Schönemann (1966), A generalized solution of the orthogonal Procrustes problem."

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        return choose_map(Y, clean, _variants)


def _variants(Y: FloatArray, clean: FloatArray) -> dict[str, AffineMap]:
    """Return the maps of every rank that comes into question, centred and not."""
    found = {}
    for centred in (False, True):
        source = Y.mean(axis=0) if centred else np.zeros(Y.shape[1])
        target = clean.mean(axis=0) if centred else np.zeros(clean.shape[1])
        y, x = Y - source, clean - target
        left, right = _directions(y, x)
        for share in _SHARES:
            rank = max(1, round(share * left.shape[1]))
            weights = left[:, :rank] @ right[:, :rank].T
            weights *= fit_scale(y @ weights, x)
            name = f"{'centred' if centred else 'as it is'}, {share:.0%} of the directions"
            found[name] = AffineMap(weights, source, target, name, right[:, :rank])
    return found


def procrustes(y: FloatArray, x: FloatArray) -> FloatArray:
    """Return the partial isometry W (m, n) of the greatest tr(Wᵀ yᵀ x), zero where the rows say nothing.

    Formula: W = U Vᵀ for yᵀ x = U S Vᵀ (Schönemann 1966), over the singular values above zero.
    """
    left, right = _directions(y, x)
    weights: FloatArray = left @ right.T
    return weights


def _directions(y: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the left and right singular vectors of yᵀ x, as columns, strongest first."""
    if len(y) < min(y.shape[1], x.shape[1]):  # the same from a (k, k) matrix
        basis, core = np.linalg.qr(y.T)
        other, others_core = np.linalg.qr(x.T)
        left, values, right = np.linalg.svd(core @ others_core.T)
        left, right = basis @ left, right @ other.T
    else:
        left, values, right = np.linalg.svd(y.T @ x, full_matrices=False)
    rank = int((values > _CUT_OFF * values.max(initial=0.0)).sum())
    return left[:, :rank], right[:rank].T
