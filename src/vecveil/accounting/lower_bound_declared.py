"""Declared laws of the mechanisms for one pair of inputs, in a form that an audit can test.

Each declaration has the log-likelihood ratio of an output, the law of that ratio, and the law of the
noise's length. All three mechanisms are symmetric: a reflection swaps the inputs, so the ratio under x
is the negative of the ratio under x′. The integrals share no code with the package's privacy losses, so
an audit does not repeat their errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from vecveil.errors import InvalidInputError, wrong_shape
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_embeddings, check_positive

_ANGLES = 1 << 16


@dataclass(frozen=True, repr=False)
class DeclaredPair:
    """The declared laws of one pair of inputs ``x`` and ``x_prime`` (n,).

    Attributes:
        worst_case: the largest privacy loss, ε times the distance; infinite for Gaussian noise.
        score: (N, n) outputs → (N,) log p(y | x) − log p(y | x′).
        tail: t → P(score > t) for outputs of x.
        length: outputs, input → (N,) length of the noise in the mechanism's norm.
        normal_score: lengths → (N,) their quantiles as standard normal numbers.
    """

    name: str
    x: Vector
    x_prime: Vector
    worst_case: float
    score: Callable[[Embeddings], Vector]
    tail: Callable[[float], float]
    length: Callable[[Embeddings, Vector], Vector]
    normal_score: Callable[[Vector], Vector]

    def __repr__(self) -> str:
        return f"DeclaredPair({self.name!r}, n={len(self.x)}, worst_case={self.worst_case:.6g})"

    @property
    def total_variation(self) -> float:
        """The largest advantage of any attacker."""
        return self.delta(epsilon=0.0)

    def delta(self, *, epsilon: float) -> float:
        """Return δ(ε) = P(score > ε) − e^ε P′(score > ε).

        e^ε multiplies the rounding error: for large ε use the exact losses (`LaplacePrivacyLoss` and others).
        """
        # By symmetry P′(score > ε) = P(score < −ε) = 1 − tail(−ε).
        return max(0.0, self.tail(epsilon) - float(np.exp(epsilon)) * (1 - self.tail(-epsilon)))


def declared_laplace(
    x: Vector, x_prime: Vector, *, epsilon: float, covariance: Matrix | None = None
) -> DeclaredPair:
    """Return the laws of y = x + z, z with density ∝ exp(−ε‖z‖_Σ), n ≥ 2.

    Args:
        x, x_prime: (n,) inputs.
        epsilon: ε > 0 per unit of the norm.
        covariance: Σ, (n, n), not rescaled; None for the identity.
    """
    owner = "declared_laplace"
    x, x_prime, n = _pair(x, x_prime, owner, least=2)
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    white = _whitener(covariance, n, owner)
    rho = float(np.linalg.norm(white((x - x_prime)[None])))

    def length(Y: Embeddings, centre: Vector) -> Vector:
        return np.asarray(np.linalg.norm(white(Y - centre), axis=1))

    # The radius is Gamma(n, 1/ε); equal quantiles make the integral over it one over [0, 1].
    nodes, weights = np.polynomial.legendre.leggauss(400)
    radii, shares = special.gammaincinv(n, (nodes + 1) / 2) / eps, weights / 2

    def tail(t: float) -> float:
        tau = t / eps
        if not -rho < tau < rho:  # ‖z + d‖ − ‖z‖ is between −ρ and ρ
            return float(tau <= -rho)
        cosines = ((radii + tau) ** 2 - radii**2 - rho**2) / (2 * radii * rho)
        # a negative bound on ‖z + d‖ always holds
        return float(shares @ np.where(radii + tau < 0, 1.0, _cosine_above(cosines, n)))

    return DeclaredPair(
        "elliptical Laplace", x, x_prime, worst_case=eps * rho, tail=tail, length=length,
        score=lambda Y: eps * (length(Y, x_prime) - length(Y, x)),
        normal_score=lambda r: _normal(special.gammainc(n, eps * r), special.gammaincc(n, eps * r)),
    )  # fmt: skip


def declared_gaussian(
    x: Vector, x_prime: Vector, *, sigma: float = 1.0, covariance: Matrix | None = None
) -> DeclaredPair:
    """Return the laws of y = x + σ N(0, Σ); worst_case is infinite. See `declared_laplace`."""
    owner = "declared_gaussian"
    x, x_prime, n = _pair(x, x_prime, owner, least=1)
    scale = check_positive(sigma, owner=owner, param="sigma")
    white = _whitener(covariance, n, owner)
    mu = float(np.linalg.norm(white((x - x_prime)[None]))) / scale

    def length(Y: Embeddings, centre: Vector) -> Vector:
        return np.asarray(np.linalg.norm(white(Y - centre), axis=1)) / scale

    return DeclaredPair(
        "Gaussian", x, x_prime, worst_case=float("inf"), length=length,
        score=lambda Y: (length(Y, x_prime) ** 2 - length(Y, x) ** 2) / 2,
        tail=lambda t: float(special.ndtr(mu / 2 - t / mu)),
        normal_score=lambda r: _normal(
            special.gammainc(n / 2, r**2 / 2), special.gammaincc(n / 2, r**2 / 2)
        ),
    )  # fmt: skip


def declared_purkayastha(x: Vector, x_prime: Vector, *, epsilon: float) -> DeclaredPair:
    """Return the laws of y on the unit sphere with density ∝ exp(−ε arccos(xᵀy)), n ≥ 3.

    ``x`` and ``x_prime`` (n,) have length 1; ``epsilon`` > 0 is per radian.
    """
    owner = "declared_purkayastha"
    x, x_prime, n = _pair(x, x_prime, owner, least=3)
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    for param, value in (("x", x), ("x_prime", x_prime)):
        if abs(float(np.linalg.norm(value)) - 1) > 1e-6:
            raise InvalidInputError.of(owner, param, "of length 1", "another length")
    phi = float(_angle((x / np.linalg.norm(x))[None], x_prime)[0])
    # The law of the angle on midpoints, first over [0, π], then over its effective support.
    grid = (np.arange(_ANGLES) + 0.5) * (np.pi / _ANGLES)
    log_density = -eps * grid + (n - 2) * np.log(np.sin(grid))
    alive = np.flatnonzero(log_density > log_density.max() - 80)  # e⁻⁸⁰ of the peak is below rounding
    low, high = grid[alive[0]] - np.pi / _ANGLES / 2, grid[alive[-1]] + np.pi / _ANGLES / 2
    grid = low + (np.arange(_ANGLES) + 0.5) * ((high - low) / _ANGLES)
    log_density = -eps * grid + (n - 2) * np.log(np.sin(grid))
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    edges = np.linspace(low, high, _ANGLES + 1)
    # both tails summed from their own end: 1 − below would lose a small upper tail
    below = np.concatenate([[0.0], np.cumsum(weights)])
    above = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])

    def tail(t: float) -> float:
        tau = t / eps
        if not -phi < tau < phi:
            return float(tau <= -phi)
        # θ′ > θ + τ by the spherical law of cosines: cos θ′ = cos θ cos φ + c·sin θ sin φ.
        cosines = (np.cos(grid + tau) - np.cos(grid) * np.cos(phi)) / (np.sin(grid) * np.sin(phi))
        further = 1 - _cosine_above(cosines, n - 1)  # cos θ′ < cos(θ + τ)
        further = np.where(grid + tau >= np.pi, 0.0, np.where(grid + tau <= 0, 1.0, further))
        return float(weights @ further)

    return DeclaredPair(
        "Purkayastha", x, x_prime, worst_case=eps * phi, tail=tail, length=_angle,
        score=lambda Y: eps * (_angle(Y, x_prime) - _angle(Y, x)),
        normal_score=lambda a: _normal(np.interp(a, edges, below), np.interp(a, edges, above)),
    )  # fmt: skip


def _pair(x: Any, x_prime: Any, owner: str, *, least: int) -> tuple[Vector, Vector, int]:
    rows = []
    for param, value in (("x", x), ("x_prime", x_prime)):
        vector = value[None] if isinstance(value, np.ndarray) and value.ndim == 1 else value
        row = check_embeddings(vector, owner=owner, param=param)
        if len(row) != 1 or row.shape[1] < least:
            raise wrong_shape(owner, param, f"(n,) with n ≥ {least}", row.shape)
        rows.append(row[0].astype(np.float64))
    if rows[0].shape != rows[1].shape or (rows[0] == rows[1]).all():
        raise InvalidInputError.of(
            owner, "x_prime", "of the dimension of x and different from it", "another"
        )
    return rows[0], rows[1], len(rows[0])


def _whitener(covariance: Matrix | None, n: int, owner: str) -> Callable[[Embeddings], Embeddings]:
    """Return the map of rows v to rows whose Euclidean norm is ‖v‖_Σ."""
    if covariance is None:
        return lambda V: V
    try:
        root = np.linalg.cholesky(np.asarray(covariance, dtype=np.float64))
        if root.shape != (n, n):
            raise ValueError
    except (ValueError, np.linalg.LinAlgError):
        raise InvalidInputError.of(
            owner, "covariance", f"positive definite and of shape ({n}, {n})", "another"
        ) from None
    from scipy.linalg import solve_triangular  # slow to import

    return lambda V: np.asarray(solve_triangular(root, V.T, lower=True).T)


def _angle(Y: Embeddings, centre: Vector) -> Vector:
    """Return the angles between unit vectors, also small ones accurately: from the chord, not the cosine."""
    half = np.linalg.norm(Y - centre, axis=1) / 2
    return np.asarray(2 * np.arcsin(np.minimum(half, 1.0)))


def _cosine_above(cosine: Any, n: int) -> Any:
    """Return P(c > cosine) for the first coordinate c of a uniform point on the sphere of R^n."""
    half = np.clip((1 - cosine) / 2, 0.0, 1.0)
    return special.betainc((n - 1) / 2, (n - 1) / 2, half)


def _normal(below: Any, above: Any) -> Any:
    """Return Φ⁻¹ of a probability from both its tails, clipped to ±38, where float64 ends."""
    with np.errstate(divide="ignore"):
        score = np.where(below < 0.5, special.ndtri(below), -special.ndtri(above))
    return np.clip(score, -38.0, 38.0)
