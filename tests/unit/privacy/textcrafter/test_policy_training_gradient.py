"""The gradient of a step: of the expected reward in μ and σ, of the reward itself in v."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from unit.privacy.textcrafter.planted_policy import N, centroids, classifier, settings, vectors
from vecveil.privacy.textcrafter import PolicySettings
from vecveil.privacy.textcrafter.policy_gradient import PolicyGradient, ProtectPolicy


def test_the_log_probability_is_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    d, mean = (torch.randn(3, 5, N, generator=generator, dtype=torch.float64) for _ in range(2))
    log_sigma = torch.randn(N, generator=generator, dtype=torch.float64)
    law = torch.distributions.Normal(mean, log_sigma.exp())
    module = ProtectPolicy(N, settings(), generator).double()
    module.log_sigma.data = log_sigma
    torch.testing.assert_close(module.log_probability(d, mean), law.log_prob(d).sum(dim=-1), rtol=1e-12, atol=1e-12)


def _written_out(learner: PolicyGradient, noise: torch.Tensor, asked: PolicySettings) -> dict[str, torch.Tensor]:
    """Return the gradient of the losses as stated, in float64: of μ and σ with d held fixed, of v alone, or of all."""
    module = ProtectPolicy(N, asked, torch.Generator())
    module.load_state_dict(learner.module.state_dict())
    module = module.double().eval()
    e, c = learner._vectors.double(), learner._targets.double()
    d = module.mean(e) + module.log_sigma.exp() * noise.double()
    pathwise = asked.direction == "reparametrised"
    d = d if pathwise else d.detach()
    weights = torch.from_numpy(np.array(classifier().weights))

    def rewards(moved: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(moved @ weights + classifier().intercept)
        return -asked.beta * p - asked.gamma * torch.linalg.vector_norm(moved - c, dim=-1)

    v = module.direction_of(e)
    part = d - (d * v).sum(dim=-1, keepdim=True) * v
    found = rewards(e + asked.radius * part / torch.linalg.vector_norm(part, dim=-1, keepdim=True))
    named = dict(module.named_parameters())
    if pathwise:
        return dict(zip(named, torch.autograd.grad(-found.mean(), list(named.values())), strict=True))
    advantage = found - asked.baseline_scale * rewards(e)
    if asked.normalise_advantage:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    law = torch.distributions.Normal(module.mean(e), module.log_sigma.exp())
    score = -(advantage.detach() * law.log_prob(d).sum(dim=-1)).mean()
    score = score - asked.entropy * module.log_sigma.sum()
    own = {name: one for name, one in named.items() if not name.startswith("direction.")}
    gradients = dict(zip(own, torch.autograd.grad(score, list(own.values())), strict=True))
    if asked.direction == "learnt":
        other = {name: one for name, one in named.items() if name.startswith("direction.")}
        of_v = torch.autograd.grad(-found.mean(), list(other.values()))
        gradients |= dict(zip(other, of_v, strict=True))
    return gradients


@pytest.mark.parametrize(
    "changes",
    [
        {"normalise_advantage": False, "baseline_scale": 0.6},
        {"normalise_advantage": True, "baseline_scale": 0.6, "entropy": 0.02},
        {"normalise_advantage": True, "direction": "untrained"},
        {"baseline_scale": 0.6, "direction": "reparametrised"},
        {"beta": 0.0, "gamma": 2.0, "tokens": 3},
        {"beta": 3.0, "gamma": 0.0},
    ],
)
def test_the_gradient_is_that_of_the_loss_at_the_same_draws(changes: dict[str, Any]) -> None:
    """Baseline, advantage, entropy, and −E[R] in v through p and ‖e' − c‖: no statistics, the draws are one."""
    asked = settings(dropout=0.0, draws=3, **changes)
    learner = PolicyGradient(vectors(40), classifier(), centroids(), asked, seed=2)
    rows = torch.arange(len(learner._vectors))
    state = learner.generator.get_state()
    learner.add_gradient(rows, 1.0)
    learner.generator.set_state(state)
    noise = torch.randn((3, len(rows), N), generator=learner.generator)
    wanted = _written_out(learner, noise, asked)
    found = {n: p.grad for n, p in learner.module.named_parameters() if p.grad is not None}
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        error = (found[name] - gradient).norm()
        assert error <= 1e-4 * gradient.norm() + 1e-6, name
    assert wanted["mean.head.weight"].norm() > 0.01
    if asked.direction in ("learnt", "reparametrised"):
        assert wanted["direction.head.weight"].norm() > 0.01
