"""The ensemble: the mean of several kernel attacks that learn from different texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.kernel_ridge import KernelModel, constant_model
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.attacks.token_inference.further import FurtherKernelAttack
from vecveil.attacks.token_inference.kernel import KernelAttack, held_out
from vecveil.attacks.token_inference.transplant import TransplantAttack
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["EnsembleAttack"]

Array = npt.NDArray[Any]

_PILOT_ROWS = (
    4000  # of each member while members are chosen; with fewer, further texts displace own ones
)


@dataclass(frozen=True, eq=False)
class _Fitted:
    kernel: KernelModel
    transplant: KernelModel
    further: KernelModel
    shares: Array


class EnsembleAttack(TokenInferenceAttack):
    """Scores of `KernelAttack`, `TransplantAttack` and `FurtherKernelAttack`, each divided by its spread, summed.

    The members learn from different releases and different made-up texts, so that their errors differ. Transplant
    takes part where there is `LabelledVectors.without`, further texts where there is `LabelledVectors.further`.
    Members count alike; of the others each joins the best one if the sum finds more in validation texts. No weight is
    fitted, so that few validation texts do.
    """

    name = "ensemble"
    description = (
        "Sum of the kernel attacks' standardised scores, those that help on validation texts."
    )
    cost = "20 seconds on one core, and what its members ask for"
    source = "Own; averaging of regressions, Perrone and Cooper (1993)."
    state_type = _Fitted

    def __init__(self, *, rows: int = 5000) -> None:
        """Keep the most rows of each member."""
        self.rows = check_count(rows, owner="EnsembleAttack", param="rows", minimum=2)

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Fitted:
        rng = session.rng
        setting = KernelAttack(rows=self.rows).choose(train, validation, knowledge, rng)
        held, labels = held_out(validation, knowledge, rng)
        further = train.further
        apart = None if further is None else further.apart_from(validation.groups)
        pilot = replace(train, further=apart)
        members, trials = self._members(train, self.rows), self._members(pilot, _PILOT_ROWS)
        scored: dict[str, Array] = {}
        spreads: dict[str, float] = {}
        for name, trial in trials.items():
            scores = trial.learn([pilot], setting, knowledge, rng)(held)
            spread = float((scores - scores.mean(axis=0)).std())
            if spread > 0:
                scored[name], spreads[name] = scores / spread, spread
        chosen = _choose(scored, labels)
        label_mean = train.L.mean(axis=0, dtype=np.float32)
        models = dict.fromkeys(_NAMES, constant_model(held.shape[1], label_mean))
        shares = np.zeros(len(_NAMES))
        for i, name in enumerate(_NAMES):
            if name in chosen:
                models[name] = members[name].learn([train, validation], setting, knowledge, rng)
                shares[i] = 1 / spreads[name]
        if not shares.any():
            shares[0] = 1.0
        return _Fitted(shares=shares / shares.sum(), **models)

    @staticmethod
    def _members(train: LabelledVectors, rows: int) -> dict[str, KernelAttack]:
        found: dict[str, KernelAttack] = {"kernel": KernelAttack(rows=rows)}
        if train.without is not None:
            found["transplant"] = TransplantAttack(rows=rows)
        if train.further is not None:
            found["further"] = FurtherKernelAttack(rows=rows)
        return found

    def _scores(self, state: _Fitted, X: Embeddings) -> Array:
        total: Array = sum(
            share * getattr(state, name)(X)
            for name, share in zip(_NAMES, state.shares, strict=True)
            if share > 0
        )
        return total

    def _probabilities(self, scores: Array) -> Array:
        return np.clip(scores, 0.0, 1.0)

    def _details(self, state: _Fitted) -> Mapping[str, Any]:
        used = [name for name, share in zip(_NAMES, state.shares, strict=True) if share > 0]
        return {
            "members": " ".join(used),
            "sharpness": state.kernel.sharpness,
            "penalty": state.kernel.penalty,
        }


def _choose(scored: Mapping[str, Array], labels: Array) -> list[str]:
    """Return the best member, and each further one, best first, with which the sum finds more."""
    alone = {name: validation_r_precision(scores, labels) for name, scores in scored.items()}
    chosen: list[str] = []
    best = -1.0
    for name in sorted(alone, key=lambda name: -alone[name]):
        value = validation_r_precision(
            np.sum([scored[each] for each in (*chosen, name)], axis=0), labels
        )
        if value > best:
            best, chosen = value, [*chosen, name]
    return chosen


_NAMES = ("kernel", "transplant", "further")
