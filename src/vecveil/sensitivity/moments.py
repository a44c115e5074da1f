"""Second moments that the closed-form shapes and maps are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vecveil.types import Embeddings, Matrix, TokenLabels, Vector

__all__ = ["Moments", "between_label_covariance", "covariance", "pair_covariance", "second_moment"]

RIDGE = 1e-3
"""Added to K as a share of its mean eigenvalue: encoders have dead dimensions, K alone is singular."""

LABEL_RIDGE = 1e-5
"""Added to Cov(L), so that labels that always occur together do not make it singular."""


def covariance(X: Embeddings) -> Matrix:
    """Return the centred covariance of the rows of ``X`` (N, n), in float64."""
    rows = np.asarray(X, dtype=np.float64)
    centred = rows - rows.mean(axis=0)
    matrix: Matrix = centred.T @ centred / len(rows)
    return matrix


def pair_covariance(positive: Embeddings, negative: Embeddings) -> Matrix:
    """Return C = mean over pairs of (Φ(s⁺) − Φ(s⁻))(Φ(s⁺) − Φ(s⁻))ᵀ, an (n, n) float64 array."""
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    return second_moment(differences)


def second_moment(X: Embeddings) -> Matrix:
    """Return the uncentred mean of x xᵀ over the rows of ``X`` (N, n), in float64."""
    rows = np.asarray(X, dtype=np.float64)
    matrix: Matrix = rows.T @ rows / len(rows)
    return matrix


def between_label_covariance(X: Embeddings, labels: TokenLabels) -> Matrix:
    """Return B = Cov(Φ, L)(Cov(L) + 1e-5·I)⁻¹ Cov(L, Φ): what the labels explain linearly of ``X``."""
    rows = np.asarray(X, dtype=np.float64)
    marks = np.asarray(labels, dtype=np.float64)
    rows = rows - rows.mean(axis=0)
    marks = marks - marks.mean(axis=0)
    cross = rows.T @ marks / len(rows)
    within = marks.T @ marks / len(rows) + LABEL_RIDGE * np.eye(marks.shape[1])
    matrix: Matrix = cross @ np.linalg.solve(within, cross.T)
    return matrix


@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """What a closed-form fit needs to know of the user's texts, and no single text of them.

    Attributes:
        K: covariance of embeddings, half from concept-bearing, half from ordinary texts, plus a
            ridge.
        M: uncentred second moment E[ΦΦᵀ] of the same mixture (no ridge).
        C: pair covariance.
        B: between-label covariance, or None without token labels.
        mean: mean embedding of the same mixture, (n,).
        rms_norm: root mean square Euclidean norm of the embeddings.
    """

    K: Matrix
    M: Matrix
    C: Matrix
    B: Matrix | None
    mean: Vector
    rms_norm: float

    def __repr__(self) -> str:
        labels = "without" if self.B is None else "with"
        return f"Moments(n={self.K.shape[0]}, {labels} token labels)"

    @classmethod
    def of(
        cls,
        positive: Embeddings,
        negative: Embeddings,
        *,
        token_labels: TokenLabels | None = None,
        background: Embeddings | None = None,
    ) -> Moments:
        """Return the moments of pairs (N, n), labels (N, V) and ordinary texts (K, n).

        Without ``background`` the negatives stand in for ordinary texts.
        """
        ordinary = negative if background is None or len(background) < 2 else background
        K = (covariance(positive) + covariance(ordinary)) / 2
        means = [np.mean(X, axis=0, dtype=np.float64) for X in (positive, ordinary)]
        M = (second_moment(positive) + second_moment(ordinary)) / 2
        n = K.shape[0]
        K = K + RIDGE * np.trace(K) / n * np.eye(n)
        B = None
        if token_labels is not None and token_labels.shape[1] > 0:
            B = between_label_covariance(positive, token_labels)
        return cls(
            K=K,
            M=M,
            C=pair_covariance(positive, negative),
            B=B,
            mean=np.asarray((means[0] + means[1]) / 2, dtype=np.float64),
            rms_norm=float(np.sqrt(np.trace(M))),
        )
