"""What a policy releases, e + r d⊥/‖d⊥‖ with d ~ N(μ(e), diag σ²), against the formula written out."""

from __future__ import annotations

import numpy as np
import pytest

from harness.policies import crafter, drawn_policy, unit
from vecveil.privacy.mechanisms import TextCrafter
from vecveil.privacy.randomness import elementary
from vecveil.privacy.randomness.kernel import resolve_stream

N, RADIUS = 6, 0.7
LOG_SIGMA = np.linspace(-1.2, 0.8, N)  # anisotropic, and μ neither small nor large beside it


def _mechanism(n: int = N, tokens: int = 1) -> TextCrafter:
    return crafter(n, RADIUS, drawn_policy(n, tokens=tokens, seed=4, log_sigma=LOG_SIGMA[:n]))


def _formula(e: np.ndarray, mu: np.ndarray, v: np.ndarray, normals: np.ndarray) -> np.ndarray:
    sigma = np.exp(LOG_SIGMA[: e.shape[1]].astype(np.float32).astype(np.float64))
    d = mu + sigma * normals
    across = d - (d * v).sum(axis=1, keepdims=True) * v
    return np.asarray(e + RADIUS * across / np.linalg.norm(across, axis=1, keepdims=True))


@pytest.mark.parametrize("n", [N, N - 1])
def test_the_same_words_give_what_the_formula_says(n: int) -> None:
    one = _mechanism(n)
    X = unit(np.random.default_rng(0).standard_normal((700, n)))
    pairs = (n + 1) // 2
    normals = elementary.normals(resolve_stream(11, len(X)).words(pairs, 0), pairs)[:, :n]
    wanted = _formula(X, one.policy.mean(X), one.policy.direction(X), normals)
    np.testing.assert_allclose(one.protect(X, rng=11), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 3])
def test_its_law_is_that_of_the_formula_with_normals_drawn_apart(tokens: int) -> None:
    """First and second moments of d*/r over 60,000 draws of each side.

    Null: 27 differences of means of bounded variables, each z standard normal. False failure: |z| > 7, 27 times 3e-12.
    Power: with σ² for σ, and with half of μ, the largest |z| is far above it (the controls).
    """
    one = _mechanism(tokens=tokens)
    rows = 60_000
    e = unit(np.random.default_rng(1).standard_normal((1, N)))
    mu, v = one.policy.mean(e), one.policy.direction(e)
    normals = np.random.default_rng(2).standard_normal((rows, N))
    released = one.protect(np.repeat(e, rows, axis=0), rng=3)

    def moments(moved: np.ndarray) -> np.ndarray:
        steps = (moved - e) / RADIUS
        first, second = np.triu_indices(N)
        return np.hstack([steps, steps[:, first] * steps[:, second]])

    def worst(given: np.ndarray) -> float:
        own, other = moments(released), moments(given)
        spread = np.sqrt((own.var(axis=0) + other.var(axis=0)) / rows)
        z = (own.mean(axis=0) - other.mean(axis=0)) / (spread + 1e-12)
        return float(np.abs(z).max())

    assert worst(_formula(e, mu, v, normals)) < 7
    assert worst(_formula(e, mu / 2, v, normals)) > 20
    assert worst(_formula(e, mu, v, np.exp(LOG_SIGMA) * normals)) > 20
    assert worst(_formula(e, mu, np.roll(v, 1), normals)) > 20
