"""Noise shapes in closed form beside the full optimal one: diagonal, from labels, low rank, combined.

`vecveil.sensitivity.covariance` has the full shape that is optimal for pairs, and its formula.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.sensitivity.covariance import optimal_shape, regularised
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.validation import check_count, check_positive

__all__ = [
    "combine_shapes",
    "diagonal_concept_shape",
    "label_shape",
    "low_rank_concept_shape",
    "relative_diagonal",
]

DEAD = 1e-9
"""Second moments are raised to this share of their mean: dead dimensions have 0, and C_ii is divided."""


def relative_diagonal(
    sensitivity: npt.NDArray[np.float64], *, floor: float, owner: str, param: str, why: str
) -> NoiseShape:
    """Return the diagonal shape of non-negative weights (n,), with ``floor`` times their mean added.

    Raises:
        InvalidInputError: every weight is 0, so that no dimension is more sensitive than another.
    """
    mean = float(sensitivity.mean())
    if mean == 0:
        raise InvalidInputError.of(owner, param, "sensitive to the concept", "zeros", why)
    return NoiseShape.from_diagonal(sensitivity / mean, floor=floor)


def diagonal_concept_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return Σ_ii ∝ sqrt(C_ii / M_ii): the diagonal that minimises tr(C Σ⁻¹) at fixed tr(Σ M).

    Dead dimensions, which are 0 in every text, get the floor.

    Args:
        floor: share of the mean weight that is added to every weight. λ_min(Σ) is at least
            floor/(1 + floor), and the guarantee against Euclidean neighbours ε/√λ_min(Σ).
    """
    energy = np.diag(moments.M)
    energy = np.maximum(energy, DEAD * energy.mean())
    return relative_diagonal(
        np.sqrt(np.diag(moments.C) / energy),
        floor=floor,
        owner="diagonal_concept_shape",
        param="moments",
        why="Removing the concept changed no embedding.",
    )


def label_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return the optimal full shape with the labels' covariance B in place of the pairs' C.

    Σ ∝ M^{-1/2}(M^{1/2} B M^{1/2})^{1/2} M^{-1/2}; with M = I this is B^{1/2}. It puts the noise where
    single concept words are told apart, not only where "with" differs from "without".

    Args:
        moments: made with token labels.
        floor: eigenvalues below this share of the mean are raised to it.

    Raises:
        InvalidInputError: the moments were made without token labels, or the labels explain nothing.
    """
    if moments.B is None or not moments.B.any():
        got = "no labels" if moments.B is None else "labels that explain nothing of the embeddings"
        raise InvalidInputError.of("label_shape", "moments", "made with token labels", got,
                                   fix="Pass token_labels, or use concept_covariance_shape.")  # fmt: skip
    return NoiseShape.from_matrix(optimal_shape(moments.B, regularised(moments.M)), floor=floor)


def low_rank_concept_shape(moments: Moments, rank: int, floor: float = 1e-2) -> NoiseShape:
    """Return the ``rank`` leading directions of the full optimal shape, and even noise in all others.

    The others get the mean of the eigenvalues that they had, or the floor if that is more. It
    stretches a vector in 2 n · rank operations instead of n².

    Args:
        rank: r, 1 ≤ r ≤ n; fewer directions are faster and tell less of the concept's rest apart.
        floor: least λ_min(Σ), in (0, 1]; the mean eigenvalue is 1, and 1 is isotropic noise.
    """
    owner = "low_rank_concept_shape"
    n = moments.M.shape[0]
    r = check_count(rank, owner=owner, param="rank", maximum=n)
    floor = check_positive(floor, owner=owner, param="floor")
    if floor > 1:
        raise InvalidInputError.of(owner, "floor", "in (0, 1]", floor)
    eigenvalues, vectors = np.linalg.eigh(optimal_shape(moments.C, regularised(moments.M)))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    mean = float(eigenvalues.mean())
    if mean == 0:
        raise InvalidInputError.of(owner, "moments", "sensitive to the concept", "zeros",
                                   "Removing the concept changed no embedding.")  # fmt: skip
    eigenvalues = eigenvalues / mean
    rest = max(floor, float(eigenvalues[: n - r].mean()) if r < n else 0.0)
    weights = np.maximum(eigenvalues[n - r :] - rest, 0.0)
    if not weights.any():  # all directions alike
        rest, weights = 1.0, np.ones(r)
    return NoiseShape.from_low_rank(vectors[:, n - r :], weights, floor=rest)


def combine_shapes(
    shapes: Sequence[NoiseShape], weights: Sequence[float] | None = None
) -> NoiseShape:
    """Return Σ = Σ_i w_i Σ_i, one shape for several concepts; the weights add up to 1, the trace is n.

    What becomes of each concept's guarantee: Σ - w_i Σ_i is positive semi-definite, so
    ‖v‖_Σ ≤ ‖v‖_{Σ_i} / √w_i for every difference v. With the same ε, texts that a mechanism of shape
    Σ_i alone made ε·‖v‖_{Σ_i} indistinguishable are now at most (ε/√w_i)·‖v‖_{Σ_i}: two concepts of
    equal weight keep their guarantees up to a factor √2, in one release. The bound is tight where
    no other concept's shape has noise.

    Args:
        shapes: one per concept, of one dimension. Diagonal shapes give a diagonal one.
        weights: w_i > 0, scaled to add up to 1; None weighs all alike. A concept of higher weight
            keeps more of its guarantee, at the cost of the others.
    """
    owner = "combine_shapes"
    dimensions = sorted({shape.dimension for shape in shapes})
    if len(dimensions) != 1:
        got = f"dimensions {dimensions}" if dimensions else "none"
        raise InvalidInputError.of(owner, "shapes", "shapes of one dimension", got)
    try:
        w = np.ones(len(shapes)) if weights is None else np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        w = np.empty(0)
    if w.shape != (len(shapes),) or not np.isfinite(w).all() or (w <= 0).any():
        wanted = f"{len(shapes)} finite numbers > 0, one for each shape"
        raise InvalidInputError.of(owner, "weights", wanted, f"shape {w.shape}")
    w = w / w.max()
    w /= w.sum()
    if all(shape.is_diagonal for shape in shapes):
        roots = np.stack([np.asarray(shape.root) for shape in shapes])
        return NoiseShape(diagonal=w @ roots**2)
    total = np.zeros((dimensions[0], dimensions[0]))
    for share, shape in zip(w, shapes, strict=True):
        total += share * shape.covariance()
    return NoiseShape(matrix=(total + total.T) / 2)
