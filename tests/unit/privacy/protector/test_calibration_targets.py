"""The other scales: sigma, delta, a target cosine, a target advantage; each means what it says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy import special

import vecveil
from harness.errors import raises
from harness.mechanism_audit import declared_gaussian, declared_purkayastha
from harness.token_data import token_data
from vecveil.privacy.accounting import LaplacePrivacyLoss
from vecveil.privacy.mechanisms import Laplace, LdpGaussian
from vecveil.privacy.protector import Protector

N = 32
DATA = token_data(400, N)
SUBSPACE = {"method": "subspace", "rank": 3, "kept": 20, "flattening": 0.0, "pairs": True}
METHODS = (
    {"method": "laplace"},
    {"method": "gaussian"},
    {"method": "purkayastha"},
    {"method": "covariance"},
    {"method": "covariance", "postprocess": "none"},
    SUBSPACE,
)
every = pytest.mark.parametrize("options", METHODS, ids=lambda o: "-".join(map(str, o.values())))


def fit(**options: Any) -> Protector:
    return vecveil.fit_pairs(*DATA.arguments(), **options)


def cosines(protector: Protector, X: np.ndarray) -> np.ndarray:
    """Return the cosine of each vector and its noisy self, before any map.

    Noise in the kept dimensions alone counts as noise of the same deviation in all.
    """
    one = protector.mechanism
    if one.name == "projected-laplace":
        one = Laplace(N, float(np.sqrt(N + 1)) / one.least_deviation)
    Y = one.protect(X, rng=5).astype(np.float64)
    norms = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    return np.asarray((X * Y).sum(axis=1) / norms)


@pytest.mark.parametrize("target", [0.3, 0.6, 0.9, 0.99])
@every
def test_a_target_cosine_is_the_mean_cosine(options: dict[str, Any], target: float) -> None:
    """The formula holds up to 1/n: 0.05 at n = 32. Unlike shapes move the figure a little more."""
    protector = fit(target_cosine=target, **options)
    X = np.tile(np.concatenate([DATA.positive, DATA.background]), (10, 1))
    found = cosines(protector, X)
    assert found.mean() == pytest.approx(target, abs=0.05)
    assert protector.report["asked"] == {"target_cosine": target}


def advantage_at_95(protector: Protector) -> float:
    """Return the largest advantage at the 95 % quantile of the pairs, by other code than the fit's."""
    one, down = protector.mechanism, None if protector.map is None else protector.map.down
    distances = one.distances(DATA.positive, DATA.negative, down=down)
    d = float(np.quantile(distances, 0.95))
    x = np.eye(N)[0]
    if one.name == "purkayastha":
        y = np.cos(d) * x + np.sin(d) * np.eye(N)[1]
        return declared_purkayastha(x, y, epsilon=one.epsilon).total_variation
    if one.name == "gaussian":
        return declared_gaussian(x, (1 + d) * x, sigma=one.sigma).total_variation
    n = one.basis.shape[1] if one.name == "projected-laplace" else N
    return LaplacePrivacyLoss(n=n, epsilon=one.epsilon, distance=d).total_variation


@pytest.mark.parametrize("target", [0.2, 0.5, 0.8])
@every
def test_a_target_advantage_is_kept_and_not_by_more_noise_than_it_takes(options: dict[str, Any], target: float) -> None:
    protector = fit(target_advantage=target, **options)
    found = advantage_at_95(protector)
    assert found <= target * (1 + 1e-6)
    assert found > 0.97 * target
    reported = protector.report["concept_distance"]["advantages"]["p95"]
    assert reported == pytest.approx(found, rel=1e-3)
    assert protector.report["asked"] == {"target_advantage": target}


def test_a_target_advantage_holds_for_nineteen_pairs_in_twenty() -> None:
    protector = fit(method="laplace", target_advantage=0.5)
    distances = np.linalg.norm(DATA.positive - DATA.negative, axis=1)
    advantages = protector.mechanism.advantage(distances)
    assert (advantages <= 0.5).mean() == pytest.approx(0.95, abs=0.01)


def test_a_target_advantage_counts_what_comes_before_the_noise() -> None:
    near = fit(method="laplace", target_advantage=0.5, before="clip:0.1")
    far = fit(method="laplace", target_advantage=0.5)
    assert near.report["noise_to_signal"] == pytest.approx(far.report["noise_to_signal"], rel=0.05)
    ratio = near.mechanism.parameters()["epsilon"] / far.mechanism.parameters()["epsilon"]
    assert ratio == pytest.approx(10, rel=0.05)  # a tenth of the distance, ten times the ε


def test_a_target_advantage_that_the_least_noise_keeps_takes_it() -> None:
    protector = vecveil.fit_pairs(
        DATA.positive,
        DATA.positive + np.float32(1e-5) * DATA.background[: len(DATA.positive)],
        method="laplace",
        target_advantage=0.9,
    )
    assert protector.report["noise_to_signal"] == pytest.approx(0.02)


def test_an_unreachable_advantage_says_what_can_be_reached_and_that_works() -> None:
    with raises("E-CALIBRATION", "target_advantage") as caught:
        fit(method="laplace", target_advantage=1e-6)
    found = re.search(r"at least ([\d.e-]+) here", str(caught.value))
    assert found is not None
    protector = fit(method="laplace", target_advantage=1.02 * float(found[1]))
    assert protector.report["noise_to_signal"] > 50


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 5.0])
def test_sigma_is_the_deviation_of_each_coordinate(sigma: float) -> None:
    protector = fit(method="gaussian", sigma=sigma)
    Z = protector.protect(np.zeros((20_000, N)), 0)
    assert protector.report["sigma"] == sigma
    assert protector.mechanism.parameters()["sigma"] == pytest.approx(sigma)
    assert Z.std() == pytest.approx(sigma, rel=0.01)
    rms = np.sqrt((np.concatenate([DATA.positive, DATA.background]) ** 2).sum(axis=1).mean())
    assert protector.report["noise_to_signal"] == pytest.approx(sigma * np.sqrt(N) / rms, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (30.0, 1e-6), (200.0, 1e-9)])
def test_epsilon_and_delta_of_local_dp_reach_the_guarantee(epsilon: float, delta: float) -> None:
    protector = fit(method="ldp-gaussian", epsilon=epsilon, delta=delta)
    guarantee = protector.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (epsilon, delta)
    assert protector.report["delta"] == delta
    one = protector.mechanism
    assert isinstance(one, LdpGaussian)
    assert one.parameters()["epsilon"] == epsilon
    # Two opposite vectors are told apart no better than (ε, δ) allows: Balle & Wang 2018, Theorem 8.
    mu = 2 / one.sigma
    first = special.log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    reached = np.exp(first) * -np.expm1(second - first)
    assert 0.98 * delta < reached <= delta


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "sigma of laplace": ({"method": "laplace", "sigma": 0.1}, "sigma"),
    "epsilon of gaussian": ({"method": "gaussian", "epsilon": 3.0}, "epsilon"),
    "delta of laplace": ({"method": "laplace", "epsilon": 3.0, "delta": 0.1}, "delta"),
    "no delta": ({"method": "ldp-gaussian", "epsilon": 3.0}, "delta"),
    "delta alone": ({"method": "ldp-gaussian", "delta": 1e-6}, "epsilon"),
    "delta of one": ({"method": "ldp-gaussian", "epsilon": 3.0, "delta": 1.0}, "delta"),
    "delta of zero": ({"method": "ldp-gaussian", "epsilon": 3.0, "delta": 0.0}, "delta"),
    "target of ldp": ({"method": "ldp-gaussian", "target_utility": 0.9, "delta": 1e-6}, "target_utility"),
    "scale of shuffle": ({"method": "shuffle", "epsilon": 3.0}, "epsilon"),
    "delta of shuffle": ({"method": "shuffle", "delta": 0.1}, "delta"),
    "cosine of one": ({"method": "laplace", "target_cosine": 1.0}, "target_cosine"),
    "cosine of zero": ({"method": "laplace", "target_cosine": 0.0}, "target_cosine"),
    "cosine as text": ({"method": "laplace", "target_cosine": "0.5"}, "target_cosine"),
    "advantage of one": ({"method": "laplace", "target_advantage": 1}, "target_advantage"),
    "advantage below": ({"method": "laplace", "target_advantage": -0.5}, "target_advantage"),
    "two targets": ({"method": "laplace", "target_advantage": 0.5, "target_cosine": 0.5}, "epsilon"),
    "sigma and target": ({"method": "gaussian", "sigma": 1.0, "target_cosine": 0.5}, "sigma"),
    "too large": ({"method": "gaussian", "sigma": 1e20}, "sigma"),
    "too small": ({"method": "laplace", "epsilon": 1e30}, "epsilon"),
    "splits of the sphere": ({"method": "purkayastha", "epsilon": 3.0, "splits": 2}, "splits"),
    "no splits": ({"method": "laplace", "epsilon": 3.0, "splits": 0}, "splits"),
    "many splits": ({"method": "laplace", "epsilon": 3.0, "splits": 17}, "splits"),
}


@pytest.mark.parametrize("kind", BAD)
def test_scales_that_cannot_be_are_refused_by_name(kind: str) -> None:
    options, name = BAD[kind]
    with raises("E-INPUT", name):
        fit(**options)
