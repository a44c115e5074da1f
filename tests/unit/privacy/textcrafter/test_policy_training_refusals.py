"""What training refuses, and what stops it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import raises
from unit.privacy.textcrafter.planted_policy import N, centroids, classifier, settings, vectors
from vecveil.errors import TrainingError
from vecveil.privacy.textcrafter import PiiClassifier, train_policy
from vecveil.privacy.textcrafter.policy_gradient import PolicyGradient


def _wrong_norms() -> Any:
    X = vectors()
    X[[7, 30]] *= 1.02
    return X


def _with(value: float) -> Any:
    X = vectors()
    X[5, 1] = value
    return X


@pytest.mark.parametrize(
    ("X", "code", "param", "words"),
    [
        (_wrong_norms(), "E-INPUT", "X", ["norm 1", "row 7", "before='normalise'"]),
        (np.zeros((4, N)), "E-INPUT", "X", ["norm 1"]),
        (_with(np.nan), "E-INPUT", "X", ["row 5"]),
        (_with(np.inf), "E-INPUT", "X", ["row 5"]),
        (vectors()[0], "E-INPUT", "X", []),
        (vectors()[:1], "E-INPUT", "X", []),
        (vectors().tolist(), "E-INPUT", "X", []),
        (np.ones((9, 1)), "E-INPUT", "X", []),
        (np.eye(N + 1), "E-INCOMPATIBLE", "centroids", [f"{N}", f"{N + 1}"]),
    ],
)
def test_vectors_that_are_refused(X: Any, code: str, param: str, words: list[str]) -> None:
    with raises(code, param) as caught:
        train_policy(X, classifier(), centroids(), settings(), show_progress=False)
    for word in words:
        assert word in str(caught.value)


def test_norms_within_the_tolerance_are_taken() -> None:
    X = vectors() * np.float32(1.009)
    train_policy(X, classifier(), centroids(), settings(epochs=1), show_progress=False)


def test_other_arguments_that_are_refused() -> None:
    X = vectors()
    with raises("E-INCOMPATIBLE", "classifier"):
        train_policy(X, PiiClassifier(np.ones(N - 1), 0.0), centroids(), settings())
    with raises("E-INCOMPATIBLE", "centroids"):
        train_policy(X, classifier(), centroids()[:, :-1], settings())
    with raises("E-INPUT-SHAPE", "centroids"):
        train_policy(X, classifier(), centroids()[:0], settings())
    with raises("E-INPUT", "tokens"):
        train_policy(X, classifier(), centroids(), settings(tokens=5))
    with raises("E-INPUT-RANGE", "seed"):
        train_policy(X, classifier(), centroids(), settings(), seed=-1)
    with raises("E-INPUT", "device"):
        train_policy(X, classifier(), centroids(), settings(device="abacus"))


@pytest.mark.parametrize(
    ("changes", "strength", "place", "cause"),
    [
        ({"learning_rate": 1e6}, 4.0, (1, 2), "learning_rate smaller than 1e+06"),
        ({"beta": 1e39}, 4.0, (0, 0), "reward is infinite: beta or gamma"),
        ({}, 1e308, (0, 0), "the reward's term p(e')"),
    ],
)
def test_a_value_out_of_range_stops_it_and_says_where_and_why(
    changes: dict[str, Any], strength: float, place: tuple[int, int], cause: str
) -> None:
    with pytest.raises(TrainingError) as caught:
        train_policy(vectors(), classifier(strength), centroids(), settings(**changes), show_progress=False)
    error = caught.value
    assert cause in str(error)
    assert (error.epoch, error.step) == place
    assert "It has no checkpoint." in str(error)
    again = pickle.loads(pickle.dumps(error))  # workers send errors to their parent
    assert (str(again), again.epoch, again.step) == (str(error), error.epoch, error.step)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_gradient_out_of_range_stops_it_before_the_weights_change(value: float) -> None:
    learner = PolicyGradient(vectors(), classifier(), centroids(), settings(), seed=0)
    before = learner.module.to_weights().arrays
    learner.module.mean.contract.bias.register_hook(lambda gradient: gradient.fill_(value))
    with pytest.raises(ArithmeticError, match=r"gradient of mean\.contract\.bias"):
        learner.step(learner.order()[0])
    for name, array in learner.module.to_weights().arrays.items():
        np.testing.assert_array_equal(array, before[name])
