"""Utility in classification: accuracy of a classifier on protected vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vecveil.metrics.classification import classification
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.utility import Sides, UtilityRelease, UtilityTask
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings, check_same_length

__all__ = ["ClassificationTask"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class _Split:
    X: Embeddings
    classes: Array


class ClassificationTask(UtilityTask):
    """Accuracy of a logistic regression, trained and tested on protected vectors.

    Args:
        train, test: (N, n) clean embeddings.
        train_classes, test_classes: (N,) class labels.
        scenario: ``development`` trains on protected vectors, ``deployment`` on clean ones.
    """

    key = "classification"
    label = "Classification: accuracy"

    def __init__(
        self,
        train: Embeddings,
        train_classes: Array,
        test: Embeddings,
        test_classes: Array,
        *,
        scenario: Literal["development", "deployment"] = "development",
    ) -> None:
        self.train = _Split(
            check_embeddings(train, owner="ClassificationTask", param="train"),
            np.asarray(train_classes),
        )
        self.test = _Split(
            check_embeddings(test, owner="ClassificationTask", param="test"),
            np.asarray(test_classes),
        )
        check_same_length(
            "ClassificationTask", train=self.train.X, train_classes=self.train.classes
        )
        check_same_length("ClassificationTask", test=self.test.X, test_classes=self.test.classes)
        self.scenario: Literal["development", "deployment"] = scenario
        self.same_space = scenario == "deployment"

    @classmethod
    def of(
        cls, X: Embeddings, classes: Array, *, test_share: float = 0.3, seed: int = 0
    ) -> ClassificationTask:
        """Return the task on a random split of labelled embeddings."""
        X = check_embeddings(X, owner="ClassificationTask.of", param="X", min_rows=10)
        check_same_length("ClassificationTask.of", X=X, classes=classes)
        order = np.random.default_rng(seed).permutation(len(X))
        cut = max(1, int(test_share * len(X)))
        labels = np.asarray(classes)
        return cls(X[order[cut:]], labels[order[cut:]], X[order[:cut]], labels[order[:cut]])

    def clean(self) -> Estimate:
        """Return the accuracy on clean vectors."""
        return classification(
            self.train.X, self.train.classes, self.test.X, self.test.classes
        ).accuracy

    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the accuracy on protected vectors."""
        train = release(self.train.X, rng) if self.scenario == "development" else None
        return classification(
            self.train.X,
            self.train.classes,
            release(self.test.X, rng),
            self.test.classes,
            scenario=self.scenario,
            protected_train=train,
        ).accuracy
