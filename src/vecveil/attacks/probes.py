"""Probes: detect from a released vector whether its text holds the concept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, Finding, Session
from vecveil.attacks.evidence import Knowledge, LabelledVectors, split_groups
from vecveil.attacks.release_model import InputMap, fit_input_map, release_moments, spectrum
from vecveil.attacks.token_inference.kernel import (
    KernelModel,
    choose_setting,
    fit_kernel_ridge,
    held_out,
    is_noisy,
)
from vecveil.attacks.training import Network, Schedule, train_network
from vecveil.errors import InvalidInputError, message
from vecveil.metrics.detection import advantage, auc, tpr_at_fpr
from vecveil.runtime import progress
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive

__all__ = ["KernelProbe", "LinearProbe", "MLPProbe", "ProbeAttack", "validation_auc"]

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


FloatArray = npt.NDArray[np.float64]

_PENALTIES = tuple(10.0**e for e in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, 0))
_TRIALS = 3  # releases of each validation text that the penalty is chosen on


@dataclass(frozen=True, eq=False)
class _LinearModel:
    mean: FloatArray
    weights: FloatArray
    penalty: float


@dataclass(frozen=True, eq=False)
class _LinearFit:
    model: _LinearModel
    scores: FloatArray
    labels: npt.NDArray[Any]


class LinearProbe(ProbeAttack):
    """Fisher's discriminant (Cov(y) + penalty)⁻¹ Cov(y, label), the ridge solution.

    With an oracle the covariances are averages over several releases of each text, and a declared
    noise covariance is put in exactly. Directions without variance are dropped.
    """

    name = "probe-linear"
    description = (
        "Regularised linear discriminant between texts with the concept and texts without."
    )
    cost = "a second on one core"
    source = "Fisher (1936), regularised; as a probe Alain and Bengio (2016)."
    state_type = _LinearFit

    def __init__(self, *, draws: int = 8) -> None:
        """Keep the number of oracle draws; more of them bring the moments closer to their limit."""
        self.draws = check_count(draws, owner="LinearProbe", param="draws")

    def _learn(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _LinearModel:
        rng = session.rng
        found = release_moments(train.X, train.L, knowledge, rng, draws=self.draws)
        values, vectors = spectrum(found.covariance)
        target = vectors.T @ found.cross[:, 0]
        trials = _TRIALS if knowledge.adaptive else 1
        held = np.concatenate([knowledge.draw(validation.X, rng) for _ in range(trials)])
        inputs = (held.astype(np.float64) - found.mean) @ vectors
        labels = np.tile(validation.L, (trials, 1))
        best, penalty = -1.0, _PENALTIES[0]
        for candidate in _PENALTIES:
            scores = inputs @ (target / (values + candidate * values.max(initial=0.0)))
            value = validation_auc(scores, labels)
            if value >= best:
                best, penalty = value, candidate
        weights = vectors @ (target / (values + penalty * values.max(initial=0.0)))
        return _LinearModel(found.mean, weights, penalty)

    def _scores(self, model: _LinearModel, X: Embeddings) -> FloatArray:
        scores: FloatArray = (X.astype(np.float64) - model.mean) @ model.weights
        return scores

    def _details(self, model: _LinearModel) -> Mapping[str, Any]:
        return {"penalty": model.penalty}


_PILOT_ROWS = 2000
_COPIES = 3


@dataclass(frozen=True, eq=False)
class _KernelFit:
    model: KernelModel
    scores: npt.NDArray[Any]
    labels: npt.NDArray[Any]


class KernelProbe(ProbeAttack):
    """Kernel ridge regression of the 0/1 target on standardised releases, its setting chosen by validation AUC.

    With an oracle the rows are filled up with at most three fresh releases of each text.
    """

    name = "probe-kernel"
    description = (
        "Gaussian kernel ridge regression between texts with the concept and texts without, width and penalty "
        "chosen on validation texts."
    )
    cost = "10 seconds on one core"
    source = "Own; kernel ridge regression, Saunders, Gammerman and Vovk (1998)."
    state_type = _KernelFit

    def __init__(self, *, rows: int = 6000) -> None:
        """Keep the most training rows to use: time grows with its cube, memory with its square."""
        self.rows = check_count(rows, owner="KernelProbe", param="rows", minimum=2)

    def _learn(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> KernelModel:
        rng = session.rng
        pilot = train.take(np.sort(rng.permutation(len(train))[:_PILOT_ROWS]))
        held, labels = held_out(validation, knowledge, rng)
        setting = choose_setting(
            knowledge.draw(pilot.X, rng),
            pilot.L,
            held,
            lambda scores: validation_auc(scores[:, 0], labels),
            knowledge.noise_covariance,
        )
        copies = 1
        if is_noisy(train.X, knowledge, rng):
            copies = min(_COPIES, -(-self.rows // len(train)))
        rows = np.concatenate([rng.permutation(len(train)) for _ in range(copies)])[: self.rows]
        Y = knowledge.draw(train.X[rows], rng)
        ones = np.ones(len(rows), dtype=np.float32)
        return fit_kernel_ridge(Y, train.L[rows], ones, setting, knowledge.noise_covariance)

    def _scores(self, model: KernelModel, X: Embeddings) -> npt.NDArray[Any]:
        scores: npt.NDArray[Any] = model(X)[:, 0]
        return scores

    def _details(self, model: KernelModel) -> Mapping[str, Any]:
        return model.details()


_DROPOUT = 0.2
_INPUT_NOISE = 0.5  # without an oracle the same vectors come back in every epoch
_WEIGHT_DECAY = 0.1


@dataclass(frozen=True, eq=False)
class _MLPModel:
    inputs: InputMap
    network: Network
    epoch: int


@dataclass(frozen=True, eq=False)
class _MLPFit:
    model: _MLPModel
    scores: npt.NDArray[np.float64]
    labels: Array


class MLPProbe(ProbeAttack):
    """A perceptron on standardised released vectors; the epoch with the best validation AUC is kept.

    With an oracle every epoch sees freshly protected vectors. Without one, noise on the inputs and
    weight decay keep the network from learning the vectors by heart.
    """

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "seconds to half a minute on one core"
    source = "Own; the tuned token-inference perceptron with one label."
    state_type = _MLPFit

    def __init__(
        self,
        hidden: Sequence[int] = (512,),
        *,
        epochs: int = 12,
        batch: int = 256,
        learning_rate: float = 2e-3,
        device: str = "auto",
    ) -> None:
        """Keep the network's shape and its training.

        Args:
            hidden: Units per hidden layer; larger finds a little more and takes longer.
            epochs: Passes over the training texts.
            batch: Texts per step.
            learning_rate: Adam's, falling to zero along a cosine.
            device: ``"auto"`` takes CUDA where there is one, else the CPU.
        """
        owner = "MLPProbe"
        self.hidden = tuple(check_count(units, owner=owner, param="hidden") for units in hidden)
        self.name = "-".join(["probe-mlp", *map(str, self.hidden)])
        self.epochs = check_count(epochs, owner=owner, param="epochs")
        self.batch = check_count(batch, owner=owner, param="batch")
        self.learning_rate = check_positive(learning_rate, owner=owner, param="learning_rate")
        self.device = device

    def _learn(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _MLPModel:
        rng = session.rng
        inputs = fit_input_map(knowledge.draw(train.X, rng))
        held_out = inputs(knowledge.draw(validation.X, rng))
        fixed = not knowledge.adaptive
        schedule = Schedule(
            hidden=self.hidden,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            dropout=_DROPOUT,
            cosine=True,
            input_noise=_INPUT_NOISE if fixed else 0.0,
            weight_decay=_WEIGHT_DECAY if fixed else 0.0,
            device=self.device,
        )
        steps = train_network(lambda: inputs(knowledge.draw(train.X, rng)), train.L, schedule, rng)
        bar = progress(
            steps, self.name, total=self.epochs, show=session.show_progress, unit="epoch"
        )
        best, best_epoch = -1.0, 0
        kept: Network | None = None
        for epoch, network in enumerate(bar, start=1):
            value = validation_auc(network(held_out)[:, 0], validation.L)
            if value >= best:
                best, kept, best_epoch = value, network.copy(), epoch
        assert kept is not None  # epochs >= 1
        return _MLPModel(inputs, kept, best_epoch)

    def _scores(self, model: _MLPModel, X: Embeddings) -> Array:
        scores: Array = model.network(model.inputs(X))[:, 0]
        return scores

    def _details(self, model: _MLPModel) -> Mapping[str, Any]:
        return {"epoch": model.epoch, "epochs": self.epochs, "hidden": list(self.hidden)}
