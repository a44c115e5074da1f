"""Total variation and guarantees against independent computations."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from scipy import integrate, special

from harness.errors import raises
from vecveil.privacy.accounting import elliptical_laplace_guarantee, laplace_total_variation
from vecveil.privacy.sensitivity import NoiseShape


def by_angle(n: int, epsilon: float, rho: float) -> float:
    """Integrate over the angle between noise and difference: another order than the package's."""
    norm = special.gammaln(n / 2) - special.gammaln((n - 1) / 2) - 0.5 * np.log(np.pi)

    def density(phi: float) -> float:  # phi: from the plane that halves the difference
        inside = special.gammainc(n, epsilon * rho / 2 / np.sin(phi))
        return float(inside * np.exp(norm + (n - 2) * np.log(np.cos(phi))))

    breaks = np.array([1e-14, *np.geomspace(0.02, 8, 6) / np.sqrt(n)])
    edges = np.append(breaks[breaks < np.pi / 2], [np.pi / 2 - 1e-14])
    parts = itertools.pairwise(edges)
    return 2 * sum(integrate.quad(density, a, b, epsabs=1e-13, limit=200)[0] for a, b in parts)


@pytest.mark.parametrize("n", [2, 3, 5, 16, 64, 384, 1024])
@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 2.5, 8.0])
def test_total_variation_agrees_with_adaptive_quadrature(n: int, mu: float) -> None:
    epsilon, rho = float(n), mu / np.sqrt(n)
    value = laplace_total_variation(rho, dimension=n, epsilon=epsilon)
    assert value[0] == pytest.approx(by_angle(n, epsilon, rho), abs=2e-8)


def test_total_variation_rises_from_0_to_1_and_stays_below_the_worst_case_bound() -> None:
    for n in (2, 16, 384):
        rho = np.linspace(0, 40 / n, 200)
        value = laplace_total_variation(rho, dimension=n, epsilon=float(n))
        assert value[0] == 0.0
        assert (np.diff(value) >= -1e-12).all()
        assert (value <= np.tanh(n * rho / 2) + 1e-12).all()  # pure ε-DP bounds it by tanh(ε/2)
    extreme = laplace_total_variation([0.0, 1e-300, 1e300], dimension=384, epsilon=1.0)
    np.testing.assert_allclose(extreme, [0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf, np.zeros((2, 2))])
def test_bad_distances_are_refused(bad: object) -> None:
    with raises("E-INPUT", "distances"):
        laplace_total_variation(bad, dimension=4, epsilon=1.0)  # type: ignore[arg-type]


def test_bad_parameters_are_refused() -> None:
    with raises("E-INPUT-RANGE", "dimension"):
        laplace_total_variation(0.1, dimension=0, epsilon=1.0)
    with raises("E-INPUT-RANGE", "epsilon"):
        laplace_total_variation(0.1, dimension=2, epsilon=0.0)


def random_case(seed: int, n: int = 6, m: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    return NoiseShape.from_matrix(A @ A.T, floor=0.05).covariance(), rng.standard_normal((m, n))


@pytest.mark.parametrize("seed", range(5))
def test_worst_euclidean_factor_is_the_supremum(seed: int) -> None:
    Sigma, T = random_case(seed)
    found = elliptical_laplace_guarantee(epsilon=2.0, covariance=Sigma, down=T)
    form = T.T @ np.linalg.inv(T @ Sigma @ T.T) @ T
    V = np.random.default_rng(seed).standard_normal((20_000, 6))
    ratio = 2 * np.sqrt(np.einsum("ij,jk,ik->i", V, form, V)) / np.linalg.norm(V, axis=1)
    assert ratio.max() <= found.epsilon_euclidean_worst * (1 + 1e-9)
    assert ratio.max() > 0.9 * found.epsilon_euclidean_worst
    assert found.hidden_directions == 3
    assert "hidden" in str(found)
    # A map never raises the worst case.
    plain = elliptical_laplace_guarantee(epsilon=2.0, covariance=Sigma)
    assert plain.epsilon_euclidean_worst >= found.epsilon_euclidean_worst * (1 - 1e-9)
    assert plain.epsilon_euclidean_worst == pytest.approx(2 / np.sqrt(np.linalg.eigvalsh(Sigma)[0]))


@pytest.mark.parametrize("spread", [1e-3, 1e-9, 1e-15, 0.0])
def test_no_map_makes_the_guarantee_infinite(spread: float) -> None:
    """Rows that nearly or wholly coincide, or of very different lengths, squared the old formula."""
    Sigma, T = random_case(0)
    T[1] = T[0] + spread * T[1]
    for scale in (np.ones(3), np.array([1.0, 1e-12, 1e12])):
        found = elliptical_laplace_guarantee(epsilon=2.0, covariance=Sigma, down=scale[:, None] * T)
        worst, best = found.epsilon_euclidean_worst, found.epsilon_euclidean_best
        assert worst is not None
        assert best is not None
        bounds = 2 / np.sqrt(np.linalg.eigvalsh(Sigma)[[0, -1]])
        assert bounds[1] * (1 - 1e-9) <= best <= worst <= bounds[0] * (1 + 1e-9)
        assert not re.search(r"\b(nan|inf)\b", str(found))


def test_conditions_name_floating_point_arithmetic() -> None:
    found = elliptical_laplace_guarantee(epsilon=2.0, covariance=np.eye(3))
    assert "proved for real numbers" in " ".join(found.conditional_on)
    found = elliptical_laplace_guarantee(epsilon=2.0, covariance=np.eye(3), step=2.0**-12)
    said = " ".join(found.conditional_on)
    assert "multiples of 0.000244" in said
    assert "argued and tested, not proved" in said


def test_isotropic_guarantee_is_euclidean() -> None:
    found = elliptical_laplace_guarantee(epsilon=7.0, covariance=np.eye(4))
    assert found.epsilon_euclidean_worst == found.epsilon_euclidean_best == pytest.approx(7.0)
    assert found.metric == "Euclidean distance"
    assert found.noise_norm == pytest.approx(4 / 7)
    erased = elliptical_laplace_guarantee(epsilon=7.0, covariance=np.eye(4), down=np.eye(4)[:2])
    assert erased.epsilon_euclidean_worst == pytest.approx(7.0)
    assert "fitted on 30 pairs" in str(
        elliptical_laplace_guarantee(epsilon=7.0, covariance=np.eye(4), fitted_on="30 pairs")
    )
