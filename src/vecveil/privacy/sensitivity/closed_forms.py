"""Noise shapes in closed form: optimal for pairs or labels, diagonal, low rank, combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.privacy.sensitivity.concept_subspace import RIDGE, Moments, matrix_root
from vecveil.privacy.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count, check_embeddings, check_numbers, check_positive


def optimal_shape(C: Matrix, M: Matrix) -> Matrix:
    """Return the Σ that minimises tr(C Σ⁻¹) at fixed tr(Σ M), for a positive definite M.

    Σ ∝ M^{-1/2}(M^{1/2} C M^{1/2})^{1/2} M^{-1/2}; with M = I this is C^{1/2}.
    """
    # With S = M^{1/2} Σ M^{1/2} this is the problem for M = I, whose solution is a root; then map back.
    root = matrix_root(M)
    inverse = matrix_root(M, -0.5)
    shape: Matrix = inverse @ matrix_root(root @ C @ root) @ inverse
    return shape


def concept_covariance_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return the noise shape that best hides the pairs' differences at a given distortion.

    ``floor`` is the least eigenvalue, as a share of the mean. A smaller floor concentrates the noise on the concept's
    directions and weakens the worst-case guarantee ε/√λ_min.
    """
    return NoiseShape.from_matrix(optimal_shape(moments.C, regularised(moments.M)), floor=floor)


def regularised(M: Matrix) -> Matrix:
    """Return M + 1e-3·tr(M)/n·I, which is positive definite even with dead dimensions."""
    n = M.shape[0]
    matrix: Matrix = M + RIDGE * np.trace(M) / n * np.eye(n)
    return matrix


DEAD = 1e-9
"""Minimum second moment as a share of the mean: dead dimensions have 0, and C_ii is divided by it."""


def relative_diagonal(sensitivity: npt.NDArray[np.float64], *, floor: float, owner: str, param: str) -> NoiseShape:
    """Return the diagonal shape of non-negative weights (n,) plus ``floor`` times their mean.

    Raises:
        InvalidInputError: all weights are 0.
    """
    mean = float(sensitivity.mean())
    if mean == 0:
        raise _insensitive(owner, param)
    # Weights of mean 1 make the floor independent of the scale of the sensitivities.
    return NoiseShape.from_diagonal(sensitivity / mean, floor=floor)


def _insensitive(owner: str, param: str) -> InvalidInputError:
    return InvalidInputError(f"{owner}: removing the concept changed no embedding in `{param}`.", param=param)


def diagonal_concept_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return Σ_ii ∝ sqrt(C_ii / M_ii): the diagonal that minimises tr(C Σ⁻¹) at fixed tr(Σ M).

    Args:
        floor: share of the mean weight that is added to every weight. λ_min(Σ) is at least floor/(1 + floor), and the
            guarantee against Euclidean neighbours ε/√λ_min(Σ).
    """
    energy = np.diag(moments.M)
    energy = np.maximum(energy, DEAD * energy.mean())
    sensitivity = np.sqrt(np.diag(moments.C) / energy)
    return relative_diagonal(sensitivity, floor=floor, owner="diagonal_concept_shape", param="moments")


def label_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return the optimal full shape with the labels' covariance B in place of the pairs' C.

    It covers the directions that distinguish single concept words, not only those between "with" and "without".
    ``floor`` is the least eigenvalue, as a share of the mean.
    """
    if moments.B is None or not moments.B.any():
        got = "no labels" if moments.B is None else "labels that explain nothing of the embeddings"
        raise InvalidInputError(
            f"label_shape needs moments of token labels, and there are {got}. Pass token_labels, or use "
            "concept_covariance_shape.",
            param="moments",
        )
    return NoiseShape.from_matrix(optimal_shape(moments.B, regularised(moments.M)), floor=floor)


def low_rank_concept_shape(moments: Moments, rank: int, floor: float = 1e-2) -> NoiseShape:
    """Return the ``rank`` leading directions of the full optimal shape, with even noise in all others.

    The others get the mean of their eigenvalues, or the floor if that is larger.

    Args:
        rank: r, 1 ≤ r ≤ n. Stretching a vector costs 2 n r operations instead of n².
        floor: minimum λ_min(Σ), in (0, 1]; the mean eigenvalue is 1, and 1 is isotropic noise.
    """
    owner = "low_rank_concept_shape"
    n = moments.M.shape[0]
    r = check_count(rank, owner=owner, param="rank", maximum=n)
    floor = check_positive(floor, owner=owner, param="floor")
    if floor > 1:
        raise InvalidInputError(f"`floor` is at most 1, not {floor:g}.", param="floor")
    eigenvalues, vectors = np.linalg.eigh(optimal_shape(moments.C, regularised(moments.M)))
    # Rounding leaves tiny negative eigenvalues of a semi-definite matrix.
    eigenvalues = np.maximum(eigenvalues, 0.0)
    mean = float(eigenvalues.mean())
    if mean == 0:
        raise _insensitive(owner, "moments")
    eigenvalues = eigenvalues / mean
    # The mean of the other eigenvalues keeps the trace; the floor keeps the worst-case guarantee.
    rest = max(floor, float(eigenvalues[: n - r].mean()) if r < n else 0.0)
    weights = np.maximum(eigenvalues[n - r :] - rest, 0.0)
    if not weights.any():  # all eigenvalues equal: isotropic noise
        rest, weights = 1.0, np.ones(r)
    return NoiseShape.from_low_rank(vectors[:, n - r :], weights, floor=rest)


def combine_shapes(shapes: Sequence[NoiseShape], weights: Sequence[float] | None = None) -> NoiseShape:
    """Return Σ = Σ_i w_i Σ_i, one shape for several concepts; the weights add up to 1, the trace is n.

    Guarantee:
        Σ - w_i Σ_i is positive semi-definite, so ‖v‖_Σ ≤ ‖v‖_{Σ_i} / √w_i for every difference v. At the same ε,
        concept i keeps its guarantee up to a factor 1/√w_i in one release. The bound is tight where no other concept's
        shape has noise.

    Args:
        shapes: one per concept, of one dimension. Diagonal shapes give a diagonal one.
        weights: w_i > 0, scaled to add up to 1; None is equal weights. A higher weight keeps more of a concept's
            guarantee, at the cost of the others.
    """
    owner = "combine_shapes"
    dimensions = sorted({shape.dimension for shape in shapes})
    if len(dimensions) != 1:
        got = f"dimensions {dimensions}" if dimensions else "none"
        raise InvalidInputError(f"`shapes` have one dimension; these have {got}.", param="shapes")
    w = np.ones(len(shapes)) if weights is None else check_numbers(weights, owner=owner, param="weights")
    if w.shape != (len(shapes),) or (w <= 0).any():
        raise InvalidInputError(f"`weights` takes one number > 0 for each of {len(shapes)} shapes.", param="weights")
    w = w / w.max()  # first, so that the sum of huge weights is finite
    w /= w.sum()
    if all(shape.is_diagonal for shape in shapes):
        # A sum of diagonals needs no (n, n) matrix; root² is the diagonal of every diagonal shape.
        roots = np.stack([np.asarray(shape.root) for shape in shapes])
        return NoiseShape(diagonal=w @ roots**2)
    total = np.zeros((dimensions[0], dimensions[0]))
    for share, shape in zip(w, shapes, strict=True):
        total += share * shape.covariance()
    # Symmetrised against rounding; the convex sum of shapes of trace n has trace n.
    return NoiseShape(matrix=(total + total.T) / 2)


Over = Literal["pairs", "sets"]


def difference_sensitivity(positive: Embeddings, negative: Embeddings, *, over: Over = "pairs") -> Vector:
    """Return Δ (n,): the largest |Φ(s⁺)_i − Φ(s⁻)_i| in each dimension i (SPARSE, Definition 7).

    Args:
        positive: (N, n) embeddings with the concept, D+.
        negative: embeddings without it, D-; row i is positive row i without the concept. With ``over="sets"`` any
            number of rows.
        over: "pairs" takes the maximum over pairs, "sets" over all of D+ × D-. The latter is never smaller and grows
            with the variety of the texts.
    """
    owner = "difference_sensitivity"
    P = check_embeddings(positive, owner=owner, param="positive", min_rows=1)
    N = check_embeddings(negative, owner=owner, param="negative", dimension=P.shape[1], min_rows=1)
    if over == "sets":
        # Over D+ × D- the maximum is the larger of max D+ − min D- and max D- − min D+: no N² pairs.
        highest, lowest = (np.stack([f(X, axis=0) for X in (P, N)]) for f in (np.max, np.min))
        spans = (highest - lowest[::-1].astype(np.float64)).max(axis=0)
        return np.asarray(spans, dtype=np.float64)
    if over != "pairs":
        raise InvalidInputError("`over` is 'pairs' or 'sets'.", param="over")
    if len(P) != len(N):
        raise InvalidInputError(
            f"`negative` has {len(N)} rows for {len(P)} positives. With over='sets' the numbers may differ.",
            param="negative",
        )
    return np.asarray(np.abs(P.astype(np.float64) - N).max(axis=0), dtype=np.float64)


def difference_shape(
    positive: Embeddings, negative: Embeddings, *, over: Over = "pairs", floor: float = 1e-2
) -> NoiseShape:
    """Return the diagonal shape Σ_ii ∝ Δ_i, with ``floor`` times the mean of Δ added to each.

    ``floor`` is as for `diagonal_concept_shape`, the other arguments as for `difference_sensitivity`.
    """
    weights = difference_sensitivity(positive, negative, over=over)
    return relative_diagonal(weights, floor=floor, owner="difference_shape", param="negative")
