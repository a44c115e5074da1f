"""What a method promises, in which metric, on which condition; and what it does not promise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from vecveil.types import Matrix

__all__ = ["Guarantee", "elliptical_laplace_guarantee"]

Kind = Literal["formal", "empirical", "obfuscation"]


@dataclass(frozen=True)
class Guarantee:
    """A promise with its unit, metric and neighbouring relation; it prints itself in plain words.

    Attributes:
        kind: ``formal`` (proved), ``empirical`` (measured only) or ``obfuscation`` (neither).
        statement: the promise in one sentence.
        epsilon: ε of metric differential privacy, per unit of ``metric``; None without a formal promise.
        unit: what one ε is spent on.
        metric: the distance in which ε is counted.
        neighbours: which pairs of inputs the promise is about.
        epsilon_euclidean_worst: ε per unit of Euclidean distance, in the least protected direction.
        epsilon_euclidean_best: the same in the best protected direction that is released at all.
        hidden_directions: dimension of the space of differences that the release does not contain.
        dimension: n.
        noise_norm: n/ε, the mean length of the noise in the mechanism's own norm.
        promised, not_promised, conditional_on: plain sentences.
    """

    kind: Kind
    statement: str
    epsilon: float | None
    unit: str
    metric: str
    neighbours: str
    epsilon_euclidean_worst: float | None
    epsilon_euclidean_best: float | None
    hidden_directions: int
    dimension: int
    noise_norm: float | None
    promised: tuple[str, ...]
    not_promised: tuple[str, ...]
    conditional_on: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        """Return the guarantee as JSON-ready values."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    def __str__(self) -> str:
        lines = [f"Guarantee ({self.kind}): {self.statement}"]
        for title, sentences in (
            ("Promised", self.promised),
            ("Not promised", self.not_promised),
            ("On condition that", self.conditional_on),
        ):
            lines.append(f"{title}:")
            lines += [f"  - {sentence}" for sentence in sentences]
        return "\n".join(lines)


WEAK_EPSILON = 10.0
"""Above this, per unit of Euclidean distance, the worst-case factor e^ε is no protection by itself."""

_CONDITIONS = (
    "the mechanism's parameters (shape, map, scale) are taken as fixed; they were fitted on texts, and "
    "nothing is promised about those texts to somebody who reads the protector file.",
    "each vector is released once; every further release of the same text adds another ε.",
    "ε is proved for real numbers: what the low-order bits of floating-point noise give away is not covered.",
)

_NEVER = (
    "The guarantee speaks of vectors, not of words: how far apart two texts lie is decided by the encoder.",
    "Somebody who knows the rest of a sentence and only guesses the term among a few candidates is "
    "hindered by the noise alone.",
)


def _exponent(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def elliptical_laplace_guarantee(
    *,
    epsilon: float,
    covariance: Matrix,
    down: Matrix | None = None,
    fitted_on: str = "",
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
    """
    n = covariance.shape[0]
    eigenvalues = np.linalg.eigvalsh(covariance)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    isotropic = largest - smallest <= 1e-9 * largest
    if down is None or down.shape[0] == n:
        factors = (1 / np.sqrt(smallest), 1 / np.sqrt(largest))
        hidden = 0
    else:
        # (TΣTᵀ)^(-½)T is WᵀΣ^(-½) up to a rotation, W a basis of what Σ^½ makes of T's rows: nothing
        # is squared or inverted that T could make singular.
        longest = np.abs(down).max(axis=1, keepdims=True)
        rows = np.linalg.svd(down / np.where(longest > 0, longest, 1.0), full_matrices=False)[2]
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        root = np.sqrt(values)
        basis = np.linalg.qr(((rows @ vectors) * root).T)[0]
        singular = np.linalg.svd(basis.T / root, compute_uv=False)
        factors = (float(singular[0]), float(singular[-1]))
        hidden = n - down.shape[0]
    worst, best = epsilon * factors[0], epsilon * factors[1]

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
        f"from the other: e^{_exponent(0.1 * worst)} at a Euclidean distance of 0.1 in the least protected direction.",
    ]
    if hidden:
        promised.append(
            f"Differences in {hidden} of the {n} dimensions are not in the release at all: two inputs that "
            "differ only there give the same distribution of outputs."
        )
    not_promised = [
        f"A worst-case factor of e^{_exponent(worst)} per unit of distance is no protection by itself against "
        "telling two ordinary texts apart: what attackers find is measured, not proved."
        if worst > WEAK_EPSILON
        else "How much an attacker finds within this bound is measured, not proved.",
        *_NEVER,
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
    conditions = (
        (f"the parameters were fitted on {fitted_on}.",) if fitted_on else ()
    ) + _CONDITIONS
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
        conditional_on=conditions,
    )
