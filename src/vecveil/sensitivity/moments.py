"""Second moments of a fit's texts, from which the closed-form shapes and maps are computed.

Transplanted pairs can be added: Φ(t⁻) + Φ(s⁺) − Φ(s⁻), at the norm of Φ(s⁺), stands for text t with the concept
words of s. Texts hold each word in few contexts; an erasure fitted on those leaves the word's effect in other
contexts, which `vecveil.attacks.TransplantAttack` recovers. Transplants erase it where words and contexts combine
freely, as in texts from templates. On natural sentences they erase less of the concept, so they are off by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vecveil.concepts.pairs import WordMarks
from vecveil.types import Embeddings, Matrix, TokenLabels, Vector

RIDGE = 1e-3
"""Least weight of tr(K)/n·I in K: encoders have dead dimensions, which make the covariance singular."""


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

    Each label counts by itself. A regression on all labels together would fit hundreds of labels to some thousand
    texts, and erase its own error. Here the sampling error of every label has the covariance K/N: in the metric
    of K it is the same in all directions and changes none.

    Args:
        parts: rows (N, n) and labels (N, V), 0/1, an array or a sparse matrix. Each part is centred by itself, as in K:
            that texts of one part hold a word and those of another do not tells the parts apart, not the words.
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
    # A label that all texts hold, or none, says nothing.
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
    well-conditioned estimator for large-dimensional covariance matrices", with general weights in place of
    1/N). It falls as 1/N. ``parts`` holds the rows (N, n) and covariance of each part; K is their mean.
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
    """Second moments of the user's texts, from which no single text can be read.

    Attributes:
        K: covariance of embeddings, half from concept-bearing, half from ordinary texts, shrunk by `shrinkage`.
        M: uncentred second moment E[ΦΦᵀ] of the same mixture, without ridge.
        C: pair covariance.
        B: between-label covariance, or None without token labels.
        mean: (n,) mean embedding of the same mixture.
        rms_norm: root mean square norm of the embeddings.
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

        Without ``background`` the negatives replace ordinary texts, and without negatives the texts themselves.
        Labels without pairs have no ``negative``: C is then 0.
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
"""Target number of rows with transplants, and most copies of one pair."""


def transplanted_moments(
    positive: Embeddings, negative: Embeddings, labels: TokenLabels | None, background: Embeddings | None, *, seed: int
) -> Moments:
    """Return the moments of real and transplanted pairs together; arguments as in `Moments.of`.

    Each pair is the source of equally many transplants. They fill up to `ENOUGH` rows, but number at least as many as
    the pairs and at most `MOST_COPIES` times as many.
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
