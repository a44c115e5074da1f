"""TextCrafter's theorem, as properties: what holds for every vector, policy, radius and draw, in both precisions.

Null: for every input ‖e' − e‖ = r, (e' − e)ᵀ v(e) = 0, R ≥ −(αr + β + γ(‖e − c‖ + r)).
Nothing here is statistical: each holds for every draw, up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from harness.policies import crafter, drawn_policy, reward_lower_bound, unit
from vecveil.privacy.textcrafter import PolicySettings

ROWS = 300
few = settings(deadline=None, max_examples=40)
radii = st.floats(-3, 2).map(lambda power: 10.0**power)
shapes = st.sampled_from([(2, 1, 1), (3, 1, 1), (8, 1, 2), (24, 3, 4), (24, 24, 1), (64, 4, 2), (384, 1, 8)])
dtypes = st.sampled_from([np.float32, np.float64])


def vectors(n: int, seed: int, dtype: Any) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((ROWS, n))).astype(dtype)


@few
@given(shapes, radii, st.integers(0, 2**20), dtypes)
def test_norm_and_direction_hold_for_every_vector(
    shape: tuple[int, int, int], radius: float, seed: int, dtype: Any
) -> None:
    n, tokens, heads = shape
    one = crafter(n, radius, tokens=tokens, heads=heads, seed=seed)
    X = vectors(n, seed, dtype)
    moved = one.protect(X, rng=seed).astype(np.float64) - X.astype(np.float64)
    v = one.direction(X).astype(np.float64)
    # Rounding of e' to the dtype, at the size of its largest coordinate.
    tolerance = 8 * float(np.finfo(dtype).eps) * (1 + radius)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), radius, rtol=0, atol=tolerance)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, rtol=0, atol=8 * np.finfo(dtype).eps)
    np.testing.assert_allclose(np.einsum("ij,ij->i", moved, v), 0, rtol=0, atol=2 * tolerance)


@few
@given(shapes, radii, st.integers(0, 2**20), st.tuples(*[st.floats(0, 50)] * 2))
def test_the_reward_has_its_lower_bound(
    shape: tuple[int, int, int], radius: float, seed: int, weights: tuple[float, float]
) -> None:
    n, tokens, heads = shape
    beta, gamma = weights
    one = crafter(n, radius, tokens=tokens, heads=heads, seed=seed)
    X = vectors(n, seed, np.float64)
    Y = one.protect(X, rng=seed)
    c = one.centroids[np.random.default_rng(seed).integers(0, len(one.centroids), ROWS)]
    p = expit(Y @ one.classifier[:-1] + one.classifier[-1])
    reward = -beta * p - gamma * np.linalg.norm(Y - c, axis=1)
    asked = PolicySettings(radius, beta=beta, gamma=gamma)
    bound = reward_lower_bound(X, c, asked)
    assert (reward >= bound - 1e-9 * (1 + radius) * (1 + max(weights))).all()


@few
@given(st.integers(2, 40), st.integers(0, 2**20), st.sampled_from(["along", "nearly", "zero"]))
def test_a_perturbation_along_the_direction_is_drawn_again_or_replaced(n: int, seed: int, kind: str) -> None:
    """With σ at its least and μ ∥ v every draw is degenerate: norm and direction still hold."""
    tiny = np.full(n, -700.0 if kind != "nearly" else -40.0)
    zeros = {f"{branch}.head.weight": np.zeros((n, n)) for branch in ("mean", "direction")}
    bias = np.random.default_rng(seed).standard_normal(n)
    policy = drawn_policy(
        n,
        seed=seed,
        **{
            **zeros,
            "log_sigma": tiny,
            "direction.head.bias": bias,
            "mean.head.bias": np.zeros(n) if kind == "zero" else 3 * bias,
        },
    )
    one = crafter(n, 1.3, policy)
    X = vectors(n, seed, np.float64)
    moved = one.protect(X, rng=seed) - X
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1.3, rtol=1e-12)
    np.testing.assert_allclose(moved @ unit(bias.astype(np.float32).astype(float)), 0, atol=1e-12)
