"""The concept subspace: moments of the texts, directions to erase, the map, and the attacker that compares maps.

An oblique erasure removes the concept's directions. After linear erasure (Belrose et al. 2023, LEACE) no linear
attacker on the erased labels beats chance on the fitted sample. Truncation removes directions of low variance, which
contain most of the non-linear rest, and flattening evens out the others, which regains utility. The directions that a
non-linear attacker uses can be erased after the labels' directions.

Transplanted pairs, Φ(t⁻) + Φ(s⁺) − Φ(s⁻) at the norm of Φ(s⁺), stand for text t with the concept words of s. They
counter `vecveil.attacks.TransplantAttack` where words and contexts combine freely, as in texts from templates. On
natural sentences they erase less of the concept, so they are off by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse

from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts.pairs import WordMarks
from vecveil.privacy.sensitivity.shapes import LinearMap
from vecveil.types import Embeddings, Matrix, TokenLabels, Vector
from vecveil.validation import check_count, check_positive, connected_groups

RIDGE = 1e-3
"""Minimum weight of tr(K)/n·I in K: encoders have dead dimensions, which make the covariance singular."""


def matrix_root(matrix: Matrix, power: float = 0.5) -> Matrix:
    """Return a real power of a symmetric positive (semi-)definite matrix."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    if power < 0:
        # Rounding leaves eigenvalues of about 0, which a negative power would blow up.
        eigenvalues = np.maximum(eigenvalues, 1e-12 * eigenvalues[-1])
    result: Matrix = (vectors * eigenvalues**power) @ vectors.T
    return result


def covariance(X: Embeddings) -> Matrix:
    """Return the centred covariance of ``X`` (N, n) in float64."""
    rows = np.asarray(X, dtype=np.float64)
    # Centre first: E xxᵀ − μμᵀ would cancel where the mean is large.
    centred = rows - rows.mean(axis=0)
    matrix: Matrix = centred.T @ centred / len(rows)
    return matrix


def pair_covariance(positive: Embeddings, negative: Embeddings) -> Matrix:
    """Return C = mean over pairs of (Φ(s⁺) − Φ(s⁻))(Φ(s⁺) − Φ(s⁻))ᵀ, (n, n) float64."""
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    return second_moment(differences)


def second_moment(X: Embeddings) -> Matrix:
    """Return the uncentred mean of x xᵀ over the rows of ``X`` (N, n) in float64."""
    rows = np.asarray(X, dtype=np.float64)
    matrix: Matrix = rows.T @ rows / len(rows)
    return matrix


def between_label_covariance(
    parts: Sequence[tuple[Embeddings, Any]], weights: npt.NDArray[np.float64] | None = None
) -> Matrix:
    """Return B = Σ_v w_v Cov(Φ, l_v) Cov(l_v, Φ) / Var(l_v), (n, n) float64, within the parts.

    Each label counts by itself: a joint regression would fit hundreds of labels to some thousand texts, and erase its
    own error. Here the sampling error of every label has the covariance K/N, which changes no direction in the metric
    of K.

    Args:
        parts: rows (N, n) and labels (N, V), 0/1, an array or a sparse matrix. Each part is centred by itself, as in K:
            a word in one part's texts only distinguishes the parts, not the words.
        weights: (V,) at least 0; None is 1 for all.
    """
    total = sum(len(X) for X, _ in parts)
    cross, spread = np.zeros(()), np.zeros(())
    for X, labels in parts:
        rows = np.asarray(X, dtype=np.float64)
        marks = sparse.csc_matrix(labels, dtype=np.float64)
        share = np.asarray(marks.mean(axis=0)).ravel()
        # Centred rows sum to zero, so the marks need no centring.
        cross = cross + np.asarray(marks.T @ (rows - rows.mean(axis=0))) / total
        spread = spread + share * (1 - share) * len(rows) / total
    gain = np.ones(len(spread)) if weights is None else weights
    # A label that all texts contain, or none, says nothing.
    gain = np.divide(gain, spread, out=np.zeros(len(spread)), where=spread > 0)
    scaled = cross * np.sqrt(gain)[:, None]
    matrix: Matrix = scaled.T @ scaled
    return matrix


def cross_covariance(X: Embeddings, labels: TokenLabels) -> Matrix:
    """Return Cov(Φ, L), (n, V) float64."""
    rows = np.asarray(X, dtype=np.float64)
    marks = np.asarray(labels, dtype=np.float64)
    matrix: Matrix = (rows - rows.mean(axis=0)).T @ (marks - marks.mean(axis=0)) / len(rows)
    return matrix


def shrinkage(K: Matrix, parts: Sequence[tuple[Embeddings, Matrix]]) -> float:
    """Return ρ in [0, 1] for which (1 − ρ) K + ρ tr(K)/n·I is closest to the true covariance.

    ρ = Σ_t w_t² ‖x_t x_tᵀ − K‖² / ‖K − tr(K)/n·I‖², w_t the weight of row t in K (Ledoit and Wolf 2004, "A
    well-conditioned estimator for large-dimensional covariance matrices", with general weights in place of 1/N).
    ``parts`` contains the rows (N, n) and covariance of each part; K is their mean.
    """
    # ‖K − tr(K)/n·I‖² = ‖K‖² − tr(K)²/n.
    squares = float((K**2).sum())
    spread = squares - float(np.trace(K)) ** 2 / len(K)
    error = 0.0
    for X, own in parts:
        rows = np.asarray(X, dtype=np.float64)
        norms = np.einsum("ij,ij->i", rows, rows)
        mean = rows.mean(axis=0)
        norms += mean @ mean - 2 * (rows @ mean)  # ‖x − μ‖² without a centred copy
        # Mean over rows of ‖x xᵀ − K‖² = ‖x‖⁴ − 2 xᵀKx + ‖K‖², without forming any x xᵀ.
        error += (float((norms**2).mean()) - 2 * float((K * own).sum()) + squares) / len(rows)
    error /= len(parts) ** 2
    return min(1.0, error / spread) if spread > 0 else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Second moments of the user's texts, which reveal no single text.

    Attributes:
        K: covariance of embeddings, half from concept-bearing, half from ordinary texts, shrunk by `shrinkage`.
        M: uncentred second moment E[ΦΦᵀ] of the same mixture, without ridge.
        C, B: pair covariance, and between-label covariance or None without token labels.
        mean, rms_norm: (n,) mean embedding of the same mixture, and root mean square norm.
        preserved: Cov(Φ, task), (n, c), of a task whose covariance no erasure may change, or None.
    """

    K: Matrix
    M: Matrix
    C: Matrix
    B: Matrix | None
    mean: Vector
    rms_norm: float
    preserved: Matrix | None = None

    def __repr__(self) -> str:
        labels = "without" if self.B is None else "with"
        return f"Moments(n={self.K.shape[0]}, {labels} token labels)"

    @classmethod
    def of(
        cls,
        positive: Embeddings,
        negative: Embeddings | None,
        *,
        token_labels: TokenLabels | None = None,
        background: Embeddings | None = None,
        words: WordMarks | None = None,
    ) -> Moments:
        """Return the moments of pairs (N, n), labels (N, V) and ordinary texts (K, n).

        ``words`` marks the words of the positives and, after them, of the ordinary texts; they add to the labels in B.
        Without ``background`` the negatives replace ordinary texts, and without negatives the texts themselves. Labels
        without pairs have no ``negative``: C is then 0.
        """
        ordinary = negative if background is None or len(background) < 2 else background
        ordinary = positive if ordinary is None else ordinary
        parts = [(X, covariance(X)) for X in (positive, ordinary)]
        K = sum((own for _, own in parts), np.zeros_like(parts[0][1])) / len(parts)
        means = [np.mean(X, axis=0, dtype=np.float64) for X in (positive, ordinary)]
        M = (second_moment(positive) + second_moment(ordinary)) / 2
        n = K.shape[0]
        # On few texts K has almost no variance in most directions, and an oblique erasure multiplies other
        # texts by its inverse. Many texts need no shrinkage, but dead dimensions always need the ridge.
        share = max(RIDGE, shrinkage(K, parts))
        K = (1 - share) * K + share * np.trace(K) / n * np.eye(n)
        B = None
        if token_labels is not None and token_labels.shape[1] > 0:
            B = between_label_covariance([(positive, token_labels)])
        if words is not None and len(words):
            marked = [(positive, words.marks[: len(positive)])]
            if background is not None:
                marked.append((background, words.marks[len(positive) :]))
            of_words = between_label_covariance(marked, words.weights)
            B = of_words if B is None else B + of_words
        return cls(
            K=K,
            M=M,
            C=np.zeros_like(K) if negative is None else pair_covariance(positive, negative),
            B=B,
            mean=np.asarray((means[0] + means[1]) / 2, dtype=np.float64),
            rms_norm=float(np.sqrt(np.trace(M))),
        )


ENOUGH, MOST_COPIES = 8000, 8
"""Target number of rows with transplants, and maximum number of copies of one pair."""


def transplanted_moments(
    positive: Embeddings, negative: Embeddings, labels: TokenLabels | None, background: Embeddings | None, *, seed: int
) -> Moments:
    """Return the moments of real and transplanted pairs together; arguments as in `Moments.of`.

    Each pair is the source of equally many transplants, at least one and at most `MOST_COPIES`, up to `ENOUGH` rows.
    """
    rows = len(positive)
    # Few pairs get many copies, many pairs one each, so that the cost stays bounded.
    copies = int(np.clip(-(-(ENOUGH - rows) // rows), 1, MOST_COPIES))
    rng = np.random.default_rng(seed)
    source = np.tile(np.arange(rows), copies)
    target = np.concatenate([rng.permutation(rows) for _ in range(copies)])
    moved = negative[target] + (positive[source] - negative[source])
    length = np.maximum(np.linalg.norm(moved, axis=1), 1e-12)
    # At the norm of the source: most encoders normalise, and no other norm occurs.
    moved *= (np.linalg.norm(positive[source], axis=1) / length)[:, None]
    return Moments.of(
        np.concatenate([positive, moved.astype(positive.dtype)]),
        np.concatenate([negative, negative[target]]),
        token_labels=None if labels is None else np.concatenate([labels, labels[source]]),
        background=negative if background is None else background,
    )


# -- the concept's directions and the map that erases them


@dataclass(frozen=True, eq=False, repr=False)
class ConceptDirections:
    """All generalised eigenvectors of (concept covariance, K), strongest first.

    Attributes:
        vectors: (n, n), K-orthonormal columns V: Vᵀ K V = I.
        strengths: (n,) eigenvalues, descending: the share of variance that the concept explains. `followed_by` reorders
            the later ones.
        K: covariance that defines the metric.
        spared: number of last directions, which a task needs and which are never erased.
    """

    vectors: Matrix
    strengths: Vector
    K: Matrix
    spared: int = 0

    def __repr__(self) -> str:
        return f"ConceptDirections(n={len(self.K)})"

    def erasure(self, count: int) -> Matrix:
        """Return P = I − W (VᵀW)⁻¹ Vᵀ with W = K V, for the ``count`` strongest directions.

        P W = 0 and Vᵀ P = 0. P is oblique: after an orthogonal projection on V, an attacker could recover the concept
        from correlated directions.
        """
        V = self.vectors[:, :count]
        # VᵀW = VᵀKV = I, so there is nothing to invert.
        P: Matrix = np.eye(len(self.K)) - (self.K @ V) @ V.T
        return P

    def remaining(self, count: int) -> tuple[Vector, Matrix]:
        """Return the eigenvalues, descending, and eigenvectors of the covariance P K Pᵀ that an erasure leaves.

        The last result is cached: a search tries several maps with one number of erased directions.
        """
        if count not in self._remaining:
            W = self.K @ self.vectors[:, :count]
            # VᵀKV = I, so P K Pᵀ = K − W Wᵀ.
            eigenvalues, vectors = np.linalg.eigh(self.K - W @ W.T)
            self._remaining.clear()
            self._remaining[count] = (eigenvalues[::-1], vectors[:, ::-1])
        return self._remaining[count]

    @cached_property
    def _remaining(self) -> dict[int, tuple[Vector, Matrix]]:
        return {}

    def residual(self, count: int) -> float:
        """Return the share of the concept's strength that remains after erasing ``count`` directions."""
        total = float(self.strengths.sum())
        return float(self.strengths[count:].sum()) / total if total > 0 else 0.0

    def followed_by(self, gradients: Matrix, *, after: int) -> ConceptDirections:
        """Return the ``after`` strongest directions, then those along which an attacker's answer changes most.

        In coordinates c with x = K V c, whose covariance is I, a gradient g becomes VᵀKg: the later directions are
        rotated to the eigenvectors of (KV)ᵀ G (KV) among them, largest first. The i-th eigenvalue is the variance that
        a first-order attacker gets from direction i. ``gradients`` is G (n, n), the mean outer product of the
        attacker's gradients, in the space of ``K``.
        """
        end = len(self.K) - self.spared
        later = self.vectors[:, after:end]
        back = self.K @ later
        moment = back.T @ gradients @ back
        # Symmetrised against rounding: eigh reads one triangle only.
        turn = np.linalg.eigh((moment + moment.T) / 2)[1][:, ::-1]
        return ConceptDirections(
            # A rotation of K-orthonormal columns keeps them K-orthonormal, so `erasure` stays valid.
            vectors=np.concatenate([self.vectors[:, :after], later @ turn, self.vectors[:, end:]], axis=1),
            strengths=np.concatenate(
                [self.strengths[:after], self.strengths[after:end] @ turn**2, self.strengths[end:]]
            ),
            K=self.K,
            spared=self.spared,
        )


def concept_directions(moments: Moments) -> ConceptDirections:
    """Return the directions of B/tr(K⁻¹B) + C/tr(K⁻¹C), labels and pairs, or of either alone.

    With ``moments.preserved`` all directions but the last satisfy Vᵀ Cov(Φ, task) = 0, so an erasure changes no
    covariance with the task.
    """
    # Whitening by K^{-1/2} turns the generalised eigenproblem into a symmetric one.
    whiten = matrix_root(moments.K, -0.5)
    target = np.zeros_like(moments.K)
    for part in (moments.B, moments.C):
        if part is not None:
            whitened = whiten @ part @ whiten
            trace = float(np.trace(whitened))
            if trace > 0:
                # Each part counts with trace 1: B and C have different units.
                target += whitened / trace
    if not target.any():
        raise InvalidInputError(
            "Removing the concept changed no embedding, so there is no direction to erase.", param="positive"
        )
    if moments.preserved is not None:
        return _beside_task(whiten, target, moments)
    strengths, rotation = np.linalg.eigh((target + target.T) / 2)
    return ConceptDirections(
        vectors=(whiten @ rotation)[:, ::-1], strengths=np.maximum(strengths[::-1], 0.0), K=moments.K
    )


def _beside_task(whiten: Matrix, target: Matrix, moments: Moments) -> ConceptDirections:
    """Return the eigenvectors of ``target`` orthogonal to K^{-1/2} Cov(Φ, task), then a basis of that."""
    basis, sizes, _ = np.linalg.svd(whiten @ moments.preserved)
    # The columns of classes sum to zero, so one of them is rounding error.
    count = int((sizes > 1e-6 * sizes[0]).sum())
    task, others = basis[:, :count], basis[:, count:]
    within = others.T @ target @ others
    strengths, rotation = np.linalg.eigh((within + within.T) / 2)
    held = np.diag(task.T @ target @ task)
    return ConceptDirections(
        vectors=whiten @ np.concatenate([(others @ rotation)[:, ::-1], task], axis=1),
        strengths=np.maximum(np.concatenate([strengths[::-1], held]), 0.0),
        K=moments.K,
        spared=count,
    )


def subspace_map(
    directions: ConceptDirections, *, erased: int, kept: int | None = None, flattening: float = 0.0
) -> LinearMap:
    """Return T: erase ``erased`` concept directions, keep the ``kept`` leading others, flatten, rescale to equal tr K.

    Args:
        erased: k, number of concept directions, 0 ≤ k < n and ≤ n − spared; more hide more and cost more utility.
        kept: m, number of principal directions of P K Pᵀ to release; None keeps all n − k.
        flattening: p ≥ 0; direction i is scaled by (λ_i/λ_1)^{-p/2}: 0 keeps the spectrum, 1 whitens.
    """
    owner = "subspace_map"
    n = directions.K.shape[0]
    most = n - max(1, directions.spared)
    k = check_count(erased, owner=owner, param="erased", minimum=0, maximum=most)
    m = n - k
    if kept is not None:
        m = check_count(kept, owner=owner, param="kept", minimum=1, maximum=n - k)
    p = check_positive(flattening, owner=owner, param="flattening", allow_zero=True)
    eigenvalues, vectors = directions.remaining(k)
    top = eigenvalues[:m]
    U = vectors[:, :m]
    # A direction without variance would get an infinite scale.
    scale = (np.maximum(top, 1e-12 * top[0]) / top[0]) ** (-p / 2)
    scale *= np.sqrt(np.trace(directions.K) / (scale**2 * top).sum())
    V = directions.vectors[:, :k]
    # UᵀP without forming P: few of many directions are erased.
    down = scale[:, None] * (U.T - (U.T @ (directions.K @ V)) @ V.T)
    return LinearMap(down=down, up=np.ascontiguousarray(U))


# -- kernel ridge regression as a non-linear attacker on released vectors

# A search minimises what it recovers. It is closed form and needs a fraction of a second on 2,000 texts. After linear
# erasure it recovers more than a small neural network; it does not replace an audit.

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
        labels = connected_groups(labels[block][i], labels[start:][j], len(unit))[labels]
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.intp)


def _squared_distances(A: Embeddings, B: Embeddings) -> Embeddings:
    squares = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1) - 2 * (A @ B.T)
    # ‖a‖² + ‖b‖² − 2ab cancels for near rows and may fall below 0.
    return np.asarray(np.maximum(squares, 0))


def kernel_ridge_path(
    learnt: Sequence[Embeddings], L: npt.NDArray[Any], judged: Embeddings
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield scores (M, V) of labels for each of `PENALTIES`: kernel ridge, a Gaussian kernel of median width.

    ``learnt`` contains one or several releases (N, m) of the same texts, with labels (N, V). The kernel of two texts is
    the mean over their releases, which equals a ridge regression on all releases.

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

    ``judged`` is one more release of the texts of ``learnt``. Without the rows g the coefficients are α − H_{:g}
    (H_gg)⁻¹ α_g, with H = (K + λI)⁻¹ and α = H L of all rows.

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
    """Return kernels (N, N) of learnt texts and (M, N) of judged with learnt ones, averaged over releases."""
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

    For one column: the area under the ROC curve, or its complement if that is larger, because an attacker can invert
    the answer. Ties count as their expectation under random order.
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
    """Return the standard error of `share_recovered`: binomial, or for one column Hanley and McNeil's (1982)."""
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


# -- the directions along which the attacker's answer changes

# The mean over texts of ∇f ∇fᵀ, the expected gradient outer product (Trivedi, Wang, Kpotufe and Shakhnarovich 2014),
# shows the directions along which the answer f changes. Recursive feature machines keep these directions
# (Radhakrishnan, Beaglehole, Pandit and Belkin 2024); the concept subspace erases them.

READER_ROWS = 2500
GRADIENT_ROWS = 800
READER_NOISE = 0.2
"""Noise-to-signal ratio of the attacker's training releases, without which it would use faint directions."""
SHARPNESS, PENALTY = 1.5, 0.3
"""Kernel rate in units of 1/median distance, and ridge."""
COMPONENTS = 40
"""Leading singular directions of the attacker's weights: hundreds of labels depend on few combinations."""


def gradient_moment(Y: Embeddings, L: npt.NDArray[Any]) -> Matrix:
    """Return G = mean over rows of Σ_v ∇f_v ∇f_vᵀ, (m, m) float64, f the kernel attacker of labels ``L`` (N, V).

    f_v(y) = Σ_i c_iv k(y, y_i) with k(y, y′) = exp(−1.5 ‖y − y′‖²/median), so with ρ = 1.5/median ∇f_v(y) = −2ρ Σ_i
    c_iv k(y, y_i)(y − y_i). Gradients are taken at the first `GRADIENT_ROWS` rows, along the first `COMPONENTS`
    singular directions of c.

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
    """Return TᵀGT (n, n): `gradient_moment` of an attacker of releases of ``X`` through T, in the space of ``X``.

    The attacker learns labels ``L`` (N, V) from 2,500 rows of ``X``, drawn with ``seed`` and released with some noise.
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
