"""Permutation alignment: which released coordinate is which clean one, by correlation and assignment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from vecveil.attacks.alignment.base import AlignmentAttack
from vecveil.attacks.alignment.maps import AffineMap, choose_map, fit_scale

__all__ = ["PermutationAlignment"]

FloatArray = npt.NDArray[np.float64]

_LIKENESSES = ("product", "covariance", "correlation")


class PermutationAlignment(AlignmentAttack):
    """Finds a secret order of the coordinates, perhaps with secret signs and one secret scale.

    Coordinates are matched by the assignment that maximises the sum of their likenesses over the known
    pairs: products, covariances or correlations, with signs or without, whichever tells held-out pairs
    apart best. A match needs no more pairs than it takes to tell n coordinates apart, so far fewer than n.
    """

    name = "permutation-alignment"
    description = "Coordinates matched by correlation and Hungarian assignment over known pairs."
    cost = "seconds on one core, and from ten known pairs"
    source = "Own; Kuhn (1955), The Hungarian method for the assignment problem."

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        return choose_map(Y, clean, _variants)


def _variants(Y: FloatArray, clean: FloatArray) -> dict[str, AffineMap]:
    """Return the map by each likeness, with secret signs and without."""
    return {
        f"{likeness}{', signs' if signs else ''}": _fit(Y, clean, likeness, signs)
        for likeness in _LIKENESSES
        for signs in (False, True)
    }


def _fit(Y: FloatArray, clean: FloatArray, likeness: str, signs: bool) -> AffineMap:
    source, target = np.zeros(Y.shape[1]), np.zeros(clean.shape[1])
    if likeness != "product":
        source, target = Y.mean(axis=0), clean.mean(axis=0)
    y, x = Y - source, clean - target
    like = y.T @ x
    if likeness == "correlation":
        norms = np.outer(np.linalg.norm(y, axis=0), np.linalg.norm(x, axis=0))
        like = np.divide(like, norms, out=np.zeros_like(like), where=norms > 0)
    released, own = linear_sum_assignment(np.abs(like) if signs else like, maximize=True)
    weights = np.zeros(like.shape)
    weights[released, own] = np.sign(like[released, own]) if signs else 1.0
    weights *= fit_scale(y @ weights, x)
    reach = None if len(own) == len(target) else np.eye(len(target))[:, own]
    choice = f"{likeness}{', signs' if signs else ''}"
    return AffineMap(weights, source, target, choice, reach)
