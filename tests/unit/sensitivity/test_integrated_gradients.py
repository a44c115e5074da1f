"""Integrated gradients: closed forms, the completeness axiom, and a model left as it was found."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import raises
from harness.token_data import token_data
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.sensitivity import integrated_gradient_sensitivity, integrated_gradients, white_box_shape

N_DIM, V = 6, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, N_DIM))
L = (RNG.random((30, V)) < 0.4).astype(np.uint8)
W = RNG.standard_normal((V, N_DIM))


def linear(x: torch.Tensor) -> torch.Tensor:
    return x @ torch.as_tensor(W, dtype=x.dtype).T + 3.0


def network(*, dropout: bool = True, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(N_DIM, 16),
        torch.nn.Tanh(),
        torch.nn.Dropout(0.5 if dropout else 0.0),
        torch.nn.Linear(16, V),
        torch.nn.Sigmoid(),
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.to(dtype)


def test_a_linear_model_has_the_closed_form() -> None:
    targets = RNG.integers(0, V, 30)
    np.testing.assert_allclose(integrated_gradients(linear, X, targets), W[targets] * X, atol=1e-12)
    texts, tokens = np.nonzero(L)
    np.testing.assert_allclose(
        integrated_gradient_sensitivity(linear, X, L), np.abs(W[tokens] * X[texts]).mean(axis=0), atol=1e-12
    )


def test_attributions_add_up_to_the_change_of_the_output() -> None:
    """The completeness axiom; with a step or two the quadrature is too coarse (control)."""
    module = network(dtype=torch.float64)
    targets = RNG.integers(0, V, 30)
    module.eval()
    with torch.no_grad():
        values = module(torch.as_tensor(X)).numpy()[np.arange(30), targets]
        start = module(torch.zeros(1, N_DIM, dtype=torch.float64)).numpy()[0, targets]

    def gap(steps: int) -> float:
        found = integrated_gradients(module, X, targets, steps=steps)
        return float(np.abs(found.sum(axis=1) - (values - start)).max())

    assert gap(50) < 1e-3
    assert gap(200) < 1e-8
    assert gap(1) > 1e-2


def test_the_model_is_left_as_it_was() -> None:
    module = network()
    module.train()
    module[2].eval()  # one part in another mode
    before = copy.deepcopy(module.state_dict())
    first = integrated_gradient_sensitivity(module, X, L)
    assert [part.training for part in module] == [True, True, False, True, True]
    assert module.training
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    np.testing.assert_array_equal(first, integrated_gradient_sensitivity(module, X, L))
    # Also where the model fails half-way.
    with raises("E-INPUT-RANGE", "targets"):
        integrated_gradients(module, X, np.full(30, V))
    assert module.training


def test_modes_matter() -> None:
    """Control: with dropout on, as in training, two runs differ."""
    module = network().train()
    frozen = integrated_gradient_sensitivity(module, X, L)
    noisy = integrated_gradient_sensitivity(lambda x: module(x.float()), X, L)  # not a module
    assert not np.allclose(frozen, noisy, rtol=1e-3)


def test_gradients_outside_are_not_touched() -> None:
    module = network()
    module[0].weight.grad = torch.ones_like(module[0].weight)
    with torch.no_grad():  # the caller's own mode
        integrated_gradient_sensitivity(module, X, L)
        assert not torch.is_grad_enabled()
    assert torch.equal(module[0].weight.grad, torch.ones_like(module[0].weight))
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    assert integrated_gradient_sensitivity(module, X, L).all()


@pytest.mark.parametrize("batch_size", [1, 7, 100, 10_000])
def test_the_batch_size_changes_nothing(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = network(dtype=torch.float64)
    seen: list[int] = []

    def watched(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return module[:2](x) @ torch.ones(16, V, dtype=x.dtype)

    whole = integrated_gradient_sensitivity(watched, X, L, steps=20)
    module_of = sys.modules[integrated_gradients.__module__]  # the package exports a function of its name
    monkeypatch.setattr(module_of, "BATCH", batch_size)
    found = integrated_gradient_sensitivity(watched, X, L, steps=20)
    np.testing.assert_allclose(found, whole, rtol=1e-9)
    seen.clear()
    integrated_gradients(watched, X, np.zeros(30, dtype=int), steps=20)
    assert max(seen) <= max(batch_size, 2)  # memory is bounded


def test_a_planted_dimension_gets_the_noise() -> None:
    data = token_data(200, 12)

    def reader(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(5 * x[:, [3]].expand(-1, data.labels.shape[1]))

    shape = white_box_shape(reader, data.positive, data.labels, floor=1e-3)
    diagonal = shape.covariance().diagonal()
    assert shape.is_diagonal
    assert np.argmax(diagonal) == 3
    assert diagonal[3] / np.delete(diagonal, 3).max() == pytest.approx(1001, rel=1e-6)
    assert diagonal.sum() == pytest.approx(12)


def detached(x: torch.Tensor) -> torch.Tensor:
    return linear(x.detach())


def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(x.numpy() @ W.T)


def weights_only(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(len(x), V, requires_grad=True) * 2.0


@pytest.mark.parametrize(
    ("model", "got"),
    [
        (detached, "an output without gradient"),
        (through_numpy, "a RuntimeError"),
        (weights_only, "an output without gradient"),
        (lambda x: linear(x).sum(), r"\(\)"),
        (lambda x: linear(x)[:1], "an output of shape"),
        (lambda x: linear(x)[0], r"\(4,\)"),
        (lambda x: x.detach().numpy(), r"\(2, 6\)"),
        (lambda x: None, "NoneType"),
        (lambda x: x @ torch.zeros(3, 3), "a RuntimeError"),
        (lambda x: linear(x) / 0, "NaN"),
        (torch.nn.Linear(5, V), "a RuntimeError"),
    ],
)
def test_models_that_have_no_gradient(model: Any, got: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"`model` must be a differentiable.*{got}"):
        integrated_gradient_sensitivity(model, X, L)


@pytest.mark.parametrize(
    ("arguments", "code", "param"),
    [
        ({"labels": L[:, :3]}, "E-INPUT", "model"),
        ({"labels": L[:9]}, "E-INPUT", "labels"),
        ({"labels": 2 * L}, "E-INPUT", "labels"),
        ({"labels": 0 * L}, "E-INPUT", "labels"),
        ({"labels": L[:, 0]}, "E-INPUT", "labels"),
        ({"embeddings": X * np.nan}, "E-INPUT-FINITE", "embeddings"),
        ({"embeddings": X[0]}, "E-INPUT-SHAPE", "embeddings"),
        ({"steps": 0}, "E-INPUT-RANGE", "steps"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], code: str, param: str) -> None:
    given = {"model": linear, "embeddings": X, "labels": L} | arguments
    with raises(code, param):
        integrated_gradient_sensitivity(**given)


def test_targets_and_models_that_give_no_shape() -> None:
    for targets in (np.zeros(29, dtype=int), np.zeros(30), np.full(30, -1)):
        with raises("E-INPUT", "targets"):
            integrated_gradients(linear, X, targets)
    with raises("E-INPUT", "model"):
        white_box_shape(lambda x: 0 * linear(x), X, L)
    with raises("E-INPUT-RANGE", "floor"):
        white_box_shape(linear, X, L, floor=0)


@pytest.mark.parametrize("package", ["torch", "captum"])
def test_missing_packages_name_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        if package == "captum":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"'{package}'.*vecveil\[attacks\]"):
        integrated_gradients(linear, X, np.zeros(30, dtype=int))
