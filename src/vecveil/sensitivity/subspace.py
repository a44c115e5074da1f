"""The concept subspace: erase the concept's directions, truncate, flatten.

After linear erasure (Belrose et al. 2023, LEACE) no linear reader of the erased labels beats chance on the
fitted sample. The rest is non-linear and lies mostly in directions of low variance: truncation removes these,
and flattening evens out the others, which regains utility. The directions that a non-linear reader uses can be
erased after those of the labels.

Two projections erase W = K V. The oblique one keeps what the rest of a vector predicts of the erased part, so it
distorts vectors least, but it multiplies noise. The orthogonal one does not, and keeps more of the neighbours where
there is much noise. Each is a function of the other, so before truncation a release tells the same through both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.sensitivity.moments import Moments, matrix_root
from vecveil.sensitivity.shapes import LinearMap
from vecveil.types import Matrix, Vector
from vecveil.validation import check_count, check_positive


@dataclass(frozen=True, eq=False, repr=False)
class ConceptDirections:
    """All generalised eigenvectors of (concept covariance, K), strongest first.

    Attributes:
        vectors: (n, n), K-orthonormal columns V: Vᵀ K V = I.
        strengths: (n,) eigenvalues, descending: the share of variance that the concept explains. After
            `followed_by` the later ones are in another order.
        K: covariance that defines the metric.
        spared: number of last directions, those of a task, which are never erased. Their strengths are what
            they hold of the concept.
    """

    vectors: Matrix
    strengths: Vector
    K: Matrix
    spared: int = 0

    def __repr__(self) -> str:
        return f"ConceptDirections(n={len(self.K)})"

    def erasure(self, count: int, *, orthogonal: bool = False) -> Matrix:
        """Return P with P W = 0, W = K V for the ``count`` strongest directions V.

        The oblique P = I − W (VᵀW)⁻¹ Vᵀ also has Vᵀ P = 0; the orthogonal one is I − W (WᵀW)⁻¹ Wᵀ. A projection
        along V itself would leave the concept readable from correlated directions.
        """
        V = self.vectors[:, :count]
        W = self.K @ V
        # VᵀW = VᵀKV = I, so there is nothing to invert; orthonormal columns of W spare the inverse of WᵀW.
        left, right = (W, V) if not orthogonal else (np.linalg.qr(W)[0],) * 2
        P: Matrix = np.eye(len(self.K)) - left @ right.T
        return P

    def remaining(self, count: int, *, orthogonal: bool = False) -> tuple[Vector, Matrix, Matrix]:
        """Return eigenvalues, descending, and eigenvectors of the covariance P K Pᵀ that an erasure leaves, and P.

        Only the last result is kept: a search tries several maps with one erasure.
        """
        key = count, orthogonal
        if key not in self._remaining:
            P = self.erasure(count, orthogonal=orthogonal)
            left = P @ self.K @ P.T
            # Symmetrised against rounding: eigh reads one triangle only.
            eigenvalues, vectors = np.linalg.eigh((left + left.T) / 2)
            self._remaining.clear()
            self._remaining[key] = (eigenvalues[::-1], vectors[:, ::-1], P)
        return self._remaining[key]

    @cached_property
    def _remaining(self) -> dict[tuple[int, bool], tuple[Vector, Matrix, Matrix]]:
        return {}

    def residual(self, count: int) -> float:
        """Return the share of the concept's strength that remains after erasing ``count`` directions."""
        total = float(self.strengths.sum())
        return float(self.strengths[count:].sum()) / total if total > 0 else 0.0

    def followed_by(self, gradients: Matrix, *, after: int) -> ConceptDirections:
        """Return the ``after`` strongest directions, then those along which a reader's answer changes most.

        In coordinates c with x = K V c, whose covariance is I, a gradient g becomes VᵀKg: the later directions
        are rotated to the eigenvectors of (KV)ᵀ G (KV) among them, largest first. The i-th eigenvalue is the
        variance that a first-order reader gets from direction i, so erasing the first k removes most.
        ``gradients`` is G (n, n), the mean outer product of the reader's gradients, in the space of ``K``.
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

    With ``moments.preserved`` all directions but the last are uncorrelated with the task: Vᵀ Cov(Φ, task) = 0, so an
    erasure changes no covariance with it.
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
        why = "Removing the concept changed no embedding, so there is no direction to erase."
        raise InvalidInputError.of("concept_directions", "positive", "different from `negative`",
                                   "pairs without any difference", why)  # fmt: skip
    if moments.preserved is not None:
        return _beside_task(whiten, target, moments)
    strengths, rotation = np.linalg.eigh((target + target.T) / 2)
    return ConceptDirections(
        vectors=(whiten @ rotation)[:, ::-1],
        strengths=np.maximum(strengths[::-1], 0.0),
        K=moments.K,
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
    directions: ConceptDirections,
    *,
    erased: int,
    kept: int | None = None,
    flattening: float = 0.0,
    orthogonal: bool = False,
) -> LinearMap:
    """Return T: erase ``erased`` concept directions, keep the ``kept`` leading others, flatten.

    T is scaled so that the variance tr K does not change.

    Args:
        erased: k, number of concept directions, 0 ≤ k < n and ≤ n − spared; more hide more and cost more utility.
        kept: m, number of principal directions of P K Pᵀ to release; None keeps all n − k.
        flattening: p ≥ 0; direction i is scaled by (λ_i/λ_1)^{-p/2}: 0 keeps the spectrum, 1 whitens.
        orthogonal: erase by the orthogonal projection in place of the oblique one.
    """
    owner = "subspace_map"
    n = directions.K.shape[0]
    most = n - max(1, directions.spared)
    k = check_count(erased, owner=owner, param="erased", minimum=0, maximum=most)
    m = n - k
    if kept is not None:
        m = check_count(kept, owner=owner, param="kept", minimum=1, maximum=n - k)
    p = check_positive(flattening, owner=owner, param="flattening", allow_zero=True)
    eigenvalues, vectors, P = directions.remaining(k, orthogonal=orthogonal)
    top = eigenvalues[:m]
    U = vectors[:, :m]
    # A direction without variance would get an infinite scale.
    scale = (np.maximum(top, 1e-12 * top[0]) / top[0]) ** (-p / 2)
    scale *= np.sqrt(np.trace(directions.K) / (scale**2 * top).sum())
    return LinearMap(down=scale[:, None] * (U.T @ P), up=np.ascontiguousarray(U))
