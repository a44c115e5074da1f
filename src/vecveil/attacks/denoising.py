"""Denoising: the best linear estimate of the clean vector, in front of any other attack."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, Checkpoint, Finding, Session
from vecveil.attacks.evidence import Evidence, Knowledge
from vecveil.attacks.release_model import CUT_OFF, release_moments, spectrum
from vecveil.errors import DataFileError
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["Denoised", "Denoiser", "fit_denoiser"]

FloatArray = npt.NDArray[np.float64]
AnyEvidence = TypeVar("AnyEvidence", bound=Evidence)

_PENALTIES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True, eq=False)
class Denoiser:
    """The affine map y -> centre + (y - mean) @ weights from released vectors to estimates of clean ones.

    Attributes:
        mean: (m,) mean of released vectors.
        weights: (m, n).
        centre: (n,) mean of clean vectors.
        penalty: Ridge penalty chosen, as a share of the largest variance.
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
    covariance is put in exactly, and a ridge penalty is chosen on validation texts. Without an oracle no
    clean vector is known: with a declared noise covariance S the filter is Cov(y)⁺(Cov(y) − S), and
    without one nothing can be done, and the map is the identity.

    Args:
        X: (N, n) clean vectors, or (N, m) released ones without an oracle.
        validation: (M, n) or (M, m) of other texts.
        knowledge: Oracle and noise covariance.
        rng: For the oracle.
        draws: Releases of each text; more bring the moments closer to their limit.
    """
    if not knowledge.adaptive:
        return _from_declared(X, knowledge)
    found = release_moments(X, X, knowledge, rng, draws=draws)
    values, vectors = spectrum(found.covariance)
    target = vectors.T @ found.cross
    held = (knowledge.draw(validation, rng).astype(np.float64) - found.mean) @ vectors
    wanted = validation.astype(np.float64) - found.target_mean
    errors = []
    for penalty in _PENALTIES:
        weights = target / (values + penalty * values.max(initial=0.0))[:, None]
        errors.append(float(((held @ weights - wanted) ** 2).sum()))
    penalty = _PENALTIES[int(np.argmin(errors))]
    weights = vectors @ (target / (values + penalty * values.max(initial=0.0))[:, None])
    return Denoiser(found.mean, weights, found.target_mean, penalty)


def _from_declared(Y: Embeddings, knowledge: Knowledge) -> Denoiser:
    """Return Cov(y)⁺(Cov(y) − S), its shares of signal held between 0 and 1."""
    exact = Y.astype(np.float64)
    mean = exact.mean(axis=0)
    S = knowledge.noise_covariance
    if S is None or not np.any(S):
        return Denoiser(mean, np.eye(knowledge.dimension), mean, 0.0)
    exact -= mean
    values, vectors = np.linalg.eigh(exact.T @ exact / len(exact))
    kept = values > CUT_OFF * max(values[-1], np.finfo(np.float64).tiny)
    spread = np.sqrt(values[kept])
    whitener, colourer = vectors[:, kept] / spread, vectors[:, kept] * spread
    noise, axes = np.linalg.eigh(whitener.T @ np.asarray(S, dtype=np.float64) @ whitener)
    # Sampling may say that more than all of the variance is noise, or less than nothing.
    signal = 1 - np.clip(noise, 0.0, 1.0)
    weights = whitener @ (axes * signal) @ axes.T @ colourer.T
    return Denoiser(mean, weights, mean, 0.0)


@dataclass(frozen=True, eq=False)
class _Fitted:
    denoiser: Denoiser
    inner: Any
    inner_type: ClassVar[type[Any]]

    def save(self, folder: Path) -> None:
        """Write both parts into folders of their own."""
        Checkpoint(folder / "denoiser", {}).save(self.denoiser)
        Checkpoint(folder / "inner", {}).save(self.inner)

    @classmethod
    def load(cls, folder: Path) -> _Fitted:
        """Read both parts."""
        denoiser = Checkpoint(folder / "denoiser", {}).load(Denoiser)
        inner = Checkpoint(folder / "inner", {}).load(cls.inner_type)
        if denoiser is None or inner is None:
            raise DataFileError.of("Denoised", "checkpoint", "a folder with the parts `denoiser` and `inner`",
                                   f"{folder.name}, which cannot be read as one", fix="Remove the folder.")  # fmt: skip
        return cls(denoiser, inner)


class Denoised(Attack[AnyEvidence, Any]):
    """Another attack, behind the Wiener filter.

    Every released vector goes through a `Denoiser` first, and the oracle that the inner attack draws
    from returns denoised vectors. A linear attack gains nothing from it (it can learn the filter itself);
    attacks that go by distances do, most behind noise that differs from direction to direction.
    """

    def __init__(self, attack: Attack[AnyEvidence, Any], *, draws: int = 8) -> None:
        """Keep the inner attack, and how many oracle draws the filter is fitted on."""
        self.attack = attack
        self.draws = check_count(draws, owner="Denoised", param="draws")
        self.name = f"denoised-{attack.name}"
        self.description = f"After a Wiener filter: {attack.description}"
        self.family = attack.family
        self.cost = attack.cost
        self.source = f"{attack.source} Filter: Wiener (1949)."
        self.validation_share = attack.validation_share
        self.state_type = type("_Fitted", (_Fitted,), {"inner_type": attack.state_type})

    def _fit(
        self,
        train: AnyEvidence,
        validation: AnyEvidence,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        denoiser = fit_denoiser(train.X, validation.X, knowledge, session.rng, draws=self.draws)
        inside = session
        if session.checkpoint is not None:
            own = Checkpoint(session.checkpoint.folder / "inner", session.checkpoint.identity)
            inside = dataclasses.replace(session, checkpoint=own)
        if not knowledge.adaptive:
            train, validation = _mapped(denoiser, train), _mapped(denoiser, validation)
        inner = self.attack._fit(train, validation, _behind(denoiser, knowledge), inside)
        return self.state_type(denoiser, inner)

    def _judge(
        self,
        state: Any,
        train: AnyEvidence,
        test: Any,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        known = train if knowledge.adaptive else _mapped(state.denoiser, train)
        behind = _behind(state.denoiser, knowledge)
        found = self.attack._judge(state.inner, known, _mapped(state.denoiser, test), behind, rng)
        details = {"denoiser_penalty": state.denoiser.penalty, **found.details}
        return dataclasses.replace(found, details=details)

    def _check(self, train: AnyEvidence, test: Any, knowledge: Knowledge) -> None:
        self.attack._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        inner = {f"attack.{key}": value for key, value in self.attack._settings().items()}
        return {"attack": self.attack.name, "draws": self.draws, **inner}


def _behind(denoiser: Denoiser, knowledge: Knowledge) -> Knowledge:
    """Return what is known of denoised vectors."""
    release = knowledge.release
    weights = denoiser.weights
    S = knowledge.noise_covariance
    return Knowledge(
        weights.shape[1],
        None if release is None else lambda X, rng: denoiser(knowledge.draw(X, rng)),
        None if S is None else weights.T @ np.asarray(S, dtype=np.float64) @ weights,
    )


def _mapped(denoiser: Denoiser, evidence: Any) -> Any:
    """Return the same evidence with denoised vectors."""
    changes: dict[str, Any] = {"X": denoiser(evidence.X)}
    without = getattr(evidence, "without", None)
    if without is not None:  # released like X; test evidence with an oracle has none that is used
        if without.shape[1] != len(denoiser.mean):
            without = None
        changes["without"] = None if without is None else denoiser(without)
    return dataclasses.replace(evidence, **changes)
