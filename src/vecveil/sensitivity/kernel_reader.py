"""Kernel ridge regression as a non-linear reader of released vectors: scores, recovered share, gradients.

A search minimises what the reader recovers. The reader is closed form and needs a fraction of a second on 2,000
texts. After linear erasure it recovers more than a small neural network; it does not replace an audit.

The mean over texts of ∇f ∇fᵀ, the expected gradient outer product (Trivedi, Wang, Kpotufe and Shakhnarovich 2014),
shows the directions along which the reader's answer f changes. Recursive feature machines keep these directions
(Radhakrishnan, Beaglehole, Pandit and Belkin 2024); the concept subspace erases them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from vecveil.sensitivity.shapes import LinearMap
from vecveil.types import Embeddings, Matrix

NEAR = 0.9
"""Least cosine of near-duplicates."""
PENALTIES = (0.03, 0.1)
_BLOCK = 512


def near_duplicate_groups(X: Embeddings) -> npt.NDArray[np.intp]:
    """Return (N,) group ids: rows whose cosine is at least `NEAR` share a group, transitively.

    Cost: N² n operations, and memory for one block of rows.
    """
    rows = np.asarray(X, dtype=np.float32)
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    labels = np.arange(len(unit), dtype=np.intp)
    for start in range(0, len(unit), _BLOCK):
        block = slice(start, start + _BLOCK)
        # Only rows from the block on: earlier blocks have seen the pairs before it.
        i, j = np.nonzero(unit[block] @ unit[start:].T >= NEAR)
        # Merge the groups along this block's edges, then drop the edges: memory stays at one block
        # even if all rows are near.
        joined = (labels[block][i], labels[start:][j])
        graph = csr_matrix((np.ones(len(i), dtype=np.float32), joined), shape=(len(unit),) * 2)
        labels = connected_components(graph, directed=False)[1].astype(np.intp)[labels]
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.intp)


def _squared_distances(A: Embeddings, B: Embeddings) -> Embeddings:
    squares = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2 * (A @ B.T)
    # ‖a‖² + ‖b‖² − 2ab cancels for near rows and may fall below 0.
    return np.asarray(np.maximum(squares, 0))


def kernel_ridge_path(
    learnt: Sequence[Embeddings], L: npt.NDArray[Any], judged: Embeddings
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield scores (M, V) of labels for each of `PENALTIES`: kernel ridge, a Gaussian kernel of median width.

    ``learnt`` holds one or several releases (N, m) of the same texts, with labels (N, V). The kernel of two texts is
    the mean over their releases: that is the ridge regression on all releases, at the cost of N rows.

    Cost: N³/3 operations per penalty and 2 N² float32 of memory.
    """
    kernel, across = _mean_kernels(learnt, judged)
    base = L.mean(axis=0, dtype=np.float64).astype(np.float32)
    targets = L.astype(np.float32) - base
    # Each penalty writes the diagonal in place: a copy of the kernel per penalty would cost N².
    own = kernel[np.diag_indices_from(kernel)]
    for penalty in PENALTIES:
        kernel[np.diag_indices_from(kernel)] = own + np.float32(penalty)
        factor = linalg.cho_factor(kernel, lower=True, check_finite=False)
        coefficients = linalg.cho_solve(factor, targets, check_finite=False)
        yield np.asarray(across @ coefficients + base)


def kernel_ridge_left_out(
    learnt: Sequence[Embeddings], L: npt.NDArray[Any], judged: Embeddings, groups: npt.NDArray[Any]
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield scores (N, V) for each of `PENALTIES`: of each text of ``judged`` by the regression on the other groups.

    ``judged`` is one more release of the texts of ``learnt``. Without the rows g the coefficients are
    α − H_{:g} (H_gg)⁻¹ α_g, with H = (K + λI)⁻¹ and α = H L of all rows: no second fit.

    Cost: N³ operations per penalty and 3 N² float32 of memory.
    """
    kernel, across = _mean_kernels(learnt, judged)
    base = L.mean(axis=0, dtype=np.float64).astype(np.float32)
    targets = L.astype(np.float32) - base
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    several = [rows for rows in np.split(order, np.cumsum(counts)[:-1]) if len(rows) > 1]
    identity = np.eye(len(kernel), dtype=np.float32)
    for penalty in PENALTIES:
        factor = linalg.cho_factor(kernel + np.float32(penalty) * identity, lower=True, check_finite=False)
        inverse = linalg.cho_solve(factor, identity, check_finite=False)
        weights = inverse @ targets
        scores = across @ weights
        own = np.einsum("ij,ji->i", across, inverse) / np.diagonal(inverse)
        left_out = scores - own[:, None] * weights
        for rows in several:
            change = np.linalg.solve(inverse[np.ix_(rows, rows)], weights[rows])
            left_out[rows] = scores[rows] - (across[rows] @ inverse[:, rows]) @ change
        yield np.asarray(left_out + base)


def _mean_kernels(learnt: Sequence[Embeddings], judged: Embeddings) -> tuple[Embeddings, Embeddings]:
    """Return the kernel (N, N) of the learnt texts, and (M, N) of the judged and the learnt ones.

    Each is the mean of exp(−‖a − b‖²/w) over releases; w is the median of the squared distances of the first ones.
    """
    mean = np.asarray(learnt[0], dtype=np.float32).mean(axis=0)
    # Centring changes no distance, but float32 products of centred rows lose fewer digits.
    rows = [np.asarray(Y, dtype=np.float32) - mean for Y in learnt]
    seen = np.asarray(judged, dtype=np.float32) - mean
    width = max(float(np.median(_squared_distances(rows[0], rows[0]))), 1e-12)

    def between(A: Embeddings, B: Embeddings) -> Embeddings:
        return np.asarray(np.exp(-_squared_distances(A, B) / width))

    kernel = np.zeros((len(rows[0]), len(rows[0])), dtype=np.float32)
    across = np.zeros((len(seen), len(rows[0])), dtype=np.float32)
    for i, A in enumerate(rows):
        across += between(seen, A)
        kernel += between(A, A)
        for B in rows[:i]:
            # The kernel of B and A is the transpose.
            half = between(A, B)
            kernel += half
            kernel += half.T
    return kernel / np.float32(len(rows) ** 2), across / np.float32(len(rows))


def share_recovered(scores: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """Return R-precision over tokens: of the k labels of a row, the share among its k best scores.

    With one column (with or without the concept): the area under the ROC curve, or one minus it if that is
    larger, because an attacker can invert the answer. Ties count as their expectation under random order.
    """
    marks = np.asarray(labels, dtype=bool)
    if marks.shape[1] == 1:
        positive, negative = scores[marks[:, 0], 0], scores[~marks[:, 0], 0]
        if positive.size == 0 or negative.size == 0:
            return 0.5
        order = np.sort(negative)
        # Mann-Whitney: the area is the share of (positive, negative) pairs in the right order.
        below, upto = (np.searchsorted(order, positive, side=side) for side in ("left", "right"))
        area = float((below + upto).mean() / 2 / negative.size)  # a tie counts half
        return max(area, 1 - area)
    held = int(marks.sum())
    return float(labels_recovered(scores, marks).sum() / held) if held else 0.0


def labels_recovered(scores: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return (N,) how many of the k labels of each row are among its k best scores."""
    marks = np.asarray(labels, dtype=bool)
    recovered = np.zeros(len(marks))
    holding = marks.any(axis=1)
    marks, scores, held = marks[holding], np.asarray(scores)[holding], marks[holding].sum(axis=1)
    if not held.size:
        return recovered
    # The k-th best score of each row; ties with it share the places that are left.
    last = np.take_along_axis(-np.sort(-scores, axis=1), held[:, None] - 1, axis=1)
    above, tied = scores > last, scores == last
    places = (held - above.sum(axis=1)) / tied.sum(axis=1)  # share of each tied label
    recovered[holding] = (marks & above).sum(axis=1) + (marks & tied).sum(axis=1) * places
    return recovered


def standard_error(share: float, labels: npt.NDArray[Any]) -> float:
    """Return the standard error of ``share_recovered`` on ``labels`` (N, V).

    Binomial in the number of labels; for one column that of an area under the ROC curve (Hanley and McNeil 1982).
    """
    marks = np.asarray(labels, dtype=bool)
    held, rest = int(marks.sum()), int((~marks).sum())
    spread = share * (1 - share)
    if marks.shape[1] > 1:
        return float(np.sqrt(spread / max(held, 1)))
    if held == 0 or rest == 0:
        return 0.0
    # Q1 and Q2 of Hanley and McNeil: two positives against one negative, and the reverse.
    two_positive = share / (2 - share) - share**2
    two_negative = 2 * share**2 / (1 + share) - share**2
    squared = spread + (held - 1) * two_positive + (rest - 1) * two_negative
    return float(np.sqrt(max(squared, 0.0) / (held * rest)))


# -- the directions along which a reader's answer changes

READER_ROWS = 2500
GRADIENT_ROWS = 800
READER_NOISE = 0.2
"""Noise-to-signal ratio of the releases that the reader learns from: without noise it would use directions
that any release drowns in noise."""
SHARPNESS, PENALTY = 1.5, 0.3
"""Kernel rate in units of 1/median distance, and ridge."""
COMPONENTS = 40
"""Leading singular directions of the reader's weights: hundreds of labels depend on few combinations."""


def gradient_moment(Y: Embeddings, L: npt.NDArray[Any]) -> Matrix:
    """Return G = mean over rows of Σ_v ∇f_v ∇f_vᵀ, (m, m) float64, f the kernel reader of labels ``L`` (N, V).

    f_v(y) = Σ_i c_iv k(y, y_i) with k(y, y′) = exp(−1.5 ‖y − y′‖²/median), so with ρ = 1.5/median
    ∇f_v(y) = −2ρ Σ_i c_iv k(y, y_i)(y − y_i). Gradients are taken at the first `GRADIENT_ROWS` rows, along the first
    `COMPONENTS` singular directions of c.

    Cost: N³/3 operations, and `COMPONENTS`·`GRADIENT_ROWS`·N·m.
    """
    A = np.asarray(Y, dtype=np.float32)
    A = A - A.mean(axis=0)
    between = _squared_distances(A, A)
    # A median over 700 rows is close enough, without a sort of N² values.
    rate = np.float32(SHARPNESS / max(float(np.median(between[:700, :700])), 1e-12))
    kernel = np.exp(-rate * between)
    targets = np.asarray(L, dtype=np.float32)
    targets = targets - targets.mean(axis=0)
    regularised = kernel.copy()
    regularised[np.diag_indices_from(regularised)] += np.float32(PENALTY)
    factor = linalg.cho_factor(regularised, lower=True, overwrite_a=True, check_finite=False)
    weights = linalg.cho_solve(factor, targets, check_finite=False)
    # Σ_v ∇f_v ∇f_vᵀ does not change when the labels are rotated, so the SVD of c replaces hundreds of
    # columns by the few that carry the sum.
    left, singular, _ = np.linalg.svd(weights, full_matrices=False)  # right factors rotate the labels
    weights = left[:, :COMPONENTS] * singular[:COMPONENTS]
    at, near = A[:GRADIENT_ROWS], kernel[:GRADIENT_ROWS]
    total = np.zeros((A.shape[1], A.shape[1]))
    for column in weights.T:
        shares = near * column
        # Σ_i c_i k(y, y_i)(y − y_i) as two products, without an array of all differences.
        gradient = shares.sum(axis=1)[:, None] * at - shares @ A
        total += np.asarray(gradient.T @ gradient, dtype=np.float64)
    # The factor −2ρ of each gradient, squared.
    moment: Matrix = total * (2 * float(rate)) ** 2 / len(at)
    return moment


def reader_gradients(X: Embeddings, L: npt.NDArray[Any], linear: LinearMap, *, seed: int) -> Matrix:
    """Return TᵀGT (n, n): `gradient_moment` of a reader of releases of ``X`` through T, in the space of ``X``.

    The gradient of f(Tx) with respect to x is Tᵀ∇f. The reader learns labels ``L`` (N, V) from 2,500 rows of ``X``,
    drawn with ``seed`` and released with some noise.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))[:READER_ROWS]
    clean = np.asarray(X, dtype=np.float32)[rows]
    noise = rng.standard_normal(clean.shape, dtype=np.float32)
    # Deviation per coordinate for which the noise has this share of the rows' norm.
    spread = READER_NOISE * float(np.sqrt((clean**2).sum(axis=1).mean() / clean.shape[1]))
    # The reduced form has the same distances in fewer coordinates.
    Y = linear.apply(clean + np.float32(spread) * noise, reduced=True)
    moment: Matrix = linear.down.T @ gradient_moment(Y, L[rows]) @ linear.down
    return moment
