"""What a method promises, in which metric, on which condition; and what it does not promise."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from vecveil.types import Matrix

__all__ = ["ANGLE", "Guarantee", "conditions", "euclidean_factors", "exponent_text"]

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
        delta: δ of (ε, δ)-local DP, where that is what is promised.
        mu: μ of Gaussian DP per unit of ``metric``, where that is what is promised.
        mu_euclidean_worst: the same per unit of Euclidean distance in the least protected direction.
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
    delta: float | None = None
    mu: float | None = None
    mu_euclidean_worst: float | None = None

    def within_norm(self, largest: float) -> Guarantee:
        """Return the guarantee for inputs that are brought to norms of at most ``largest`` before the noise."""
        if self.mu_euclidean_worst is not None and self.delta is None:
            said = (
                f"Vectors are brought to a norm of at most {largest:g} before the noise, so any two inputs are at most "
                f"{2 * largest:g} apart: μ = {exponent_text(2 * largest * self.mu_euclidean_worst)} of Gaussian "
                "differential privacy for every two of them."
            )
            return replace(self, promised=(*self.promised, said))
        if self.epsilon_euclidean_worst is None or self.metric == ANGLE:
            return self
        total = 2 * largest * self.epsilon_euclidean_worst
        return replace(
            self,
            promised=(
                *self.promised,
                f"Vectors are brought to a norm of at most {largest:g} before the noise, so any two inputs are "
                f"at most {2 * largest:g} apart: {exponent_text(total)}-local differential privacy.",
            ),
        )

    def followed_by(self, steps: tuple[str, ...]) -> Guarantee:
        """Return the guarantee with what comes after the noise named: it costs nothing."""
        listed = ", ".join(steps)
        said = f"What follows the noise ({listed}) is post-processing: it costs no privacy."
        if self.kind == "empirical":
            said = f"What follows the perturbation ({listed}) changes norm and direction: they hold before it."
        return (
            self if self.kind == "obfuscation" else replace(self, promised=(*self.promised, said))
        )

    def with_keyed_noise(self) -> Guarantee:
        """Return the guarantee of releases whose noise is derived from a secret key."""
        if self.kind == "obfuscation":
            return self
        again = "each vector is released once;"
        computational = (
            "attackers cannot break HMAC-SHA256 and AES-256: with keyed noise the guarantee is computational.",
        )
        return replace(
            self,
            promised=(
                *self.promised,
                "A repeated release of an item is the same release: repetition averages nothing.",
            ),
            not_promised=(
                *self.not_promised,
                "Equal inputs under one id give equal releases, so that they are seen to be equal.",
            ),
            conditional_on=(
                *(
                    each
                    for each in self.conditional_on
                    if self.kind == "formal" or not each.startswith(again)
                ),
                "the key stays secret: whoever has it and knows or guesses an item's content confirms the guess and "
                "removes the noise; releases made with a key that leaked count as clean.",
                *(computational if self.kind == "formal" else ()),
            ),
        )

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


ANGLE = "angle in radians"
"""The metric of the sphere: norms do not enter it, and no two inputs are more than π apart."""

WEAK_EPSILON = 10.0
"""Above this, per unit of Euclidean distance, the worst-case factor e^ε is no protection by itself."""

NEVER = (
    "The guarantee speaks of vectors, not of words: how far apart two texts lie is decided by the encoder.",
    "Somebody who knows the rest of a sentence and only guesses the term among a few candidates is "
    "hindered by the noise alone.",
)


def conditions(fitted_on: str, step: float | None, *, repeated: str) -> tuple[str, ...]:
    """Return what every formal guarantee rests on.

    Args:
        fitted_on: what the parameters were fitted on; may be empty.
        step: the grid that releases are rounded to, or None for real arithmetic.
        repeated: what one more release of the same text costs.
    """
    precision = "ε is proved for real numbers." if step is None else (
        f"ε is proved for real numbers, rounded to multiples of {step:.3g} (2⁻¹⁶ of the noise). The noise is drawn "
        "with 53 bits, on a far finer grid, and its tails of probability below 10⁻¹⁵ a vector are cut off, which "
        "counts as δ: what remains of floating point is argued and tested, not proved."
    )  # fmt: skip
    return (
        *((f"the parameters were fitted on {fitted_on}.",) if fitted_on else ()),
        "the mechanism's parameters (shape, map, scale) are taken as fixed; they were fitted on texts, and "
        "nothing is promised about those texts to somebody who reads the protector file.",
        f"each vector is released once; every further release of the same text {repeated}.",
        precision,
    )


def exponent_text(value: float) -> str:
    """Return an exponent with as many digits as mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def euclidean_factors(covariance: Matrix, down: Matrix | None) -> tuple[float, float, int]:
    """Return the largest and least norm of a Euclidean unit vector behind T, and how many directions T hides.

    Norms are those of the noise: ‖v‖_Σ, or for a map with a kernel the quotient norm, that of T v in the
    pseudo-inverse of T Σ Tᵀ.

    Args:
        covariance: Σ, (n, n).
        down: T as an (m, n) matrix of full row rank, or None for the identity.
    """
    n = covariance.shape[0]
    if down is None or down.shape[0] == n:
        eigenvalues = np.linalg.eigvalsh(covariance)
        return float(1 / np.sqrt(eigenvalues[0])), float(1 / np.sqrt(eigenvalues[-1])), 0
    # (TΣTᵀ)^(-½)T is WᵀΣ^(-½) up to a rotation, W a basis of what Σ^½ makes of T's rows: nothing
    # is squared or inverted that T could make singular.
    longest = np.abs(down).max(axis=1, keepdims=True)
    rows = np.linalg.svd(down / np.where(longest > 0, longest, 1.0), full_matrices=False)[2]
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = np.sqrt(values)
    basis = np.linalg.qr(((rows @ vectors) * root).T)[0]
    singular = np.linalg.svd(basis.T / root, compute_uv=False)
    return float(singular[0]), float(singular[-1]), n - down.shape[0]
