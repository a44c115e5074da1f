"""Attacks on repeated releases of a text: the mean of the releases, and multilateration from their distances."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, Checkpoint, Finding, Session
from vecveil.attacks.evidence import Knowledge, LabelledVectors
from vecveil.attacks.token_inference.linear import LinearAttack
from vecveil.errors import DataFileError, InvalidInputError, message
from vecveil.types import Embeddings, Release
from vecveil.validation import check_count

__all__ = [
    "AveragingAttack",
    "Locator",
    "MultilaterationAttack",
    "RepeatedVectors",
    "blocks",
    "fit_locator",
    "mean_of_releases",
    "repeated_releases",
]

FloatArray = npt.NDArray[np.float64]

_DRAWS = 16  # releases of each training text that moments are taken from
_BLOCK = 2**23  # numbers in the releases that are held at once
_HELD = (64, 256)  # texts at least and at most that the estimate is tried out on
_TRIED = 2**15  # releases of all of them, between those bounds
_PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
_TINY = 1e-300
_ROUND = 0.1  # share of the estimate's error that is taken to have no direction


@dataclass(frozen=True, eq=False)
class Locator:
    """Estimates clean vectors from k releases of each, and says what the estimates are worth.

    Attributes:
        mean, centre: (n,) means of released and of clean vectors.
        weights: (n, n) the Wiener filter from the mean of k releases to the clean vector.
        factor: (n, n) F of F Fᵀ, the covariance of that filter's error.
        level: mean of h = (‖y − x‖² − ‖x‖²)/2 over training pairs.
        between, within: variance of h from text to text, and from release to release of one text.
        spheres: whether the equations are used: they are if they lower the error on held-out texts.
        axes: (n, n) principal directions of the clean vectors, in columns.
        gain, spread: (n,) per direction, the estimate is ``gain`` of the clean vector, and noise of this deviation.
        error: squared error of the estimate on held-out texts, as a share of the variance of clean vectors.
        averaged: the same of the filter alone.
    """

    mean: FloatArray
    centre: FloatArray
    weights: FloatArray
    factor: FloatArray
    level: float
    between: float
    within: float
    spheres: bool
    axes: FloatArray
    gain: FloatArray
    spread: FloatArray
    error: float
    averaged: float

    def __call__(self, releases: Embeddings) -> FloatArray:
        """Return the estimates, (N, n), from (N, k, n) releases."""
        found = self.filtered(releases)
        return self.corrected(releases, found) if self.spheres else found

    def filtered(self, releases: Embeddings) -> FloatArray:
        """Return the Wiener filter's estimates from the means."""
        means = releases.mean(axis=1, dtype=np.float64)
        estimates: FloatArray = (means - self.mean) @ self.weights + self.centre
        return estimates

    def corrected(self, releases: Embeddings, estimates: FloatArray) -> FloatArray:
        """Return ``estimates`` moved onto the spheres, as far as the equations are exact.

        With the error δ ~ N(0, F Fᵀ) of the estimate, b_j − y_j·x̂ − level = y_j·δ + u + ε_j, where u and ε_j have
        the variances ``between`` and ``within``; what is added is the posterior mean of δ.
        """
        found = estimates.copy()
        n = releases.shape[2]
        for i, given in enumerate(releases):
            Y = given.astype(np.float64)
            left = 0.5 * np.einsum("ij,ij->i", Y, Y) - Y @ found[i] - self.level
            A = np.column_stack([Y @ self.factor, np.full(len(Y), np.sqrt(self.between))])
            if len(Y) <= n + 1:
                G = A @ A.T
                G[np.diag_indices_from(G)] += self.within
                coordinates = A.T @ np.linalg.solve(G, left)
            else:
                G = A.T @ A
                G[np.diag_indices_from(G)] += self.within
                coordinates = np.linalg.solve(G, A.T @ left)
            found[i] += self.factor @ coordinates[:-1]
        return found

    def knowledge(self) -> Knowledge:
        """Return an oracle that makes clean vectors like estimates of them, with its noise."""
        axes, gain, spread = self.axes, self.gain, self.spread

        def like_estimates(X: Embeddings, rng: np.random.Generator) -> Embeddings:
            within = (X.astype(np.float64) - self.centre) @ axes
            noisy = within * gain + spread * rng.standard_normal(within.shape)
            estimates: Embeddings = (noisy @ axes.T + self.centre).astype(X.dtype)
            return estimates

        return Knowledge(len(axes), like_estimates, (axes * spread**2) @ axes.T)


def repeated_releases(
    X: Embeddings, k: int, knowledge: Knowledge, rng: np.random.Generator
) -> Embeddings:
    """Return k releases of each vector, (N, k, n)."""
    return np.stack([knowledge.draw(X, rng) for _ in range(k)], axis=1)


def blocks(N: int, k: int, n: int) -> Iterator[slice]:
    """Yield rows of which the k releases are held at once."""
    step = max(1, _BLOCK // (k * n))
    for start in range(0, N, step):
        yield slice(start, start + step)


def fit_locator(
    X: Embeddings, held: Embeddings, k: int, knowledge: Knowledge, rng: np.random.Generator
) -> Locator:
    """Return what training texts teach of the estimate from k releases.

    Args:
        X: (N, n) clean vectors.
        held: (M, n) clean vectors of other texts: the penalty, the use of the equations and what the estimate is
            worth are taken from the first 64 to 256 of them, fewer the larger k.
        k: Releases of each text.
        knowledge: The oracle.
        rng: For the oracle.
    """
    held = held[: int(np.clip(_TRIED // k, *_HELD))]
    truth = held.astype(np.float64)
    clean = X.astype(np.float64)
    centre = clean.mean(axis=0)
    clean -= centre
    covariance = clean.T @ clean / len(clean)
    seen = _releases_seen(X, knowledge, rng)
    S = _covariance_of_means(seen, k)
    cross = seen.means.T @ clean / len(clean)
    means = np.zeros(held.shape)
    for _ in range(k):
        means += knowledge.draw(held, rng)
    weights = _filter(S, cross, means / k - seen.mean, truth - centre)
    error = truth - centre - (means / k - seen.mean) @ weights
    both = weights.T @ cross
    left = covariance - both - both.T + weights.T @ S @ weights
    factor = _factor(left, float((error**2).sum(axis=1).mean()))
    axes = np.linalg.eigh(covariance)[1]
    nothing = np.zeros(len(axes))
    found = Locator(
        seen.mean, centre, weights, factor, seen.level, seen.between, seen.within, False, axes,
        nothing, nothing, 1.0, 1.0,
    )  # fmt: skip
    plain, moved = np.empty(truth.shape), np.empty(truth.shape)
    for rows in blocks(len(held), k, held.shape[1]):
        releases = repeated_releases(held[rows], k, knowledge, rng)
        plain[rows] = found.filtered(releases)
        moved[rows] = found.corrected(releases, plain[rows])
    errors = [float(((each - truth) ** 2).sum()) for each in (plain, moved)]
    spheres = errors[1] < errors[0]
    given, got = (each @ axes for each in (truth - centre, (moved if spheres else plain) - centre))
    squares = (given**2).sum(axis=0)
    gain = (given * got).sum(axis=0) / np.maximum(squares, _TINY)
    spread = np.sqrt(((got - gain * given) ** 2).mean(axis=0))
    total = max(float(squares.sum()), _TINY)
    return replace(
        found, spheres=spheres, gain=gain, spread=spread,
        error=min(errors) / total, averaged=errors[0] / total,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Seen:
    """Moments of several releases of each training text; names as in `Locator`.

    Attributes:
        means: (N, n) mean release of each text, less ``mean``.
        noise: (n, n) covariance of releases of one text around their expectation.
    """

    mean: FloatArray
    means: FloatArray
    noise: FloatArray
    level: float
    between: float
    within: float


def _releases_seen(X: Embeddings, knowledge: Knowledge, rng: np.random.Generator) -> _Seen:
    N, n = X.shape
    clean = X.astype(np.float64)
    norms = np.einsum("ij,ij->i", clean, clean)
    total, products = np.zeros((N, n)), np.zeros((n, n))
    h = np.empty((_DRAWS, N))
    for draw in range(_DRAWS):
        moved = knowledge.draw(X, rng).astype(np.float64) - clean
        total += moved
        products += moved.T @ moved
        h[draw] = (np.einsum("ij,ij->i", moved, moved) - norms) / 2
    moves = total / _DRAWS
    noise = (products - _DRAWS * moves.T @ moves) / (N * (_DRAWS - 1))
    within = float(h.var(axis=0, ddof=1).mean())
    # Rounding, and texts that the variance was not taken from: no equation is trusted beyond that.
    within = max(within, float(np.finfo(np.float32).eps * np.abs(h).mean()) ** 2 / 12, _TINY)
    means = clean + moves
    mean = means.mean(axis=0)
    level, between = float(h.mean()), max(float(h.mean(axis=0).var()), within)
    return _Seen(mean, means - mean, noise, level, between, within)


def _covariance_of_means(seen: _Seen, k: int) -> FloatArray:
    """Return the covariance of means of k releases: noise/d is taken from that of d releases, noise/k added."""
    covariance = seen.means.T @ seen.means / len(seen.means)
    noise = seen.noise.copy()
    noise[np.diag_indices_from(noise)] += (
        1e-9 * max(float(np.trace(covariance)), _TINY) / len(noise)
    )
    L = np.linalg.cholesky(noise)
    whitened = np.linalg.solve(L, np.linalg.solve(L, covariance).T)
    values, vectors = np.linalg.eigh((whitened + whitened.T) / 2)
    half = L @ vectors * np.sqrt(np.maximum(values - 1 / _DRAWS, 0.0) + 1 / k)
    result: FloatArray = half @ half.T
    return result


def _filter(S: FloatArray, cross: FloatArray, means: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return the ridge regression of the clean vectors that errs least on held-out texts."""
    values, vectors = np.linalg.eigh(S)
    values = np.maximum(values, 1e-12 * max(float(values[-1]), _TINY))
    target, seen = vectors.T @ cross, means @ vectors

    def scaled(penalty: float) -> FloatArray:
        ridge: FloatArray = target / (values + penalty * values.mean())[:, None]
        return ridge

    errors = [float(((seen @ scaled(each) - wanted) ** 2).sum()) for each in _PENALTIES]
    weights: FloatArray = vectors @ scaled(_PENALTIES[int(np.argmin(errors))])
    return weights


def _factor(covariance: FloatArray, error: float) -> FloatArray:
    """Return F of F Fᵀ: the covariance, in part without direction, with the trace that was measured."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values = np.maximum(values, 0.0)
    values = (1 - _ROUND) * values / max(float(values.mean()), _TINY) + _ROUND
    factor: FloatArray = vectors * np.sqrt(values * error / len(values))
    return factor


_PROBE = 64  # rows that are released twice to see whether the noise repeats


def mean_of_releases(release: Release, k: int) -> Release:
    """Return an oracle whose release is the mean of ``k`` releases of the same vectors.

    Args:
        release: The oracle ``release(X, rng) -> Y``.
        k: Releases of each text; the variance of fresh noise falls to 1/k, keyed noise stays as it is.
    """
    count = check_count(k, owner="mean_of_releases", param="k")

    def released(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        first = release(X, rng)
        total = first.astype(np.float64)
        for _ in range(count - 1):
            total += release(X, rng)
        return (total / count).astype(first.dtype)

    return released


class AveragingAttack(Attack[LabelledVectors, Any]):
    """A token-inference attack on means of ``k`` releases of each text.

    ``test.X`` must hold means of ``k`` releases. With an oracle the attack learns on means of ``k`` fresh
    releases, and the declared noise covariance is divided by ``k`` unless two releases of the same texts
    are equal, which is how keyed noise shows: the figure is then the same for every ``k``. Without an oracle
    the training vectors must be means of ``k`` releases too, and the declared covariance is divided by
    ``k``.
    """

    family = "averaging"

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        """Keep the number of releases.

        Args:
            k: Releases of each text that the attacker has; 1 is the inner attack itself.
            inner: A token-inference attack; None takes `LinearAttack`, the cheapest that is strong.
        """
        self.k = check_count(k, owner="AveragingAttack", param="k")
        self.inner = LinearAttack() if inner is None else inner
        if self.inner.family != "token-inference":
            raise InvalidInputError.of("AveragingAttack", "inner", "a token-inference attack",
                                       f"one of the family {self.inner.family!r}")  # fmt: skip
        self.name = f"averaging-{self.k}-{self.inner.name}"
        several = self.k > 1
        on = f"the mean of {self.k} releases" if several else "one release"
        self.description = f"On {on} of each text: {self.inner.description}"
        self.cost = f"{self.k} release{'s' * several} of each text; {self.inner.cost}"
        self.source = "Own: the mean of repeated releases; composition from the attacker's side."
        self.state_type = self.inner.state_type
        self.validation_share = self.inner.validation_share

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        averaged = self._averaged(knowledge, train, session.rng)
        return self.inner._fit(train, validation, averaged, session)

    def _judge(
        self,
        state: Any,
        train: LabelledVectors,
        test: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        return self.inner._judge(state, train, test, self._averaged(knowledge, train, rng), rng)

    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        self.inner._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        inner = {f"inner.{key}": value for key, value in self.inner._settings().items()}
        return {"inner": self.inner.name, "k": self.k, **inner}

    def _averaged(
        self, knowledge: Knowledge, train: LabelledVectors, rng: np.random.Generator
    ) -> Knowledge:
        """Return what is known of means of k releases."""
        S, release = knowledge.noise_covariance, knowledge.release
        repeats = False
        if release is not None:
            some = train.X[:_PROBE]
            repeats = np.array_equal(knowledge.draw(some, rng), knowledge.draw(some, rng))
        return Knowledge(
            knowledge.dimension,
            None if release is None else mean_of_releases(release, self.k),
            S if S is None or repeats else np.asarray(S, dtype=np.float64) / self.k,
        )


@dataclass(frozen=True, eq=False, repr=False)
class RepeatedVectors(LabelledVectors):
    """Labelled vectors that are means of k releases each, with the releases.

    Attributes:
        releases: (N, k, n) the releases of each text.
    """

    releases: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = np.shape(self.releases)
        if len(shape) != 3 or (shape[0], shape[2]) != self.X.shape or not shape[1]:
            raise InvalidInputError.of("RepeatedVectors", "releases",
                                       "of shape (N, k, n) for X of shape (N, n)", f"shape {shape}",
                                       fix="Make them with `RepeatedVectors.of`.")  # fmt: skip
        if not np.isfinite(self.releases).all():
            raise InvalidInputError.of("RepeatedVectors", "releases", "finite", "nan or inf")

    @classmethod
    def of(
        cls,
        X: Embeddings,
        L: Any,
        k: int,
        release: Release,
        rng: np.random.Generator,
        groups: Any = None,
    ) -> RepeatedVectors:
        """Return ``k`` releases of the clean vectors ``X``, (N, n), with the labels ``L``, (N, V)."""
        count = check_count(k, owner="RepeatedVectors", param="k")
        releases = np.stack([release(X, rng) for _ in range(count)], axis=1)
        mean = releases.mean(axis=1, dtype=np.float64).astype(releases.dtype)
        return cls(mean, L, groups, releases=releases)

    def take(self, rows: Any) -> RepeatedVectors:
        """Return the given rows."""
        part = super().take(rows)
        return RepeatedVectors(
            part.X, part.L, part.groups, part.without, part.further, self.releases[rows]
        )


@dataclass(frozen=True, eq=False)
class _LocatedFit:
    locator: Locator
    inner: Any
    inner_type: ClassVar[type[Any]]

    def save(self, folder: Path) -> None:
        """Write both parts into folders of their own."""
        Checkpoint(folder / "locator", {}).save(self.locator)
        Checkpoint(folder / "inner", {}).save(self.inner)

    @classmethod
    def load(cls, folder: Path) -> _LocatedFit:
        """Read both parts."""
        locator = Checkpoint(folder / "locator", {}).load(Locator)
        inner = Checkpoint(folder / "inner", {}).load(cls.inner_type)
        if locator is None or inner is None:
            raise DataFileError.of("MultilaterationAttack", "checkpoint",
                                   "a folder with the parts `locator` and `inner`",
                                   f"{folder.name}, which cannot be read as one", fix="Remove the folder.")  # fmt: skip
        return cls(locator, inner)


class MultilaterationAttack(Attack[LabelledVectors, Any]):
    """A token-inference attack on clean vectors that are located from ``k`` releases of each text.

    The estimate is the Wiener filter of the mean of the releases, moved onto the spheres ‖y_j − x‖ = r around
    them, as far as training texts show that these distances are the same (`vecveil.attacks.averaging`). Where they
    are, n + 1 releases give the clean vector exactly; where they are not, or where releases repeat, the mean is what
    is left. ``test`` must be `RepeatedVectors`, and an oracle is needed. The inner attack learns from
    clean vectors with the error that the estimate was measured to have.
    """

    family = "averaging"

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        """Keep the number of releases.

        Args:
            k: Releases of each text that the attacker has.
            inner: A token-inference attack that reads the estimates; None takes `LinearAttack`.
        """
        self.k = check_count(k, owner="MultilaterationAttack", param="k")
        self.inner = LinearAttack() if inner is None else inner
        if self.inner.family != "token-inference":
            raise InvalidInputError.of("MultilaterationAttack", "inner", "a token-inference attack",
                                       f"one of the family {self.inner.family!r}")  # fmt: skip
        several = self.k > 1
        self.name = f"averaging-{self.k}-spheres-{self.inner.name}"
        self.description = (
            f"On the clean vector as {self.k} release{'s' * several} of each text locate it, by their mean and "
            f"their distances: {self.inner.description}"
        )
        self.cost = f"{self.k} release{'s' * several} of each text; {self.inner.cost}"
        self.source = (
            "Own: multilateration from ‖e' − e‖ = r, as TextCrafter states it of its releases."
        )
        self.state_type = type("_LocatedFit", (_LocatedFit,), {"inner_type": self.inner.state_type})
        self.validation_share = self.inner.validation_share

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Any:
        locator = fit_locator(train.X, validation.X, self.k, knowledge, session.rng)
        inside = Session(session.rng, session.show_progress)
        inner = self.inner._fit(train, validation, locator.knowledge(), inside)
        return self.state_type(locator, inner)

    def _judge(
        self,
        state: Any,
        train: LabelledVectors,
        test: Any,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        locator: Locator = state.locator
        located = locator(test.releases).astype(test.X.dtype)
        read = LabelledVectors(located, test.L, test.groups)
        found = self.inner._judge(state.inner, train, read, locator.knowledge(), rng)
        worth = {
            "spheres": locator.spheres,
            "error": locator.error,
            "error_of_the_mean": locator.averaged,
        }
        return dataclasses.replace(found, details={**worth, **found.details})

    def _check(self, train: LabelledVectors, test: Any, knowledge: Knowledge) -> None:
        owner = type(self).__name__
        if not isinstance(test, RepeatedVectors) or test.releases.shape[1] != self.k:
            raise InvalidInputError(
                message(owner, "test", f"`RepeatedVectors` of {self.k} releases each", f"{type(test).__name__}",
                        "The mean alone does not say how far each release lies from the text's vector.")
            )  # fmt: skip
        if not knowledge.adaptive or train.dimension != test.dimension:
            raise InvalidInputError(
                message(owner, "release", "an oracle whose releases have the dimension of the clean vectors",
                        "none, or another dimension",
                        "Distances are taken between released and clean vectors of training texts.")
            )  # fmt: skip
        self.inner._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        inner = {f"inner.{key}": value for key, value in self.inner._settings().items()}
        return {"inner": self.inner.name, "k": self.k, **inner}
