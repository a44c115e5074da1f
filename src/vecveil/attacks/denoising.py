"""Denoising: estimate clean vectors from released ones by a Wiener filter, in front of any other attack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, AttackFinding, Checkpoint, Session, WrappedAttack
from vecveil.attacks.evidence import Knowledge
from vecveil.attacks.release_model import CUT_OFF, release_moments, ridge, spectrum
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["Denoised", "Denoiser", "fit_denoiser"]

FloatArray = npt.NDArray[np.float64]

_PENALTIES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # shares of the largest variance


@dataclass(frozen=True, eq=False)
class Denoiser:
    """The affine map y -> centre + (y - mean) @ weights from released vectors to estimates of clean ones.

    ``penalty`` is the chosen ridge penalty, as a share of the largest variance.
    """

    mean: FloatArray
    weights: FloatArray
    centre: FloatArray
    penalty: float

    def __call__(self, Y: Embeddings) -> Embeddings:
        """Return the estimates of the clean vectors, (N, n), in the precision of ``Y``."""
        exact = (Y.astype(np.float64) - self.mean) @ self.weights + self.centre
        return exact.astype(Y.dtype)


def fit_denoiser(
    X: Embeddings,
    validation: Embeddings,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    draws: int = 8,
) -> Denoiser:
    """Return the Wiener filter Cov(y)⁻¹ Cov(y, x), the linear map of least mean squared error.

    With an oracle the covariances are averages over ``draws`` releases of each text, a declared noise
    covariance is used exactly, and a ridge penalty is chosen on validation texts. Without an oracle no
    clean vector is known: with a declared noise covariance S the filter is Cov(y)⁺(Cov(y) − S), and
    without one the map is the identity.

    Args:
        X: (N, n) clean vectors, or (N, m) released ones without an oracle.
        validation: Vectors of other texts, as ``X``.
        draws: Releases of each text; more bring the moments closer to their limit.
    """
    if not knowledge.adaptive:
        return _from_declared(X, knowledge)
    moments = release_moments(X, X, knowledge, rng, draws=draws)
    values, vectors = spectrum(moments.covariance)
    target = vectors.T @ moments.cross
    held = (knowledge.draw(validation, rng).astype(np.float64) - moments.mean) @ vectors
    clean = validation.astype(np.float64) - moments.target_mean
    # In the eigenbasis a penalty is a division, so all of them are tried.
    errors = [float(((held @ ridge(target, values, p) - clean) ** 2).sum()) for p in _PENALTIES]
    penalty = _PENALTIES[int(np.argmin(errors))]
    weights = vectors @ ridge(target, values, penalty)
    return Denoiser(moments.mean, weights, moments.target_mean, penalty)


def _from_declared(Y: Embeddings, knowledge: Knowledge) -> Denoiser:
    """Return Cov(y)⁺(Cov(y) − S), its shares of signal clipped to [0, 1]."""
    exact = Y.astype(np.float64)
    mean = exact.mean(axis=0)
    S = knowledge.noise_covariance
    if S is None or not np.any(S):
        return Denoiser(mean, np.eye(knowledge.dimension), mean, 0.0)
    exact -= mean
    values, vectors = np.linalg.eigh(exact.T @ exact / len(exact))
    # Dead directions cannot be whitened, and hold no signal.
    live = values > CUT_OFF * max(values[-1], np.finfo(np.float64).tiny)
    spread = np.sqrt(values[live])
    whitener, colourer = vectors[:, live] / spread, vectors[:, live] * spread
    # With Cov(y) = I, the eigenvalues of S are the noise's shares of the variance.
    noise, axes = np.linalg.eigh(whitener.T @ np.asarray(S, dtype=np.float64) @ whitener)
    # In a sample the share of noise may come out above 1 or below 0.
    signal = 1 - np.clip(noise, 0.0, 1.0)
    weights = whitener @ (axes * signal) @ axes.T @ colourer.T
    return Denoiser(mean, weights, mean, 0.0)


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
        inside = session.checkpoint
        if inside is not None:
            # The inner attack may write files while training: they need a folder of the inner state.
            inside = Checkpoint(inside.folder / "inner", inside.identity)
        # With an oracle `_behind` denoises every draw, and the training vectors stay clean.
        if not knowledge.adaptive:
            train, validation = _mapped(denoiser, train), _mapped(denoiser, validation)
        session = replace(session, knowledge=_behind(denoiser, knowledge), checkpoint=inside)
        inner = self.inner._fit(train, validation, session)
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
