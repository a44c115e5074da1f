"""TextCrafter's perturbation: learnt, of fixed norm, orthogonal to a learnt direction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.accounting import Guarantee, distortion_guarantee
from vecveil.errors import InvalidInputError
from vecveil.mechanisms.base import Arrays, Mechanism
from vecveil.mechanisms.policy import PolicyWeights
from vecveil.mechanisms.steps import unit_rows
from vecveil.randomness import WordStream, kernel
from vecveil.runtime import in_chunks
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_positive

UNIT_TOLERANCE = 1e-2
"""Largest deviation of a norm from 1: half precision and token averages round norms."""

REDRAWS = 3
"""Redraws of a perturbation without a part orthogonal to v, before a fixed direction replaces it."""

RADII = (1e-4, 1e4)
"""Least and largest radius."""

_BLOCK = 2048  # rows per pass through the policy
_ROWS = 256  # rows per task of a thread


def degenerate_below(epsilon: float) -> float:
    """Return √ε: the ratio ‖d⊥‖/‖d‖ up to which a draw has no reliable direction, ``epsilon`` that of the dtype.

    d⊥ has rounding error ε‖d‖, which is a share √ε of ‖d⊥‖ at this ratio.
    """
    return math.sqrt(epsilon)


def check_unit_rows(X: Embeddings, *, owner: str, param: str = "X") -> None:
    """Raise InvalidInputError if a row of ``X`` (N, n), finite, does not have norm 1."""
    norms = unit_rows(X)[1]
    wrong = np.flatnonzero(np.abs(norms - 1) > UNIT_TOLERANCE)
    if len(wrong):
        raise InvalidInputError(
            f"{owner}: {len(wrong)} rows of `{param}` do not have norm 1, the first in row {wrong[0]} with norm "
            f"{norms[wrong[0]]:.4g}. The policy is learnt on the unit sphere: normalise the rows, or fit with "
            "before='normalise'.",
            param=param,
        )


def check_radius(value: Any, *, owner: str) -> float:
    """Return ``value`` if float32 can add a step of that norm to a vector of norm 1."""
    radius = check_positive(value, owner=owner, param="radius")
    least, most = RADII
    if not least <= radius <= most:
        raise InvalidInputError(
            f"`radius` {radius:g} is not between {least:g} and {most:g}. Vectors have norm 1: beyond that float32 "
            "loses the step or the vector.",
            param="radius",
        )
    return radius


def orthogonal_step(d: Embeddings, v: Embeddings, radius: float) -> tuple[Embeddings, Vector]:
    """Return r d⊥/‖d⊥‖ with d⊥ = d − (d·v) v (Eq. 17), and the rows where ‖d⊥‖ is too small for a direction.

    ``d`` and ``v`` are (N, n) float64; the rows of ``v`` have norm 1.
    """
    across = d - np.einsum("ij,ij->i", d, v)[:, None] * v
    # Rounding leaves about 2⁻⁵³·(d·v) along v: a second Gram-Schmidt pass removes it.
    across -= np.einsum("ij,ij->i", across, v)[:, None] * v
    norms = np.linalg.norm(across, axis=1)
    # NaN compares false: it must reach the check of the release and not be redrawn.
    lost = norms <= degenerate_below(float(np.finfo(np.float64).eps)) * np.linalg.norm(d, axis=1)
    across *= (radius / np.where(lost, 1.0, norms))[:, None]
    return across, lost


@dataclass(frozen=True, eq=False, repr=False)
class TextCrafter(Mechanism):
    """e' = e + r d⊥/‖d⊥‖, d ~ N(μ(e), diag σ²), d⊥ its part orthogonal to v(e) (TextCrafter, Eq. 15 to 18).

    Guarantee:
        None of privacy. Exact bounds on distortion: ‖e' − e‖ = r and (e' − e)ᵀ v(e) = 0. Both help an attacker:
        among candidate texts the true one is at distance r. Releases of two inputs lie on two different spheres,
        so the largest advantage is 1.
    Cost:
        Two transformer blocks per vector: with T = 1, 2 (2 + 2 · expansion) n² multiply-adds.

    Attributes:
        policy: μ, σ and v.
        radius: r > 0.
        spread: (n, n) covariance of the perturbation given the vector, averaged over the vectors of the fit.
        classifier: (n + 1,) weights and intercept of the PII classifier in the training reward.
        centroids: (k, n) centres of plain texts in the training reward.
    """

    policy: PolicyWeights
    radius: float
    spread: Matrix
    classifier: Vector
    centroids: Matrix

    name: ClassVar[str] = "textcrafter"
    checks_norms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        radius = check_radius(self.radius, owner="TextCrafter")
        object.__setattr__(self, "radius", radius)
        n = self.policy.dimension
        for name, shape in (("spread", (n, n)), ("classifier", (n + 1,)), ("centroids", (None, n))):
            array = np.asarray(getattr(self, name), dtype=np.float64)
            fits = array.ndim == len(shape) and array.shape[-1] == shape[-1] and len(array)
            if not fits or (shape[0] and len(array) != shape[0]) or not np.isfinite(array).all():
                raise ValueError(name)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return f"TextCrafter(n={self.dimension}, radius={self.radius:g})"

    @property
    def dimension(self) -> int:
        return self.policy.dimension

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        if not np.isfinite(X).all():
            return False  # the caller raises and names the row
        self.check_rows(X)
        for start in range(0, len(X), _BLOCK):
            part = slice(start, min(start + _BLOCK, len(X)))
            self._perturb(X[part], stream.part(part.start, part.stop), out[part])
        return bool(np.isfinite(out).all())

    def _perturb(self, X: Embeddings, stream: WordStream, out: Embeddings) -> None:
        n, sigma = X.shape[1], self.policy.sigma
        # The policy runs on the whole block: BLAS parallelises its products.
        means, directions = self.policy.mean(X), self.policy.direction(X)

        def work(start: int, stop: int) -> None:
            given, mu, v = stream.part(start, stop), means[start:stop], directions[start:stop]
            step, lost = orthogonal_step(mu + sigma * _normals(given, n, 0), v, self.radius)
            # The words of a keyed stream are fixed: each attempt reads its own counter blocks.
            for attempt in range(1, REDRAWS + 1):
                if not lost.any():
                    break
                rows = np.flatnonzero(lost)
                d = mu[rows] + sigma * _normals(given.take(rows), n, attempt)
                step[rows], lost[rows] = orthogonal_step(d, v[rows], self.radius)
            if lost.any():
                # A policy with σ ≈ 0 and μ along v fails every draw: a fixed axis keeps the norm r.
                step[lost] = orthogonal_step(_other_axes(v[lost]), v[lost], self.radius)[0]
            out[start:stop] = X[start:stop] + step

        in_chunks(len(X), _ROWS, work)

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        return np.asarray(np.abs(unit_rows(X)[1] - 1) <= UNIT_TOLERANCE, dtype=bool)

    def check_rows(self, X: Embeddings) -> None:
        check_unit_rows(X, owner="TextCrafter.protect")

    def direction(self, X: Embeddings) -> Embeddings:
        """Return v(e) for the rows of ``X`` (N, n), of norm 1, in the same dtype (Eq. 16)."""
        directions = np.empty_like(X)
        for start in range(0, len(X), _BLOCK):
            directions[start : start + _BLOCK] = self.policy.direction(X[start : start + _BLOCK])
        return directions

    def noise_ratio(self, rms_norm: float) -> float:
        return self.radius / rms_norm

    def describe(self) -> str:
        return super().describe() + " empirical,"

    def noise_covariance(self) -> Matrix:
        """Return the covariance of the perturbation given the vector, as the fit measured it."""
        return self.spread

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return distortion_guarantee(
            dimension=self.dimension, radius=self.radius, fitted_on=fitted_on, behind_map=down is not None
        )

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {
            **self.policy.to_arrays(),
            "spread": self.spread,
            "classifier": self.classifier,
            "centroids": self.centroids,
        }

    def parameters(self) -> dict[str, float]:
        return {"radius": self.radius, "tokens": self.policy.tokens, "heads": self.policy.heads}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        policy = PolicyWeights.from_arrays(arrays, dimension, parameters["tokens"], parameters["heads"])
        radius = float(parameters["radius"])
        spread = arrays["spread"]
        if spread.shape != (dimension, dimension) or not np.array_equal(spread, spread.T):
            raise ValueError("spread")
        # A forged file may hold any matrix; a perturbation of norm r has a covariance of trace at most r².
        values = np.linalg.eigvalsh(spread)
        if values[0] < -1e-9 * radius**2 or values.sum() > 1.01 * radius**2:
            raise ValueError("spread")
        return cls(policy, radius, arrays["spread"], arrays["classifier"], arrays["centroids"])


def _normals(stream: WordStream, dimension: int, attempt: int) -> Embeddings:
    """Return (rows, n) standard normals from the counter blocks of ``attempt``."""
    pairs = (dimension + 1) // 2
    words = stream.words(pairs, attempt * pairs)
    normals: Embeddings = kernel.normals(np.ascontiguousarray(words), pairs)[:, :dimension]
    return normals


def _other_axes(v: Embeddings) -> Embeddings:
    """Return for each row the axis of the least |v_i|, which has a part orthogonal to ``v``."""
    axes = np.zeros_like(v)
    axes[np.arange(len(v)), np.abs(v).argmin(axis=1)] = 1.0
    return axes
