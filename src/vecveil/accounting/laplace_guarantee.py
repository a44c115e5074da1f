"""The guarantee of the elliptical Laplace mechanism, in its own norm and against Euclidean neighbours."""

from __future__ import annotations

import numpy as np

from vecveil.accounting.guarantee import (
    NEVER,
    WEAK_EPSILON,
    Guarantee,
    conditions,
    euclidean_factors,
    exponent_text,
)
from vecveil.types import Matrix

__all__ = ["elliptical_laplace_guarantee"]


def elliptical_laplace_guarantee(
    *,
    epsilon: float,
    covariance: Matrix,
    down: Matrix | None = None,
    fitted_on: str = "",
    step: float | None = None,
) -> Guarantee:
    """Return the guarantee of y = T(x + z), z with density ∝ exp(−ε‖z‖_Σ).

    x + z is ε·‖x − x'‖_Σ metric-LDP (SPARSE, Theorem 1), and any T keeps that. For a map with a
    kernel, inputs that differ by v are at the quotient distance, the norm of T v in the pseudo-inverse
    of T Σ Tᵀ: differences in ker T are hidden perfectly.

    Args:
        epsilon: ε > 0, per unit of the Mahalanobis norm.
        covariance: Σ, (n, n), trace n.
        down: T as an (m, n) matrix of full row rank, or None for the identity.
        fitted_on: what the parameters were fitted on, for the conditions; may be empty.
        step: the grid of releases, for the conditions.
    """
    n = covariance.shape[0]
    eigenvalues = np.linalg.eigvalsh(covariance)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    isotropic = largest - smallest <= 1e-9 * largest
    largest_factor, least_factor, hidden = euclidean_factors(covariance, down)
    worst, best = epsilon * largest_factor, epsilon * least_factor

    if hidden:
        metric = (
            "distance between the inputs after removing the hidden directions, in the noise's norm"
        )
    else:
        metric = "Euclidean distance" if isotropic else "Mahalanobis distance of the noise shape"
    statement = (
        f"metric differential privacy with ε = {epsilon:.4g} per unit of {metric}; against Euclidean "
        f"distance ε = {worst:.4g} in the least protected direction"
        + (". By itself a bound this large excludes little." if worst > WEAK_EPSILON else ".")
    )
    promised = [
        "For any two inputs at distance d, no output is more than e^(ε·d) times likelier from one than "
        f"from the other: e^{exponent_text(0.1 * worst)} at a Euclidean distance of 0.1 in the least protected "
        "direction.",
    ]
    if hidden:
        promised.append(
            f"Differences in {hidden} of the {n} dimensions are not in the release at all: two inputs that "
            "differ only there give the same distribution of outputs."
        )
    not_promised = [
        f"A worst-case factor of e^{exponent_text(worst)} per unit of distance is no protection by itself against "
        "telling two ordinary texts apart: what attackers find is measured, not proved."
        if worst > WEAK_EPSILON
        else "How much an attacker finds within this bound is measured, not proved.",
        *NEVER,
    ]
    if hidden:
        not_promised.append(
            "Hidden directions are not ε: that they carry the concept was estimated on the fitted texts, so "
            "terms that were not among them, and non-linear traces in the kept directions, can remain."
        )
    elif not isotropic:
        not_promised.append(
            f"Directions are not protected alike: the least protected has {smallest:.3g} and the best "
            f"{largest:.3g} of the average noise variance."
        )
    return Guarantee(
        kind="formal",
        statement=statement,
        epsilon=float(epsilon),
        unit="one release of one vector",
        metric=metric,
        neighbours="any two input vectors (local model)",
        epsilon_euclidean_worst=float(worst),
        epsilon_euclidean_best=float(best),
        hidden_directions=int(hidden),
        dimension=int(n),
        noise_norm=float(n / epsilon),
        promised=tuple(promised),
        not_promised=tuple(not_promised),
        conditional_on=conditions(fitted_on, step, repeated="adds another ε"),
    )
