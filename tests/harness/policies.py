"""Policies of TextCrafter with drawn weights: no training, every branch does something."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.privacy.mechanisms import PolicyWeights, TextCrafter
from vecveil.privacy.mechanisms.textcrafter import BRANCHES, branch_shapes
from vecveil.privacy.textcrafter import PolicySettings

__all__ = ["crafter", "drawn_policy", "reward_lower_bound", "unit"]


def drawn_policy(n: int, *, tokens: int = 1, heads: int = 1, seed: int = 0, **given: Any) -> PolicyWeights:
    """Return a policy with random weights; arrays in ``given`` take the place of drawn ones (``_`` for ``.``)."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {"log_sigma": 0.3 * rng.standard_normal(n)}
    for branch in BRANCHES:
        for name, shape in branch_shapes(n, tokens, 2 * n // tokens).items():
            drawn = rng.standard_normal(shape) / np.sqrt(shape[-1])
            arrays[f"{branch}.{name}"] = drawn + 1 if name.startswith("norm") else drawn
    return PolicyWeights(n, tokens, heads, {**arrays, **given})


def crafter(n: int, radius: float = 0.7, policy: PolicyWeights | None = None, **shape: Any) -> TextCrafter:
    """Return the mechanism of a drawn policy."""
    rng = np.random.default_rng(n)
    policy = drawn_policy(n, **shape) if policy is None else policy
    centroids = unit(rng.standard_normal((3, n)))
    return TextCrafter(policy, radius, np.eye(n) * radius**2 / n, rng.standard_normal(n + 1), centroids)


def unit(X: np.ndarray) -> np.ndarray:
    """Return the rows at norm 1."""
    return np.asarray(X / np.linalg.norm(X, axis=-1, keepdims=True))


def reward_lower_bound(e: np.ndarray, c: np.ndarray, settings: PolicySettings) -> np.ndarray:
    """Return −(β + γ(‖e − c‖ + r)), a lower bound of R for perturbations of norm r (Lemma 2 without αr)."""
    # p ≤ 1, and ‖e' − c‖ ≤ ‖e − c‖ + r by the triangle inequality.
    s, apart = settings, np.linalg.norm(e - c, axis=-1)
    return np.asarray(-(s.beta + s.gamma * (apart + s.radius)))
