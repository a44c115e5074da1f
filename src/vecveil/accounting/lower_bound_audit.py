"""Test a running mechanism against its declared law, on one pair of inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from vecveil.accounting.lower_bound import LowerBound, epsilon_lower_bound
from vecveil.accounting.lower_bound_declared import DeclaredPair
from vecveil.errors import InvalidInputError
from vecveil.randomness import resolve_generator
from vecveil.types import Embeddings, RandomSource, Release, Vector
from vecveil.validation import check_count, check_probability

__all__ = [
    "AuditCheck",
    "MechanismAudit",
    "Ties",
    "audit_mechanism",
    "count_ties",
    "float32_share",
]

_RESOLUTION = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-7}  # a few units of rounding


@dataclass(frozen=True)
class Ties:
    """Nearly equal lengths of the noise, and the number that a continuous law allows.

    A float32 radius takes one of a few million values, so some of thousands of releases agree to all digits;
    a float64 radius agrees once in a billion pairs. A generator that is seeded anew for each call repeats
    its values exactly.

    Attributes:
        observed: neighbours among the sorted lengths that agree within the resolution.
        expected: upper bound of their mean number under any log-concave law of that spread.
        allowed: a larger number has a chance below the significance.
        resolution: relative difference below which two lengths agree.
    """

    observed: int
    expected: float
    allowed: int
    resolution: float

    @property
    def passed(self) -> bool:
        """True if a continuous law allows that many ties."""
        return self.observed <= self.allowed


def count_ties(lengths: Vector, *, dtype: object, significance: float, offset: float = 0.0) -> Ties:
    """Return the number of lengths that agree, and the number that a log-concave law allows.

    Of M lengths with a log-concave density f, two agree within a gap g with probability at most
    2g · max f ≤ 2g/sd, so at most M²g/sd pairs are expected, nearly Poisson.

    Args:
        lengths: (M,) lengths of the noise of independent releases, also of different inputs.
        dtype: of the released vectors, which limits the resolution of lengths.
        significance: chance of a false rejection.
        offset: length of the inputs; y − x loses the digits that x takes.
    """
    from scipy import stats  # slow to import

    ordered = np.sort(np.asarray(lengths, dtype=np.float64))
    middle, spread = float(np.median(ordered)), float(ordered.std())
    resolution = _RESOLUTION[np.dtype(dtype)] * (1 + offset / middle if middle > 0 else 1.0)  # type: ignore[call-overload]
    gap = resolution * middle
    observed = int((np.diff(ordered) <= gap).sum())
    if spread <= gap:  # all lengths are alike: any tie is one too many
        return Ties(observed, 0.0, 0, resolution)
    expected = len(ordered) ** 2 * gap / spread
    return Ties(observed, expected, int(stats.poisson.isf(significance, expected)), resolution)


def float32_share(noise: Embeddings) -> float:
    """Return the share of float64 coordinates that are float32 numbers: about 2⁻²⁹ by chance."""
    with np.errstate(over="ignore"):
        rounded = noise.astype(np.float32).astype(np.float64)
    return float((rounded == noise).mean())


_BLOCK = 4096  # releases per call: bounds the memory
_CHECKS = 5
_FLOAT32_SHARE = 1e-3  # far above the 2⁻²⁹ of chance, far below the 1 of noise drawn in float32


@dataclass(frozen=True)
class AuditCheck:
    """One test of a declaration: outcome, reason in plain words, and figures."""

    name: str
    passed: bool
    reason: str
    figures: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class MechanismAudit:
    """The outcome of all tests; a correct mechanism passes with at least the stated confidence.

    Attributes:
        reasons: of the checks that did not pass.
        lower_bound: the bound that the likelihood-ratio attack proves.
        declared_worst_case: ε times the distance, in the mechanism's norm.
        declared_total_variation: the exact advantage of the best attacker.
        samples: releases of each input.
    """

    passed: bool
    reasons: tuple[str, ...]
    checks: tuple[AuditCheck, ...]
    lower_bound: LowerBound
    declared_worst_case: float
    declared_total_variation: float
    samples: int
    confidence: float

    def to_record(self) -> dict[str, Any]:
        """Return the outcome as JSON-ready values; an infinite worst case as None."""
        worst = self.declared_worst_case
        return {
            **vars(self),
            "reasons": list(self.reasons),
            "checks": [dict(vars(check)) for check in self.checks],
            "lower_bound": self.lower_bound.to_record(),
            "declared_worst_case": worst if math.isfinite(worst) else None,
        }


@dataclass
class _Draws:
    """Scores and lengths of the releases of both inputs."""

    scores: list[Vector]
    lengths: list[Vector]
    float32: list[float]
    dtype: Any


def audit_mechanism(
    release: Release,
    x: Vector,
    x_prime: Vector,
    *,
    samples: int,
    declared: DeclaredPair,
    rng: RandomSource = None,
    confidence: float = 0.999999,
    low_order_bits: bool = False,
) -> MechanismAudit:
    """Test whether ``release`` behaves on x and x′ as declared.

    Five tests share the allowed chance of a false rejection:

    - *worst case*: the proved lower bound on ε is at most the declared ε times the distance;
    - *advantage*: the proved advantage is at most the declared total variation;
    - *privacy loss*: at five thresholds the shares of outputs with a larger log-likelihood ratio are the
      declared ones (exact binomial, both sides: too little noise and too much);
    - *noise*: the length of the noise has the declared law (mean and variance of the normal scores);
    - *ties*: lengths do not repeat, within and between the two inputs.

    The tests miss noise that is wrong only in directions other than x − x′ and keeps its length, and
    errors small against 1/√samples, such as a scale that is off by less than about 5/√(2n·samples).

    Args:
        release: (X, generator) → Y, as a mechanism's ``protect``.
        x, x_prime: (n,) inputs, float32 or float64; float64 shows more of the noise.
        samples: releases of each.
        declared: `declared_laplace`, `declared_gaussian` or `declared_purkayastha` of this pair.
        rng: None for the cryptographic generator; a seed or generator for a repeatable run.
        confidence: chance that a correct mechanism passes.
        low_order_bits: also reject float64 noise whose coordinates are float32 numbers. Off for
            mechanisms that round their output to a grid.
    """
    owner = "audit_mechanism"
    N = check_count(samples, owner=owner, param="samples", minimum=100)
    confidence = check_probability(confidence, owner=owner, param="confidence", open_interval=True)
    generator = resolve_generator(rng, owner=owner)
    for param, given, known in (("x", x, declared.x), ("x_prime", x_prime, declared.x_prime)):
        if np.shape(given) != known.shape or not np.array_equal(given, known):
            raise InvalidInputError.of(
                owner, param, "the vector that `declared` was made for", "another"
            )
    draws = _draw(release, (x, x_prime), N, declared, generator)
    share = (1 - confidence) / _CHECKS  # Bonferroni over the five tests
    # it serves two tests: worst case and advantage
    bound = epsilon_lower_bound(*draws.scores, confidence=1 - 2 * share)
    checks = (
        _worst_case(bound, declared),
        _advantage(bound, declared),
        _privacy_loss(draws, declared, share),
        _noise(draws, declared, share),
        _ties(draws, declared, share, low_order_bits),
    )
    return MechanismAudit(
        passed=all(check.passed for check in checks),
        reasons=tuple(check.reason for check in checks if not check.passed),
        checks=checks,
        lower_bound=bound,
        declared_worst_case=declared.worst_case,
        declared_total_variation=declared.total_variation,
        samples=N,
        confidence=confidence,
    )


def _draw(
    release: Release,
    inputs: tuple[Vector, Vector],
    N: int,
    declared: DeclaredPair,
    rng: np.random.Generator,
) -> _Draws:
    draws = _Draws([], [], [], inputs[0].dtype)
    for vector, centre in zip(inputs, (declared.x, declared.x_prime), strict=True):
        scores, lengths = np.empty(N), np.empty(N)
        float32 = 0.0
        for start in range(0, N, _BLOCK):
            rows = min(_BLOCK, N - start)
            Y = release(np.tile(vector, (rows, 1)), rng)
            if np.shape(Y) != (rows, len(vector)) or not np.isfinite(Y).all():
                raise InvalidInputError.of("audit_mechanism", "release",
                                           f"a function to finite ({rows}, " f"{len(vector)}) arrays",
                                           f"one to shape {np.shape(Y)}")  # fmt: skip
            draws.dtype = Y.dtype
            # Lengths in float64 even for float32 outputs: rounding must not create ties.
            Y = Y.astype(np.float64)
            part = slice(start, start + rows)
            scores[part], lengths[part] = declared.score(Y), declared.length(Y, centre)
            float32 += rows / N * float32_share(Y - centre)
        draws.scores.append(scores)
        draws.lengths.append(lengths)
        draws.float32.append(float32)
    return draws


def _worst_case(bound: LowerBound, declared: DeclaredPair) -> AuditCheck:
    low, worst = bound.epsilon_lower_bound, declared.worst_case
    passed = low <= worst
    reason = (
        f"An attack proves ε ≥ {low:.4g} for this pair, "
        + ("within" if passed else "beyond")
        + f" the declared worst case of {worst:.4g}."
    )
    figures = {"epsilon_lower_bound": low, "declared": worst if math.isfinite(worst) else None}
    return AuditCheck("worst case", passed, reason, figures)


def _advantage(bound: LowerBound, declared: DeclaredPair) -> AuditCheck:
    low, exact = bound.advantage_low, declared.total_variation
    passed = low <= exact
    reason = (
        f"An attack proves an advantage of at least {low:.4g}; the declared noise allows {exact:.4g}."
        + ("" if passed else " The releases leak more than declared.")
    )
    return AuditCheck(
        "advantage", passed, reason, {"advantage_low": low, "declared_total_variation": exact}
    )


def _privacy_loss(draws: _Draws, declared: DeclaredPair, significance: float) -> AuditCheck:
    """Test the shares of scores above five thresholds against the declared law."""
    from scipy import stats

    # Thresholds where both laws have mass: within the μ of Gaussian DP of equal total variation.
    mu = 2 * float(special.ndtri(min((1 + declared.total_variation) / 2, 1 - 1e-9)))
    reach = min(mu, 0.9 * declared.worst_case)
    thresholds = reach * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    worst = (1.0, 0.0, 0.0, 0.0)
    for t in thresholds:
        # Under x′ the score is the negative: P′(score > t) = 1 − tail(−t).
        for scores, law in (
            (draws.scores[0], declared.tail(t)),
            (draws.scores[1], 1 - declared.tail(-t)),
        ):
            above = int((scores > t).sum())
            p = _two_sided(stats.binom(len(scores), min(max(law, 0.0), 1.0)), above)
            worst = min(worst, (p, float(t), above / len(scores), law))
    p, t, observed, law = worst
    passed = p >= significance / (2 * len(thresholds))  # two inputs at each threshold
    reason = (
        "The privacy loss has the declared law."
        if passed
        else f"The privacy loss has another law than declared: {observed:.4g} of the releases have a "
        f"log-likelihood ratio above {t:.3g}, where {law:.4g} are declared."
    )
    figures: dict[str, float | None] = {
        "p": p, "threshold": t, "observed": observed, "declared": law,
    }  # fmt: skip
    return AuditCheck("privacy loss", passed, reason, figures)


def _noise(draws: _Draws, declared: DeclaredPair, significance: float) -> AuditCheck:
    from scipy import stats

    scores = np.concatenate([declared.normal_score(lengths) for lengths in draws.lengths])
    M = len(scores)
    mean = float(scores.mean())
    # About 0, not about the mean: mean and mean square then have exact null laws.
    variance = float((scores**2).mean())
    p_mean = 2 * float(special.ndtr(-abs(mean) * math.sqrt(M)))
    p_variance = _two_sided(stats.chi2(M), variance * M)
    passed = min(p_mean, p_variance) >= significance / 2  # two tests
    reason = (
        "The length of the noise has the declared law."
        if passed
        else "The length of the noise has another law than declared: its normal scores have mean "
        f"{mean:.3g} and mean square {variance:.3g} in place of 0 and 1."
    )
    figures: dict[str, float | None] = {
        "p": min(p_mean, p_variance), "mean": mean, "mean_square": variance,
    }  # fmt: skip
    return AuditCheck("noise", passed, reason, figures)


def _ties(
    draws: _Draws, declared: DeclaredPair, significance: float, low_order_bits: bool
) -> AuditCheck:
    both = np.concatenate(draws.lengths)
    offset = float(max(np.linalg.norm(declared.x), np.linalg.norm(declared.x_prime)))
    ties = count_ties(both, dtype=draws.dtype, significance=significance, offset=offset)
    share = max(draws.float32)
    coarse = low_order_bits and draws.dtype == np.float64 and share > _FLOAT32_SHARE
    reason = "Noise does not repeat more than a continuous law allows."
    if not ties.passed:
        reason = (
            f"Noise repeats: {ties.observed} lengths agree within a relative {ties.resolution:.1g}, "
            f"a continuous law allows {ties.allowed}. The generator is too coarse or used twice."
        )
    elif coarse:
        reason = f"{100 * share:.3g} % of the noise's coordinates are float32 numbers."
    figures: dict[str, float | None] = {
        "observed": ties.observed, "allowed": ties.allowed, "float32_share": share,
    }  # fmt: skip
    return AuditCheck("ties", ties.passed and not coarse, reason, figures)


def _two_sided(law: Any, value: float) -> float:
    """Return the p-value of ``value``; for a discrete law the tails include it."""
    below = float(law.cdf(value))
    at_or_above = float(law.sf(value) + (law.pmf(value) if hasattr(law.dist, "pmf") else 0.0))
    return min(1.0, 2 * min(below, at_or_above))
