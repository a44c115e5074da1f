"""The Purkayastha mechanism draws the law that its guarantee is about, for every n and ε.

Null: y has density ∝ exp(−ε·arccos(xᵀy)) on the sphere: its angle θ to x has density ∝ exp(−εθ) sin^{n−2}θ, and
independently of it the tangent direction is uniform on the sphere of x's orthogonal complement.
False failure: 1e-6 for the module, shared over all its tests.
Power: the normal scores of N angles show a relative error s of ε as a mean of about s·cos θ*·√n standard deviations
each, √N times that in all; each control below computes that it lies 12 standard deviations or more away.
Control: the law of 1.03 ε is rejected by the same tests, so are directions that prefer an axis and directions that
depend on the angle.
"""

from __future__ import annotations

from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import optimize, special, stats

from harness.statistics import threshold
from vecveil.privacy.mechanisms.purkayastha import angle_moments, draw_angles
from vecveil.privacy.randomness import resolve_stream

DIMENSIONS = (2, 3, 8, 384, 768, 1024, 3072, 4096)
EPSILONS = tuple(10.0**k for k in range(-3, 7))
DIVIDES_BY_ZERO = (600.0, 620.0, 621.0, 650.0, 1000.0)
"""Where the public reference sampler fails at n = 768."""

CASES = [(n, e) for n in DIMENSIONS for e in EPSILONS] + [(768, e) for e in DIVIDES_BY_ZERO]
LEVEL = threshold(4 * len(CASES) + 100)
LIMIT = -special.ndtri(LEVEL / 2)
PANELS = 20_000


class AngleLaw:
    """Density ∝ exp(−εθ) sin^{n−2}θ by Gauss–Legendre panels in log space, apart from the package."""

    def __init__(self, n: int, epsilon: float) -> None:
        self.n, self.epsilon = n, epsilon
        mode = float(np.arctan2(n - 2, epsilon))
        top = self.log_density(np.array(mode)) if n > 2 else 0.0

        def above(theta: float) -> float:
            return float(self.log_density(np.array(theta)) - top + 80)

        low = 0.0 if n == 2 else optimize.brentq(above, 1e-300, mode, rtol=1e-14)
        last = np.nextafter(np.pi, 0)
        high = last if above(last) > 0 else optimize.brentq(above, mode, last, rtol=1e-14)
        edges = np.linspace(low, high, PANELS + 1)
        nodes, weights = np.polynomial.legendre.leggauss(5)
        middle, half = (edges[1:] + edges[:-1]) / 2, (high - low) / PANELS / 2
        density = np.exp(self.log_density(middle[:, None] + half * nodes) - top)
        mass = density @ weights
        self.edges = edges
        self.below = np.r_[0.0, np.cumsum(mass)] / mass.sum()
        self.above = np.r_[np.cumsum(mass[::-1])[::-1], 0.0] / mass.sum()

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        if self.n == 2:
            return np.asarray(-self.epsilon * theta)
        return np.asarray(-self.epsilon * theta + (self.n - 2) * np.log(np.sin(theta)))

    def cdf(self, theta: np.ndarray) -> np.ndarray:
        return np.interp(theta, self.edges, self.below)

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Return standard normal numbers, from whichever tail keeps its digits."""
        p, q = self.cdf(theta), np.interp(theta, self.edges, self.above)
        tiny = 1e-300
        return np.where(p < 0.5, special.ndtri(np.maximum(p, tiny)), -special.ndtri(np.maximum(q, tiny)))

    def p_values(self, theta: np.ndarray) -> dict[str, float]:
        scores, N = self.scores(theta), len(theta)
        squares = stats.chi2(N)
        total = float(scores @ scores)
        bins = np.bincount(np.minimum((self.cdf(theta) * 25).astype(int), 24), minlength=25)
        return {
            "mean": 2 * float(special.ndtr(-abs(scores.sum()) / np.sqrt(N))),
            "spread": min(1.0, 2 * float(min(squares.cdf(total), squares.sf(total)))),
            "bins": float(stats.chisquare(bins).pvalue),
            "Kolmogorov-Smirnov": float(stats.kstest(self.cdf(theta), "uniform").pvalue),
        }


@cache
def law_of(n: int, epsilon: float) -> AngleLaw:
    return AngleLaw(n, epsilon)


def angles(n: int, epsilon: float, rows: int, seed: int = 0) -> np.ndarray:
    return draw_angles(resolve_stream(seed, rows), n, epsilon, (n + 1) // 2)


@pytest.mark.parametrize(("n", "epsilon"), [(2, 0.7), (3, 1e-3), (8, 3.0), (768, 620.0), (4096, 1e6)])
def test_the_law_of_this_module_is_that_of_mpmath(n: int, epsilon: float) -> None:
    law = AngleLaw(n, epsilon)
    points = np.interp([0.01, 0.3, 0.5, 0.99], law.below, law.edges)
    width = mpmath.mpf(float(points[2] - points[0])) + mpmath.mpf(10) ** -30

    def density(t: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(
            -mpmath.mpf(epsilon) * (t - float(points[2]))
            + (n - 2) * mpmath.log(mpmath.sin(t) / mpmath.sin(mpmath.mpf(float(points[2]))))
        )

    with mpmath.workdps(30):
        ends = [mpmath.mpf(float(points[2])) + k * width for k in range(-12, 13)]
        inner = [t for t in ends if float(law.edges[0]) < t < float(law.edges[-1])]
        cuts = [mpmath.mpf(float(law.edges[0])), *inner, mpmath.mpf(float(law.edges[-1]))]
        total = mpmath.quad(density, cuts)
        for point in points:
            upto = [c for c in cuts if c < float(point)] + [mpmath.mpf(float(point))]
            share = mpmath.quad(density, upto) / total
            assert float(share) == pytest.approx(float(law.cdf(point)), abs=1e-6)


@pytest.mark.parametrize(("n", "epsilon"), CASES)
def test_angles_have_the_stated_law(n: int, epsilon: float) -> None:
    theta = angles(n, epsilon, 10_000)
    assert np.isfinite(theta).all()
    assert (theta > 0).all()
    assert (theta <= np.pi).all()
    for name, p in law_of(n, epsilon).p_values(theta).items():
        assert p > LEVEL, (name, p)


def shift(n: int, epsilon: float, other: AngleLaw) -> float:
    """Return the mean normal score under ``other`` of the angles of (n, ε), by quadrature."""
    law = law_of(n, epsilon)
    middle = (law.edges[1:] + law.edges[:-1]) / 2
    return float(np.diff(law.below) @ other.scores(middle))


@pytest.mark.parametrize(
    ("n", "epsilon", "rows"),
    [
        (2, 10.0, 400_000),
        (2, 1e5, 400_000),
        (3, 10.0, 400_000),
        (8, 8.0, 200_000),
        (384, 300.0, 10_000),
        (768, 620.0, 10_000),
        (1024, 1e4, 10_000),
        (4096, 1e6, 10_000),
    ],
)
def test_control_another_epsilon_is_rejected(n: int, epsilon: float, rows: int) -> None:
    other = AngleLaw(n, 1.03 * epsilon)
    assert abs(shift(n, epsilon, other)) * np.sqrt(rows) > LIMIT + 5
    theta = angles(n, epsilon, rows)
    assert other.p_values(theta)["mean"] < LEVEL
    assert min(law_of(n, epsilon).p_values(theta).values()) > LEVEL


def test_no_epsilon_between_the_decades_fails() -> None:
    """Where the mode of the angle, a series and a closed form meet; every draw is an angle."""
    for n in (2, 3, 4, 5, 8, 384, 768, 4096):
        for epsilon in np.geomspace(1e-4, 1e9, 60):
            theta = angles(n, float(epsilon), 40, seed=n)
            assert (theta > 0).all()
            assert (theta <= np.pi).all()
            cosine, square = angle_moments(n, float(epsilon))
            assert -1 < cosine <= 1
            assert 0 < square <= 1


@pytest.mark.parametrize(("n", "epsilon"), CASES[::3])
def test_declared_moments_are_those_of_the_law(n: int, epsilon: float) -> None:
    law = law_of(n, epsilon)
    middle, mass = (law.edges[1:] + law.edges[:-1]) / 2, np.diff(law.below)
    cosine, square = angle_moments(n, epsilon)
    assert cosine == pytest.approx(float(mass @ np.cos(middle)), rel=1e-4, abs=1e-6)
    assert square == pytest.approx(float(mass @ np.sin(middle) ** 2), rel=1e-3)
