"""Denoising: a Wiener filter in front of any other attack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vecveil.attacks.attack import Attack, AttackFinding, Session, WrappedAttack
from vecveil.attacks.evidence import Knowledge
from vecveil.attacks.release_model import Denoiser, fit_denoiser
from vecveil.validation import check_count


class Denoised(WrappedAttack):
    """Another attack, behind the Wiener filter.

    The oracle of the inner attack returns denoised vectors. A linear attack gains nothing (it can learn the
    filter itself); attacks that use distances do, most behind noise that differs from direction to direction.
    """

    inner_key = "attack"

    def __init__(self, attack: Attack[Any, Any], *, draws: int = 8) -> None:
        """Keep the inner attack and the oracle draws that the filter is fitted on."""
        super().__init__(attack)
        self.draws = check_count(draws, owner="Denoised", param="draws")
        self.name = f"denoised-{attack.name}"
        self.description = f"After a Wiener filter: {attack.description}"
        self.family, self.cost = attack.family, attack.cost
        self.source = f"{attack.source} Filter: Wiener (1949)."
        self.state_type = {"denoiser": Denoiser, "inner": attack.state_type}

    def _fit(self, train: Any, validation: Any, session: Session) -> Any:
        knowledge = session.knowledge
        denoiser = fit_denoiser(train.X, validation.X, knowledge, session.rng, draws=self.draws)
        # With an oracle `_behind` denoises every draw, and the training vectors stay clean.
        if not knowledge.adaptive:
            train, validation = _mapped(denoiser, train), _mapped(denoiser, validation)
        inner = self.inner._fit(train, validation, session.inner(_behind(denoiser, knowledge)))
        return {"denoiser": denoiser, "inner": inner}

    def _judge(self, state: Any, train: Any, test: Any, session: Session) -> AttackFinding:
        denoiser: Denoiser = state["denoiser"]
        known = train if session.knowledge.adaptive else _mapped(denoiser, train)
        session = replace(session, knowledge=_behind(denoiser, session.knowledge))
        finding = self.inner._judge(state["inner"], known, _mapped(denoiser, test), session)
        details = {"denoiser_penalty": denoiser.penalty, **finding.details}
        return replace(finding, details=details)


def _behind(denoiser: Denoiser, knowledge: Knowledge) -> Knowledge:
    """Return the knowledge of denoised vectors."""
    # The noise passes the linear map W as well: its covariance becomes Wᵀ S W.
    release, S, weights = knowledge.release, knowledge.noise_covariance, denoiser.weights
    return Knowledge(
        weights.shape[1],
        None if release is None else lambda X, rng: denoiser(knowledge.draw(X, rng)),
        None if S is None else weights.T @ np.asarray(S, dtype=np.float64) @ weights,
    )


def _mapped(denoiser: Denoiser, evidence: Any) -> Any:
    """Return the same evidence with denoised vectors."""
    changes: dict[str, Any] = {"X": denoiser(evidence.X)}
    without = getattr(evidence, "without", None)
    if without is not None:
        # Released like X. Test evidence of an adaptive attack may hold vectors of another dimension, unused.
        fits = without.shape[1] == len(denoiser.mean)
        changes["without"] = denoiser(without) if fits else None
    return replace(evidence, **changes)
