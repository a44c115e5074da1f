"""Membership: tell whether a known text is among the texts of a store, by its best explanation of any row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, AttackFinding, Session
from vecveil.attacks.evidence import CandidateVectors, Knowledge, PairedVectors
from vecveil.attacks.release_model import ReleaseModel, fit_release_model
from vecveil.errors import InvalidInputError
from vecveil.metrics.leakage import auc, tpr_at_fpr
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]

RATE = 0.01
"""False-positive rate of the second figure."""
_ABSENT = 2000  # training texts, none of which is in the store
_BLOCK = 1024


class MembershipAttack(Attack[PairedVectors, CandidateVectors]):
    """The likelihood ratio of the row that a known text explains best, against any text.

    ``test.X`` are the rows of the store and ``test.pool`` the texts in question; those that ``test.truth`` names are in
    the store. A text scores max over rows y of log p(y | text) − log p(y), with the Gaussian likelihood of
    `LikelihoodMatching` and a Gaussian of the releases of training texts, none of which is in the store. They also set
    the threshold of the rate.

    Estimates: ``auc`` (the main one) and ``tpr`` at 1 % false positives, which needs 100 of the latter.
    """

    family = "membership"
    name = "membership"
    description = "Whether a known text is in the store: the likelihood ratio of the row that it explains best."
    cost = "seconds on one core; the encoder's vectors of the text and of others of the kind"
    source = "Own; Carlini et al. (2022), likelihood-ratio membership inference, with rows in the place of losses."
    state_type = ReleaseModel

    def __init__(self, *, draws: int = 16) -> None:
        """Keep the oracle draws per text: more sharpen the expected releases and take longer."""
        self.draws = check_count(draws, owner=type(self).__name__, param="draws", minimum=2)

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        members = len(np.unique(test.truth))
        if test.options is not None or not 0 < members < len(test.pool):
            raise InvalidInputError(
                f"Give a pool of members and others, without options; {members} of {len(test.pool)} are members.",
                param="test",
            )

    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> ReleaseModel:
        return fit_release_model(train, validation, session.knowledge, session.rng, draws=self.draws)

    def _judge(
        self, state: ReleaseModel, train: PairedVectors, test: CandidateVectors, session: Session
    ) -> AttackFinding:
        absent = session.rng.permutation(len(train))[:_ABSENT]

        def places(clean: npt.NDArray[Any]) -> FloatArray:
            return state.whiten(state.expected(clean, session.knowledge, session.rng))

        rows = state.whiten(test.X.astype(np.float64))
        # Releases of any text, as one Gaussian: the noise has unit variance here.
        other = places(train.clean[absent])
        centred, spread = rows - other.mean(axis=0), np.atleast_2d(np.cov(other.T)) + np.eye(rows.shape[1])
        usual = -np.einsum("mr,mr->m", centred, np.linalg.solve(spread, centred.T).T) / 2

        def scores(expected: FloatArray) -> FloatArray:
            parts = (expected[i : i + _BLOCK] for i in range(0, len(expected), _BLOCK))
            return np.concatenate([(_log_likelihood(part, rows) - usual).max(axis=1) for part in parts])

        known, unknown = scores(places(test.pool)), scores(other)
        member = np.isin(np.arange(len(test.pool)), test.truth)
        estimates = {"auc": auc(known, member)}
        # The rate's threshold is that of the texts that are not in the store: the one member is for form's sake.
        given = np.append(unknown, unknown.max() + 1), np.append(np.zeros(len(unknown)), 1)
        if (rate := tpr_at_fpr(known, member, *given, false_positive_rate=RATE)) is not None:
            estimates["tpr"] = rate
        return AttackFinding(estimates, details={"penalty": state.penalty, "floor": state.floor})


def _log_likelihood(places: FloatArray, rows: FloatArray) -> FloatArray:
    """Return −d²/2 of every place (P) and row (M), (P, M)."""
    squares = np.einsum("pr,pr->p", places, places)[:, None] + np.einsum("mr,mr->m", rows, rows)
    result: FloatArray = places @ rows.T - squares / 2
    return np.minimum(result, 0.0)  # the expansion cancels
