"""Test a running mechanism against its declared law, on one pair of inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from vecveil.accounting.lower_bound import LowerBound, epsilon_lower_bound
from vecveil.accounting.lower_bound_declared import DeclaredPair
from vecveil.errors import InvalidInputError
from vecveil.randomness import resolve_generator
from vecveil.types import RandomSource, Release, Vector
from vecveil.validation import check_count, check_probability

_RESOLUTION = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-7}  # a few units of rounding
_BLOCK = 4096  # releases per call: bounds the memory
_CHECKS = 5
_FLOAT32_SHARE = 1e-3  # far above the 2⁻²⁹ of chance, far below the 1 of noise drawn in float32
_REACH = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])  # thresholds of the privacy loss


@dataclass(frozen=True)
class AuditCheck:
    """One test of a declaration: outcome, reason in plain words, and figures."""

    name: str
    passed: bool
    reason: str
    figures: Mapping[str, float | None]


@dataclass(frozen=True)
class MechanismAudit:
    """The outcome of all tests; a correct mechanism passes with at least the stated confidence.

    Attributes:
        lower_bound: the bound that the likelihood-ratio attack proves.
        declared_worst_case: ε times the distance, in the mechanism's norm.
        declared_total_variation: the exact advantage of the best attacker.
        samples: releases of each input.
    """

    checks: tuple[AuditCheck, ...]
    lower_bound: LowerBound
    declared_worst_case: float
    declared_total_variation: float
    samples: int
    confidence: float

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons of the checks that did not pass."""
        return tuple(check.reason for check in self.checks if not check.passed)

    def to_record(self) -> dict[str, Any]:
        """Return the outcome as JSON-ready values; an infinite worst case as None."""
        return {
            **vars(self),
            "passed": self.passed,
            "reasons": list(self.reasons),
            "checks": [dict(vars(check)) for check in self.checks],
            "lower_bound": self.lower_bound.to_record(),
            "declared_worst_case": _finite(self.declared_worst_case),
        }


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
    scores, lengths, float32, dtype = _draw(release, (x, x_prime), N, declared, generator)
    share = (1 - confidence) / _CHECKS  # Bonferroni over the five tests
    # it serves two tests: worst case and advantage
    bound = epsilon_lower_bound(*scores, confidence=1 - 2 * share)
    return MechanismAudit(
        checks=(
            _worst_case(bound, declared),
            _advantage(bound, declared),
            _privacy_loss(scores, declared, share),
            _noise(lengths, declared, share),
            _ties(lengths, declared, share, dtype, float32 if low_order_bits else None),
        ),
        lower_bound=bound,
        declared_worst_case=declared.worst_case,
        declared_total_variation=declared.total_variation,
        samples=N,
        confidence=confidence,
    )


def _draw(
    release: Release, inputs: tuple[Vector, Vector], N: int, declared: DeclaredPair, rng: Any
) -> tuple[Vector, Vector, float, Any]:
    """Return scores and lengths (2, N) of the releases, their share of float32 coordinates, and their dtype."""
    scores, lengths, float32 = np.empty((2, N)), np.empty((2, N)), 0.0
    for side, centre in enumerate((declared.x, declared.x_prime)):
        for start in range(0, N, _BLOCK):
            part = slice(start, min(start + _BLOCK, N))
            X = np.tile(inputs[side], (part.stop - start, 1))
            Y = release(X, rng)
            if np.shape(Y) != X.shape or not np.isfinite(Y).all():
                raise InvalidInputError.of("audit_mechanism", "release", f"a function to finite {X.shape} arrays",
                                           f"one to shape {np.shape(Y)}")  # fmt: skip
            # Lengths in float64 even for float32 outputs: rounding must not create ties.
            wide = Y.astype(np.float64)
            scores[side, part] = declared.score(wide)
            lengths[side, part] = declared.length(wide, centre)
            noise = wide - centre
            with np.errstate(over="ignore"):
                # By chance about 2⁻²⁹ of float64 coordinates are float32 numbers.
                float32 += len(X) / (2 * N) * float((noise.astype(np.float32) == noise).mean())
    return scores, lengths, float32, Y.dtype


def _worst_case(bound: LowerBound, declared: DeclaredPair) -> AuditCheck:
    low, worst = bound.epsilon_lower_bound, declared.worst_case
    side = "within" if low <= worst else "beyond"
    reason = f"An attack proves ε ≥ {low:.4g} for this pair, {side} the declared worst case of {worst:.4g}."
    figures = {"epsilon_lower_bound": low, "declared": _finite(worst)}
    return AuditCheck("worst case", low <= worst, reason, figures)


def _advantage(bound: LowerBound, declared: DeclaredPair) -> AuditCheck:
    low, exact = bound.advantage_low, declared.total_variation
    reason = f"An attack proves an advantage of at least {low:.4g}; the declared noise allows {exact:.4g}."
    if low > exact:
        reason += " The releases leak more than declared."
    figures = {"advantage_low": low, "declared_total_variation": exact}
    return AuditCheck("advantage", low <= exact, reason, figures)


def _privacy_loss(scores: Vector, declared: DeclaredPair, significance: float) -> AuditCheck:
    """Test the shares of scores above five thresholds against the declared law."""
    from scipy import stats  # slow to import

    # Thresholds where both laws have mass: within the μ of Gaussian DP of equal total variation.
    mu = 2 * float(special.ndtri(min((1 + declared.total_variation) / 2, 1 - 1e-9)))
    thresholds = min(mu, 0.9 * declared.worst_case) * _REACH
    worst = (1.0, 0.0, 0.0, 0.0)
    for t in thresholds:
        # Under x′ the score is the negative: P′(score > t) = 1 − tail(−t).
        for row, law in zip(scores, (declared.tail(t), 1 - declared.tail(-t)), strict=True):
            above = int((row > t).sum())
            p = _two_sided(stats.binom(len(row), min(max(law, 0.0), 1.0)), above)
            worst = min(worst, (p, float(t), above / len(row), law))
    p, t, observed, law = worst
    passed = p >= significance / (2 * len(thresholds))  # two inputs at each threshold
    reason = (
        "The privacy loss has the declared law."
        if passed
        else f"The privacy loss has another law than declared: {observed:.4g} of the releases have a "
        f"log-likelihood ratio above {t:.3g}, where {law:.4g} are declared."
    )
    figures = {"p": p, "threshold": t, "observed": observed, "declared": law}
    return AuditCheck("privacy loss", passed, reason, figures)


def _noise(lengths: Vector, declared: DeclaredPair, significance: float) -> AuditCheck:
    from scipy import stats

    scores = declared.normal_score(lengths.ravel())
    M = len(scores)
    mean = float(scores.mean())
    # About 0, not about the mean: mean and mean square then have exact null laws.
    variance = float((scores**2).mean())
    p_mean = 2 * float(special.ndtr(-abs(mean) * math.sqrt(M)))
    p = min(p_mean, _two_sided(stats.chi2(M), variance * M))
    passed = p >= significance / 2  # two tests
    reason = (
        "The length of the noise has the declared law."
        if passed
        else "The length of the noise has another law than declared: its normal scores have mean "
        f"{mean:.3g} and mean square {variance:.3g} in place of 0 and 1."
    )
    figures = {"p": p, "mean": mean, "mean_square": variance}
    return AuditCheck("noise", passed, reason, figures)


def _ties(
    lengths: Vector, declared: DeclaredPair, significance: float, dtype: Any, float32: float | None
) -> AuditCheck:
    """Count lengths that agree, against the number that any log-concave law allows.

    A float32 radius takes one of a few million values, so some of thousands of releases agree to all digits; a
    float64 radius agrees once in a billion pairs. A generator that is seeded anew for each call repeats its values.
    Of M lengths with a log-concave density f, two agree within a gap g with probability at most 2g·max f ≤ 2g/sd,
    so at most M²g/sd pairs are expected, nearly Poisson.
    """
    from scipy import stats

    ordered = np.sort(lengths, axis=None)
    middle, spread = float(np.median(ordered)), float(ordered.std())
    # y − x loses the digits that the larger input takes.
    offset = float(max(np.linalg.norm(declared.x), np.linalg.norm(declared.x_prime)))
    resolution = _RESOLUTION[dtype] * (1 + offset / middle if middle > 0 else 1.0)
    gap = resolution * middle
    observed, allowed = int((np.diff(ordered) <= gap).sum()), 0
    if spread > gap:  # else all lengths are alike: any tie is one too many
        allowed = int(stats.poisson.isf(significance, len(ordered) ** 2 * gap / spread))
    coarse = float32 is not None and dtype == np.float64 and float32 > _FLOAT32_SHARE
    reason = "Noise does not repeat more than a continuous law allows."
    if observed > allowed:
        reason = (
            f"Noise repeats: {observed} lengths agree within a relative {resolution:.1g}, "
            f"a continuous law allows {allowed}. The generator is too coarse or used twice."
        )
    elif coarse:
        reason = f"{100 * (float32 or 0):.3g} % of the noise's coordinates are float32 numbers."
    figures = {"observed": observed, "allowed": allowed, "float32_share": float32}
    return AuditCheck("ties", observed <= allowed and not coarse, reason, figures)


def _two_sided(law: Any, value: float) -> float:
    """Return the p-value of ``value``; for a discrete law the tails include it."""
    below = float(law.cdf(value))
    at_or_above = float(law.sf(value) + (law.pmf(value) if hasattr(law.dist, "pmf") else 0.0))
    return min(1.0, 2 * min(below, at_or_above))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
