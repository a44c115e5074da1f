"""What every token-inference attack shares: its one public method and its result."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.knowledge import Knowledge, LabelledVectors
from vecveil.attacks.splits import split_groups
from vecveil.errors import InvalidInputError, message
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.token_inference import (
    TermTable,
    confidence,
    leakage,
    macro_auc,
    r_precision,
    term_table,
    tokens_with_both_classes,
    top_accuracy,
)
from vecveil.randomness import resolve_generator
from vecveil.types import Embeddings, Matrix, RandomSource, Release

__all__ = ["Attack", "AttackResult", "validation_r_precision"]

FloatArray = npt.NDArray[np.float64]

_ALSO = ("top_accuracy", "auc", "leakage", "confidence")


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What one attack found, with intervals and chance levels.

    Attributes:
        name: Unique name of the attack.
        estimates: By name: ``r_precision`` (the main one), ``top_accuracy``, ``auc`` (absent if no
            token has both classes), ``leakage``, ``confidence``.
        terms: Counts and hits per token, in the order of the label columns.
        adaptive: Whether the attack drew fresh releases while training.
        seconds: Wall-clock seconds of fitting and scoring.
        description: One sentence for the report.
        family: Always ``"token-inference"``.
    """

    name: str
    estimates: Mapping[str, Estimate]
    terms: TermTable
    adaptive: bool
    seconds: float
    description: str
    family: str = "token-inference"
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimates", MappingProxyType(dict(self.estimates)))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @property
    def value(self) -> float:
        """R-precision on the test vectors."""
        return self.estimates["r_precision"].value

    def to_record(self, clean: AttackResult | None = None) -> dict[str, Any]:
        """Return the `attacks` entry of an audit record (docs/formats.md).

        Args:
            clean: The same attack's result on clean vectors; its figures stand beside.
        """
        main = self._figure("r_precision", clean)
        also = [self._figure(key, clean) for key in _ALSO if key in self.estimates]
        return {
            "name": self.name,
            "family": self.family,
            **main,
            "n": self.estimates["r_precision"].n,
            "adaptive": self.adaptive,
            "seconds": self.seconds,
            "description": self.description,
            "also": also,
        }

    def _figure(self, key: str, clean: AttackResult | None) -> dict[str, Any]:
        record = self.estimates[key].to_record()
        del record["n"]
        other = None if clean is None else clean.estimates.get(key)
        beside = {} if other is None else other.to_record()
        for name, source in (("clean", "value"), ("clean_low", "low"), ("clean_high", "high")):
            record[name] = beside.get(source)
        return record


class Attack(ABC):
    """A token-inference attack: guesses from a released vector which tokens its text holds.

    Subclasses give `name`, `description`, `_fit` and `_scores`; nothing of the way they are judged
    can be changed.
    """

    name: str
    description: str
    validation_share: ClassVar[float] = 0.1

    @final
    def run(
        self,
        train: LabelledVectors,
        test: LabelledVectors,
        *,
        release: Release | None = None,
        noise_covariance: Matrix | None = None,
        rng: RandomSource = 0,
        show_progress: bool | None = None,
    ) -> AttackResult:
        """Return what the attack finds in ``test`` after learning from ``train``.

        Args:
            train: Without ``release``, released vectors; with it, clean vectors, which the attack
                protects as often as it likes.
            test: Released vectors; no group may also be in ``train``.
            release: The oracle ``release(X, rng) -> Y``.
            noise_covariance: (m, m) covariance of the released noise, where a method declares it.
            rng: Seed or generator of the attack (its split, its start, its noise).
            show_progress: True or False; None shows a bar on a terminal only.

        Raises:
            InvalidInputError: lengths or vocabularies differ, no test text holds a token, or the
                training texts form fewer than two groups.
        """
        owner = type(self).__name__
        rng = resolve_generator(rng, owner=owner)
        knowledge = Knowledge(test.X.shape[1], release, noise_covariance)
        _check_task(train, test, knowledge, owner)
        started = time.perf_counter()
        groups = np.arange(len(train)) if train.groups is None else train.groups
        share = self.validation_share
        kept, held_out = split_groups(groups, (1 - share, share), seed=int(rng.integers(2**31)))
        state = self._fit(train.take(kept), train.take(held_out), knowledge, rng, show_progress)
        scores = np.asarray(self._scores(state, test.X), dtype=np.float64)
        seconds = time.perf_counter() - started
        base_rates = train.L.mean(axis=0)
        estimates = _estimates(
            scores, self._probabilities(scores), test, base_rates, seed=int(rng.integers(2**31))
        )
        return AttackResult(
            name=self.name,
            estimates=estimates,
            terms=term_table(scores, test.L, base_rates=base_rates),
            adaptive=knowledge.adaptive,
            seconds=seconds,
            description=self.description,
            details=self._details(state),
        )

    @abstractmethod
    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
        show_progress: bool | None,
    ) -> Any:
        """Return whatever `_scores` needs; ``validation`` shares no group with ``train``."""

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
        "leakage": leakage(probabilities, L, groups, base_rates=base_rates, seed=seed),
        "confidence": confidence(probabilities, L, groups, base_rates=base_rates, seed=seed),
    }
    if tokens_with_both_classes(L).any():
        found["auc"] = macro_auc(scores, L, groups)
    return found


def _check_task(
    train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge, owner: str
) -> None:
    if train.L.shape[1] != test.L.shape[1]:
        raise InvalidInputError(
            message(owner, "test", f"labelled with the {train.L.shape[1]} tokens of `train`",
                    f"{test.L.shape[1]} tokens")
        )  # fmt: skip
    if knowledge.release is None and train.X.shape[1] != test.X.shape[1]:
        raise InvalidInputError(
            message(
                owner,
                "train",
                f"of the released dimension {test.X.shape[1]}",
                f"dimension {train.X.shape[1]}",
                "Without a release oracle the attack learns from released vectors.",
            )
        )
    if not test.L.any():
        raise InvalidInputError(
            message(owner, "test", "a set in which a text holds a token", "labels that are all 0")
        )
    S = knowledge.noise_covariance
    if S is not None:
        size = (knowledge.dimension, knowledge.dimension)
        if np.shape(S) != size or not np.isfinite(S).all():
            raise InvalidInputError(
                message(
                    owner, "noise_covariance", f"finite, of shape {size}", f"shape {np.shape(S)}"
                )
            )
