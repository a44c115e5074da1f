"""Guarantees of every mechanism: the statement, its metric, its conditions and its limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import special

from vecveil.types import Matrix


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A guarantee with its unit, metric and neighbouring relation; ``str`` states it in plain words.

    Attributes:
        kind: ``formal`` (proved), ``empirical`` (measured only) or ``obfuscation`` (neither).
        epsilon: ε of metric differential privacy, per unit of ``metric``; None without a formal guarantee.
        unit: the event that spends ε once.
        metric: the distance in which ε is counted.
        neighbours: the pairs of inputs that the guarantee covers.
        epsilon_euclidean_worst: ε per unit of Euclidean distance, in the least protected direction.
        epsilon_euclidean_best: the same in the best protected direction that is released.
        hidden_directions: dimension of the space of differences that the release does not contain.
        noise_norm: n/ε, or k/ε in k kept dimensions: the mean length of the noise in the mechanism's norm.
        promised: what is guaranteed, in sentences.
        not_promised: what is not.
        delta: δ of (ε, δ)-local DP, for mechanisms that guarantee it.
        mu: μ of Gaussian DP per unit of ``metric``, for mechanisms that guarantee it.
        mu_euclidean_worst: the same per unit of Euclidean distance in the least protected direction.
    """

    kind: Literal["formal", "empirical", "obfuscation"]
    statement: str
    epsilon: float | None = None
    unit: str = "one release of one vector"
    metric: str = "none"
    neighbours: str = "none"
    epsilon_euclidean_worst: float | None = None
    epsilon_euclidean_best: float | None = None
    hidden_directions: int = 0
    dimension: int
    noise_norm: float | None = None
    promised: tuple[str, ...]
    not_promised: tuple[str, ...]
    conditional_on: tuple[str, ...]
    delta: float | None = None
    mu: float | None = None
    mu_euclidean_worst: float | None = None

    def within_norm(self, largest: float) -> Guarantee:
        """Return the guarantee for inputs clipped to norm ``largest`` before the noise."""
        # Two points of a ball of radius R are at most 2R apart.
        bounded = (
            f"Vectors are scaled to a norm of at most {largest:g} before the noise, so any two inputs are at most "
            f"{2 * largest:g} apart: "
        )
        if self.mu_euclidean_worst is not None and self.delta is None:
            mu = exponent_text(2 * largest * self.mu_euclidean_worst)
            return self._with(f"{bounded}Gaussian differential privacy with μ = {mu}.")
        # Angles ignore norms, so clipping changes nothing for the Purkayastha mechanism.
        if self.epsilon_euclidean_worst is None or self.metric == ANGLE:
            return self
        total = exponent_text(2 * largest * self.epsilon_euclidean_worst)
        return self._with(f"{bounded}{total}-local differential privacy.")

    def _with(self, sentence: str) -> Guarantee:
        return replace(self, promised=(*self.promised, sentence))

    def of_labels(self) -> Guarantee:
        """Return the guarantee of a concept given by labels."""
        labels = (
            "Anything about the labels themselves. The neighbours are texts: labels give no pairs of texts with and "
            "without the concept, so the distance between texts of different labels is unknown, and an audit measures "
            "what leaks."
        )
        return replace(self, not_promised=(labels, *self.not_promised))

    def followed_by(self, steps: tuple[str, ...]) -> Guarantee:
        """Return the guarantee with the steps after the noise listed as post-processing."""
        if self.kind == "obfuscation":
            return self
        listed = ", ".join(steps)
        if self.kind == "empirical":
            # A distortion theorem, unlike differential privacy, does not survive post-processing.
            return self._with(
                f"What follows the perturbation ({listed}) changes norm and direction: they hold before it."
            )
        return self._with(f"What follows the noise ({listed}) is post-processing: it costs no privacy.")

    def of_rewritten(self, *, what: str, same: str, shows: tuple[str, ...]) -> Guarantee:
        """Return the guarantee of vectors of rewritten texts; arguments as for `rewriting_guarantee`."""
        text = rewriting_guarantee(dimension=self.dimension, what=what, same=same, shows=shows)
        statement = f"{self.statement} Before the text is encoded, the detector's spans become {what}."
        return replace(
            self,
            statement=statement,
            promised=(*self.promised, text.promised[-1].replace("vector.", "vector before the noise.")),
            not_promised=(*self.not_promised, *text.not_promised[:2], *shows),
            conditional_on=(*self.conditional_on, *text.conditional_on),
        )

    def with_keyed_noise(self) -> Guarantee:
        """Return the guarantee of releases with noise derived from a secret key."""
        if self.kind == "obfuscation":
            return self
        formal = self.kind == "formal"
        # Keyed releases of one item are equal, so several of them give an attacker no equations.
        conditional_on = [
            sentence
            for sentence in self.conditional_on
            if formal or not sentence.startswith("each vector is released once;")
        ]
        conditional_on.append(
            "the key stays secret: a holder of the key who knows or guesses an item's content confirms the guess and "
            "removes the noise. After a leak of the key, treat the releases made with it as clean."
        )
        if formal:
            conditional_on.append(
                "attackers cannot break HMAC-SHA256 and AES-256: with keyed noise the guarantee is computational."
            )
        repeated = "A repeated release of an item is the same release, so repetition averages nothing."
        equal = "Equal inputs under one id give equal releases and are seen to be equal."
        return replace(
            self,
            promised=(*self.promised, repeated),
            not_promised=(*self.not_promised, equal),
            conditional_on=tuple(conditional_on),
        )

    def to_record(self) -> dict[str, Any]:
        """Return the guarantee as JSON-ready values."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    def __str__(self) -> str:
        lines = [f"Guarantee ({self.kind}): {self.statement}"]
        for title, sentences in (
            ("Guaranteed", self.promised),
            ("Not guaranteed", self.not_promised),
            ("Conditions", self.conditional_on),
        ):
            lines.append(f"{title}:")
            lines += [f"  - {sentence}" for sentence in sentences]
        return "\n".join(lines)


ANGLE = "angle in radians"
"""Metric of the sphere: it ignores norms, and no two inputs are more than π apart."""

WEAK_EPSILON = 10.0
"""ε per unit of Euclidean distance above which the factor e^ε is no protection by itself."""

_MEASURED = "How much an attacker finds within this bound is measured, not proved."
_NEVER = (
    "The guarantee covers vectors, not words: the encoder decides how far apart two texts lie.",
    "Against an attacker who knows the rest of a sentence and guesses the term among a few candidates, only the noise "
    "protects.",
)


def _conditions(fitted_on: str, step: float | None, *, repeated: str) -> tuple[str, ...]:
    """Return the conditions of a formal guarantee; ``step`` is the grid, ``repeated`` the cost of one more release."""
    precision = (
        "ε is proved for real numbers."
        if step is None
        else (
            f"ε is proved for real numbers, rounded to multiples of {step:.3g} (2⁻¹⁶ of the noise). The noise is drawn "
            "with 53 bits, on a far finer grid, and its tails of probability below 10⁻¹⁵ a vector are cut off, which "
            "counts as δ. The rest of floating point is argued and tested, not proved."
        )
    )
    return (
        *((f"the parameters were fitted on {fitted_on}.",) if fitted_on else ()),
        "the mechanism's parameters (shape, map, scale) are taken as fixed; they were fitted on texts, and the "
        "guarantee does not protect those texts from anyone who has the protector file.",
        f"each vector is released once; every further release of the same text {repeated}.",
        precision,
    )


def exponent_text(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def euclidean_factors(covariance: Matrix, down: Matrix | None) -> tuple[float, float, int]:
    """Return the largest and least norm of a Euclidean unit vector after T, and the number of hidden directions.

    The norm is ‖v‖_Σ, Σ = ``covariance``, or for a map T = ``down`` (m, n) of full row rank with a kernel the quotient
    norm: the norm of T v in the pseudo-inverse of T Σ Tᵀ.
    """
    n = covariance.shape[0]
    if down is None or down.shape[0] == n:
        # An invertible T is post-processing that can be undone: the norm depends on Σ alone.
        eigenvalues = np.linalg.eigvalsh(covariance)
        return float(1 / np.sqrt(eigenvalues[0])), float(1 / np.sqrt(eigenvalues[-1])), 0
    # (TΣTᵀ)^(-½)T is WᵀΣ^(-½) up to a rotation, W a basis of the image of T's rows under Σ^½. This
    # form squares and inverts nothing that T could make singular.
    longest = np.abs(down).max(axis=1, keepdims=True)  # rows of very different lengths would lose digits in the SVD
    rows = np.linalg.svd(down / np.where(longest > 0, longest, 1.0), full_matrices=False)[2]
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = np.sqrt(values)
    basis = np.linalg.qr(((rows @ vectors) * root).T)[0]
    singular = np.linalg.svd(basis.T / root, compute_uv=False)
    return float(singular[0]), float(singular[-1]), n - down.shape[0]


def elliptical_laplace_guarantee(
    *,
    epsilon: float,
    covariance: Matrix,
    down: Matrix | None = None,
    projection: Matrix | None = None,
    fitted_on: str = "",
    step: float | None = None,
) -> Guarantee:
    """Return the guarantee of y = T(x + z), z with density ∝ exp(−ε‖z‖_Σ).

    x + z is ε·‖x − x'‖_Σ metric-LDP (SPARSE, Theorem 1), and any T keeps that. A map with a kernel hides differences in
    ker T; inputs are then at the quotient distance, see `euclidean_factors`. A matrix Qᵀ before the noise, such as a
    projection or a mask, hides differences orthogonal to Q, and inputs are at the distance ‖Qᵀ(x − x')‖.

    Args:
        covariance: Σ, (n, n), trace n; (k, k) with a projection on k dimensions.
        down: T as an (m, n) matrix of full row rank, or None for the identity.
        projection: Q (n, k) of rank k, or None. With Q, Σ is I, and ``down`` is ignored.
        fitted_on, step: source of the fitted parameters, and grid of releases, for the conditions.
    """
    n = covariance.shape[0]
    eigenvalues = np.linalg.eigvalsh(covariance)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    # The tolerance covers an identity that was rounded when it was stored.
    isotropic = largest - smallest <= 1e-9 * largest
    if projection is None:
        largest_factor, least_factor, hidden = euclidean_factors(covariance, down)
    else:
        singular = np.linalg.svd(projection, compute_uv=False)
        largest_factor, least_factor, hidden = float(singular[0]), float(singular[-1]), len(projection) - n
    kept, n = n, n if projection is None else len(projection)
    # largest_factor is 1/√λ_min(Σ) for an invertible T: SPARSE, Lemma 1.
    worst, best = epsilon * largest_factor, epsilon * least_factor

    metric = _metric(isotropic=isotropic, hidden=hidden)
    statement = (
        f"metric differential privacy with ε = {epsilon:.4g} per unit of {metric}; against Euclidean "
        f"distance ε = {worst:.4g} in the least protected direction"
        + (". By itself a bound this large excludes little." if worst > WEAK_EPSILON else ".")
    )
    promised = (
        "For any two inputs at distance d, no output is more than e^(ε·d) times likelier from one than "
        f"from the other: e^{exponent_text(0.1 * worst)} at a Euclidean distance of 0.1 in the least protected "
        "direction.",
    )
    limit = (
        _MEASURED
        if worst <= WEAK_EPSILON
        else (
            f"A worst-case factor of e^{exponent_text(worst)} per unit of distance is no protection by itself: two "
            "ordinary texts may be distinguishable. What attackers find is measured, not proved."
        )
    )
    more: tuple[str, ...] = ()
    if hidden:
        more = (
            "Hidden directions are not ε: that they carry the concept was estimated on the fitted texts. Terms that "
            "were not among them, and non-linear traces in the kept directions, can remain.",
        )
    elif not isotropic:
        more = (
            f"Directions are not protected equally: the least protected has {smallest:.3g} and the best "
            f"{largest:.3g} of the average noise variance.",
        )
    return Guarantee(
        kind="formal",
        statement=statement,
        epsilon=float(epsilon),
        metric=metric,
        neighbours="any two input vectors (local model)",
        epsilon_euclidean_worst=float(worst),
        epsilon_euclidean_best=float(best),
        hidden_directions=int(hidden),
        dimension=int(n),
        noise_norm=float(kept / epsilon),
        promised=promised + _hidden_differences(hidden, n),
        not_promised=(limit, *_NEVER, *more),
        conditional_on=_conditions(fitted_on, step, repeated="adds another ε"),
    )


def _metric(*, isotropic: bool, hidden: int) -> str:
    if hidden:
        return "distance between the inputs after removing the hidden directions, in the noise's norm"
    return "Euclidean distance" if isotropic else "Mahalanobis distance of the noise shape"


def _hidden_differences(hidden: int, n: int) -> tuple[str, ...]:
    if not hidden:
        return ()
    return (
        f"Differences in {hidden} of the {n} dimensions are absent from the release: two inputs that differ only there "
        "give the same distribution of outputs.",
    )


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

    ``local`` is the (ε, δ) that σ was calibrated to on the unit ball, or None. The other arguments are those of
    `elliptical_laplace_guarantee`.
    """
    n = covariance.shape[0]
    largest, _, hidden = euclidean_factors(covariance, down)
    mu, worst = 1 / sigma, largest / sigma
    isotropic = bool(abs(covariance - covariance[0, 0] * np.eye(n)).max() < 1e-9)
    metric = _metric(isotropic=isotropic, hidden=hidden)
    advantage = float(special.erf(0.1 * worst / 2 / 2**0.5))  # 2Φ(μ/2) − 1 at distance 0.1
    statement = (
        f"Gaussian differential privacy with μ = {mu:.4g} per unit of {metric}; against Euclidean distance "
        f"μ = {worst:.4g} in the least protected direction."
    )
    if local is not None:
        statement = (
            f"(ε, δ)-local differential privacy with ε = {local[0]:.4g} and δ = {local[1]:.3g} for any two vectors "
            f"of norm at most 1; {statement}"
        )
    promised = (
        "From one release no attacker distinguishes two inputs at a Euclidean distance of 0.1 with an advantage above "
        f"{advantage:.3g} (two inputs at distance d: 2Φ(μd/2) − 1).",
    )
    return Guarantee(
        kind="formal",
        statement=statement,
        epsilon=None if local is None else float(local[0]),
        metric="none: any two vectors of norm at most 1" if local else metric,
        neighbours="any two input vectors (local model)",
        hidden_directions=int(hidden),
        dimension=int(n),
        noise_norm=float(sigma * n**0.5),
        promised=promised + _hidden_differences(hidden, n),
        not_promised=(
            "There is no ε with δ = 0: with small probability a release excludes any given input.",
            _MEASURED,
            *_NEVER,
        ),
        conditional_on=_conditions(fitted_on, step, repeated="adds its μ² to the sum"),
        delta=None if local is None else float(local[1]),
        mu=float(mu),
        mu_euclidean_worst=float(worst),
    )


def purkayastha_guarantee(
    *, epsilon: float, dimension: int, down: Matrix | None = None, fitted_on: str = "", step: float | None = None
) -> Guarantee:
    """Return the guarantee of the Purkayastha mechanism: ε per radian, without a figure per Euclidean distance."""
    hidden = 0 if down is None else dimension - down.shape[0]
    weak = epsilon > WEAK_EPSILON
    return Guarantee(
        kind="formal",
        statement=(
            f"metric differential privacy with ε = {epsilon:.4g} per radian of angle between the inputs"
            + (". By itself a bound this large excludes little." if weak else ".")
        ),
        epsilon=float(epsilon),
        metric=ANGLE,
        neighbours="any two directions (local model); norms are not released",
        hidden_directions=int(hidden),
        dimension=int(dimension),
        promised=(
            "For any two inputs at an angle of θ, no output is more than e^(ε·θ) times likelier from one than from the "
            f"other: e^{exponent_text(0.1 * epsilon)} at 0.1 radian, e^{exponent_text(3.141592653589793 * epsilon)} "
            "for opposite vectors.",
            f"For any two inputs: {exponent_text(3.141592653589793 * epsilon)}-local differential privacy, since no "
            "angle exceeds π. Norms do not matter, and bounding them before the noise changes nothing.",
        ),
        not_promised=(_MEASURED, *_NEVER),
        conditional_on=_conditions(fitted_on, step, repeated="adds another ε"),
    )


def obfuscation_guarantee(*, dimension: int, what: str, broken_by: str) -> Guarantee:
    """Return the record of a method without a guarantee: ``what`` it applies, and the attack that breaks it."""
    return Guarantee(
        kind="obfuscation",
        statement=f"none. The method applies {what}, which hides nothing from a determined attacker.",
        dimension=int(dimension),
        promised=("Nothing.",),
        not_promised=(broken_by,),
        conditional_on=("the protector file stays secret: it determines the transformation.",),
    )


def distortion_guarantee(*, dimension: int, radius: float, fitted_on: str = "", behind_map: bool = False) -> Guarantee:
    """Return TextCrafter's theorem, which bounds distortion and not privacy.

    ``radius`` is r, the norm of every perturbation. With ``behind_map`` a linear map follows; norm and direction then
    hold before it.
    """
    where = "Before the map that follows, each" if behind_map else "Each"
    candidates = "An attacker with candidate texts and the encoder " + (
        "still matches them behind the map." if behind_map else "picks the one at distance r."
    )
    return Guarantee(
        kind="empirical",
        statement=(
            f"empirical, no formal privacy guarantee. {where} vector is moved by exactly r = {radius:.4g}, at a right "
            "angle to a direction that is computed from it; what that hides is measured, not proved."
        ),
        dimension=int(dimension),
        noise_norm=float(radius),
        promised=(
            "Nothing of privacy.",
            f"Distortion: for every vector e and its release e' before any later step, ‖e' − e‖ = {radius:.4g} and "
            "(e' − e)ᵀ v(e) = 0, so the reward that the policy was trained for has a lower bound.",
        ),
        not_promised=(
            "Any bound on what an attacker learns. The published theorem bounds how far a vector moves, which limits "
            "the loss of utility; a larger r does not by itself hide more.",
            "Indistinguishable inputs: two different perturbed vectors lie on two different spheres. " + candidates,
            "Protection from other attackers than the PII classifier in the reward: the policy learns to deceive this "
            "classifier, not one that is trained on released vectors.",
        ),
        conditional_on=(
            *((f"the policy was learnt on {fitted_on}.",) if fitted_on else ()),
            "vectors have norm 1.",
            f"each vector is released once; {dimension + 1} fresh releases of one text determine its vector exactly, "
            "since all are at distance r from it, and fewer narrow it down.",
        ),
    )


def rewriting_guarantee(*, dimension: int, what: str, same: str, shows: tuple[str, ...]) -> Guarantee:
    """Return the guarantee of rewriting texts before they are encoded: nothing is proved.

    ``what`` replaces the concept; mentions with the ``same`` property are rewritten alike; ``shows`` are sentences on
    what remains visible.
    """
    return Guarantee(
        kind="empirical",
        statement=(
            f"empirical, no formal privacy guarantee. The concept's spans become {what} before the text is encoded; "
            "the rest of the text is encoded unchanged."
        ),
        dimension=int(dimension),
        promised=(
            "Nothing of privacy.",
            f"Detected spans do not reach the encoder: two texts that differ only in them, with the same {same}, give "
            "the same vector.",
        ),
        not_promised=(
            "Protection of what the detectors miss: it is encoded unchanged.",
            "Protection from the context: the words around a span can reveal the concept.",
            "Noise: an attacker with candidate texts, the encoder and the protector file rewrites, encodes and "
            "compares them.",
            *shows,
        ),
        conditional_on=(
            "the detectors find every mention.",
            "the protector file stays secret: it contains the concept's terms and patterns, and the words that replace "
            "them, as plain text.",
        ),
    )
