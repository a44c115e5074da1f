"""Base class of token inference: score from a released vector which words of the concept its text holds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, AttackFinding, Session
from vecveil.attacks.evidence import Knowledge, LabelledVectors, split_groups
from vecveil.errors import InvalidInputError
from vecveil.metrics.leakage import (
    confidence,
    leakage,
    macro_auc,
    pooled_labels,
    r_precision,
    subjects_read,
    term_table,
    tokens_with_both_classes,
    top_accuracy,
)
from vecveil.types import Embeddings, Matrix, Release

FloatArray = npt.NDArray[np.float64]

TRIALS = 3  # releases of each validation text that settings are chosen on


class TokenInferenceAttack(Attack[LabelledVectors, LabelledVectors]):
    """A token-inference attack; subclasses implement `_fit` and `_scores`.

    Estimates: ``r_precision`` (the main one), ``top_accuracy``, ``leakage``, ``confidence``, and ``auc``
    (absent if no token has both classes); where subjects are known also the figures of `subjects_read`.
    """

    family = "token-inference"
    scores_are_probabilities = False  # up to clipping; False: logits

    @abstractmethod
    def _scores(self, state: Any, X: Embeddings) -> npt.NDArray[Any]:
        """Return a score per row and token, (N, V); higher is likelier."""

    @final
    def scores(
        self,
        train: LabelledVectors,
        test: LabelledVectors,
        *,
        release: Release | None = None,
        noise_covariance: Matrix | None = None,
        seed: int = 0,
    ) -> FloatArray:
        """Return the scores (M, V) of the test vectors after learning as `run` does.

        One fit then serves figures of several parts of the vocabulary.
        """
        knowledge = Knowledge(test.dimension, release, noise_covariance)
        knowledge.check(train, owner=type(self).__name__)
        self._check(train, test, knowledge)
        rng = np.random.default_rng(seed)
        groups = np.arange(len(train)) if train.groups is None else train.groups
        shares = (1 - self.validation_share, self.validation_share)
        learn, held = split_groups(groups, shares, seed=int(rng.integers(2**31)))
        state = self._fit(train.take(learn), train.take(held), Session(knowledge, rng, False))
        return np.asarray(self._scores(state, test.X), dtype=np.float64)

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        """Return ``scores`` as probabilities: clipped, or the logistic function of logits."""
        if self.scores_are_probabilities:
            return np.clip(scores, 0.0, 1.0)
        # The logistic function as tanh, which does not overflow for logits of large magnitude.
        probabilities: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return probabilities

    def _evidence(self, scores: FloatArray) -> FloatArray:
        """Return −log(1 − p): summed over texts, the evidence that at least one of them holds the token."""
        if not self.scores_are_probabilities:
            softplus: FloatArray = np.logaddexp(0.0, scores)
            return softplus
        # Linear above 1, where a regression may end: clipped, the likeliest tokens would tie.
        most = 1 - 1e-6
        evidence: FloatArray = -np.log1p(-np.minimum(scores, most)) + np.maximum(scores - most, 0.0)
        return evidence

    @final
    def _judge(self, state: Any, train: LabelledVectors, test: LabelledVectors, session: Session) -> AttackFinding:
        scores = np.asarray(self._scores(state, test.X), dtype=np.float64)
        probabilities = self._probabilities(scores)
        # Chance ranks tokens by their base rate: an attacker without vectors knows it too.
        L, groups, rates = test.L, test.groups, train.L.mean(axis=0)
        seed = int(session.rng.integers(2**31))
        estimates = {
            "r_precision": r_precision(scores, L, groups, base_rates=rates, seed=seed),
            "top_accuracy": top_accuracy(scores, L, groups, base_rates=rates, seed=seed),
        }
        if tokens_with_both_classes(L).any():
            estimates["auc"] = macro_auc(scores, L, groups)
        estimates["leakage"] = leakage(probabilities, L, groups, base_rates=rates, seed=seed)
        estimates["confidence"] = confidence(probabilities, L, groups, base_rates=rates, seed=seed)
        if test.subjects is not None:
            known = train.L if train.subjects is None else pooled_labels(train.L, train.subjects)
            shares = (known if len(known) else train.L).mean(axis=0)
            estimates |= subjects_read(self._evidence(scores), L, test.subjects, base_rates=shares, seed=seed)
        terms = term_table(scores, L, base_rates=rates)
        return AttackFinding(estimates, terms=terms, details=self._details(state))

    @final
    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        tokens = train.L.shape[1]
        if test.L.shape[1] != tokens:
            raise InvalidInputError(
                f"test is labelled with {test.L.shape[1]} tokens and train with {tokens}.",
                code="E-INPUT-SHAPE",
                param="test",
            )
        if not test.L.any():
            raise InvalidInputError("No text of test holds a token.", code="E-INPUT-CLASSES", param="test")


def held_out(
    validation: LabelledVectors, knowledge: Knowledge, rng: np.random.Generator
) -> tuple[Embeddings, npt.NDArray[Any]]:
    """Return releases of the validation texts that settings are chosen on, and their labels."""
    # Several releases of each text make the choice less noisy.
    trials = 1 if knowledge.repeats(validation.X, rng) else TRIALS
    held = np.concatenate([knowledge.draw(validation.X, rng) for _ in range(trials)])
    return held, np.tile(validation.L, (trials, 1))


def validation_r_precision(scores: npt.NDArray[Any], L: npt.NDArray[Any]) -> float:
    """Return R-precision for choosing a setting; 0 where no validation text holds a token."""
    if not L.any():
        return 0.0
    table = term_table(scores, L)
    return float(table.hits.sum() / table.counts.sum())
