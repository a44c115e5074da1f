"""The guarantees of Gaussian noise and of the sphere, a bound on distortion, rewriting, and the absence of any."""

from __future__ import annotations

import numpy as np
from scipy import special

from vecveil.accounting.guarantee import (
    ANGLE,
    NEVER,
    WEAK_EPSILON,
    Guarantee,
    conditions,
    euclidean_factors,
    exponent_text,
)
from vecveil.types import Matrix

__all__ = [
    "distortion_guarantee",
    "gaussian_guarantee",
    "obfuscation_guarantee",
    "purkayastha_guarantee",
    "rewriting_guarantee",
]

_NOT_WORDS = "How much an attacker finds within this bound is measured, not proved."


def gaussian_guarantee(
    *,
    sigma: float,
    covariance: Matrix,
    down: Matrix | None = None,
    fitted_on: str = "",
    step: float | None = None,
    local: tuple[float, float] | None = None,
) -> Guarantee:
    """Return the guarantee of y = T(x + z), z ~ N(0, σ²Σ): μ-Gaussian DP with μ = distance/σ.

    Args:
        sigma: σ > 0.
        covariance: Σ, (n, n), trace n.
        down: T as an (m, n) matrix of full row rank, or None for the identity.
        fitted_on, step: for the conditions.
        local: (ε, δ) that σ was calibrated to on the unit ball, or None.
    """
    n = covariance.shape[0]
    largest, _, hidden = euclidean_factors(covariance, down)
    mu, worst = 1 / sigma, largest / sigma
    isotropic = bool(abs(covariance - covariance[0, 0] * np.eye(n)).max() < 1e-9)
    metric = (
        "distance between the inputs after removing the hidden directions, in the noise's norm"
        if hidden
        else "Euclidean distance" if isotropic else "Mahalanobis distance of the noise shape"
    )  # fmt: skip
    advantage = float(special.erf(0.1 * worst / 2 / 2**0.5))
    statement = (
        f"Gaussian differential privacy with μ = {mu:.4g} per unit of {metric}; against Euclidean distance "
        f"μ = {worst:.4g} in the least protected direction."
    )
    if local is not None:
        statement = (
            f"(ε, δ)-local differential privacy with ε = {local[0]:.4g} and δ = {local[1]:.3g} for any two vectors "
            f"of norm at most 1; {statement}"
        )
    promised = [
        f"Nobody tells two inputs at a Euclidean distance of 0.1 apart from one release with a larger advantage than "
        f"{advantage:.3g} (two inputs at distance d: 2Φ(μd/2) − 1).",
    ]
    if hidden:
        promised.append(
            f"Differences in {hidden} of the {n} dimensions are not in the release at all."
        )
    return Guarantee(
        kind="formal",
        statement=statement,
        epsilon=None if local is None else float(local[0]),
        unit="one release of one vector",
        metric="none: any two vectors of norm at most 1" if local else metric,
        neighbours="any two input vectors (local model)",
        epsilon_euclidean_worst=None,
        epsilon_euclidean_best=None,
        hidden_directions=int(hidden),
        dimension=int(n),
        noise_norm=float(sigma * n**0.5),
        promised=tuple(promised),
        not_promised=(
            "There is no ε with δ = 0: with small probability a release excludes any given input.",
            _NOT_WORDS,
            *NEVER,
        ),
        conditional_on=conditions(fitted_on, step, repeated="adds its μ² to the sum"),
        delta=None if local is None else float(local[1]),
        mu=float(mu),
        mu_euclidean_worst=float(worst),
    )


def purkayastha_guarantee(
    *,
    epsilon: float,
    dimension: int,
    down: Matrix | None = None,
    fitted_on: str = "",
    step: float | None = None,
) -> Guarantee:
    """Return the guarantee of the Purkayastha mechanism: ε per radian between the inputs.

    There is no figure per unit of Euclidean distance: short vectors near each other can be an angle of π apart.
    """
    hidden = 0 if down is None else dimension - down.shape[0]
    weak = epsilon > WEAK_EPSILON
    return Guarantee(
        kind="formal",
        statement=(
            f"metric differential privacy with ε = {epsilon:.4g} per radian of angle between the inputs"
            + (". By itself a bound this large excludes little." if weak else ".")
        ),
        epsilon=float(epsilon),
        unit="one release of one vector",
        metric=ANGLE,
        neighbours="any two directions (local model); norms are not released",
        epsilon_euclidean_worst=None,
        epsilon_euclidean_best=None,
        hidden_directions=int(hidden),
        dimension=int(dimension),
        noise_norm=None,
        promised=(
            "For any two inputs at an angle of θ, no output is more than e^(ε·θ) times likelier from one than from the "
            f"other: e^{exponent_text(0.1 * epsilon)} at 0.1 radian, e^{exponent_text(3.141592653589793 * epsilon)} "
            "for opposite vectors.",
            f"For any two inputs whatever: {exponent_text(3.141592653589793 * epsilon)}-local differential privacy, "
            "since no angle exceeds π. Norms do not matter: bringing them to a bound before the noise changes nothing.",
        ),
        not_promised=(_NOT_WORDS, *NEVER),
        conditional_on=conditions(fitted_on, step, repeated="adds another ε"),
    )


def obfuscation_guarantee(*, dimension: int, what: str, broken_by: str) -> Guarantee:
    """Return that a method promises nothing.

    Args:
        what: what the method does.
        broken_by: what undoes it, in a sentence.
    """
    return Guarantee(
        kind="obfuscation",
        statement=f"none. The method applies {what}, which hides nothing from a determined attacker.",
        epsilon=None,
        unit="one release of one vector",
        metric="none",
        neighbours="none",
        epsilon_euclidean_worst=None,
        epsilon_euclidean_best=None,
        hidden_directions=0,
        dimension=int(dimension),
        noise_norm=None,
        promised=("Nothing.",),
        not_promised=(broken_by,),
        conditional_on=(
            "the protector file stays secret: it holds all that was done to the vectors.",
        ),
    )


def distortion_guarantee(
    *, dimension: int, radius: float, fitted_on: str = "", behind_map: bool = False
) -> Guarantee:
    """Return what TextCrafter's theorem says (distortion) and what it does not (privacy).

    Args:
        radius: r, the norm of every perturbation.
        fitted_on: what the policy was learnt on; may be empty.
        behind_map: whether a linear map follows; norm and direction then hold before it.
    """
    where = "Before the map that follows, each" if behind_map else "Each"
    told_apart = (
        "Whoever has candidate texts and the encoder still matches them, behind the map too."
        if behind_map
        else "Whoever has candidate texts and the encoder picks the true one as that at distance r."
    )
    return Guarantee(
        kind="empirical",
        statement=(
            f"empirical, no formal privacy guarantee. {where} vector is moved by exactly r = {radius:.4g}, at a right "
            "angle to a direction that is computed from it; what that hides is measured, not proved."
        ),
        epsilon=None,
        unit="one release of one vector",
        metric="none",
        neighbours="none",
        epsilon_euclidean_worst=None,
        epsilon_euclidean_best=None,
        hidden_directions=0,
        dimension=int(dimension),
        noise_norm=float(radius),
        promised=(
            "Nothing of privacy.",
            f"Distortion, for every vector e and what it is before any later step, e': ‖e' − e‖ = {radius:.4g}, "
            "(e' − e)ᵀ v(e) = 0, and so the reward that the policy was trained for has a lower bound.",
        ),
        not_promised=(
            "Any bound on what an attacker learns. The published theorem bounds how far a vector moves, which limits "
            "the loss of utility; a larger r does not by itself hide more.",
            "That two inputs look alike: perturbed, two different vectors lie on two different spheres. "
            + told_apart,
            "That the PII classifier in the reward stands for an attacker: the policy learns to deceive this one, and "
            "one that is trained on released vectors is another.",
        ),
        conditional_on=(
            *((f"the policy was learnt on {fitted_on}.",) if fitted_on else ()),
            "vectors have norm 1.",
            f"each vector is released once; {dimension + 1} fresh releases of one text determine its vector "
            "exactly, since all are at distance r from it, and fewer narrow it down.",
        ),
    )


def rewriting_guarantee(
    *, dimension: int, what: str, same: str, shows: tuple[str, ...]
) -> Guarantee:
    """Return what rewriting texts before they are encoded promises: nothing that is proved.

    Args:
        what: what takes the place of the concept.
        same: in what two mentions must agree to be rewritten alike.
        shows: what the rewritten text still shows, in sentences.
    """
    return Guarantee(
        kind="empirical",
        statement=(
            "empirical, no formal privacy guarantee. What the concept's detectors find in a text becomes "
            f"{what} before the text is encoded; all else is encoded as it is."
        ),
        epsilon=None,
        unit="one release of one vector",
        metric="none",
        neighbours="none",
        epsilon_euclidean_worst=None,
        epsilon_euclidean_best=None,
        hidden_directions=0,
        dimension=int(dimension),
        noise_norm=None,
        promised=(
            "Nothing of privacy.",
            "What is found does not reach the encoder: two texts that differ in that alone, with the same "
            f"{same}, give the same vector.",
        ),
        not_promised=(
            "Anything about what the detectors miss: such a text goes through as it is.",
            "Anything about what the rest of the text says of the concept: words around it give it away.",
            "Any noise: whoever has candidates for the rest of the text, the encoder and the protector file rewrites, "
            "encodes and compares them.",
            *shows,
        ),
        conditional_on=(
            "the detectors find every mention.",
            "the protector file, if it is saved, stays secret: it holds the concept's terms and patterns, and the "
            "words that take their place, as plain text.",
        ),
    )
