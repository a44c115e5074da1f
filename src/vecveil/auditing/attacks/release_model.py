"""Statistics of released vectors: inputs, moments, estimates of clean vectors, and their expected releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import Knowledge, PairedVectors
from vecveil.types import Embeddings, Matrix

FloatArray = npt.NDArray[np.float64]

CUT_OFF = 1e-7  # directions with less variance than this share of the largest count as dead
_PENALTIES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)  # shares of the largest clean variance
_DENOISER_PENALTIES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # shares of the largest variance
_FLOORS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # shares of the mean released variance
_FOLDS = 4
_ROWS = 8192  # released at once
_NOISE_ROWS = 20  # repeated releases per dimension that a covariance is estimated from
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class InputMap:
    """The affine map y -> (y - mean) @ weights, float32; its outputs have unit variance."""

    mean: FloatArray
    weights: FloatArray

    def __call__(self, Y: Embeddings) -> npt.NDArray[np.float32]:
        kept, column = np.nonzero(self.weights)
        # Without a filter every output is one scaled coordinate: a product of matrices would take as long as training.
        if len(column) == self.weights.shape[1] and np.array_equal(np.sort(column), np.arange(len(column))):
            kept = kept[np.argsort(column)]
            exact = (Y[:, kept].astype(np.float64) - self.mean[kept]) * self.weights[kept, np.arange(len(column))]
        else:
            exact = (Y.astype(np.float64) - self.mean) @ self.weights
        return exact.astype(np.float32, order="C")  # the dtype and order of a checkpoint: sums round alike


def fit_input_map(Y: Embeddings, noise_covariance: Matrix | None = None) -> InputMap:
    """Return the map fitted on ``Y``: for a known noise covariance S the Wiener filter, then scaling."""
    # No full whitening: it amplifies low-variance directions and measured weaker behind an erasure.
    exact = Y.astype(np.float64)
    mean = exact.mean(axis=0)
    exact = exact - mean
    covariance = exact.T @ exact / len(exact)
    weights = np.eye(len(covariance))
    if noise_covariance is not None and np.any(noise_covariance):
        weights = _wiener(covariance, noise_covariance)
    variance = (weights * (covariance @ weights)).sum(axis=0)
    spread = np.sqrt(np.maximum(variance, 0))
    live = spread > np.sqrt(CUT_OFF) * max(spread.max(initial=0.0), _TINY)
    if not live.any():  # constant vectors: one constant input keeps networks buildable
        return InputMap(mean, np.zeros((len(covariance), 1)))
    return InputMap(mean, weights[:, live] / spread[live])


def _wiener(covariance: FloatArray, noise_covariance: Matrix) -> FloatArray:
    """Return the filter Cov(y)⁺ (Cov(y) − S), its shares of signal clipped to [0, 1]; zero in dead directions."""
    values, vectors = spectrum(covariance)
    whitener, colourer = vectors / np.sqrt(values), vectors * np.sqrt(values)
    # With Cov(y) = I, the eigenvalues of S are the noise's shares of the variance.
    S = np.asarray(noise_covariance, dtype=np.float64)
    noise, axes = np.linalg.eigh(whitener.T @ S @ whitener)
    # In a sample the share of noise may come out above 1 or below 0.
    weights: FloatArray = whitener @ (axes * (1 - np.clip(noise, 0.0, 1.0))) @ axes.T @ colourer.T
    return weights


@dataclass(frozen=True, eq=False)
class ReleaseMoments:
    """Moments of released vectors y, (N, m), and a target t, (N, T): ``covariance`` Cov(y), ``cross`` Cov(y, t)."""

    mean: FloatArray
    target_mean: FloatArray
    covariance: FloatArray
    cross: FloatArray


def release_moments(
    X: Embeddings, target: npt.NDArray[np.floating], knowledge: Knowledge, rng: np.random.Generator, *, draws: int = 8
) -> ReleaseMoments:
    """Return the moments over ``draws`` releases of each text; without an oracle, over ``X`` as released.

    A declared noise covariance S replaces the sampled one: Cov(y) = Cov(mean of R draws) + S·(1 − 1/R).
    """
    count = draws if knowledge.adaptive else 1
    m, rows = knowledge.dimension, len(X)
    average = np.zeros((rows, m))
    covariance = np.zeros((m, m))
    S = knowledge.noise_covariance if knowledge.adaptive else None
    for _ in range(count):
        released = knowledge.draw(X, rng).astype(np.float64)
        average += released / count
        if S is None:
            released -= released.mean(axis=0)
            covariance += released.T @ released / (rows * count)
    mean = average.mean(axis=0)
    average -= mean
    exact = target.astype(np.float64)  # labels may be booleans
    target_mean = exact.mean(axis=0)
    cross = average.T @ (exact - target_mean) / rows
    if S is not None:
        covariance = average.T @ average / rows + np.asarray(S, dtype=np.float64) * (1 - 1 / count)
    return ReleaseMoments(mean, target_mean, covariance, cross)


def spectrum(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (r,) and eigenvectors (m, r) of the directions that vary; r may be 0."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    live = values > CUT_OFF * max(values[-1], _TINY)
    return values[live], vectors[:, live]


def ridge(target: FloatArray, values: FloatArray, penalty: float) -> FloatArray:
    """Return ``target``, (r, T), over the penalised eigenvalues; the penalty is a share of the largest one."""
    weights: FloatArray = target / (values + penalty * values.max(initial=0.0))[:, None]
    return weights


def choose_penalty(
    moments: ReleaseMoments, held: Embeddings, judge: Callable[[FloatArray], float], penalties: Sequence[float]
) -> tuple[float, FloatArray]:
    """Return the ridge penalty that ``judge`` prefers, of equals the largest, and its weights, (m, T).

    ``judge`` returns the figure of the targets estimated for the released vectors ``held``.
    """
    values, vectors = spectrum(moments.covariance)
    target = vectors.T @ moments.cross
    inputs = (held.astype(np.float64) - moments.mean) @ vectors
    best, chosen = -np.inf, penalties[0]
    # In the eigenbasis a penalty is a division, so all of them are tried.
    for penalty in penalties:
        value = judge(inputs @ ridge(target, values, penalty) + moments.target_mean)
        if value >= best:
            best, chosen = value, penalty
    return chosen, vectors @ ridge(target, values, chosen)


@dataclass(frozen=True, eq=False)
class Denoiser:
    """The affine map y -> centre + (y - mean) @ weights between released vectors and clean ones.

    ``penalty`` is the chosen ridge penalty, as a share of the largest variance.
    """

    mean: FloatArray
    weights: FloatArray
    centre: FloatArray
    penalty: float

    def __call__(self, Y: Embeddings) -> Embeddings:
        exact = (Y.astype(np.float64) - self.mean) @ self.weights + self.centre
        return exact.astype(Y.dtype)


def fit_denoiser(
    X: Embeddings, validation: Embeddings, knowledge: Knowledge, rng: np.random.Generator, *, draws: int = 8
) -> Denoiser:
    """Return the Wiener filter Cov(y)⁻¹ Cov(y, x), the linear map of least mean squared error.

    With an oracle the covariances are averages over ``draws`` releases of each text, a declared noise covariance is
    used exactly, and validation texts choose a ridge penalty. Without an oracle the attacker knows no clean vector:
    with a declared noise covariance S the filter is Cov(y)⁺(Cov(y) − S), else the identity.

    Args:
        X: (N, n) clean vectors, or (N, m) released ones without an oracle.
        validation: Vectors of other texts, as ``X``.
        draws: Releases of each text; more bring the moments closer to their limit.
    """
    if not knowledge.adaptive:
        exact = X.astype(np.float64)
        mean, S = exact.mean(axis=0), knowledge.noise_covariance
        exact -= mean
        weights = np.eye(knowledge.dimension)
        if S is not None and np.any(S):
            weights = _wiener(exact.T @ exact / len(exact), S)
        return Denoiser(mean, weights, mean, 0.0)
    moments = release_moments(X, X, knowledge, rng, draws=draws)
    held = knowledge.draw(validation, rng)

    def judge(estimates: FloatArray) -> float:
        return -float(((estimates - validation) ** 2).sum())

    penalty, weights = choose_penalty(moments, held, judge, _DENOISER_PENALTIES)
    return Denoiser(moments.mean, weights, moments.target_mean, penalty)


@dataclass(frozen=True, eq=False)
class ReleaseModel:
    """The expected release of a clean vector, and the metric in which releases scatter evenly.

    Attributes:
        clean_mean: (n,) mean of clean vectors.
        weights: (n, m) of the affine map from clean vectors to expected releases.
        mean: (m,) mean of releases.
        basis: (m, r) directions in which releases vary, the principal axes of the noise.
        scatter: (r,) variance of the noise along them.
        spread: Mean variance of releases along them.
        draws: Oracle draws whose mean is the expected release; 0 for the affine map.
        penalty: Ridge penalty of the map.
        floor: Variance added in every direction, as a share of ``spread``.
    """

    clean_mean: FloatArray
    weights: FloatArray
    mean: FloatArray
    basis: FloatArray
    scatter: FloatArray
    spread: float
    draws: int
    penalty: float
    floor: float

    @property
    def variance(self) -> FloatArray:
        """Return the noise's variances along `basis`, floor included, (r,)."""
        return self.scatter + self.floor * self.spread

    def whiten(self, Y: npt.NDArray[np.floating]) -> FloatArray:
        """Return vectors whose Euclidean distances are the Mahalanobis distances of ``Y``, (N, r)."""
        white: FloatArray = (Y - self.mean) @ (self.basis / np.sqrt(self.variance))
        return white

    def expected(self, clean: Embeddings, knowledge: Knowledge, rng: np.random.Generator) -> FloatArray:
        """Return the expected releases of clean vectors, (P, m)."""
        if self.draws:
            return mean_release(clean, knowledge, rng, draws=self.draws)
        expected: FloatArray = (clean.astype(np.float64) - self.clean_mean) @ self.weights
        expected += self.mean
        return expected


def mean_release(clean: Embeddings, knowledge: Knowledge, rng: np.random.Generator, *, draws: int) -> FloatArray:
    total = np.zeros((len(clean), knowledge.dimension))
    for i in range(0, len(clean), _ROWS):
        for _ in range(draws):
            total[i : i + _ROWS] += knowledge.draw(clean[i : i + _ROWS], rng)
    total /= draws
    return total


def fit_release_model(
    train: PairedVectors, validation: PairedVectors, knowledge: Knowledge, rng: np.random.Generator, *, draws: int = 16
) -> ReleaseModel:
    """Return the model under which the releases of the validation texts are likeliest.

    Candidates are an affine map, by ridge regression on the training texts, and, with an oracle, the mean of ``draws``
    releases, which fits any non-linear release but keeps 1/draws of the noise. The covariance is the declared one, or
    that of repeated releases, or, without an oracle, of the map's cross-validated residuals; a floor keeps directions
    without noise finite. The Gaussian likelihood of validation releases, in the directions in which releases vary,
    chooses map, penalty and floor.
    """
    if knowledge.adaptive:
        average, noise = _repeated(train.clean, knowledge, rng, draws)
        if not noise.any():  # a deterministic release: one draw is its expectation
            draws = 1
        # The declared covariance is exact; the sampled one is not.
        if knowledge.noise_covariance is not None:
            noise = np.asarray(knowledge.noise_covariance, dtype=np.float64)
    else:
        average, draws = train.X.astype(np.float64), 0
        declared = knowledge.noise_covariance
        noise = _unexplained(train, rng) if declared is None else np.asarray(declared, np.float64)
    held = knowledge.draw(validation.clean if knowledge.adaptive else validation.X, rng)
    mean, clean_mean = average.mean(axis=0), train.clean.mean(axis=0, dtype=np.float64)
    centred = average - mean
    between = centred.T @ centred / len(centred)
    values, live = spectrum(between + (noise if knowledge.adaptive else 0.0))
    if not values.size:  # constant releases
        m = len(mean)
        zeros = np.zeros((len(clean_mean), m))
        return ReleaseModel(clean_mean, zeros, mean, np.eye(m), np.zeros(m), 1.0, 0, 0.0, 1.0)
    # In the principal axes of the noise, a floor under its variances is a floor under each direction.
    scatter, axes = np.linalg.eigh(live.T @ noise @ live)
    basis, scatter, spread = live @ axes, np.maximum(scatter, 0.0), float(values.mean())
    inputs = validation.clean.astype(np.float64) - clean_mean
    maps = [(0, p, w) for p, w in ridge_path(train.clean - clean_mean, centred)]
    models: list[tuple[float, ReleaseModel]] = []
    for count, penalty, weights in maps if not draws else [*maps, (draws, 0.0, maps[0][2])]:
        if count:
            expected = mean_release(validation.clean, knowledge, rng, draws=count)
        else:
            expected = inputs @ weights + mean
        squares = (((held - expected) @ basis) ** 2).mean(axis=0)
        for floor in _FLOORS:
            model = ReleaseModel(clean_mean, weights, mean, basis, scatter, spread, count, penalty, floor)
            # Twice the mean log-likelihood, without its constant.
            likelihood = -float((squares / model.variance + np.log(model.variance)).sum())
            models.append((likelihood, model))
    return max(models, key=lambda pair: pair[0])[1]


def _repeated(
    clean: Embeddings, knowledge: Knowledge, rng: np.random.Generator, draws: int
) -> tuple[FloatArray, FloatArray]:
    """Return the mean of ``draws`` releases of each text, and the covariance of a release around its expectation."""
    total = np.zeros((len(clean), knowledge.dimension))
    steps = np.zeros((knowledge.dimension, knowledge.dimension))
    counted = 0
    last: FloatArray | None = None
    for _ in range(draws):
        released = knowledge.draw(clean, rng).astype(np.float64)
        total += released
        if last is not None and counted < _NOISE_ROWS * knowledge.dimension:
            # Differences of successive draws have the covariance 2 S, and are exactly 0 without randomness.
            difference = released - last
            steps += difference.T @ difference / 2
            counted += len(clean)
        last = released
    return total / draws, steps / max(1, counted)


def ridge_path(
    X: FloatArray, Y: FloatArray, penalties: Sequence[float] = _PENALTIES
) -> Iterator[tuple[float, FloatArray]]:
    """Yield (penalty, weights) of the regression of Y on X, both centred."""
    values, vectors = spectrum(X.T @ X / len(X))
    target = vectors.T @ (X.T @ Y / len(X))
    for penalty in penalties:
        yield penalty, vectors @ ridge(target, values, penalty)


def _unexplained(train: PairedVectors, rng: np.random.Generator) -> FloatArray:
    X, Y = train.clean.astype(np.float64), train.X.astype(np.float64)
    fold = rng.permutation(len(X)) % min(_FOLDS, len(X))
    left = np.zeros((len(_PENALTIES), Y.shape[1], Y.shape[1]))
    for part in np.unique(fold):
        here, there = fold == part, fold != part
        if not there.any():
            there = here
        x, y = X[there].mean(axis=0), Y[there].mean(axis=0)
        for total, (_, weights) in zip(left, ridge_path(X[there] - x, Y[there] - y), strict=True):
            residual = Y[here] - y - (X[here] - x) @ weights
            total += residual.T @ residual / len(X)
    return min(left, key=lambda total: float(np.trace(total)))
