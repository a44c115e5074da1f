"""The auditor passes every mechanism of the package, and rejects the same parts put together wrongly.

Null: the mechanism has the law that it declares. False failure: 1e-6 for the module, shared over all its tests; an
audit has its share as 1 − confidence.
Power: each bug below moves the mean normal score of the noise's length, or the mean square of it, by 0.12 or more;
2 · 10,000 lengths show 17 standard deviations where the limit is 6.6. Noise that is used twice repeats for certain.
Control: every bug is one; the same parts put together rightly pass. Noise that is wrong in directions other than
x − x′, but has the right length, is not seen by one pair at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.mechanism_audit import (
    DeclaredPair,
    MechanismAudit,
    audit_mechanism,
    declared_gaussian,
    declared_laplace,
    declared_purkayastha,
    epsilon_lower_bound,
)
from harness.statistics import threshold
from vecveil.privacy.accounting import analytic_gaussian_sigma
from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, ProjectedLaplace, Purkayastha
from vecveil.privacy.mechanisms.purkayastha import draw_angles
from vecveil.privacy.randomness import kernel, resolve_stream
from vecveil.privacy.sensitivity import NoiseShape

SAMPLES = 10_000
DIMENSIONS = (2, 8, 64)
LEVEL = threshold(120)
CONFIDENCE = 1 - LEVEL
SIGMA = 0.15


def pair(n: int, distance: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Return two points of the unit sphere about ``distance`` apart."""
    rng = np.random.default_rng(n)
    x, to = rng.standard_normal((2, n))
    x /= np.linalg.norm(x)
    y = x + distance * to / np.linalg.norm(to)
    return x, y / np.linalg.norm(y)


def epsilon_of(n: int) -> float:
    """Return an ε at which the pair can be told apart, but not well."""
    return 7.0 * n**0.5


def shape_of(n: int, kind: str) -> NoiseShape:
    if kind == "diagonal":
        return NoiseShape.from_diagonal(np.geomspace(1, 9, n), floor=0.1)
    A = np.random.default_rng(n).standard_normal((n, n)) * np.geomspace(1, 3, n)
    if kind == "full":
        return NoiseShape.from_matrix(A.T @ A, floor=0.1)
    basis = np.linalg.qr(A)[0][:, : max(1, n // 4)]
    return NoiseShape.from_low_rank(basis, np.arange(basis.shape[1]) + 1.0, floor=0.2)


def mechanisms(n: int) -> dict[str, tuple[Any, Any]]:
    """Return each mechanism and what it declares of a pair."""
    epsilon = epsilon_of(n)
    found: dict[str, tuple[Any, Any]] = {
        "Laplace": (Laplace(n, epsilon), lambda x, y: declared_laplace(x, y, epsilon=epsilon)),
        "Laplace split": (Laplace(n, epsilon, splits=3), lambda x, y: declared_laplace(x, y, epsilon=epsilon)),
        "LdpGaussian": (
            LdpGaussian(n, 40.0, 1e-6),
            lambda x, y: declared_gaussian(
                x, y, sigma=analytic_gaussian_sigma(epsilon=40.0, delta=1e-6, sensitivity=2.0)
            ),
        ),
    }
    for kind in ("diagonal", "full", "low rank"):
        shape = shape_of(n, kind)
        found[f"Mahalanobis {kind}"] = (
            Mahalanobis(shape, epsilon),
            lambda x, y, S=shape: declared_laplace(x, y, epsilon=epsilon, covariance=S.covariance()),
        )
        found[f"Gaussian {kind}"] = (
            Gaussian(shape, SIGMA),
            lambda x, y, S=shape: declared_gaussian(x, y, sigma=SIGMA, covariance=S.covariance()),
        )
    if n > 2:
        found["Purkayastha"] = (Purkayastha(n, epsilon), lambda x, y: declared_purkayastha(x, y, epsilon=epsilon))
    return found


def run(release: Any, declared: DeclaredPair) -> MechanismAudit:
    return audit_mechanism(release, declared, samples=SAMPLES, confidence=CONFIDENCE)


CASES = [(n, name, dtype) for n in DIMENSIONS for name in mechanisms(n) for dtype in ("f4", "f8")]


@pytest.mark.parametrize(("n", "name", "dtype"), CASES)
def test_the_mechanisms_pass_their_own_declaration(n: int, name: str, dtype: str) -> None:
    one, declare = mechanisms(n)[name]
    x, y = (v.astype(dtype) for v in pair(n))
    declared = declare(x, y)
    audit = run(lambda X, rng: one.protect(X, rng=rng), declared)
    assert not audit.failed
    assert audit.lower_bound.epsilon < declared.worst_case
    assert audit.lower_bound.advantage > 0.5 * declared.total_variation - 0.05


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [8, 64])
def test_noise_of_the_kept_dimensions_passes_their_declaration(n: int, dtype: str) -> None:
    """The exact loss is that of k dimensions at ‖Qᵀ(x − x′)‖, also behind an invertible map of them.

    Control: noise in all n dimensions at the same ε is less behind Qᵀ, and is rejected.
    """
    Q = np.linalg.qr(np.random.default_rng(n).standard_normal((n, n // 2)))[0]
    T = np.random.default_rng(1).standard_normal((n // 2, n // 2)) + 3 * np.eye(n // 2)
    epsilon = epsilon_of(n // 2)
    one, everywhere = ProjectedLaplace(Q, epsilon), Laplace(n, epsilon)
    x, y = (v.astype(dtype) for v in pair(n))
    declared = declared_laplace(x @ Q, y @ Q, epsilon=epsilon)

    def seen(mechanism: Any) -> Callable[..., np.ndarray]:
        # The auditor passes rows Qᵀx; the parts orthogonal to Q differ, and must not show.
        def release(U: np.ndarray, rng: Any) -> np.ndarray:
            X = x if np.allclose(U[0], x @ Q) else y
            Y = mechanism.protect(np.tile(X, (len(U), 1)), rng=rng).astype(np.float64)
            return np.asarray(np.linalg.solve(T, (Y @ Q @ T.T).T).T)

        return release

    audit = run(seen(one), declared)
    assert not audit.failed
    distances = one.distances(x[None], y[None])
    assert float(one.advantage(distances)[0]) == pytest.approx(declared.total_variation, rel=2e-4)
    assert audit.lower_bound.advantage > 0.5 * declared.total_variation - 0.05
    assert one.exact_behind((Q @ T).T)
    assert not everywhere.exact_behind((Q @ T).T)
    assert "noise" in run(seen(everywhere), declared).failed


@pytest.mark.parametrize("n", DIMENSIONS)
def test_the_declared_advantage_is_that_of_the_mechanism(n: int) -> None:
    """Two integrations of one law, made apart from one another."""
    for name, (one, declare) in mechanisms(n).items():
        x, y = pair(n)
        distances = one.distances(x[None], y[None])
        expected = declare(x, y).total_variation
        assert float(one.advantage(distances)[0]) == pytest.approx(expected, rel=2e-4), name


def put_together(
    n: int,
    scale: Callable[[np.ndarray], np.ndarray],
    *,
    root: np.ndarray | None = None,
    gamma: int | None = None,
    same_words: bool = False,
) -> Callable[..., np.ndarray]:
    """Return Laplace noise of the package's own parts, with room for bugs."""

    def release(X: np.ndarray, rng: Any) -> np.ndarray:
        stream, pairs = resolve_stream(rng, len(X)), (n + 1) // 2
        words = stream.words(pairs)
        factors = scale(stream.gammas(float(n if gamma is None else gamma), pairs))
        if same_words:
            words[:], factors[:] = words[0], factors[0]
        out = np.empty_like(X)
        assert kernel.release(kernel.NoiseKind.ADD_DIRECTION, X, words, factors, root, 2.0**-24, out)
        return out

    return release


def test_control_the_parts_put_together_rightly_pass() -> None:
    for n in DIMENSIONS:
        x, y = pair(n)
        epsilon, shape = epsilon_of(n), shape_of(n, "diagonal")
        right = put_together(n, lambda g, e=epsilon: g / e)
        audit = run(right, declared_laplace(x, y, epsilon=epsilon))
        assert not audit.failed
        right = put_together(n, lambda g, e=epsilon: g / e, root=shape.root)
        declared = declared_laplace(x, y, epsilon=epsilon, covariance=shape.covariance())
        assert not run(right, declared).failed


@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize(
    "bug", ["halved", "inverted", "gamma of n - 1", "gamma of n + 1", "same words", "squared root"]
)
def test_bugs_of_the_laplace_mechanism_are_rejected(n: int, bug: str) -> None:
    x, y = pair(n)
    epsilon, shape = epsilon_of(n), shape_of(n, "diagonal")
    declared = declared_laplace(x, y, epsilon=epsilon)
    release = {
        "halved": put_together(n, lambda g: g / epsilon / 2),
        "inverted": put_together(n, lambda g: g * epsilon),
        "gamma of n - 1": put_together(n, lambda g: g / epsilon, gamma=n - 1),
        "gamma of n + 1": put_together(n, lambda g: g / epsilon, gamma=n + 1),
        "same words": put_together(n, lambda g: g / epsilon, same_words=True),
        "squared root": put_together(n, lambda g: g / epsilon, root=shape.root**2),
    }[bug]
    if bug == "squared root":
        declared = declared_laplace(x, y, epsilon=epsilon, covariance=shape.covariance())
    audit = run(release, declared)
    assert ("ties" if bug == "same words" else "noise") in audit.failed


@pytest.mark.parametrize("n", [8, 64])
@pytest.mark.parametrize("bug", ["none", "half angle", "dimension", "epsilon of degrees", "clipped"])
def test_bugs_of_the_purkayastha_mechanism_are_rejected(n: int, bug: str) -> None:
    x, y = pair(n)
    epsilon = epsilon_of(n)

    def release(X: np.ndarray, rng: Any) -> np.ndarray:
        stream, pairs = resolve_stream(rng, len(X)), (n + 1) // 2
        dimension = n - 1 if bug == "dimension" else n
        used = epsilon * 180 / np.pi if bug == "epsilon of degrees" else epsilon
        theta = draw_angles(stream, dimension, used, pairs)
        if bug == "half angle":
            theta = theta / 2
        if bug == "clipped":
            theta = np.minimum(theta, np.quantile(theta, 0.8))
        factors, out = np.stack([np.cos(theta), np.sin(theta)], axis=1), np.empty_like(X)
        words = stream.words(pairs)
        assert kernel.release(kernel.NoiseKind.TURN, X, words, factors, None, 2.0**-24, out)
        return out

    audit = run(release, declared_purkayastha(x, y, epsilon=epsilon))
    assert (not audit.failed) == (bug == "none")


@pytest.mark.parametrize("n", DIMENSIONS)
@pytest.mark.parametrize("bug", ["none", "variance for deviation", "no root", "divided by splits"])
def test_bugs_of_the_gaussian_mechanism_are_rejected(n: int, bug: str) -> None:
    x, y = pair(n)
    shape = shape_of(n, "full")

    def release(X: np.ndarray, rng: Any) -> np.ndarray:
        noise = resolve_stream(rng, len(X)).normals(n, splits=2)
        if bug == "divided by splits":
            noise /= np.sqrt(2)
        if bug != "no root":
            noise = np.asarray(shape.stretch(noise))
        return np.asarray(X + (SIGMA**2 if bug == "variance for deviation" else SIGMA) * noise)

    declared = declared_gaussian(x, y, sigma=SIGMA, covariance=shape.covariance())
    audit = run(release, declared)
    assert (not audit.failed) == (bug == "none")


def test_local_dp_with_the_textbook_sigma_is_rejected() -> None:
    """√(2 ln(1.25/δ))·2/ε is too little for ε well above 1."""
    x, y = pair(8)
    sigma = analytic_gaussian_sigma(epsilon=40.0, delta=1e-6, sensitivity=2.0)
    textbook = 2 * np.sqrt(2 * np.log(1.25e6)) / 40.0
    assert textbook < 0.9 * sigma
    wrong = Gaussian(NoiseShape.isotropic(8), textbook)
    assert run(lambda X, rng: wrong.protect(X, rng=rng), declared_gaussian(x, y, sigma=sigma)).failed


def written_apart(epsilon: float, n: int, dtype: Any = np.float64) -> Callable[..., np.ndarray]:
    """Return Algorithm 1 written apart from the package, with a radius of ``dtype``."""

    def release(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        U = rng.standard_normal(X.shape)
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        radii = rng.standard_gamma(n, size=len(X), dtype=dtype) * dtype(1 / epsilon)
        return np.asarray(X + U * radii[:, None].astype(np.float64))

    return release


def test_noise_of_the_wrong_precision_direction_or_family_is_rejected() -> None:
    """Power: every pair is told apart where the secret's direction has no noise: ε ≥ 5 is proved against 2.1."""
    n, epsilon = 32, 40.0
    x, y = pair(n, 0.05)
    declared, right = declared_laplace(x, y, epsilon=epsilon), written_apart(epsilon, n)
    assert not run(right, declared).failed
    assert "ties" in run(written_apart(epsilon, n, np.float32), declared).failed
    gaussian = lambda X, rng: X + np.sqrt(n + 1) / epsilon * rng.standard_normal(X.shape)  # noqa: E731
    assert "noise" in run(gaussian, declared).failed
    gap = (x - y) / np.linalg.norm(x - y)

    def bare(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = right(X, rng) - X
        return np.asarray(X + noise - np.outer(noise @ gap, gap))

    audit = run(bare, declared)
    assert {"worst case", "advantage", "privacy loss"} <= audit.failed
    assert declared.worst_case < 2.1 < 5 < audit.lower_bound.epsilon


def ratio_of_counts(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest log(TPR/FPR) over all thresholds with a false positive: no bound."""
    at = np.concatenate([x, y])
    above = [len(s) - np.searchsorted(np.sort(s), at) for s in (x, y)]
    enough = (above[1] > 0) & (above[0] > 0)
    return float(np.log(above[0][enough] / len(x) / (above[1][enough] / len(y))).max())


def test_a_bound_is_above_the_truth_no_more_often_than_stated() -> None:
    """Null: each of 300 bounds of one-dimensional Laplace releases of 1 and 0 is above ε with chance 0.1 at most.

    Power: the control, a ratio of counts without a confidence, is above it nearly always.
    """
    rng, runs, epsilon = np.random.default_rng(5), 300, 1.0
    wrong = control = 0
    for _ in range(runs):
        x, y = 1 + rng.laplace(size=400) / epsilon, rng.laplace(size=400) / epsilon
        wrong += epsilon_lower_bound(x, y, confidence=0.9).epsilon > epsilon
        control += ratio_of_counts(x, y) > epsilon
    limit = stats.binom(runs, 0.1).isf(LEVEL)
    assert wrong <= limit
    assert control > limit
