"""Declared laws against the package's closed forms, against simulation, and against misuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from harness.errors import raises
from vecveil.accounting import laplace_total_variation
from vecveil.accounting.lower_bound_audit import audit_mechanism
from vecveil.accounting.lower_bound_declared import (
    DeclaredPair,
    declared_gaussian,
    declared_laplace,
    declared_purkayastha,
)


def pair(n: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    x, step = rng.standard_normal((2, n))
    return x, x + distance * step / np.linalg.norm(step)


@pytest.mark.parametrize("n", [2, 3, 64, 384, 1024])
@pytest.mark.parametrize("worst", [0.1, 3.0, 30.0])
def test_laplace_has_the_packages_total_variation(n: int, worst: float) -> None:
    declared = declared_laplace(*pair(n, worst / 20), epsilon=20.0)
    known = laplace_total_variation(worst / 20, dimension=n, epsilon=20.0)[0]
    assert declared.worst_case == pytest.approx(worst)
    # At ρ/2 < ‖z‖ the cosine's tail has a kink, which costs digits at n = 2, 3 alone.
    assert declared.total_variation == pytest.approx(known, abs=1e-6 if n > 3 else 2e-3)


def test_gaussian_has_the_known_profile() -> None:
    x, y = pair(8, 0.6)
    declared = declared_gaussian(x, y, sigma=0.5)
    mu = 1.2
    for epsilon in (0.0, 0.5, 3.0):  # Balle & Wang 2018, Theorem 8
        known = special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * special.ndtr(
            -mu / 2 - epsilon / mu
        )
        assert declared.delta(epsilon=epsilon) == pytest.approx(known)
    assert declared.worst_case == np.inf


def test_a_covariance_counts_in_its_own_norm() -> None:
    x, y = pair(5, 1.0)
    A = np.random.default_rng(1).standard_normal((5, 5))
    Sigma = A @ A.T + np.eye(5)
    rho = np.sqrt((x - y) @ np.linalg.inv(Sigma) @ (x - y))
    assert declared_laplace(x, y, epsilon=2.0, covariance=Sigma).worst_case == pytest.approx(
        2 * rho
    )
    Y = x + np.random.default_rng(2).standard_normal((9, 5))
    score = declared_gaussian(x, y, sigma=1.5, covariance=Sigma).score(Y)
    laws = [stats.multivariate_normal(c, 1.5**2 * Sigma) for c in (x, y)]
    np.testing.assert_allclose(score, laws[0].logpdf(Y) - laws[1].logpdf(Y))


def test_purkayastha_in_three_dimensions_against_a_grid_of_the_sphere() -> None:
    x, y = np.array([0.0, 0.0, 1.0]), np.array([np.sin(0.7), 0.0, np.cos(0.7)])
    declared = declared_purkayastha(x, y, epsilon=4.0)
    theta = (np.arange(2000) + 0.5) * np.pi / 2000
    azimuth = (np.arange(2000) + 0.5) * np.pi / 1000
    T, F = (a.ravel() for a in np.meshgrid(theta, azimuth))
    points = np.stack([np.sin(T) * np.cos(F), np.sin(T) * np.sin(F), np.cos(T)], axis=1)
    weights = np.exp(-4.0 * T) * np.sin(T)
    weights /= weights.sum()
    scores = declared.score(points)
    for t in (-2.0, -0.5, 0.3, 1.0, 2.5):
        assert declared.tail(t) == pytest.approx(weights[scores > t].sum(), abs=2e-3)
    other = declared.score(points[np.argsort(scores)])
    assert (np.diff(other) >= 0).all()
    assert np.abs(scores).max() <= declared.worst_case + 1e-9
    # the length's quantiles, as normal numbers
    z = declared.normal_score(T)
    assert float(weights @ z) == pytest.approx(0, abs=1e-3)
    assert float(weights @ z**2) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("make", ["laplace", "gaussian", "purkayastha"])
def test_tails_are_probabilities_and_fall(make: str) -> None:
    x, y = pair(16, 0.4)
    x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
    declared: DeclaredPair = {
        "laplace": lambda: declared_laplace(x, y, epsilon=30.0),
        "gaussian": lambda: declared_gaussian(x, y, sigma=0.1),
        "purkayastha": lambda: declared_purkayastha(x, y, epsilon=30.0),
    }[make]()
    tails = np.array([declared.tail(t) for t in np.linspace(-20, 20, 81)])
    assert ((tails >= 0) & (tails <= 1 + 1e-12)).all()
    assert (np.diff(tails) <= 1e-12).all()
    assert str(float(x[0])) not in repr(declared)
    deltas = [declared.delta(epsilon=e) for e in (0.0, 0.5, 1.0, 2.0)]
    assert deltas == sorted(deltas, reverse=True)


@pytest.mark.parametrize(
    ("call", "code", "param"),
    [
        (lambda x, y: declared_laplace(x, y[:3], epsilon=1.0), "E-INPUT", "x_prime"),
        (lambda x, y: declared_laplace(x, x, epsilon=1.0), "E-INPUT", "x_prime"),
        (lambda x, y: declared_laplace(x[:1], y[:1], epsilon=1.0), "E-INPUT-SHAPE", "x"),
        (lambda x, y: declared_laplace(x, y, epsilon=0.0), "E-INPUT-RANGE", "epsilon"),
        (
            lambda x, y: declared_laplace(x, y, epsilon=1.0, covariance=-np.eye(4)),
            "E-INPUT", "covariance",
        ),
        (
            lambda x, y: declared_laplace(x, y, epsilon=1.0, covariance=np.eye(3)),
            "E-INPUT", "covariance",
        ),
        (lambda x, y: declared_gaussian(x, y, sigma=-1.0), "E-INPUT-RANGE", "sigma"),
        (lambda x, y: declared_gaussian(list(x), y), "E-INPUT-TYPE", "x"),
        (lambda x, y: declared_purkayastha(x, y, epsilon=1.0), "E-INPUT", "x"),
    ],
)  # fmt: skip
def test_bad_declarations_are_refused(call: Any, code: str, param: str) -> None:
    with raises(code, param):
        call(*pair(4, 0.5))


def test_bad_audits_are_refused() -> None:
    x, y = pair(4, 0.5)
    declared = declared_gaussian(x, y)

    def run(release: Any, first: Any = x, **more: Any) -> Any:
        return audit_mechanism(
            release, first, y, **{"samples": 200, "declared": declared, "rng": 0, **more}
        )

    for release in (lambda X, r: X[:1], lambda X, r: X + np.nan):
        with raises("E-INPUT", "release"):
            run(release)
    with raises("E-INPUT", "x"):
        run(lambda X, r: X, first=y)
    with raises("E-INPUT-RANGE", "samples"):
        run(lambda X, r: X, samples=3)


def test_a_mechanism_without_noise_is_rejected_and_its_record_is_json() -> None:
    x, y = pair(4, 0.5)
    found = audit_mechanism(
        lambda X, r: X, x, y, samples=200, declared=declared_gaussian(x, y), rng=0
    )
    assert not found.passed
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert record["declared_worst_case"] is None
    assert [check["name"] for check in record["checks"] if not check["passed"]] == [
        "advantage", "privacy loss", "noise", "ties",
    ]  # fmt: skip
    assert len(found.reasons) == 4
