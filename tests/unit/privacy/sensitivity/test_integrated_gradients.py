"""Integrated gradients of a network: closed forms, the completeness axiom, bounded memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import raises
from vecveil.errors import MissingDependencyError
from vecveil.privacy.sensitivity import integrated_gradients as module_of
from vecveil.privacy.sensitivity.integrated_gradients import (
    integrated_gradients,
    white_box_sensitivity,
    white_box_shape,
)

N_DIM, V = 6, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, N_DIM))
L = (RNG.random((30, V)) < 0.4).astype(np.uint8)
TARGETS = RNG.integers(0, V, 30)


def network(*layers: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    module = torch.nn.Sequential(*layers).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def test_a_linear_model_has_the_closed_form() -> None:
    linear = network(torch.nn.Linear(N_DIM, V))
    W = next(linear.parameters()).detach().numpy()
    np.testing.assert_allclose(integrated_gradients(linear, X, TARGETS), W[TARGETS] * X, atol=1e-12)
    texts, tokens = np.nonzero(L)
    expected = np.abs(W[tokens] * X[texts]).mean(axis=0)
    weights = white_box_sensitivity(linear, X, L, show_progress=False)
    np.testing.assert_allclose(weights, expected, atol=1e-12)
    diagonal = white_box_shape(weights, floor=1e-3).covariance().diagonal()
    scaled = weights / weights.max() + 1e-3
    np.testing.assert_allclose(diagonal, scaled * N_DIM / scaled.sum())
    for nothing in (0 * weights, weights * np.nan):
        with raises("E-INPUT", "method"):
            white_box_shape(nothing)


def test_attributions_add_up_to_the_change_of_the_output() -> None:
    """The completeness axiom; with a step or two the quadrature is too coarse (control)."""
    module = network(torch.nn.Linear(N_DIM, 16), torch.nn.Tanh(), torch.nn.Linear(16, V), torch.nn.Sigmoid())
    with torch.no_grad():
        values = module(torch.as_tensor(X)).numpy()[np.arange(30), TARGETS]
        start = module(torch.zeros(1, N_DIM, dtype=torch.float64)).numpy()[0, TARGETS]

    def gap(steps: int) -> float:
        found = integrated_gradients(module, X, TARGETS, steps=steps)
        return float(np.abs(found.sum(axis=1) - (values - start)).max())

    assert gap(50) < 1e-3
    assert gap(200) < 1e-8
    assert gap(1) > 1e-2


class Watched(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = network(torch.nn.Linear(N_DIM, 16), torch.nn.Tanh()), list[int]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return self.inner(x) @ torch.ones(16, V, dtype=x.dtype)


@pytest.mark.parametrize("batch_size", [1, 7, 100, 10_000])
def test_the_batch_size_changes_nothing_but_the_memory(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    whole = white_box_sensitivity(watched, X, L, steps=20)
    monkeypatch.setattr(module_of, "BATCH", batch_size)
    np.testing.assert_allclose(white_box_sensitivity(watched, X, L, steps=20), whole, rtol=1e-9)
    watched.seen.clear()
    integrated_gradients(watched, X, np.zeros(30, dtype=int), steps=20)
    assert max(watched.seen) <= max(batch_size, 2)


@pytest.mark.parametrize("package", ["torch", "captum"])
def test_missing_packages_name_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    linear: Any = network(torch.nn.Linear(N_DIM, V))
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        if package == "captum":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"'{package}'.*vecveil\[attacks\]"):
        integrated_gradients(linear, X, TARGETS)
