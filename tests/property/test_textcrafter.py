"""TextCrafter's theorem, as properties: what holds for every vector, policy, radius and draw, in both precisions.

Null: for every input ‖e' − e‖ = r, (e' − e)ᵀ v(e) = 0, R ≥ −(αr + β + γ(‖e − c‖ + r)).
Nothing here is statistical: each holds for every draw, up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from harness.policies import crafter, drawn_policy, reward_lower_bound, unit
from vecveil.privacy.mechanisms import TextCrafter
from vecveil.privacy.mechanisms.textcrafter import orthogonal_step
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


def test_a_branch_that_gives_no_direction_still_gives_one() -> None:
    n = 6
    policy = drawn_policy(n, **{"direction.head.weight": np.zeros((n, n)), "direction.head.bias": np.zeros(n)})
    one = crafter(n, 1.0, policy)
    X = vectors(n, 0, np.float64)
    np.testing.assert_array_equal(one.direction(X), np.eye(n)[[0] * ROWS])
    assert np.abs((one.protect(X, rng=0) - X)[:, 0]).max() < 1e-12


def test_the_step_is_that_of_its_formula() -> None:
    """Against the formula written out for one row, with high precision."""
    import mpmath

    mpmath.mp.dps = 50
    rng = np.random.default_rng(3)
    d, v = rng.standard_normal((20, 7)), unit(rng.standard_normal((20, 7)))
    step, lost = orthogonal_step(d, v, 2.5)
    assert not lost.any()
    for row in range(20):
        D, V = mpmath.matrix(d[row].tolist()), mpmath.matrix(v[row].tolist())
        V = V / mpmath.norm(V)
        across = D - (D.T * V)[0] * V
        exact = 2.5 * across / mpmath.norm(across)
        np.testing.assert_allclose(step[row], [float(x) for x in exact], atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_differ_and_their_law_is_the_policys(dtype: Any) -> None:
    """Control: the perturbation is random, and with μ far above σ it is not.

    Null: d⊥ of N(0, I) has no preferred sign: the mean over N draws has norm r/√N·(1 ± small).
    False failure: below 1e-9 (‖mean‖² N/r² is near a χ²/n with n = 64 and 40,000 draws; the bound is 1.9).
    Power: a mean of .02 r would give 17.
    """
    n, rows = 64, 40_000
    heads = {f"mean.head.{part}": np.zeros((n, n) if part == "weight" else n) for part in ("weight", "bias")}
    free = crafter(n, 1.0, drawn_policy(n, **{**heads, "log_sigma": np.zeros(n)}))
    X = np.repeat(vectors(n, 1, dtype)[:1], rows, axis=0)
    moved = free.protect(X, rng=5).astype(np.float64) - X
    assert rows * float(np.square(moved.mean(axis=0)).sum()) < 1.9
    bias = {**heads, "mean.head.bias": np.full(n, 1e4)}
    fixed = crafter(n, 1.0, drawn_policy(n, **{**bias, "log_sigma": np.zeros(n)}))
    moved = fixed.protect(X[:500], rng=5).astype(np.float64) - X[:500]
    assert float(np.linalg.norm(moved.mean(axis=0))) > 0.999


def test_the_attention_over_one_token_does_nothing() -> None:
    """T = 1: queries and keys may be anything. T > 1: they matter (the control)."""
    n = 24
    for tokens, same in ((1, True), (4, False)):
        policy = drawn_policy(n, tokens=tokens)
        c = n // tokens
        changed = dict(policy.arrays)
        for branch in ("mean", "direction"):
            weight = changed[f"{branch}.attention.qkv.weight"].copy()
            weight[: 2 * c] = np.random.default_rng(9).standard_normal((2 * c, c))
            changed[f"{branch}.attention.qkv.weight"] = weight
        other = type(policy)(n, tokens, 1, changed)
        X = vectors(n, 2, np.float64)
        assert np.array_equal(policy.mean(X), other.mean(X)) == same
        assert np.array_equal(policy.direction(X), other.direction(X)) == same


def test_saved_and_made_again_it_is_the_same() -> None:
    one = crafter(24, 1.1, tokens=4, heads=3)
    again = TextCrafter.from_saved(one.parameters(), one.to_arrays(), 24)
    X = vectors(24, 3, np.float32)
    np.testing.assert_array_equal(again.protect(X, rng=1), one.protect(X, rng=1))
