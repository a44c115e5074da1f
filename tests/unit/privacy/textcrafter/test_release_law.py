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


def _mechanism(n: int) -> TextCrafter:
    return crafter(n, RADIUS, drawn_policy(n, seed=4, log_sigma=LOG_SIGMA[:n]))


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
