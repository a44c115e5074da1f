"""The kernel probe: Gaussian kernel ridge regression on whether a text holds the concept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.kernel_ridge import KernelModel, choose_setting, fit_kernel_ridge
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.probes.base import ProbeAttack, validation_auc
from vecveil.attacks.token_inference.kernel import held_out, is_noisy
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["KernelProbe"]

_PILOT_ROWS = 2000
_COPIES = 3


@dataclass(frozen=True, eq=False)
class _Fitted:
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
    state_type = _Fitted

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
