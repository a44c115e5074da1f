"""Metrics of a labelled task: accuracy and macro-F1 of a logistic regression.

Two scenarios: *deployment* runs a classifier trained on clean vectors on protected ones,
*development* trains it on protected vectors too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.metrics.estimates import Estimate, bootstrap_interval, bootstrap_weights, group_index, share_estimate
from vecveil.metrics.similarity import unit_rows
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings, check_same_length

Scenario = Literal["deployment", "development"]
FloatArray = npt.NDArray[np.float64]

_INVERSE_PENALTY = 10.0


@dataclass(frozen=True, slots=True)
class Classification:
    """Accuracy and macro-F1 of one classifier on test vectors, with their scenario."""

    scenario: Scenario
    accuracy: Estimate
    macro_f1: Estimate

    def to_record(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {"scenario": self.scenario, "accuracy": self.accuracy.to_record(), "macro_f1": self.macro_f1.to_record()}


def classification(
    train: Embeddings,
    train_classes: Any,
    test: Embeddings,
    test_classes: Any,
    *,
    scenario: Scenario = "deployment",
    protected_train: Embeddings | None = None,
    groups: Any = None,
    seed: int = 0,
) -> Classification:
    """Return accuracy and macro-F1 of a logistic regression on unit-norm vectors.

    Chance is the constant answer of the training set's most frequent class.

    Args:
        train: (N, n) clean training vectors.
        test: (M, m) released test vectors.
        scenario: ``"deployment"`` trains on ``train``, ``"development"`` on ``protected_train``.
        protected_train: (N, m) the training vectors as released; needed for development.
        groups: (M,) groups of the test texts, for the interval.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    owner = "classification"
    if scenario not in ("deployment", "development"):
        raise InvalidInputError("`scenario` is 'deployment' or 'development'.", param="scenario")
    if scenario == "development":
        if protected_train is None:
            raise InvalidInputError("The development scenario needs `protected_train`.", param="protected_train")
        train = protected_train
    train = check_embeddings(train, owner=owner, param="train", min_rows=2)
    test = check_embeddings(test, owner=owner, param="test", min_rows=1)
    if train.shape[1] != test.shape[1]:
        raise InvalidInputError(
            f"`train` has {train.shape[1]} dimensions and `test` {test.shape[1]}: a reduced release has no deployment "
            "scenario.",
            param="test",
        )
    y, truth = np.asarray(train_classes), np.asarray(test_classes)
    check_same_length(owner, train_classes=y, train=train)
    check_same_length(owner, test_classes=truth, test=test)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InvalidInputError("`train_classes` has one class only.", param="train_classes")
    with optional_import("The classification metric", "scikit-learn", "attacks"):
        from sklearn.linear_model import LogisticRegression
    # Unit norm: search and classification see directions, and the penalty one scale.
    model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=2000)
    model.fit(unit_rows(train), y)
    answer = model.predict(unit_rows(test))
    guess = np.full(len(truth), classes[counts.argmax()])
    index, _ = group_index(groups, len(truth), owner=owner)
    right, chance = (answer == truth).astype(np.float64), float((guess == truth).mean())
    accuracy = share_estimate("accuracy", right, groups=index, chance=chance, seed=seed)
    f1 = macro_f1(truth, answer, groups=index, guess=guess, seed=seed)
    return Classification(scenario, accuracy, f1)


def macro_f1(truth: Any, answer: Any, *, groups: Any = None, guess: Any = None, seed: int = 0) -> Estimate:
    """Return the mean F1 over the classes that occur in ``truth`` or ``answer``, both (N,).

    ``guess``, (N,), is an answer made without the vectors; its macro-F1 is the chance level.
    """
    truth, answer = np.asarray(truth), np.asarray(answer)
    rows = check_same_length("macro_f1", truth=truth, answer=answer)
    if rows == 0:
        raise InvalidInputError("macro_f1: `truth` has no row.", param="truth")
    index, count = group_index(groups, rows, owner="macro_f1")
    # Counts by group, so that a bootstrap sample is a weighted sum of them.
    hits, sizes = _class_counts(truth, answer, index, count)
    present = sizes.sum(axis=0) > 0  # fixed over the bootstrap, or classes would come and go
    value = float(_mean_f1(hits.sum(axis=0), sizes.sum(axis=0), present))
    chance = None
    if guess is not None:
        h, s = _class_counts(truth, np.asarray(guess), np.zeros(rows, dtype=np.intp), 1)
        # Classes that only the answers hold do not count against the guess.
        chance = float(_mean_f1(h[0], s[0], s[0] > 0))
    values = [_mean_f1(weights @ hits, weights @ sizes, present) for weights in bootstrap_weights(count, seed=seed)]
    ends = bootstrap_interval(np.concatenate(values), value)
    return Estimate("macro-F1", value, *ends, rows, chance)


def _class_counts(
    truth: npt.NDArray[Any], answer: npt.NDArray[Any], index: npt.NDArray[np.intp], count: int
) -> tuple[FloatArray, FloatArray]:
    """Return, by group and class, the true positives and the size of the class in truth plus answers."""
    classes = np.unique(np.concatenate([truth, answer]))
    hits = np.zeros((count, len(classes)))
    sizes = np.zeros((count, len(classes)))
    np.add.at(sizes, (index, np.searchsorted(classes, truth)), 1.0)
    np.add.at(sizes, (index, np.searchsorted(classes, answer)), 1.0)
    same = truth == answer
    np.add.at(hits, (index[same], np.searchsorted(classes, truth[same])), 1.0)
    return hits, sizes


def _mean_f1(hits: FloatArray, sizes: FloatArray, present: npt.NDArray[np.bool_]) -> FloatArray:
    # F1 = 2 TP / (size in truth + size in answers), class by class.
    f1 = np.divide(2 * hits, sizes, out=np.zeros_like(hits), where=sizes > 0)
    mean: FloatArray = f1[..., present].mean(axis=-1)
    return mean
