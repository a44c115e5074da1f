"""Probes: detect from a released vector whether its text contains the concept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Attack, AttackFinding, Knowledge, LabelledVectors, Session, split_groups
from vecveil.auditing.attacks.perceptrons import TUNED, Perceptron, ScheduleOptions, fit_perceptron
from vecveil.auditing.attacks.token_inference import KernelAttack, KernelModel, fit_linear
from vecveil.auditing.metrics.leakage import advantage, tpr_at_fpr
from vecveil.errors import InvalidInputError
from vecveil.privacy.utility.ranking import auc
from vecveil.types import Embeddings
from vecveil.validation import check_count

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Scored:
    scores: FloatArray
    labels: Array


def _state_of(model: type[Any]) -> dict[str, Any]:
    return {"model": model, "validation": _Scored}


class ProbeAttack(Attack[LabelledVectors, LabelledVectors]):
    """A probe: one yes-or-no label for each text. Subclasses implement `_learn` and `_scores`.

    Estimates: ``auc`` (the main one), ``advantage``, ``tpr_at_1_percent`` and ``tpr_at_01_percent`` (TPR at an FPR of 1
    % and 0.1 %; absent if the validation texts contain too few negatives to set the threshold). Thresholds come from
    the scores of validation texts, on which no model is fitted.

    The state has two parts: the ``model`` that `_learn` returns, and the ``validation`` scores with their labels.
    """

    family = "probe"
    validation_share = 0.2

    @abstractmethod
    def _learn(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Any:
        """Return the model; ``validation`` is for choosing settings, not for fitting."""

    @abstractmethod
    def _scores(self, model: Any, X: Embeddings) -> Array:
        """Return a score for each released vector, (N,); higher means more likely to contain the concept."""

    @final
    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Any:
        if _one_class(train.L) or _one_class(validation.L):
            seed = int(session.rng.integers(2**31))
            train, validation = self._split_again(train, validation, seed)
        model = self._learn(train, validation, session)
        # Settings were chosen on other releases, so these scores are not biased towards the model.
        held = session.draw(validation.X)
        scores = np.asarray(self._scores(model, held), dtype=np.float64)
        return {"model": model, "validation": _Scored(scores, validation.L[:, 0])}

    def _split_again(
        self, train: LabelledVectors, validation: LabelledVectors, seed: int
    ) -> tuple[LabelledVectors, LabelledVectors]:
        """Return another split in which both parts hold both classes: few positives can all fall on one side."""
        X, L = (np.concatenate([getattr(train, k), getattr(validation, k)]) for k in ("X", "L"))
        groups = np.arange(len(X))
        if train.groups is not None and validation.groups is not None:
            groups = np.concatenate([train.groups, validation.groups])
        everything = LabelledVectors(X, L, groups)
        # Groups with the concept and groups without it are split apart, so both parts get both.
        holds = np.isin(groups, groups[L[:, 0]])
        parts: tuple[list[Array], list[Array]] = ([], [])
        shares = (1 - self.validation_share, self.validation_share)
        for rows in (np.flatnonzero(holds), np.flatnonzero(~holds)):
            # A single group cannot be divided: it stays in the training part.
            if len(np.unique(groups[rows])) < 2:
                parts[0].append(rows)
                continue
            split = split_groups(groups[rows], shares, seed=seed)
            for part, chosen in zip(parts, split, strict=True):
                part.append(rows[chosen])
        if parts[1]:  # else both classes form one group each, and no split helps
            train, validation = (everything.take(np.sort(np.concatenate(p))) for p in parts)
        if _one_class(train.L) or _one_class(validation.L):
            raise InvalidInputError(
                "Give at least two groups of texts with the concept and two without it: the probe learns from one of "
                "each and sets its threshold on the other.",
                code="E-INPUT-GROUPS",
                param="train",
            )
        return train, validation

    @final
    def _judge(self, state: Any, train: LabelledVectors, test: LabelledVectors, session: Session) -> AttackFinding:
        model, known = state["model"], state["validation"]
        scores = np.asarray(self._scores(model, test.X), dtype=np.float64)
        labels, groups = test.L[:, 0], test.groups
        given = (scores, labels, known.scores, known.labels, groups)
        estimates = {"auc": auc(scores, labels, groups), "advantage": advantage(*given)}
        for name, rate in (("tpr_at_1_percent", 0.01), ("tpr_at_01_percent", 0.001)):
            estimate = tpr_at_fpr(*given, false_positive_rate=rate)
            if estimate is not None:
                estimates[name] = estimate
        return AttackFinding(estimates, details=self._details(model))

    @final
    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        for param, part in (("train", train), ("test", test)):
            if part.L.shape[1] != 1:
                raise InvalidInputError(
                    f"A probe needs one label, whether a text contains the concept; {param} has {part.L.shape[1]}.",
                    code="E-INPUT-SHAPE",
                    param=param,
                )
            if _one_class(part.L):
                raise InvalidInputError(
                    f"All texts of {param} {'contain' if part.L.any() else 'lack'} the concept: give both kinds.",
                    code="E-INPUT-CLASSES",
                    param=param,
                )


def validation_auc(scores: Array, L: Array) -> float:
    return auc(scores[:, 0], L[:, 0]).value


def _one_class(L: Array) -> bool:
    return bool(L.all() or not L.any())


@dataclass(frozen=True, eq=False)
class _LinearModel:
    mean: FloatArray
    weights: FloatArray
    penalty: float


class LinearProbe(ProbeAttack):
    """Fisher's discriminant (Cov(y) + penalty)⁻¹ Cov(y, label), the ridge solution.

    With an oracle the covariances are averages over several releases of each text, and a declared noise covariance is
    used exactly. Directions without variance are dropped.
    """

    name = "probe-linear"
    description = "Regularised linear discriminant between texts with the concept and texts without."
    cost = "a second on one core"
    source = "Fisher (1936), regularised; as a probe Alain and Bengio (2016)."
    state_type = _state_of(_LinearModel)

    def __init__(self, *, draws: int = 8) -> None:
        """Set the number of oracle draws; more bring the moments closer to their limit."""
        self.draws = check_count(draws, owner="LinearProbe", param="draws")

    def _learn(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _LinearModel:
        moments, penalty, weights = fit_linear(train, validation, session, validation_auc, draws=self.draws)
        return _LinearModel(moments.mean, weights[:, 0], penalty)

    def _scores(self, model: _LinearModel, X: Embeddings) -> FloatArray:
        scores: FloatArray = (X.astype(np.float64) - model.mean) @ model.weights
        return scores

    def _details(self, model: _LinearModel) -> Mapping[str, Any]:
        return {"penalty": model.penalty}


class KernelProbe(ProbeAttack):
    """Kernel ridge regression of the 0/1 target on standardised releases, its setting chosen by validation AUC.

    With an oracle, up to four fresh releases of each text fill up the rows.
    """

    name = "probe-kernel"
    description = (
        "Gaussian kernel ridge regression between texts with the concept and texts without, width and penalty "
        "chosen on validation texts."
    )
    cost = "10 seconds on one core"
    source = "Own; kernel ridge regression, Saunders, Gammerman and Vovk (1998)."
    state_type = _state_of(KernelModel)

    def __init__(self, *, rows: int = 6000) -> None:
        """Set the maximum number of training rows: time grows with their cube, memory with their square."""
        self.rows = check_count(rows, owner="KernelProbe", param="rows", minimum=2)

    def _learn(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> KernelModel:
        knowledge, rng = session.knowledge, session.rng
        attack = KernelAttack(rows=self.rows)
        setting = attack.choose(train, validation, knowledge, rng, judge=validation_auc)
        return attack.learn([train], setting, knowledge, rng)

    def _scores(self, model: KernelModel, X: Embeddings) -> Array:
        scores: Array = model(X)[:, 0]
        return scores

    def _details(self, model: KernelModel) -> Mapping[str, Any]:
        return model.details()


class MLPProbe(ProbeAttack):
    """A perceptron on standardised released vectors; the epoch with the best validation AUC is kept."""

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "seconds to half a minute on one core"
    source = "Own; the tuned token-inference perceptron with one label."
    state_type = _state_of(Perceptron)

    def __init__(
        self, hidden: Sequence[int] = (512,), *, device: str = "auto", **training: Unpack[ScheduleOptions]
    ) -> None:
        """Set the network's shape, and changes to the training of `MLPAttack` with fewer, larger steps."""
        few = replace(TUNED, epochs=12, batch=256)
        self.schedule = replace(few, hidden=tuple(hidden), device=device, **training)
        self.name = "-".join(["probe-mlp", *map(str, self.schedule.hidden)])

    def _learn(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Perceptron:
        return fit_perceptron(train, validation, self.schedule, session, self.name, validation_auc)

    def _scores(self, model: Perceptron, X: Embeddings) -> Array:
        scores: Array = model(X)[:, 0]
        return scores

    def _details(self, model: Perceptron) -> Mapping[str, Any]:
        return model.details()
