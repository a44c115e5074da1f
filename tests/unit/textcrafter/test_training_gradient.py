"""The gradient of a step: of the expected reward in μ and σ, of the reward itself in v."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unit.textcrafter.planted_policy import N, centroids, classifier, settings, vectors
from vecveil.textcrafter.network import log_probability
from vecveil.textcrafter.perturbation import perturbation
from vecveil.textcrafter.policy_gradient import PolicyGradient
from vecveil.textcrafter.reward import Reward


def test_the_log_probability_is_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    d, mean = (torch.randn(3, 5, N, generator=generator, dtype=torch.float64) for _ in range(2))
    log_sigma = torch.randn(N, generator=generator, dtype=torch.float64)
    law = torch.distributions.Normal(mean, log_sigma.exp())
    torch.testing.assert_close(
        log_probability(d, mean, log_sigma), law.log_prob(d).sum(dim=-1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.0, 0.7)])
def test_the_gradient_is_that_of_the_expected_reward(scale: float, offset: float) -> None:
    """Whatever the baseline. Two estimates by independent draws: score function and reparameterisation.

    False failure: 24 means of 100, |t| > 8 with 99 degrees of freedom and more: below 1e-9.
    """
    asked = settings(
        direction="untrained", dropout=0.0, draws=1000, normalise_advantage=False, entropy=0.0,
        baseline_scale=scale, baseline_offset=offset,
    )  # fmt: skip
    e = vectors(1)
    learner = PolicyGradient(np.repeat(e, 3, axis=0), classifier(), centroids(), asked, seed=5)
    module = learner.module
    kept = (module.mean.head.bias, module.log_sigma)
    reward = Reward(classifier(), asked)
    x = torch.from_numpy(e)
    c = torch.from_numpy(centroids()[[np.argmax(centroids() @ e[0])]]).float()
    generator = torch.Generator().manual_seed(17)
    score, direct = [], []
    for _ in range(100):
        module.zero_grad()
        learner.add_gradient(torch.tensor([0]), 1.0)
        score.append(torch.cat([-one.grad for one in kept]).double())
        module.zero_grad()
        mean, v = module(x)
        noise = torch.randn(1000, 1, N, generator=generator)
        d = mean + module.log_sigma.exp() * noise
        protected = x + perturbation(d, v, asked.radius)
        reward.total(reward.terms(x, protected, c)).mean().backward()
        direct.append(torch.cat([one.grad for one in kept]).double())
    difference = torch.stack(score) - torch.stack(direct)
    t = difference.mean(dim=0) / (difference.std(dim=0) / 100**0.5)
    assert t.abs().max() < 8
    control = torch.stack(direct).mean(dim=0) / (difference.std(dim=0) / 100**0.5)
    assert control.abs().max() > 10  # a gradient of zero, or of the other sign, would be seen
