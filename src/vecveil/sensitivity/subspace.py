"""The concept subspace: erase the concept's directions obliquely, truncate, flatten.

After linear erasure (Belrose et al. 2023, LEACE) no linear reader of the erased labels beats chance on the
fitted sample. The rest is non-linear and lies mostly in directions of low variance: truncation removes these,
and flattening evens out the others, which regains utility. The directions that a non-linear reader uses can be
erased after those of the labels.
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

    def erasure(self, count: int) -> Matrix:
        """Return P = I − W (VᵀW)⁻¹ Vᵀ with W = K V, for the ``count`` strongest directions.

        P W = 0 and Vᵀ P = 0. P is oblique: an orthogonal projection on V would leave the concept readable
        from correlated directions.
        """
        V = self.vectors[:, :count]
        # VᵀW = VᵀKV = I, so there is nothing to invert.
        P: Matrix = np.eye(len(self.K)) - (self.K @ V) @ V.T
        return P

    def remaining(self, count: int) -> tuple[Vector, Matrix]:
        """Return the eigenvalues, descending, and eigenvectors of the covariance P K Pᵀ that an erasure leaves.

        Only the last result is kept: a search tries several maps with one number of erased directions.
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
    """Return T: erase ``erased`` concept directions, keep the ``kept`` leading others, flatten.

    T is scaled so that the variance tr K does not change.

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
    # UᵀP without P: few directions are erased of many.
    down = scale[:, None] * (U.T - (U.T @ (directions.K @ V)) @ V.T)
    return LinearMap(down=down, up=np.ascontiguousarray(U))
