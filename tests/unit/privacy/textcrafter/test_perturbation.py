"""The perturbation as stated: Eq. 17 and 18, and the draw that has nothing orthogonal to v."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vecveil.privacy.mechanisms.textcrafter import REDRAWS, orthogonal_step
from vecveil.privacy.textcrafter.policy_gradient import fixed_orthogonal, orthogonal_part, perturbation


def test_against_numbers_by_hand() -> None:
    v = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)
    d = torch.tensor([[1.0, 2.0, 2.0]], dtype=torch.float64)  # d·v = 2.2, d⊥ = (-0.32, 0.24, 2)
    part = torch.tensor([[-0.32, 0.24, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(orthogonal_part(d, v), part)
    scaled = 0.5 * part / (0.32**2 + 0.24**2 + 4) ** 0.5
    torch.testing.assert_close(perturbation(d, v, 0.5), scaled)


def test_its_gradient_is_that_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    d = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    raw = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)

    def of(raw: torch.Tensor) -> torch.Tensor:
        return perturbation(d, raw / raw.norm(dim=-1, keepdim=True), 0.7)

    assert torch.autograd.gradcheck(of, (raw,))


def _draws() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    v = torch.randn(6, 8, generator=generator)
    v /= v.norm(dim=-1, keepdim=True)
    return torch.randn(6, 8, generator=generator), v


def _holds(found: torch.Tensor, v: torch.Tensor) -> None:
    torch.testing.assert_close(found.norm(dim=-1), torch.full((6,), 2.0), rtol=1e-6, atol=0)
    assert ((found * v).sum(dim=-1).abs() < 1e-6).all()


@pytest.mark.parametrize("scale", [1.0, -1e-20, 1e20])
def test_a_draw_along_v_is_drawn_again(scale: float) -> None:
    d, v = _draws()
    other = d.clone()
    d[2] = scale * v[2]
    calls = []

    def resample() -> torch.Tensor:
        calls.append(1)
        return other

    found = perturbation(d, v, 2.0, resample)
    assert len(calls) == 1
    torch.testing.assert_close(found, perturbation(other, v, 2.0))
    _holds(found, v)


@pytest.mark.parametrize("with_resample", [True, False])
def test_what_stays_along_v_takes_a_fixed_direction(with_resample: bool) -> None:
    d, v = _draws()
    d[2] = 3 * v[2]
    d[4] = 0
    calls = []

    def resample() -> torch.Tensor:
        calls.append(1)
        return d

    found = perturbation(d, v, 2.0, resample if with_resample else None)
    assert len(calls) == (REDRAWS if with_resample else 0)
    _holds(found, v)
    torch.testing.assert_close(found[[2, 4]], 2 * fixed_orthogonal(v[[2, 4]]))
    kept = [0, 1, 3, 5]
    torch.testing.assert_close(found[kept], perturbation(d[kept], v[kept], 2.0))


def test_the_fixed_direction_leaves_no_nan_in_the_gradient() -> None:
    d, v = _draws()
    v.requires_grad_(True)
    d[2] = v[2].detach()
    perturbation(d, v, 2.0).sum().backward()
    assert torch.isfinite(v.grad).all()


def test_the_form_that_is_applied_is_the_same() -> None:
    rng = np.random.default_rng(2)
    d, v = rng.standard_normal((2, 200, 9))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    aside = np.stack([np.roll(row, 1) for row in v])
    aside -= (aside * v).sum(axis=1, keepdims=True) * v
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    d[:6] = v[:6]
    edge = np.finfo(np.float64).eps ** 0.5
    d[1:6] += np.array([[1e-12], [0.5], [0.9], [1.1], [2.0]]) * edge * aside[1:6]
    d[4, :] *= 1e8  # what counts is the share of ‖d‖
    applied, lost = orthogonal_step(d, v, 0.4)
    assert lost.nonzero()[0].tolist() == [0, 1, 2, 3]
    tensors = torch.from_numpy(d), torch.from_numpy(v)
    found = perturbation(*tensors, 0.4).numpy()
    np.testing.assert_allclose(found[6:], applied[6:], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[4:6], applied[4:6], rtol=0, atol=1e-6)
    fixed = (found == 0.4 * fixed_orthogonal(tensors[1]).numpy()).all(axis=1)
    assert fixed.nonzero()[0].tolist() == [0, 1, 2, 3]


def test_nan_is_not_hidden() -> None:
    d, v = _draws()
    d[1, 3] = torch.nan
    found = perturbation(d, v, 1.0, lambda: pytest.fail("NaN was drawn again"))
    assert found[1].isnan().all()
    assert found[[0, 2, 3, 4, 5]].isfinite().all()
