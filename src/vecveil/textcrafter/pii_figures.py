"""How well a PII classifier does on rows that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.metrics.classification import macro_f1
from vecveil.metrics.detection import auc
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.intervals import cluster_bootstrap, share_interval

__all__ = ["HeldOutFigures", "doubts", "measure"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class HeldOutFigures:
    """What a classifier reached on rows that it was not fitted on, each figure with interval and chance.

    Attributes:
        positive_rows, plain_rows: how many vectors of each class there were.
        used_rows: of each class in the balanced sample; its vectors are what the weights come from.
        held_out_rows: of both classes, on which the figures were measured.
        accuracy: at p(e) ≥ 0.5; chance names the class that is more frequent among the rows fitted on.
        macro_f1: the mean of both classes' F1; the same chance.
        positive_f1: F1 of the PII class; chance says PII of every row.
        auc: area under the ROC curve; chance is 0.5.
        regularisation: λ, the inverse of scikit-learn's C.
        seed: of sample, split and bootstrap.
        warnings: sentences on what makes p(e) doubtful; empty if nothing does.
    """

    positive_rows: int
    plain_rows: int
    used_rows: int
    held_out_rows: int
    accuracy: Estimate
    macro_f1: Estimate
    positive_f1: Estimate
    auc: Estimate
    regularisation: float
    seed: int
    warnings: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the figures, JSON-ready."""
        return {
            "rows": {
                "positive": self.positive_rows,
                "plain": self.plain_rows,
                "used_of_each": self.used_rows,
                "held_out": self.held_out_rows,
            },
            "accuracy": self.accuracy.to_record(),
            "macro_f1": self.macro_f1.to_record(),
            "positive_f1": self.positive_f1.to_record(),
            "auc": self.auc.to_record(),
            "regularisation": self.regularisation,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "weights_from": "the whole balanced sample; the figures are of a fit without the held-out rows",
        }


def measure(
    logits: Array, y: Array, groups: Array, fitted: Array, seed: int
) -> dict[str, Estimate]:
    """Return accuracy, both F1 and AUC by the names of `HeldOutFigures`.

    Args:
        logits: (N,) of the held-out rows.
        y: (N,) whether each is of the PII class.
        groups: (N,) group numbers, for the intervals.
        fitted: the classes of the rows that the classifier was fitted on.
        seed: of the bootstrap.
    """
    answer = logits >= 0
    guess = np.full(len(y), bool(fitted.mean() >= 0.5))
    right = (answer == y).astype(np.float64)
    low, high = share_interval(right, groups)
    rows, pii = len(y), float(y.mean())
    # F1 = 2 TP / (answered PII + is PII): a quotient of sums over rows, resampled by group like any share.
    hits, sizes = 2.0 * (answer & y), answer.astype(np.float64) + y
    f1_low, f1_high = cluster_bootstrap(hits, sizes, groups, seed=seed)
    value = float(right.mean())
    return {
        "accuracy": Estimate("accuracy", value, low, high, rows, float((guess == y).mean())),
        "macro_f1": macro_f1(y, answer, groups=groups, guess=guess, seed=seed),
        "positive_f1": Estimate(
            "F1 of PII", float(hits.sum() / sizes.sum()), f1_low, f1_high, rows, 2 * pii / (1 + pii)
        ),
        "auc": auc(logits, y, groups),
    }


def doubts(figures: Mapping[str, Estimate]) -> list[str]:
    """Return a sentence for each figure whose interval reaches down to chance."""
    return [
        f"The held-out {name} of the PII classifier is {one.value:.3f} (95 % interval {one.low:.3f} to "
        f"{one.high:.3f}), not above chance ({one.chance:.3f}): p(e) may say nothing about PII."
        for name, one in (("AUC", figures["auc"]), ("accuracy", figures["accuracy"]))
        if one.chance is not None and one.low <= one.chance
    ]
