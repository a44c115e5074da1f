"""Fitting on labels in place of pairs: the label directions go, the rest of the machinery is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from vecveil.errors import ConceptError
from vecveil.privacy.protector import METHODS
from vecveil.privacy.protector.data import classes_of

N = 24


def labelled(rows: int = 600, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Return unit-norm rows whose mean depends on the class, and the classes."""
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(7).standard_normal((classes, N))
    y = rng.integers(classes, size=rows)
    spectrum = np.linspace(2.0, 0.3, N)
    X = rng.standard_normal((rows, N)) * spectrum + 1.5 * means[y]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), [f"class {k}" for k in y]


def linear_accuracy(X: np.ndarray, labels: list[str], rows: np.ndarray, y: list[str]) -> float:
    from sklearn.linear_model import LogisticRegression

    return float(LogisticRegression(max_iter=2000).fit(X, labels).score(rows, y))


def test_the_label_directions_are_erased_and_no_others() -> None:
    X, labels = labelled()
    protector = vecveil.fit_labels(X, labels, noise_to_signal=0.1, kept=N - 2, flattening=0.0)
    assert protector.report["parameters"]["rank"] == 2
    assert protector.report["labels"] == 3
    assert protector.report["labelled"] == 600
    assert protector.report["pairs"] == 0
    clean = protector.protect(X, noise=False)
    means = np.stack([clean[np.array(labels) == k].mean(axis=0) for k in sorted(set(labels))])
    assert np.abs(means - means[0]).max() < 1e-3
    other, others = labelled(seed=1)
    assert linear_accuracy(X, labels, other, others) > 0.9
    erased = linear_accuracy(clean, labels, protector.protect(other, noise=False), others)
    assert erased < 0.45  # a third is chance
    assert protector.map is not None
    assert protector.map.rank == N - 2


def test_more_directions_than_the_labels_have_are_refused() -> None:
    X, labels = labelled()
    with raises("E-INPUT", "rank"):
        vecveil.fit_labels(X, labels, noise_to_signal=0.3, rank=5)


@pytest.mark.parametrize(
    ("method", "scale"),
    [
        ("subspace", {"target_utility": 0.6}),
        ("subspace", {"noise_to_signal": 0.3}),
        ("covariance", {"epsilon": 30.0}),
        ("laplace", {"target_cosine": 0.9}),
        ("gaussian", {"sigma": 0.05}),
        ("purkayastha", {"epsilon": 60.0}),
        ("ldp-gaussian", {"epsilon": 4.0, "delta": 1e-5}),
        ("shuffle", {}),
    ],
)
def test_methods_fit_save_and_load(method: str, scale: dict[str, float], tmp_path: Path) -> None:
    X, labels = labelled()
    mixed: list[str | None] = [None if i % 4 == 0 else y for i, y in enumerate(labels)]
    protector = vecveil.fit_labels(X, mixed, method=method, concept_name="mood", **scale)
    assert protector.report["labelled"] == 450
    assert protector.report["background"] == 150
    assert protector.report["concept_distance"] is None
    text = str(protector.guarantee)
    assert "labels give no pairs" in text
    if method not in ("shuffle",):
        assert "450 texts with labels of 3 classes" in text
    protector.save(tmp_path / "mood.vecveil")
    loaded = vecveil.load(tmp_path / "mood.vecveil")
    assert str(loaded.guarantee) == text
    np.testing.assert_array_equal(loaded.protect(X, 3), protector.protect(X, 3))


def test_covariance_puts_noise_where_the_labels_differ() -> None:
    X, labels = labelled()
    protector = vecveil.fit_labels(X, labels, method="covariance", epsilon=30.0)
    assert protector.report["parameters"]["shape"] == "labels"
    S = protector.mechanism.noise_covariance()
    means = np.stack([X[np.array(labels) == k].mean(axis=0) for k in sorted(set(labels))])
    along = means[0] - means[1]
    along /= np.linalg.norm(along)
    assert along @ S @ along > 5 * np.trace(S) / N


def test_the_sparse_mask_tells_two_classes_apart() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    X = rng.standard_normal((400, N)).astype(np.float32)
    X[:, 3] += 4 * y
    fast = {"epochs": 60, "learning_rate": 3e-3, "gate_learning_rate": 3e-2, "loss": "mean"}
    protector = vecveil.fit_labels(X, y, method="sparse", epsilon=30.0, stability_seeds=1, regularisation=0.3, **fast)
    mask = np.diag(protector.mechanism.noise_covariance())
    assert mask.argmax() == 3
    with raises("E-INPUT", "method"):
        vecveil.fit_labels(*labelled(), method="sparse", epsilon=30.0)


def test_one_label_is_told_from_what_does_not_have_it() -> None:
    X, labels = labelled()
    mine: list[str | None] = ["mine" if y == "class 0" else None for y in labels]
    protector = vecveil.fit_labels(X, mine, noise_to_signal=0.1, kept=N - 1, flattening=0.0)
    assert protector.report["parameters"]["rank"] == 1
    clean = protector.protect(X, noise=False)
    held = np.array([y is not None for y in mine])
    assert np.abs(clean[held].mean(axis=0) - clean[~held].mean(axis=0)).max() < 1e-3
    with raises("E-INPUT", "labels"):
        vecveil.fit_labels(X, ["same"] * 600, noise_to_signal=0.1)
    with_others = vecveil.fit_labels(X[held], ["a"] * int(held.sum()), X[~held], noise_to_signal=0.1)
    assert with_others.report["parameters"]["rank"] == 1


def test_several_labels_a_text() -> None:
    X, _ = labelled()
    rng = np.random.default_rng(0)
    marks = (rng.random((600, 2)) < 0.4).astype(int)
    X = X + 0.5 * marks @ rng.standard_normal((2, N)).astype(np.float32)
    protector = vecveil.fit_labels(X, marks, noise_to_signal=0.2)
    assert protector.report["parameters"]["rank"] == 2
    assert protector.report["labelled"] == int(marks.any(axis=1).sum())


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        (["a"] * 3, "E-INPUT-SHAPE"),
        ("a" * 600, "E-INPUT-TYPE"),
        ([1.5] * 600, "E-INPUT-TYPE"),
        ([True, False] * 300, "E-INPUT-TYPE"),
        (np.full((600, 2), 2), "E-INPUT-TYPE"),
        (["a"] * 597 + ["secret-label"] * 3, "E-INPUT-FEW"),
        ([None] * 600, "E-INPUT-FEW"),
    ],
)
def test_wrong_labels_are_refused_without_naming_them(labels: Any, code: str) -> None:
    X, _ = labelled()
    with raises(code, "labels") as caught:
        vecveil.fit_labels(X, labels, noise_to_signal=0.3)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"method": "textcrafter", "radius": 0.5}, "method"),
        ({"method": "textcrafter-subspace", "radius": 0.5}, "method"),
        ({"pairs": True, "noise_to_signal": 0.1}, "pairs"),
        ({"transplants": True, "noise_to_signal": 0.1}, "transplants"),
        ({"method": "covariance", "shape": "pairs", "epsilon": 9.0}, "shape"),
        ({"method": "covariance", "shape": "differences", "epsilon": 9.0}, "shape"),
    ],
)
def test_what_needs_pairs_is_refused(options: dict[str, Any], param: str) -> None:
    X, labels = labelled()
    options.pop("radius", None)
    with raises("E-INPUT", param):
        vecveil.fit_labels(X, labels, **options)


def test_equal_vectors_are_refused() -> None:
    X = np.ones((60, N), dtype=np.float32)
    with raises("E-INPUT", "labels"):
        vecveil.fit_labels(X, ["a", "b"] * 30, method="laplace", epsilon=1.0)


def test_classes_become_columns_in_sorted_order() -> None:
    marks = classes_of([2, 1, None, ""] * 10, 40)
    np.testing.assert_array_equal(marks[:4], [[0, 1], [1, 0], [0, 0], [0, 0]])


class Vectors:
    """Gives the vector that a text names by its number."""

    name = "vectors"

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def encode(self, texts: list[str]) -> np.ndarray:
        return self.X[[int(text.split()[1]) for text in texts]]


def test_texts_and_a_concept_of_labels() -> None:
    X, labels = labelled()
    texts = [f"text {i} of many" for i in range(600)]
    concept = vecveil.Concept.from_labels("mood", labels)
    protector = vecveil.fit(texts, concept, Vectors(X), noise_to_signal=0.2, kept=12, flattening=0.0)
    direct = vecveil.fit_labels(X, labels, noise_to_signal=0.2, kept=12, flattening=0.0)
    assert protector.fingerprint == direct.fingerprint
    assert protector.concept == "mood"
    assert protector.report["texts"]["with_concept"] == 600
    for bad in ({"target_advantage": 0.1}, {"method": "textcrafter", "radius": 0.5}):
        with raises("E-INPUT", next(iter(bad))):
            vecveil.fit(texts, concept, Vectors(X), **bad)
    few = vecveil.Concept.from_labels("mood", [*labels[:5], *[None] * 595])
    with pytest.raises(ConceptError):
        vecveil.fit(texts, few, Vectors(X), noise_to_signal=0.2)
    with raises("E-INPUT", "texts"):
        vecveil.fit(texts[:50], concept, Vectors(X), noise_to_signal=0.2)


def test_every_method_says_whether_labels_are_enough() -> None:
    assert {name for name, method in METHODS.items() if not method.labels} >= {"textcrafter", "textcrafter-subspace"}
