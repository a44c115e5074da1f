"""Noise shapes in closed form: the optimal full shape for pairs or labels, diagonal, low rank, combined.

The shape that minimises tr(C Σ⁻¹) at fixed tr(Σ M) is Σ ∝ M^{-1/2}(M^{1/2} C M^{1/2})^{1/2} M^{-1/2}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.sensitivity.moments import RIDGE, Moments, matrix_root
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count, check_embeddings, check_positive

__all__ = [
    "Over",
    "combine_shapes",
    "concept_covariance_shape",
    "diagonal_concept_shape",
    "difference_sensitivity",
    "difference_shape",
    "label_shape",
    "low_rank_concept_shape",
    "optimal_shape",
    "regularised",
    "relative_diagonal",
]


def optimal_shape(C: Matrix, M: Matrix) -> Matrix:
    """Return the Σ that minimises tr(C Σ⁻¹) at fixed tr(Σ M).

    Σ ∝ M^{-1/2}(M^{1/2} C M^{1/2})^{1/2} M^{-1/2}; with M = I this is C^{1/2}. M must be positive
    definite.
    """
    # Solve in coordinates where M = I, then map back.
    root = matrix_root(M)
    inverse = matrix_root(M, -0.5)
    shape: Matrix = inverse @ matrix_root(root @ C @ root) @ inverse
    return shape


def concept_covariance_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return the noise shape that hides the pairs' differences best at a given distortion.

    Args:
        floor: eigenvalues below this share of the mean are raised to it; smaller values concentrate
            the noise on the concept's directions and weaken the worst-case guarantee, which is
            ε/√λ_min.
    """
    return NoiseShape.from_matrix(optimal_shape(moments.C, regularised(moments.M)), floor=floor)


def regularised(M: Matrix) -> Matrix:
    """Return M + 1e-3·tr(M)/n·I, which is positive definite where M has dead dimensions."""
    n = M.shape[0]
    matrix: Matrix = M + RIDGE * np.trace(M) / n * np.eye(n)
    return matrix


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
    # What the leading directions do not hold is spread evenly, and never below the floor.
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
        constraint = f"{len(shapes)} finite numbers > 0, one for each shape"
        raise InvalidInputError.of(owner, "weights", constraint, f"shape {w.shape}")
    w = w / w.max()  # so that the sum of huge weights is finite
    w /= w.sum()
    if all(shape.is_diagonal for shape in shapes):
        roots = np.stack([np.asarray(shape.root) for shape in shapes])
        return NoiseShape(diagonal=w @ roots**2)
    total = np.zeros((dimensions[0], dimensions[0]))
    for share, shape in zip(w, shapes, strict=True):
        total += share * shape.covariance()
    return NoiseShape(matrix=(total + total.T) / 2)


Over = Literal["pairs", "sets"]


def difference_sensitivity(
    positive: Embeddings, negative: Embeddings, *, over: Over = "pairs"
) -> Vector:
    """Return Δ (n,): the largest |Φ(s⁺)_i − Φ(s⁻)_i| in each dimension i (SPARSE, Definition 7).

    Args:
        positive: (N, n) embeddings with the concept, D+.
        negative: embeddings without it, D-. Row i is positive row i without the concept, unless
            ``over`` is "sets", where it may have any number of rows.
        over: "pairs" takes the maximum over the pairs. "sets" takes it over all of D+ × D-: it is
            never smaller, and grows with how varied the texts are, with or without a concept.

    Cost: N n operations both ways; over the sets it is the larger of max D+ − min D- and
    max D- − min D+.
    """
    owner = "difference_sensitivity"
    P = check_embeddings(positive, owner=owner, param="positive", min_rows=1)
    N = check_embeddings(negative, owner=owner, param="negative", dimension=P.shape[1], min_rows=1)
    if over == "sets":
        highest, lowest = (np.stack([f(X, axis=0) for X in (P, N)]) for f in (np.max, np.min))
        spans = (highest - lowest[::-1].astype(np.float64)).max(axis=0)
        return np.asarray(spans, dtype=np.float64)
    if over != "pairs":
        raise InvalidInputError.of(owner, "over", "'pairs' or 'sets'", repr(over)[:40])
    if len(P) != len(N):
        raise InvalidInputError.of(owner, "negative", f"of {len(P)} rows, one for each positive",
                                   f"{len(N)} rows",
                                   fix="Over D+ × D-, with over='sets', the numbers may differ.")  # fmt: skip
    return np.asarray(np.abs(P.astype(np.float64) - N).max(axis=0), dtype=np.float64)


def difference_shape(
    positive: Embeddings, negative: Embeddings, *, over: Over = "pairs", floor: float = 1e-2
) -> NoiseShape:
    """Return the diagonal shape Σ_ii ∝ Δ_i, with ``floor`` times the mean of Δ added to each.

    Args:
        positive, negative, over: as in `difference_sensitivity`.
        floor: a privacy parameter: λ_min(Σ) is at least floor/(1 + floor), and the guarantee against
            Euclidean neighbours ε/√λ_min(Σ).
    """
    return relative_diagonal(
        difference_sensitivity(positive, negative, over=over),
        floor=floor,
        owner="difference_shape",
        param="negative",
        why="Removing the concept changed no embedding.",
    )
