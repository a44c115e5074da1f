"""What every probe shares: both classes on both sides, thresholds from validation scores, the figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Attack, Finding, Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.splits import split_groups
from vecveil.errors import InvalidInputError, message
from vecveil.metrics.detection import advantage, auc, tpr_at_fpr
from vecveil.types import Embeddings

__all__ = ["ProbeAttack", "validation_auc"]

Array = npt.NDArray[Any]


class ProbeAttack(Attack[LabelledVectors, LabelledVectors]):
    """A probe: one yes-or-no label for each text. Subclasses give `_learn` and `_scores`.

    Its estimates: ``auc`` (the main one), ``advantage``, ``tpr_at_1_percent`` and ``tpr_at_01_percent`` (TPR at
    an FPR of 1 % and 0.1 %; absent where the validation texts hold too few negatives to set the
    threshold). Thresholds come from the scores of validation texts, which nothing is fitted on.

    `state_type` is a dataclass of three fields: what `_learn` returns, then the scores and the labels of the
    validation texts.
    """

    family = "probe"
    validation_share = 0.2

    @abstractmethod
    def _learn(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        """Return the model; ``validation`` is for choosing settings, not for fitting."""

    @abstractmethod
    def _scores(self, model: Any, X: Embeddings) -> Array:
        """Return a score for each released vector, (N,); higher is likelier to hold the concept."""

    def _details(self, model: Any) -> Mapping[str, Any]:
        """Return what was chosen while fitting (numbers and names only)."""
        return {}

    @final
    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        if _one_class(train.L) or _one_class(validation.L):
            seed = int(session.rng.integers(2**31))
            train, validation = self._split_again(train, validation, seed)
        model = self._learn(train, validation, knowledge, session)
        held_out = knowledge.draw(validation.X, session.rng)  # not the releases that settings saw
        scores = np.asarray(self._scores(model, held_out), dtype=np.float64)
        return self.state_type(model, scores, validation.L[:, 0])

    def _split_again(
        self, train: LabelledVectors, validation: LabelledVectors, seed: int
    ) -> tuple[LabelledVectors, LabelledVectors]:
        """Return another split in which both parts hold both classes: a few positives can all fall on one side."""
        X, L = (np.concatenate([getattr(train, k), getattr(validation, k)]) for k in ("X", "L"))
        if train.groups is None or validation.groups is None:
            groups = np.arange(len(X))
        else:
            groups = np.concatenate([train.groups, validation.groups])
        everything = LabelledVectors(X, L, groups)
        holds = np.isin(groups, groups[L[:, 0]])
        parts: tuple[list[Array], list[Array]] = ([], [])
        shares = (1 - self.validation_share, self.validation_share)
        for rows in (np.flatnonzero(holds), np.flatnonzero(~holds)):
            if len(np.unique(groups[rows])) >= 2:
                for part, chosen in zip(
                    parts, split_groups(groups[rows], shares, seed=seed), strict=True
                ):
                    part.append(rows[chosen])
            else:
                parts[0].append(rows)
        if parts[1]:
            train, validation = (everything.take(np.sort(np.concatenate(p))) for p in parts)
        if _one_class(train.L) or _one_class(validation.L):
            raise InvalidInputError.of(type(self).__name__, "train",
                                       "of at least two groups of texts with the concept and two without it",
                                       "fewer",
                                       "One group of each is needed to learn from and one to choose thresholds on.",
                                       "Give more texts that differ.")  # fmt: skip
        return train, validation

    @final
    def _judge(
        self,
        state: Any,
        train: LabelledVectors,
        test: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        model, known_scores, known_labels = (getattr(state, name) for name in _fields(state))
        scores = np.asarray(self._scores(model, test.X), dtype=np.float64)
        labels, groups = test.L[:, 0], test.groups
        given = (scores, labels, known_scores, known_labels, groups)
        found = {"auc": auc(scores, labels, groups), "advantage": advantage(*given)}
        for name, rate in (("tpr_at_1_percent", 0.01), ("tpr_at_01_percent", 0.001)):
            estimate = tpr_at_fpr(*given, false_positive_rate=rate)
            if estimate is not None:
                found[name] = estimate
        return Finding(found, details=self._details(model))

    @final
    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        owner = type(self).__name__
        for param, part in (("train", train), ("test", test)):
            if part.L.shape[1] != 1:
                raise InvalidInputError.of(owner, param,
                                           "labelled with one column, whether a text holds the concept",
                                           f"{part.L.shape[1]} columns")  # fmt: skip
            if _one_class(part.L):
                raise InvalidInputError(
                    message(owner, param, "a set with both classes",
                            f"{len(part)} texts that all {'hold' if part.L.any() else 'lack'} the concept",
                            "A probe tells texts with the concept from texts without it.",
                            "Give texts of both kinds.")
                )  # fmt: skip


def validation_auc(scores: Array, L: Array) -> float:
    """Return the AUC for choosing a setting."""
    return auc(scores, L[:, 0]).value


def _one_class(L: Array) -> bool:
    return bool(L.all() or not L.any())


def _fields(state: Any) -> tuple[str, ...]:
    return tuple(state.__dataclass_fields__)
