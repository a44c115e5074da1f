"""Token inference: from a released vector, which words of the concept does the text hold?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, Finding
from vecveil.attacks.evidence import Knowledge, LabelledVectors
from vecveil.errors import InvalidInputError
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.token_inference import (
    confidence,
    leakage,
    macro_auc,
    r_precision,
    term_table,
    tokens_with_both_classes,
    top_accuracy,
)
from vecveil.types import Embeddings

__all__ = ["TokenInferenceAttack", "validation_r_precision"]

FloatArray = npt.NDArray[np.float64]


class TokenInferenceAttack(Attack[LabelledVectors, LabelledVectors]):
    """A token-inference attack; subclasses give `_fit` and `_scores`.

    Its estimates: ``r_precision`` (the main one), ``top_accuracy``, ``leakage``, ``confidence``, and ``auc``
    (absent if no token has both classes).
    """

    family = "token-inference"

    @abstractmethod
    def _scores(self, state: Any, X: Embeddings) -> npt.NDArray[Any]:
        """Return a score per row and token, (N, V); higher is likelier."""

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        """Return ``scores`` as probabilities: the logistic function of logits by default."""
        probabilities: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return probabilities

    def _details(self, state: Any) -> Mapping[str, Any]:
        """Return what was chosen while fitting (numbers and names only)."""
        return {}

    @final
    def _judge(
        self,
        state: Any,
        train: LabelledVectors,
        test: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        scores = np.asarray(self._scores(state, test.X), dtype=np.float64)
        base_rates = train.L.mean(axis=0)
        seed = int(rng.integers(2**31))
        return Finding(
            _estimates(scores, self._probabilities(scores), test, base_rates, seed=seed),
            terms=term_table(scores, test.L, base_rates=base_rates),
            details=self._details(state),
        )

    @final
    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        owner = type(self).__name__
        if train.L.shape[1] != test.L.shape[1]:
            raise InvalidInputError.of(owner, "test", f"labelled with the {train.L.shape[1]} tokens of `train`",
                                       f"{test.L.shape[1]} tokens")  # fmt: skip
        if not test.L.any():
            raise InvalidInputError.of(
                owner, "test", "a set in which a text holds a token", "labels that are all 0"
            )


def validation_r_precision(scores: npt.NDArray[Any], L: npt.NDArray[Any]) -> float:
    """Return R-precision for choosing a setting; 0 where no validation text holds a token."""
    if not L.any():
        return 0.0
    table = term_table(scores, L)
    return float(table.hits.sum() / table.counts.sum())


def _estimates(
    scores: FloatArray,
    probabilities: FloatArray,
    test: LabelledVectors,
    base_rates: FloatArray,
    *,
    seed: int,
) -> dict[str, Estimate]:
    L, groups = test.L, test.groups
    found = {
        "r_precision": r_precision(scores, L, groups, base_rates=base_rates, seed=seed),
        "top_accuracy": top_accuracy(scores, L, groups, base_rates=base_rates, seed=seed),
    }
    if tokens_with_both_classes(L).any():
        found["auc"] = macro_auc(scores, L, groups)
    found["leakage"] = leakage(probabilities, L, groups, base_rates=base_rates, seed=seed)
    found["confidence"] = confidence(probabilities, L, groups, base_rates=base_rates, seed=seed)
    return found
