"""What holds for every perturbation: ‖e' − e‖ = r, (e' − e)·v = 0, R ≥ its lower bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policies import reward_lower_bound
from vecveil.privacy.textcrafter import PiiClassifier, PolicySettings
from vecveil.privacy.textcrafter.policy_gradient import perturbation
from vecveil.privacy.textcrafter.reward import Reward

ROWS = 64  # vectors an example: 100 examples of 64 are thousands of inputs a test
some = settings(deadline=None, max_examples=100)

dtypes = st.sampled_from([torch.float32, torch.float64])
dimensions = st.integers(2, 48)
radii = st.floats(-3.9, 3).map(lambda power: 10.0**power)
near = st.floats(-12, 0).map(lambda power: 10.0**power)  # how much of d is not along v
scales = st.floats(-12, 12).map(lambda power: 10.0**power)
seeds = st.integers(0, 2**32)
weights = st.floats(0, 50)


def unit(rng: np.random.Generator, n: int) -> Any:
    X = rng.standard_normal((ROWS, n))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@given(dtypes, dimensions, radii, near, scales, seeds)
@some
def test_norm_and_orthogonality(dtype: Any, n: int, radius: float, along: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = torch.from_numpy(unit(rng, n)).to(dtype)
    v = v / v.norm(dim=1, keepdim=True)
    aside = torch.from_numpy(rng.standard_normal((ROWS, n))).to(dtype)
    found = perturbation(scale * (v + along * aside), v, radius)
    eps = torch.finfo(dtype).eps
    norms = found.double().norm(dim=1)
    assert ((norms / radius - 1).abs() < 8 * eps).all()
    assert ((found.double() * v.double()).sum(dim=1).abs() < 8 * eps * n**0.5 * radius).all()


@given(dtypes, dimensions, radii, weights, weights, seeds)
@some
def test_no_reward_falls_below_its_bound(
    dtype: Any, n: int, radius: float, beta: float, gamma: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = PolicySettings(radius=radius, beta=beta, gamma=gamma)
    classifier = PiiClassifier(10 * rng.standard_normal(n), float(rng.standard_normal()))
    e, v = (torch.from_numpy(unit(rng, n)).to(dtype) for _ in range(2))
    c = 2 * torch.from_numpy(rng.standard_normal((ROWS, n))).to(dtype)
    protected = e + perturbation(torch.from_numpy(rng.standard_normal((ROWS, n))).to(dtype), v, radius)
    reward = Reward(classifier, asked, dtype=dtype)
    found = reward.total(reward.terms(protected, c)).double().numpy()
    bound = reward_lower_bound(e.double().numpy(), c.double().numpy(), asked)
    eps = torch.finfo(dtype).eps
    assert (found >= bound - 16 * eps * (1 + np.abs(bound))).all()


def test_the_bound_is_reached() -> None:
    """A control: no larger bound would hold, so β, γ and r are all in it with their full weight."""
    asked = PolicySettings(radius=0.5, beta=3.0, gamma=4.0)
    e = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    c = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    protected = torch.tensor([[1.5, 0.0]], dtype=torch.float64)  # straight away from c, p = 1
    reward = Reward(PiiClassifier(np.array([100.0, 0.0]), 0.0), asked, dtype=torch.float64)
    found = reward.total(reward.terms(protected, c)).item()
    assert abs(found - reward_lower_bound(e.numpy(), c.numpy(), asked)[0]) < 1e-12
