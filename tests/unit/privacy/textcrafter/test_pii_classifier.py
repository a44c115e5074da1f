"""The PII classifier: its probabilities against scikit-learn's, its optimum, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from harness.errors import raises
from unit.privacy.textcrafter.planted_classes import figures, planted
from vecveil.privacy.textcrafter.pii_classifier import PiiClassifier, fit_pii_classifier


@pytest.mark.parametrize("regularisation", [0.1, 10.0])
def test_probabilities_equal_scikit_learns(regularisation: float) -> None:
    P, Q = planted(0)
    ours = fit_pii_classifier(P, Q, regularisation=regularisation)
    theirs = LogisticRegression(C=1 / regularisation, max_iter=2000)
    theirs.fit(np.concatenate([P, Q]), np.repeat([1, 0], 300))
    X, _ = planted(1)
    np.testing.assert_allclose(ours.probability(X), theirs.predict_proba(X)[:, 1], atol=1e-12)
    np.testing.assert_allclose(ours.logit(X), theirs.decision_function(X), atol=1e-12)


def test_large_logits_neither_overflow_nor_round_to_nan() -> None:
    classifier = PiiClassifier(np.array([1e6, 0.0]), -3.0)
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    with np.errstate(all="raise", under="ignore"):
        p = classifier.probability(X)
    assert p.tolist() == pytest.approx([1.0, 0.0, 1 / (1 + np.exp(3.0))])
    assert p.dtype == np.float64


def test_one_seed_one_classifier() -> None:
    P, Q = planted(0, plain=500)
    a, b, c = (fit_pii_classifier(P, Q, seed=seed) for seed in (3, 3, 4))
    assert a.weights.tobytes() == b.weights.tobytes()
    assert a.to_record() == b.to_record()
    assert a.weights.tobytes() != c.weights.tobytes()


def test_weights_are_kept_apart_from_the_callers_and_out_of_the_repr() -> None:
    weights = np.array([0.123456, 2.0])
    classifier = PiiClassifier(weights, 0.5)
    weights[0] = 9.0
    assert classifier.weights[0] == 0.123456
    assert repr(classifier) == "PiiClassifier(dimension=2)"
    with pytest.raises(ValueError, match="read-only"):
        classifier.weights[0] = 1.0
    assert classifier.to_record() == {"dimension": 2, "held_out": None}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"positive": np.empty((0, 16))}, "positive"),
        ({"plain": np.empty((0, 16))}, "plain"),
        ({"positive": np.ones((19, 16))}, "positive"),
        ({"plain": np.ones((19, 16))}, "plain"),
        ({"positive": np.full((30, 16), np.nan)}, "positive"),
        ({"plain": [[1.0]]}, "plain"),
        ({"regularisation": 0.0}, "regularisation"),
        ({"seed": -1}, "seed"),
        ({"groups_positive": [1, 2]}, "groups_positive"),
        ({"groups_plain": ["a"] * 300, "groups_positive": [1] * 300}, "groups_plain"),
        ({"groups_positive": [1] * 300}, "groups_positive"),  # one group cannot be on both sides
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], param: str) -> None:
    P, Q = planted(0)
    with raises("E-INPUT", param):
        fit_pii_classifier(**{"positive": P, "plain": Q, **change})


def test_another_dimension_is_incompatible() -> None:
    P, Q = planted(0)
    with raises("E-INCOMPATIBLE", "plain"):
        fit_pii_classifier(P, Q[:, :4].copy())
    with raises("E-INCOMPATIBLE", "X"):
        fit_pii_classifier(P, Q).probability(Q[:, :4].copy())


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.privacy.textcrafter.pii_classifier._STEPS", 1)
    held = figures(fit_pii_classifier(*planted(0)))
    assert held.warnings == ("The fit stopped after 1 steps, before it converged.",)
