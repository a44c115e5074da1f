"""The reward: its terms, baseline and targets against numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vecveil.privacy.textcrafter import PiiClassifier, PolicySettings
from vecveil.privacy.textcrafter.reward import Reward, target_centroids

CLASSIFIER = PiiClassifier(np.array([2.0, 0.0, -1.0]), 0.5)
E = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
MOVED = torch.tensor([[1.0, 3.0, 4.0]], dtype=torch.float64)
C = torch.tensor([[1.0, 0.0, 4.0]], dtype=torch.float64)


def _p(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _settings(**changes: float) -> PolicySettings:
    return PolicySettings(radius=5.0, **{"beta": 10.0, "gamma": 7.0, **changes})


def test_terms_and_reward_by_hand() -> None:
    reward = Reward(CLASSIFIER, _settings(), dtype=torch.float64)
    terms = reward.terms(MOVED, C)
    assert terms.cluster.item() == 3.0
    assert terms.p_pii.item() == pytest.approx(_p(2 - 4 + 0.5))
    assert reward.total(terms).item() == pytest.approx(-10 * _p(-1.5) - 7 * 3)


def test_the_baseline_is_the_reward_of_leaving_the_vector_as_it_is() -> None:
    clean = -10 * _p(2.5) - 7 * 4.0
    for scale in (1.0, 0.5, 0.0):
        asked = _settings(baseline_scale=scale)
        found = Reward(CLASSIFIER, asked, dtype=torch.float64).baseline(E, C)
        assert found.item() == pytest.approx(scale * clean)


def test_targets_are_the_nearest_centroid_or_the_one_with_the_least_p() -> None:
    centroids = np.array([[0.9, 0.0, 0.0], [0.0, 0.0, 0.9], [0.0, 0.9, 0.0]])
    X = np.array([[0.8, 0.6, 0.0], [0.0, 1.0, 0.0]])
    found = target_centroids(X, centroids, CLASSIFIER, _settings())
    np.testing.assert_array_equal(found, centroids[[0, 2]])
    fixed = PolicySettings(radius=1.0, cluster="fixed")
    found = target_centroids(X, centroids, CLASSIFIER, fixed)
    np.testing.assert_array_equal(found, centroids[[1, 1]])  # w·c is least for the third axis


def test_terms_have_gradients_in_the_protected_vector() -> None:
    reward = Reward(CLASSIFIER, _settings(), dtype=torch.float64)

    def of(moved: torch.Tensor) -> torch.Tensor:
        return reward.total(reward.terms(moved, C))

    assert torch.autograd.gradcheck(of, (MOVED.clone().requires_grad_(True),))
