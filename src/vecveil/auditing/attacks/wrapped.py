"""Attacks that wrap an attack: on several releases of a text, behind a Wiener filter, on the log of queries.

A release y_j at the distance r from its vector x puts x on a sphere around the release: ‖y_j − x‖ = r. Half of the
squared equation is b_j = ‖y_j‖²/2 = y_j·x + h with h = (r² − ‖x‖²)/2: linear in x if h is the same for all releases of
x. So n + 1 releases determine x exactly, and fewer give as many linear equations. The mean of the releases is a
further, Gaussian, observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Attack, AttackFinding, Knowledge, LabelledVectors, Session
from vecveil.auditing.attacks.release_model import Denoiser, fit_denoiser
from vecveil.auditing.attacks.token_inference import KernelAttack, LinearAttack
from vecveil.errors import InvalidInputError, wrong_shape
from vecveil.types import Embeddings, Release
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]

_DRAWS = 16  # releases of each training text that moments are estimated from
_BLOCK = 2**23  # numbers in the releases that are held at once
_HELD = (64, 256)  # texts at least and at most that the estimate is validated on
_TRIED = 2**15  # releases of all of them, between those bounds
_PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
_TINY = 1e-300
_ROUND = 0.1  # share of the estimate's error that is assumed to have no direction


class WrappedAttack(Attack[Any, Any]):
    """An attack that changes vectors or knowledge and passes them to an inner attack."""

    inner_key = "inner"  # of the inner attack's settings in a checkpoint

    def __init__(self, inner: Attack[Any, Any]) -> None:
        self.inner = inner
        self.validation_share = inner.validation_share
        self.state_type = inner.state_type

    def _check(self, train: Any, test: Any, knowledge: Knowledge) -> None:
        self.inner._check(train, test, knowledge)

    def _settings(self) -> Mapping[str, Any]:
        key = self.inner_key
        # Not `vars(self)`: the other attributes are derived from the inner attack.
        own = {name: getattr(self, name) for name in ("draws", "k") if hasattr(self, name)}
        inner = {f"{key}.{name}": value for name, value in self.inner._settings().items()}
        return {key: self.inner.name, **own, **inner}


def mean_of_releases(release: Release, k: int) -> Release:
    """Return an oracle of the mean of ``k`` releases, which reduces the variance of fresh noise to 1/k."""
    count = check_count(k, owner="mean_of_releases", param="k")

    def released(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        first = release(X, rng)
        total = first.astype(np.float64)
        for _ in range(count - 1):
            total += release(X, rng)
        return (total / count).astype(first.dtype)

    return released


class _RepeatedReleases(WrappedAttack):
    """A token-inference attack on vectors from ``k`` releases of each text; ``inner`` defaults to `LinearAttack`."""

    family = "averaging"

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        owner = type(self).__name__
        self.k = check_count(k, owner=owner, param="k")
        super().__init__(LinearAttack() if inner is None else inner)
        if self.inner.family != "token-inference":
            raise InvalidInputError(f"The inner attack must infer tokens; {self.inner.name} does not.", param="inner")
        self._releases = f"{self.k} release{'s' * (self.k > 1)}"
        self.cost = f"{self._releases} of each text; {self.inner.cost}"


class AveragingAttack(_RepeatedReleases):
    """A token-inference attack on means of ``k`` releases of each text; ``test.X`` must contain such means.

    With an oracle the attack learns from means of ``k`` fresh releases; without one the training vectors must be such
    means. The declared noise covariance is divided by ``k``, unless two releases of the same texts are equal, as with
    keyed noise: the figure is then the same for every ``k``.
    """

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        super().__init__(k, inner)
        self.name = f"averaging-{self.k}-{self.inner.name}"
        mean = f"the mean of {self._releases}" if self.k > 1 else "one release"
        self.description = f"On {mean} of each text: {self.inner.description}"
        self.source = "Own: the mean of repeated releases; composition from the attacker's side."

    def _fit(self, train: Any, validation: Any, session: Session) -> Any:
        return self.inner._fit(train, validation, self._averaged(train, session))

    def _judge(self, state: Any, train: Any, test: Any, session: Session) -> AttackFinding:
        return self.inner._judge(state, train, test, self._averaged(train, session))

    def _averaged(self, train: LabelledVectors, session: Session) -> Session:
        knowledge = session.knowledge
        S, release = knowledge.noise_covariance, knowledge.release
        keyed = release is not None and knowledge.repeats(train.X, session.rng)
        # Keyed noise is the same in every release, so a mean keeps all of it.
        if S is not None and not keyed:
            S = np.asarray(S, dtype=np.float64) / self.k
        mean = None if release is None else mean_of_releases(release, self.k)
        return replace(session, knowledge=Knowledge(knowledge.dimension, mean, S))


@dataclass(frozen=True, eq=False, repr=False)
class RepeatedVectors(LabelledVectors):
    """Labelled vectors that are means of k releases each, with the ``releases``, (N, k, n)."""

    releases: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = np.shape(self.releases)
        if len(shape) != 3 or (shape[0], shape[2]) != self.X.shape or not shape[1]:
            raise wrong_shape(
                "RepeatedVectors",
                "releases",
                "(N, k, n), where X has (N, n)",
                shape,
                fix="Make them with `RepeatedVectors.of`.",
            )
        if not np.isfinite(self.releases).all():
            raise InvalidInputError("releases contains values that are not finite.", param="releases")

    @classmethod
    def of(
        cls, X: Embeddings, L: Any, k: int, release: Release, rng: np.random.Generator, groups: Any = None
    ) -> RepeatedVectors:
        """Return ``k`` releases of the clean vectors ``X``, (N, n), with the labels ``L``, (N, V)."""
        count = check_count(k, owner="RepeatedVectors", param="k")
        releases = np.stack([release(X, rng) for _ in range(count)], axis=1)
        mean = releases.mean(axis=1, dtype=np.float64).astype(releases.dtype)
        return cls(mean, L, groups, releases=releases)


class MultilaterationAttack(_RepeatedReleases):
    """A token-inference attack on clean vectors that are located from ``k`` releases of each text.

    The estimate is the Wiener filter of the mean of the releases, moved onto the spheres ‖y_j − x‖ = r around them, as
    far as these distances are equal on training texts. If they are, n + 1 releases determine the clean vector exactly;
    if they are not, or if releases repeat, the mean remains. ``test`` must be `RepeatedVectors`, and an oracle is
    needed. The inner attack learns from clean vectors with the measured error of the estimate.
    """

    def __init__(self, k: int, inner: Attack[LabelledVectors, Any] | None = None) -> None:
        super().__init__(k, inner)
        self.name = f"averaging-{self.k}-spheres-{self.inner.name}"
        self.description = (
            f"On the clean vector as {self._releases} of each text locate it, by their mean and "
            f"their distances: {self.inner.description}"
        )
        self.source = "Own: multilateration from ‖e' − e‖ = r, as TextCrafter states it of its releases."
        self.state_type = {"locator": Locator, "inner": self.inner.state_type}

    def _fit(self, train: Any, validation: Any, session: Session) -> Any:
        locator = fit_locator(train.X, validation.X, self.k, session.knowledge, session.rng)
        # The inner attack learns from estimates, which the outer checkpoint's identity does not cover.
        inside = replace(session, knowledge=locator.knowledge(), checkpoint=None)
        inner = self.inner._fit(train, validation, inside)
        return {"locator": locator, "inner": inner}

    def _judge(self, state: Any, train: Any, test: Any, session: Session) -> AttackFinding:
        locator: Locator = state["locator"]
        located = LabelledVectors(locator(test.releases).astype(test.X.dtype), test.L, test.groups)
        session = replace(session, knowledge=locator.knowledge())
        finding = self.inner._judge(state["inner"], train, located, session)
        details = {
            "spheres": locator.spheres,
            "error": locator.error,
            "error_of_the_mean": locator.averaged,
            **finding.details,
        }
        return replace(finding, details=details)

    def _check(self, train: LabelledVectors, test: Any, knowledge: Knowledge) -> None:
        if not isinstance(test, RepeatedVectors) or test.releases.shape[1] != self.k:
            raise InvalidInputError(
                f"The attack needs the {self.k} releases of each text, not their mean: pass RepeatedVectors as test.",
                param="test",
            )
        if not knowledge.adaptive or train.dimension != test.dimension:
            raise InvalidInputError(
                "Pass a release oracle whose releases have the dimension of clean vectors: the attack measures "
                "distances between them.",
                param="release",
            )
        self.inner._check(train, test, knowledge)


@dataclass(frozen=True, eq=False)
class Locator:
    """Estimates clean vectors from k releases of each, with the measured error of the estimates.

    Attributes:
        mean, centre: (n,) means of released and of clean vectors.
        weights: (n, n) the Wiener filter from the mean of k releases to the clean vector.
        factor: (n, n) F of F Fᵀ, the covariance of that filter's error.
        level: mean of h = (‖y − x‖² − ‖x‖²)/2 over training pairs.
        between, within: variance of h from text to text, and from release to release of one text.
        spheres: whether the equations are used: only if they lower the error on held-out texts.
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
        estimates = self.filtered(releases)
        return self.corrected(releases, estimates) if self.spheres else estimates

    def filtered(self, releases: Embeddings) -> FloatArray:
        means = releases.mean(axis=1, dtype=np.float64)
        estimates: FloatArray = (means - self.mean) @ self.weights + self.centre
        return estimates

    def corrected(self, releases: Embeddings, estimates: FloatArray) -> FloatArray:
        """Return ``estimates`` moved onto the spheres, as far as the equations are exact.

        With the error δ ~ N(0, F Fᵀ) of the estimate, b_j − y_j·x̂ − level = y_j·δ + u + ε_j, where u and ε_j have the
        variances ``between`` and ``within``; the correction is the posterior mean of δ.
        """
        estimates = estimates.copy()
        n = releases.shape[2]
        for i, given in enumerate(releases):
            Y = given.astype(np.float64)
            # b_j − y_j·x̂ − level, with b_j = ‖y_j‖²/2.
            left = 0.5 * np.einsum("ij,ij->i", Y, Y) - Y @ estimates[i] - self.level
            # Unknowns of unit variance: δ = F c and u = √between · c₀, the last column.
            A = np.column_stack([Y @ self.factor, np.full(len(Y), np.sqrt(self.between))])
            if len(Y) <= n + 1:  # the smaller of the two equivalent systems
                G = A @ A.T
                G[np.diag_indices_from(G)] += self.within
                coordinates = A.T @ np.linalg.solve(G, left)
            else:
                G = A.T @ A
                G[np.diag_indices_from(G)] += self.within
                coordinates = np.linalg.solve(G, A.T @ left)
            # The offset u is no part of the vector.
            estimates[i] += self.factor @ coordinates[:-1]
        return estimates

    def knowledge(self) -> Knowledge:
        """Return an oracle that turns clean vectors into estimates with the measured gain and noise."""
        axes, gain, spread = self.axes, self.gain, self.spread

        def like_estimates(X: Embeddings, rng: np.random.Generator) -> Embeddings:
            within = (X.astype(np.float64) - self.centre) @ axes
            noisy = within * gain + spread * rng.standard_normal(within.shape)
            estimates: Embeddings = (noisy @ axes.T + self.centre).astype(X.dtype)
            return estimates

        return Knowledge(len(axes), like_estimates, (axes * spread**2) @ axes.T)


def repeated_releases(X: Embeddings, k: int, knowledge: Knowledge, rng: np.random.Generator) -> Embeddings:
    return np.stack([knowledge.draw(X, rng) for _ in range(k)], axis=1)


def blocks(N: int, k: int, n: int) -> Iterator[slice]:
    """Yield slices of rows whose k releases fit into memory at once."""
    step = max(1, _BLOCK // (k * n))
    for start in range(0, N, step):
        yield slice(start, start + step)


def fit_locator(X: Embeddings, held: Embeddings, k: int, knowledge: Knowledge, rng: np.random.Generator) -> Locator:
    """Return the estimator from k releases, fitted on clean vectors ``X``, (N, n).

    The first 64 to 256 clean vectors ``held`` of other texts, fewer for larger k, determine the penalty, the use of the
    equations and the error.
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
    for _ in range(k):  # one release at a time: k of them may not fit in memory
        means += knowledge.draw(held, rng)
    weights = _filter(S, cross, means / k - seen.mean, truth - centre)
    error = truth - centre - (means / k - seen.mean) @ weights
    # Cov(x − x̂) on training texts gives the error's shape, held-out texts give its size.
    both = weights.T @ cross
    left = covariance - both - both.T + weights.T @ S @ weights
    factor = _factor(left, float((error**2).sum(axis=1).mean()))
    axes = np.linalg.eigh(covariance)[1]
    # Gain, spread and errors are placeholders until held-out estimates are measured below.
    nothing = np.zeros(len(axes))
    locator = Locator(
        seen.mean,
        centre,
        weights,
        factor,
        seen.level,
        seen.between,
        seen.within,
        False,
        axes,
        nothing,
        nothing,
        1.0,
        1.0,
    )
    plain, moved = np.empty(truth.shape), np.empty(truth.shape)
    for rows in blocks(len(held), k, held.shape[1]):
        releases = repeated_releases(held[rows], k, knowledge, rng)
        plain[rows] = locator.filtered(releases)
        moved[rows] = locator.corrected(releases, plain[rows])
    errors = [float(((each - truth) ** 2).sum()) for each in (plain, moved)]
    # Spheres help only if the equations hold; methods without a fixed length keep the filter.
    spheres = errors[1] < errors[0]
    # Regress estimates on clean vectors, direction by direction: the inner attack's oracle imitates it.
    given, got = (each @ axes for each in (truth - centre, (moved if spheres else plain) - centre))
    squares = (given**2).sum(axis=0)
    gain = (given * got).sum(axis=0) / np.maximum(squares, _TINY)
    spread = np.sqrt(((got - gain * given) ** 2).mean(axis=0))
    total = max(float(squares.sum()), _TINY)
    return replace(
        locator, spheres=spheres, gain=gain, spread=spread, error=min(errors) / total, averaged=errors[0] / total
    )


@dataclass(frozen=True, eq=False)
class _Seen:
    """Moments of several releases of each training text, named as in `Locator`, less the mean."""

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
    # Scatter within texts, with N (draws − 1) degrees of freedom.
    noise = (products - _DRAWS * moves.T @ moves) / (N * (_DRAWS - 1))
    within = float(h.var(axis=0, ddof=1).mean())
    # Rounding, and texts outside the sample, bound the precision of each equation.
    within = max(within, float(np.finfo(np.float32).eps * np.abs(h).mean()) ** 2 / 12, _TINY)
    means = clean + moves
    mean = means.mean(axis=0)
    level, between = float(h.mean()), max(float(h.mean(axis=0).var()), within)
    return _Seen(mean, means - mean, noise, level, between, within)


def _covariance_of_means(seen: _Seen, k: int) -> FloatArray:
    covariance = seen.means.T @ seen.means / len(seen.means)
    noise = seen.noise.copy()
    noise[np.diag_indices_from(noise)] += 1e-9 * max(float(np.trace(covariance)), _TINY) / len(noise)
    # Whitened by the noise, the covariance is signal + I/d: replace 1/d by 1/k.
    L = np.linalg.cholesky(noise)
    whitened = np.linalg.solve(L, np.linalg.solve(L, covariance).T)
    values, vectors = np.linalg.eigh((whitened + whitened.T) / 2)
    half = L @ vectors * np.sqrt(np.maximum(values - 1 / _DRAWS, 0.0) + 1 / k)
    result: FloatArray = half @ half.T
    return result


def _filter(S: FloatArray, cross: FloatArray, means: FloatArray, clean: FloatArray) -> FloatArray:
    """Return the ridge regression of the clean vectors with the least error on held-out texts."""
    values, vectors = np.linalg.eigh(S)
    values = np.maximum(values, 1e-12 * max(float(values[-1]), _TINY))
    target, seen = vectors.T @ cross, means @ vectors

    def scaled(penalty: float) -> FloatArray:
        ridge: FloatArray = target / (values + penalty * values.mean())[:, None]
        return ridge

    errors = [float(((seen @ scaled(each) - clean) ** 2).sum()) for each in _PENALTIES]
    weights: FloatArray = vectors @ scaled(_PENALTIES[int(np.argmin(errors))])
    return weights


def _factor(covariance: FloatArray, error: float) -> FloatArray:
    """Return F such that F Fᵀ is the covariance, shrunk to isotropy by `_ROUND`, with the trace ``error``."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values = np.maximum(values, 0.0)
    values = (1 - _ROUND) * values / max(float(values.mean()), _TINY) + _ROUND
    factor: FloatArray = vectors * np.sqrt(values * error / len(values))
    return factor


class Denoised(WrappedAttack):
    """Another attack, behind the Wiener filter.

    The oracle of the inner attack returns denoised vectors. A linear attack gains nothing (it can learn the filter
    itself); attacks that use distances do, most behind anisotropic noise.
    """

    inner_key = "attack"

    def __init__(self, attack: Attack[Any, Any], *, draws: int = 8) -> None:
        """Set the inner attack and the oracle draws for the filter."""
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
    # The noise passes the linear map W as well: its covariance becomes Wᵀ S W.
    release, S, weights = knowledge.release, knowledge.noise_covariance, denoiser.weights
    return Knowledge(
        weights.shape[1],
        None if release is None else lambda X, rng: denoiser(knowledge.draw(X, rng)),
        None if S is None else weights.T @ np.asarray(S, dtype=np.float64) @ weights,
    )


def _mapped(denoiser: Denoiser, evidence: Any) -> Any:
    changes: dict[str, Any] = {"X": denoiser(evidence.X)}
    without = getattr(evidence, "without", None)
    if without is not None:
        # Released like X. Test evidence of an adaptive attack may contain vectors of a different dimension, unused.
        fits = without.shape[1] == len(denoiser.mean)
        changes["without"] = denoiser(without) if fits else None
    return replace(evidence, **changes)


@dataclass(frozen=True, eq=False)
class AccessMap:
    """The map from the queries that fetched a row to its place among rows that are fetched together."""

    axes: FloatArray

    def __call__(self, accesses: Embeddings) -> Embeddings:
        """Return coordinates (N, d) of rows that the queries fetched, (N, Q) zeros and ones."""
        counts = accesses.sum(axis=1, keepdims=True, dtype=np.float64)
        # A row that is fetched often must not lie farther out.
        shares = accesses / np.sqrt(np.maximum(counts, 1.0))
        coordinates: Embeddings = (shares @ self.axes).astype(np.float32)
        return coordinates


def fit_access_map(accesses: Embeddings, *, dimensions: int = 64) -> AccessMap:
    """Return the leading directions of rows that are fetched together, each query weighted by its surprise.

    Latent semantic analysis (Deerwester et al. 1990) with rows and queries in place of texts and words.
    """
    check_count(dimensions, owner="fit_access_map", param="dimensions")
    fetched = accesses.sum(axis=0, dtype=np.float64)
    weights = np.log(len(accesses) / np.maximum(fetched, 1.0))
    counts = np.maximum(accesses.sum(axis=1, keepdims=True, dtype=np.float64), 1.0)
    weighted = accesses * weights / np.sqrt(counts)
    axes = np.linalg.svd(weighted - weighted.mean(axis=0), full_matrices=False)[2][:dimensions]
    return AccessMap(weights[:, None] * axes.T)


class AccessPatternAttack(WrappedAttack):
    """A token-inference attack on what a log of queries reveals of a row: which queries fetched it.

    ``X`` contains a row of zeros and ones for each stored row, a column for each query of the log. The log contains
    neither text nor vector of a query. Rows of one subject are fetched together, so known texts of some rows reveal the
    subjects of the others. A log computed from released vectors reveals no more of a row than its release, unless
    queries were made for that row's text: then each is a further release of it.
    """

    name = "access-patterns"
    description = "Token inference from the queries that fetched each row, by the rows that are fetched together."
    family = "token-inference"
    source = "Own; Deerwester et al. (1990), latent semantic analysis; Islam et al. (2012), access-pattern leakage."

    def __init__(self, inner: Attack[LabelledVectors, Any] | None = None, *, dimensions: int = 64) -> None:
        """Set the inner attack (None: `KernelAttack`) and the maximum number of directions of the map."""
        super().__init__(KernelAttack() if inner is None else inner)
        self.k = check_count(dimensions, owner="AccessPatternAttack", param="dimensions")
        self.cost = f"the log of queries, and known texts of a part of the rows; {self.inner.cost}"
        self.state_type = {"map": AccessMap, "inner": self.inner.state_type}

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Any:
        places = fit_access_map(np.concatenate([train.X, validation.X]), dimensions=self.k)
        learnt, held = (replace(part, X=places(part.X)) for part in (train, validation))
        knowledge = replace(session.knowledge, dimension=learnt.dimension)
        inner = self.inner._fit(learnt, held, session.inner(knowledge))
        return {"map": places, "inner": inner}

    def _judge(self, state: Any, train: LabelledVectors, test: LabelledVectors, session: Session) -> AttackFinding:
        known, met = (replace(part, X=state["map"](part.X)) for part in (train, test))
        knowledge = replace(session.knowledge, dimension=met.dimension)
        return self.inner._judge(state["inner"], known, met, replace(session, knowledge=knowledge))
