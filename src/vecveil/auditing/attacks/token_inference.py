"""Token inference: score from a released vector which words of the concept its text contains."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from vecveil.auditing.attacks.attack import (
    Attack,
    AttackFinding,
    Knowledge,
    LabelledVectors,
    PairedVectors,
    Session,
    split_groups,
)
from vecveil.auditing.attacks.release_model import (
    CUT_OFF,
    Denoiser,
    InputMap,
    ReleaseMoments,
    choose_penalty,
    fit_denoiser,
    fit_input_map,
    fit_release_model,
    mean_release,
    release_moments,
    ridge,
    spectrum,
)
from vecveil.auditing.metrics.leakage import (
    confidence,
    leakage,
    pooled_labels,
    r_precision,
    subjects_read,
    term_table,
    top_accuracy,
)
from vecveil.errors import InvalidInputError
from vecveil.privacy.utility.ranking import macro_auc, tokens_with_both_classes
from vecveil.types import Embeddings, Matrix, Release
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]

TRIALS = 3  # releases of each validation text that settings are chosen on


class TokenInferenceAttack(Attack[LabelledVectors, LabelledVectors]):
    """A token-inference attack; subclasses implement `_fit` and `_scores`.

    Estimates: ``r_precision`` (the main one), ``top_accuracy``, ``leakage``, ``confidence``, and ``auc`` (absent if no
    token has both classes); for known subjects also the figures of `subjects_read`.
    """

    family = "token-inference"
    scores_are_probabilities = False  # up to clipping; False: logits

    @abstractmethod
    def _scores(self, state: Any, X: Embeddings) -> npt.NDArray[Any]:
        """Return a score per row and token, (N, V); higher means more likely."""

    @final
    def scores(
        self,
        train: LabelledVectors,
        test: LabelledVectors,
        *,
        release: Release | None = None,
        noise_covariance: Matrix | None = None,
        seed: int = 0,
    ) -> FloatArray:
        """Return the scores (M, V) of the test vectors after learning as `run` does."""
        knowledge = Knowledge(test.dimension, release, noise_covariance)
        knowledge.check(train, owner=type(self).__name__)
        self._check(train, test, knowledge)
        rng = np.random.default_rng(seed)
        groups = np.arange(len(train)) if train.groups is None else train.groups
        shares = (1 - self.validation_share, self.validation_share)
        learn, held = split_groups(groups, shares, seed=int(rng.integers(2**31)))
        state = self._fit(train.take(learn), train.take(held), Session(knowledge, rng, False))
        return np.asarray(self._scores(state, test.X), dtype=np.float64)

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        """Return ``scores`` as probabilities: clipped, or the logistic function of logits."""
        if self.scores_are_probabilities:
            return np.clip(scores, 0.0, 1.0)
        # The logistic function as tanh, which does not overflow for logits of large magnitude.
        probabilities: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return probabilities

    def _evidence(self, scores: FloatArray) -> FloatArray:
        """Return −log(1 − p): summed over texts, the evidence that at least one of them contains the token."""
        if not self.scores_are_probabilities:
            softplus: FloatArray = np.logaddexp(0.0, scores)
            return softplus
        # Linear above 1, which a regression may exceed: clipped, the likeliest tokens would tie.
        most = 1 - 1e-6
        evidence: FloatArray = -np.log1p(-np.minimum(scores, most)) + np.maximum(scores - most, 0.0)
        return evidence

    @final
    def _judge(self, state: Any, train: LabelledVectors, test: LabelledVectors, session: Session) -> AttackFinding:
        scores = np.asarray(self._scores(state, test.X), dtype=np.float64)
        probabilities = self._probabilities(scores)
        # Chance ranks tokens by their base rate: an attacker without vectors knows it too.
        L, groups, rates = test.L, test.groups, train.L.mean(axis=0)
        seed = int(session.rng.integers(2**31))
        estimates = {
            "r_precision": r_precision(scores, L, groups, base_rates=rates, seed=seed),
            "top_accuracy": top_accuracy(scores, L, groups, base_rates=rates, seed=seed),
        }
        if tokens_with_both_classes(L).any():
            estimates["auc"] = macro_auc(scores, L, groups)
        estimates["leakage"] = leakage(probabilities, L, groups, base_rates=rates, seed=seed)
        estimates["confidence"] = confidence(probabilities, L, groups, base_rates=rates, seed=seed)
        if test.subjects is not None:
            known = train.L if train.subjects is None else pooled_labels(train.L, train.subjects)
            shares = (known if len(known) else train.L).mean(axis=0)
            estimates |= subjects_read(self._evidence(scores), L, test.subjects, base_rates=shares, seed=seed)
        terms = term_table(scores, L, base_rates=rates)
        return AttackFinding(estimates, terms=terms, details=self._details(state))

    @final
    def _check(self, train: LabelledVectors, test: LabelledVectors, knowledge: Knowledge) -> None:
        tokens = train.L.shape[1]
        if test.L.shape[1] != tokens:
            raise InvalidInputError(
                f"test is labelled with {test.L.shape[1]} tokens and train with {tokens}.",
                code="E-INPUT-SHAPE",
                param="test",
            )
        if not test.L.any():
            raise InvalidInputError("No text of test contains a token.", code="E-INPUT-CLASSES", param="test")


def held_out(
    validation: LabelledVectors, knowledge: Knowledge, rng: np.random.Generator
) -> tuple[Embeddings, npt.NDArray[Any]]:
    """Return releases of the validation texts for choosing settings, and their labels."""
    # Several releases of each text make the choice less noisy.
    trials = 1 if knowledge.repeats(validation.X, rng) else TRIALS
    held = np.concatenate([knowledge.draw(validation.X, rng) for _ in range(trials)])
    return held, np.tile(validation.L, (trials, 1))


def validation_r_precision(scores: npt.NDArray[Any], L: npt.NDArray[Any]) -> float:
    """Return R-precision for choosing a setting; 0 if no validation text contains a token."""
    if not L.any():
        return 0.0
    table = term_table(scores, L)
    return float(table.hits.sum() / table.counts.sum())


_PENALTIES = tuple(10.0**e for e in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, 0))
_FAINT_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
_MOST_SPREAD = 4.0  # of validation texts, in standard deviations of the training texts


@dataclass(frozen=True, eq=False)
class _LinearFit:
    mean: FloatArray
    label_mean: FloatArray
    weights: FloatArray
    penalty: float


def fit_linear(
    train: LabelledVectors,
    validation: LabelledVectors,
    session: Session,
    judge: Callable[[FloatArray, npt.NDArray[Any]], float],
    *,
    draws: int,
) -> tuple[ReleaseMoments, float, FloatArray]:
    """Return the moments of the training releases, the penalty that ``judge(scores, L)`` prefers, and its weights."""
    knowledge, rng = session.knowledge, session.rng
    moments = release_moments(train.X, train.L, knowledge, rng, draws=draws)
    held, labels = held_out(validation, knowledge, rng)
    chosen = choose_penalty(moments, held, lambda scores: judge(scores, labels), _PENALTIES)
    return moments, *chosen


class LinearAttack(TokenInferenceAttack):
    """Least squares with the noise covariance that the attacker knows.

    With an oracle the labels are regressed on released vectors whose noise is averaged over many draws; a declared
    noise covariance replaces the sampled one exactly. This is the Wiener solution Cov(y)⁻¹ Cov(y, L). Validation texts
    choose the ridge penalty; directions without variance are dropped, so singular releases are safe.
    """

    name = "linear"
    description = "Closed-form ridge regression from released vectors to tokens."
    cost = "a second on one core"
    source = "The Wiener filter as a classifier; what linear erasure is built against (Belrose et al. 2023, LEACE)."
    state_type = _LinearFit
    scores_are_probabilities = True

    def __init__(self, *, draws: int = 8) -> None:
        """Set the number of oracle draws; more bring the moments closer to their limit."""
        self.draws = draws

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _LinearFit:
        knowledge, rng = session.knowledge, session.rng
        judge = validation_r_precision
        _, penalty, _ = fit_linear(train, validation, session, judge, draws=self.draws)
        # With the penalty chosen, the final fit uses the validation texts as well.
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        whole = release_moments(X, L, knowledge, rng, draws=self.draws)
        values, vectors = spectrum(whole.covariance)
        weights = vectors @ ridge(vectors.T @ whole.cross, values, penalty)
        return _LinearFit(whole.mean, whole.target_mean, weights, penalty)

    def _scores(self, state: _LinearFit, X: Embeddings) -> FloatArray:
        return (X.astype(np.float64) - state.mean) @ state.weights + state.label_mean

    def _details(self, state: _LinearFit) -> Mapping[str, Any]:
        return {"penalty": state.penalty}


@dataclass(frozen=True, eq=False)
class _FaintFit:
    mean: FloatArray
    strong: FloatArray
    weights: FloatArray
    label_mean: FloatArray


class FaintDirectionsAttack(TokenInferenceAttack):
    """Ridge regression on a release outside its directions of visible variance.

    A map that drops directions may leave traces of them far below the noise, as in the last digits of a rounded matrix
    product. The other attacks drop such directions for numerical stability. A direction counts only if validation texts
    spread in it as training texts do: with fewer texts than dimensions some directions are empty by chance.
    """

    name = "faint-directions"
    description = "Closed-form ridge regression on the directions that other attacks drop as empty."
    cost = "seconds on one core"
    source = "Own: what a rounded matrix product leaves behind an erasure."
    state_type = _FaintFit
    scores_are_probabilities = True

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _FaintFit:
        Y = session.draw(train.X).astype(np.float64)
        L = train.L.astype(np.float64)
        mean, label_mean = Y.mean(axis=0), L.mean(axis=0)
        centred = Y - mean
        _, strengths, axes = np.linalg.svd(centred, full_matrices=False)
        # Squared singular values are variances up to the number of rows.
        shown = strengths**2 > CUT_OFF * max(float(strengths[0]) ** 2, np.finfo(np.float64).tiny)
        strong = axes[shown].T
        faint = centred - (centred @ strong) @ strong.T
        spread = np.sqrt((faint**2).mean(axis=0))
        # Below this is the rounding of our own projection, a linear map of the whole release.
        rounding = max(Y.shape) * np.finfo(np.float64).eps * strengths[0] / np.sqrt(len(Y))
        held = session.draw(validation.X)
        rest = held.astype(np.float64) - mean
        rest = rest - (rest @ strong) @ strong.T
        # A direction that is empty only for lack of rows is not faint: other texts vary in it.
        held_spread = np.sqrt((rest**2).mean(axis=0))
        live = (spread > rounding) & (held_spread <= _MOST_SPREAD * spread)
        # Without faint directions every score is a label mean, which is chance.
        state = _FaintFit(mean, strong, np.zeros((Y.shape[1], L.shape[1])), label_mean)
        # At full rank only rounding errors of this projection are left over, as large as the BLAS kernel makes them.
        if not live.any() or strong.shape[1] == Y.shape[1]:
            return state
        standard = np.zeros(Y.shape[1])
        standard[live] = 1 / spread[live]
        inputs = faint * standard
        gram = inputs.T @ inputs / len(inputs)
        cross = inputs.T @ (L - label_mean) / len(inputs)
        best = -1.0
        for penalty in _FAINT_PENALTIES:
            solved = np.linalg.solve(gram + penalty * np.eye(len(gram)), cross)
            trial = _FaintFit(mean, strong, standard[:, None] * solved, label_mean)
            value = validation_r_precision(self._scores(trial, held), validation.L)
            if value > best:
                best, state = value, trial
        return state

    def _scores(self, state: _FaintFit, X: Embeddings) -> FloatArray:
        centred = X.astype(np.float64) - state.mean
        faint = centred - (centred @ state.strong) @ state.strong.T
        scores: FloatArray = faint @ state.weights + state.label_mean
        return scores


Array = npt.NDArray[Any]

_SHARPNESS = (0.5, 1.0, 2.0, 4.0)  # 1: a kernel of 1/e at the median squared distance
_KERNEL_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_FILTER_SHARPNESS = 2.0  # at which the Wiener filter is tried
_BLOCK = 2000
_PILOT_ROWS = 2000
_COPIES = 4  # fresh releases of each training text at most: more add little, and time grows with their cube
_SHARE_REAL = 0.4  # of the rows of the transplant attack
_REAL_COPIES = 3
_SHARE_OWN = 0.5  # training texts among the rows of the attack with further texts
_OWN_COPIES = 2  # releases of each training text, where one block holds all rows
# Rows of each ensemble member while members are chosen; with fewer, further texts displace training texts.
_MEMBER_ROWS = 4000


@dataclass(frozen=True)
class KernelSetting:
    """Width and penalty of a kernel regression, and whether the Wiener filter comes first."""

    sharpness: float = 2.0
    penalty: float = 0.1
    filtered: bool = True


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A fitted regression; `KernelModel(Y)` returns the estimated labels, (N, V)."""

    inputs: InputMap
    centres: Array
    weights: Array
    label_mean: Array
    scale: float
    sharpness: float
    penalty: float
    filtered: bool

    def __call__(self, Y: Embeddings) -> Array:
        inputs = self.inputs(Y)
        rate = self.sharpness / self.scale
        blocks = [
            _kernel(inputs[i : i + _BLOCK], self.centres, rate) @ self.weights for i in range(0, len(inputs), _BLOCK)
        ]
        estimates: Array = np.concatenate(blocks) + self.label_mean
        return estimates

    def details(self) -> dict[str, Any]:
        chosen = {key: getattr(self, key) for key in ("sharpness", "penalty", "filtered")}
        return {**chosen, "rows": len(self.centres)}


def choose_setting(
    Y: Embeddings, L: Array, held: Embeddings, judge: Callable[[Array], float], noise_covariance: Matrix | None
) -> KernelSetting:
    """Return the setting with the best figure on held-out releases.

    It first compares inputs with and without the Wiener filter, to survive a wrong declared covariance. ``judge``
    returns the figure of estimated labels of ``held``.
    """
    labels = L.astype(np.float32)
    label_mean = labels.mean(axis=0)

    def best(filtered: bool, widths: Sequence[float]) -> tuple[float, KernelSetting]:
        inputs = fit_input_map(Y, noise_covariance if filtered else None)
        centres, across = inputs(Y), inputs(held)
        scale = _median_distance(centres)
        trials: list[tuple[float, KernelSetting]] = []
        for width in widths:
            kernel = _kernel(centres, centres, width / scale)
            beside = _kernel(across, centres, width / scale)
            for penalty in _KERNEL_PENALTIES:
                weights = _solve(kernel.copy(), labels - label_mean, penalty)
                value = judge(beside @ weights + label_mean)
                trials.append((value, KernelSetting(width, penalty, filtered)))
        return max(trials, key=lambda each: each[0])

    if noise_covariance is None or not np.any(noise_covariance):
        return best(False, _SHARPNESS)[1]
    # Trying the filter at one width, then the other widths, saves three of eight grids.
    tried = [best(filtered, (_FILTER_SHARPNESS,)) for filtered in (True, False)]
    first = max(tried, key=lambda each: each[0])  # the filter where both are equal
    others = [width for width in _SHARPNESS if width != _FILTER_SHARPNESS]
    return max([first, best(first[1].filtered, others)], key=lambda each: each[0])[1]


def fit_kernel_ridge(
    Y: Embeddings,
    L: Array,
    weight: Array,
    setting: KernelSetting,
    noise_covariance: Matrix | None,
    blocks: Sequence[npt.NDArray[np.intp]] = (),
) -> KernelModel:
    """Return the regression from releases ``Y`` to labels ``L``, with row weights that divide the penalty.

    ``blocks`` of rows are fitted separately and their predictions averaged: k blocks cost 1/k² of one fit.
    """
    inputs = fit_input_map(Y, noise_covariance if setting.filtered else None)
    centres, labels = inputs(Y), L.astype(np.float32)
    label_mean = np.average(labels, axis=0, weights=weight).astype(np.float32)
    scale = _median_distance(centres)
    weights = np.zeros_like(labels)
    parts = list(blocks) or [np.arange(len(Y))]
    for rows in parts:
        kernel = _kernel(centres[rows], centres[rows], setting.sharpness / scale)
        # A low weight is a noisy label: it gets a larger penalty.
        penalty = (setting.penalty / weight[rows]).astype(np.float32)
        weights[rows] = _solve(kernel, labels[rows] - label_mean, penalty) / len(parts)
    chosen = (setting.sharpness, setting.penalty, setting.filtered)
    return KernelModel(inputs, centres, weights, label_mean, scale, *chosen)


def _squared_distances(left: Array, right: Array) -> Array:
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :]
    squares -= (2 * left) @ right.T  # not 2 * (...): another array of this size costs more than the product
    # Rounding can make the square of a short distance negative.
    distances: Array = np.maximum(squares, 0, out=squares)
    return distances


def _kernel(left: Array, right: Array, rate: float) -> Array:
    kernel = _squared_distances(left, right)
    kernel *= -rate
    result: Array = np.exp(kernel, out=kernel)
    return result


def _median_distance(inputs: Array) -> float:
    # 700 rows give 244,650 distances, enough for a median.
    part = inputs[:700]
    distances = _squared_distances(part, part)[np.triu_indices(len(part), k=1)]
    median = float(np.median(distances)) if distances.size else 0.0
    return median if median > 0 else 1.0


def _solve(kernel: Array, target: Array, penalty: float | Array) -> Array:
    """Return (kernel + diag(penalty))⁻¹ target of a symmetric kernel; overwrites ``kernel``."""
    diagonal = np.diag_indices(len(kernel))
    kernel[diagonal] += penalty
    before = kernel[diagonal]
    try:
        # The transpose has LAPACK's order: it is factorised in place, in its lower triangle, without a copy.
        factor = cho_factor(kernel.T, lower=True, overwrite_a=True, check_finite=False)
        weights: Array = cho_solve(factor, target)
    except LinAlgError:  # float32 is not enough when many rows coincide
        exact = kernel.astype(np.float64)  # its lower triangle is whole, but for the diagonal
        exact[diagonal] = before.astype(np.float64) + 1e-6 * len(kernel)
        weights = cho_solve(cho_factor(exact, lower=True, check_finite=False), target)
    return weights


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Training rows of a regression: vectors before their release, labels, weights, and ``blocks`` fitted together."""

    X: Embeddings
    L: Array
    weight: Array
    blocks: tuple[npt.NDArray[np.intp], ...] = ()


class KernelAttack(TokenInferenceAttack):
    """Kernel ridge regression: non-linear like the MLP, closed form like the linear attack.

    Validation texts and a part of the training rows choose width and penalty, and, with a declared noise covariance,
    whether the Wiener filter comes first. With an oracle, fresh releases fill the training rows up to ``rows``.
    """

    name = "kernel"
    description = "Gaussian kernel ridge regression, width and penalty chosen on validation texts."
    cost = "10 seconds and a few hundred MiB on one core"
    source = "Own; kernel ridge regression, Saunders, Gammerman and Vovk (1998)."
    state_type = KernelModel
    scores_are_probabilities = True
    _needs = ""  # the field of `LabelledVectors` without which there is nothing to learn from

    def __init__(self, *, rows: int = 8192) -> None:
        """Set the maximum number of training rows: time grows with their cube, memory with their square."""
        self.rows = check_count(rows, owner=type(self).__name__, param="rows", minimum=2)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> KernelModel:
        self.require(train)
        knowledge, rng = session.knowledge, session.rng
        setting = self.choose(train, validation, knowledge, rng)
        return self.learn([train, validation], setting, knowledge, rng)

    def require(self, train: LabelledVectors) -> None:
        """Raise `InvalidInputError` if ``train`` lacks the vectors that this attack learns from."""
        if self._needs and getattr(train, self._needs) is None:
            raise InvalidInputError(
                f"{type(self).__name__} learns from train.{self._needs}: set it, or use KernelAttack.", param="train"
            )

    def choose(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
        *,
        judge: Callable[[Array, Array], float] = validation_r_precision,
    ) -> KernelSetting:
        """Return the setting with the highest figure ``judge(scores, L)`` on validation texts."""
        # Choosing on a part of the rows saves most of the cubic cost.
        pilot = train.take(np.sort(rng.permutation(len(train))[:_PILOT_ROWS]))
        Y = knowledge.draw(pilot.X, rng)
        held, labels = held_out(validation, knowledge, rng)
        S = knowledge.noise_covariance
        return choose_setting(Y, pilot.L, held, lambda scores: judge(scores, labels), S)

    def learn(
        self, parts: list[LabelledVectors], setting: KernelSetting, knowledge: Knowledge, rng: np.random.Generator
    ) -> KernelModel:
        """Return the regression fitted on the texts of all ``parts``."""
        given = self._material(parts, knowledge, rng)
        Y = knowledge.draw(given.X, rng)
        S = knowledge.noise_covariance
        return fit_kernel_ridge(Y, given.L, given.weight, setting, S, given.blocks)

    def _material(self, parts: list[LabelledVectors], knowledge: Knowledge, rng: np.random.Generator) -> KernelRows:
        X, L = _joined(parts)
        rows = rng.permutation(len(X))[: self.rows]
        # Further releases add information with fresh noise only.
        if not knowledge.repeats(X, rng):
            copies = [rng.permutation(len(X)) for _ in range(min(_COPIES, -(-self.rows // len(X))))]
            rows = np.concatenate(copies)[: self.rows]
        return KernelRows(X[rows], L[rows], np.ones(len(rows), dtype=np.float32))

    def _scores(self, state: KernelModel, X: Embeddings) -> Array:
        return state(X)

    def _details(self, state: KernelModel) -> Mapping[str, Any]:
        return state.details()


def _joined(parts: list[LabelledVectors]) -> tuple[Embeddings, Array]:
    return np.concatenate([part.X for part in parts]), np.concatenate([part.L for part in parts])


class TransplantAttack(KernelAttack):
    """Kernel ridge regression on real and on synthetic vectors; it needs `LabelledVectors.without`.

    An attacker who has texts with and without the concept can add the difference Φ(s⁺) − Φ(s⁻) of one text to Φ(t⁻) of
    another, scale the sum to the usual norm, and release it. These N² synthetic texts put the concept's words into new
    contexts and teach the attack to recover words behind an erasure.
    """

    name = "transplant"
    description = (
        "Kernel ridge regression that also learns from synthetic texts: the difference that a concept word "
        "makes, moved to other texts."
    )
    cost = "as kernel, and encoding the training texts without the concept"
    source = "Own: differences of pairs, moved to other texts."
    _needs = "without"

    def _material(self, parts: list[LabelledVectors], knowledge: Knowledge, rng: np.random.Generator) -> KernelRows:
        X, L = _joined(parts)
        without = np.concatenate([part.without for part in parts if part.without is not None])
        copies = max(1, min(_REAL_COPIES, int(_SHARE_REAL * self.rows) // len(X)))
        if not knowledge.adaptive:
            copies = 1  # repeated vectors add no information
        real = np.concatenate([rng.permutation(len(X)) for _ in range(copies)])[: self.rows]
        made = max(0, self.rows - len(real))
        source, target = (rng.integers(0, len(X), made) for _ in range(2))
        moved = without[target] + (X[source] - without[source])
        # Encoders give nearly constant norms; a synthetic vector of a different norm would stand out.
        norms = np.linalg.norm(X[source], axis=1) / np.maximum(np.linalg.norm(moved, axis=1), 1e-12)
        moved = (moved * norms[:, None]).astype(X.dtype)
        rows, labels = np.concatenate([X[real], moved]), np.concatenate([L[real], L[source]])
        return KernelRows(rows, labels, np.ones(len(rows), dtype=np.float32))


class FurtherKernelAttack(KernelAttack):
    """Kernel ridge regression on training texts and on further ones, with a lower weight.

    Further texts (`LabelledVectors.further`) are training texts with a concept word exchanged for another, or sentences
    of a corpus that contain the concept's words. If one fit cannot hold them all, they are split into blocks, each with
    freshly released training texts, and the blocks' predictions averaged (Zhang, Duchi and Wainwright, 2013).
    """

    name = "kernel-further"
    description = (
        "Kernel ridge regression that also learns from texts that the attacker has made by exchanging concept "
        "words, or found in a corpus."
    )
    cost = "as kernel, and encoding the further texts"
    source = "Own; kernel ridge regression divided into blocks, Zhang, Duchi and Wainwright (2013)."
    _needs = "further"

    def __init__(self, *, rows: int = 6000, blocks: int = 4) -> None:
        """Set the maximum number of rows of a block and of blocks."""
        super().__init__(rows=rows)
        self.blocks = check_count(blocks, owner="FurtherKernelAttack", param="blocks")

    def _material(self, parts: list[LabelledVectors], knowledge: Knowledge, rng: np.random.Generator) -> KernelRows:
        further = parts[0].further
        assert further is not None  # `require` has checked
        X, L = _joined(parts)
        # Each block keeps `own` rows for training texts and fills the rest with further ones.
        own = min(len(X), max(1, int(_SHARE_OWN * self.rows)))
        space = max(1, self.rows - own)
        count = min(self.blocks, -(-len(further) // space))
        dealt = np.array_split(rng.permutation(len(further))[: count * space], count)
        # With several blocks each has another release of the training texts already.
        copies = 1
        if count == 1 and not knowledge.repeats(X, rng):
            copies = max(1, min(_OWN_COPIES, (self.rows - len(dealt[0])) // own))
        owned = [np.concatenate([rng.permutation(len(X))[:own] for _ in range(copies)]) for _ in dealt]
        rows = np.concatenate([*owned, *(len(X) + block for block in dealt)])
        sizes = [len(each) for each in (*owned, *dealt)]
        places = np.split(np.arange(len(rows)), np.cumsum(sizes)[:-1])
        ones = np.ones(len(X), dtype=np.float32)
        return KernelRows(
            np.concatenate([X, further.X])[rows],
            np.concatenate([L, further.L])[rows],
            np.concatenate([ones, further.weight])[rows],
            tuple(np.concatenate([places[i], places[count + i]]) for i in range(count)),
        )


_MEMBERS = ("kernel", "transplant", "further")


@dataclass(frozen=True, eq=False)
class _EnsembleFit:
    kernel: KernelModel
    transplant: KernelModel
    further: KernelModel
    shares: Array


class EnsembleAttack(TokenInferenceAttack):
    """Sum of the scores of the kernel attacks, each divided by its spread.

    The members learn from different releases and synthetic texts, so their errors differ. `TransplantAttack` needs
    `LabelledVectors.without`, `FurtherKernelAttack` needs `LabelledVectors.further`. A member joins the best if the sum
    then recovers more in validation texts; weights are equal, so that few validation texts suffice.
    """

    name = "ensemble"
    description = "Sum of the kernel attacks' standardised scores, those that help on validation texts."
    cost = "20 seconds on one core, and what its members ask for"
    source = "Own; averaging of regressions, Perrone and Cooper (1993)."
    state_type = _EnsembleFit
    scores_are_probabilities = True

    def __init__(self, *, rows: int = 5000) -> None:
        """Set the maximum number of rows of each member."""
        self.rows = check_count(rows, owner="EnsembleAttack", param="rows", minimum=2)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _EnsembleFit:
        knowledge, rng = session.knowledge, session.rng
        setting = KernelAttack(rows=self.rows).choose(train, validation, knowledge, rng)
        held, labels = held_out(validation, knowledge, rng)
        further = train.further
        # Texts made from validation texts would leak them while members are chosen.
        apart = None if further is None else further.apart_from(validation.groups)
        pilot = replace(train, further=apart)
        members, trials = self._members(train, self.rows), self._members(pilot, _MEMBER_ROWS)
        scored: dict[str, Array] = {}
        spreads: dict[str, float] = {}
        for name, trial in trials.items():
            scores = trial.learn([pilot], setting, knowledge, rng)(held)
            spread = float((scores - scores.mean(axis=0)).std())
            if spread > 0:
                scored[name], spreads[name] = scores / spread, spread
        chosen = _choose_members(scored, labels)
        # Members that are not chosen keep a constant model, so that a state always has three.
        label_mean = train.L.mean(axis=0, dtype=np.float32)
        models = dict.fromkeys(_MEMBERS, _constant_model(held.shape[1], label_mean))
        shares = np.zeros(len(_MEMBERS))
        for i, name in enumerate(_MEMBERS):
            if name in chosen:
                models[name] = members[name].learn([train, validation], setting, knowledge, rng)
                shares[i] = 1 / spreads[name]
        # No member beats the label mean: the constant model scores all texts alike.
        if not shares.any():
            shares[0] = 1.0
        return _EnsembleFit(shares=shares / shares.sum(), **models)

    @staticmethod
    def _members(train: LabelledVectors, rows: int) -> dict[str, KernelAttack]:
        members: dict[str, KernelAttack] = {"kernel": KernelAttack(rows=rows)}
        if train.without is not None:
            members["transplant"] = TransplantAttack(rows=rows)
        if train.further is not None:
            members["further"] = FurtherKernelAttack(rows=rows)
        return members

    def _scores(self, state: _EnsembleFit, X: Embeddings) -> Array:
        total: Array = sum(share * getattr(state, name)(X) for name, share in _used(state))
        return total

    def _details(self, state: _EnsembleFit) -> Mapping[str, Any]:
        members = " ".join(name for name, _ in _used(state))
        setting = {key: getattr(state.kernel, key) for key in ("sharpness", "penalty")}
        return {"members": members, **setting}


def _used(state: _EnsembleFit) -> list[tuple[str, Any]]:
    return [pair for pair in zip(_MEMBERS, state.shares, strict=True) if pair[1] > 0]


def _constant_model(dimension: int, label_mean: Array) -> KernelModel:
    inputs = InputMap(np.zeros(dimension), np.zeros((dimension, 1)))
    weights = np.zeros((1, len(label_mean)), dtype=np.float32)
    centre = np.zeros((1, 1), dtype=np.float32)
    return KernelModel(inputs, centre, weights, label_mean, 1.0, 1.0, 1.0, False)


def _choose_members(scored: Mapping[str, Array], labels: Array) -> list[str]:
    """Return the best member, and each further one, best first, with which the sum recovers more."""
    alone = {name: validation_r_precision(scores, labels) for name, scores in scored.items()}
    chosen: list[str] = []
    best = -1.0
    for name in sorted(alone, key=lambda name: -alone[name]):
        total = np.sum([scored[each] for each in (*chosen, name)], axis=0)
        value = validation_r_precision(total, labels)
        if value > best:
            best, chosen = value, [*chosen, name]
    return chosen


_NEIGHBOURS = (1, 10, 30, 100, 300)
# Weights exp(sharpness · cosine); 0 is a plain vote.
_VOTE_SHARPNESS = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)
_TEMPER = 0.25  # full whitening (0.5) amplifies the directions that say least
_TOKEN_PENALTY = 1e-3
_PRIOR = 1e-3  # weight of the base rates: orders the words that no near text contains
_CELLS = 2**23  # numbers held at once
_FLOORS = (1e-1, 1.0, 10.0)  # in addition to the likeliest; larger: closer to a Euclidean distance
_POSTERIOR_SHARPNESS = tuple(10.0 ** (e / 2) for e in range(-2, 6))  # over the places' variance
_JUDGED_ROWS = 500  # validation texts that settings are chosen on


@dataclass(frozen=True, eq=False)
class _NeighbourFit:
    denoiser: Denoiser
    projection: FloatArray
    directions: Array
    labels: Array
    label_mean: Array
    metric: str
    neighbours: int
    sharpness: float


class NearestNeighboursAttack(TokenInferenceAttack):
    """A vote among the k auxiliary texts with the greatest cosine to the vector, both denoised.

    The auxiliary corpus is the training texts, each at the mean of several releases (of one without an oracle), so that
    what a release erases counts on neither side. Cosines are of centred vectors, in one of three metrics: unchanged;
    with every principal direction divided by the fourth root of its variance; or of ridge estimates of the token
    labels. Validation texts choose metric, k and the weights exp(sharpness · cosine).
    """

    name = "nearest-neighbours"
    description = "Vote of the auxiliary texts nearest to the denoised vector; metric and k chosen on validation texts."
    cost = "seconds on one core"
    source = "Cover and Hart (1967), behind a Wiener filter."
    state_type = _NeighbourFit
    scores_are_probabilities = True

    def __init__(self, *, draws: int = 8) -> None:
        """Set the oracle draws per text, for the filter and the auxiliary texts; more leave less noise in them."""
        self.draws = check_count(draws, owner="NearestNeighboursAttack", param="draws")

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _NeighbourFit:
        knowledge, rng = session.knowledge, session.rng
        denoiser = fit_denoiser(train.X, validation.X, knowledge, rng, draws=self.draws)

        def located(X: Embeddings) -> FloatArray:
            adaptive = knowledge.adaptive
            return _denoised(denoiser, mean_release(X, knowledge, rng, draws=self.draws) if adaptive else X)

        # Auxiliary texts are mean releases; queries are one release, as in the test.
        known, added = located(train.X), located(validation.X)
        held = _denoised(denoiser, knowledge.draw(validation.X, rng))
        label_mean = train.L.mean(axis=0, dtype=np.float32)
        best = -1.0
        for name, projection in _metrics(known, train.L).items():
            # One ranking of the nearest serves every k and every sharpness.
            ranked = _nearest(_unit(held @ projection), _unit(known @ projection), max(_NEIGHBOURS))
            for k in dict.fromkeys(min(k, len(known)) for k in _NEIGHBOURS):
                for rate in _VOTE_SHARPNESS:
                    scores = _votes(*ranked, train.L, label_mean, k, rate)
                    value = validation_r_precision(scores, validation.L)
                    if value > best:
                        best, choice, chosen = value, (name, k, rate), projection
        directions = _unit(np.concatenate([known, added]) @ chosen)
        labels = np.concatenate([train.L, validation.L])
        return _NeighbourFit(denoiser, chosen, directions, labels, label_mean, *choice)

    def _scores(self, state: _NeighbourFit, X: Embeddings) -> Array:
        queries = _unit(_denoised(state.denoiser, X) @ state.projection)
        ranked = _nearest(queries, state.directions, state.neighbours)
        return _votes(*ranked, state.labels, state.label_mean, state.neighbours, state.sharpness)

    def _details(self, state: _NeighbourFit) -> Mapping[str, Any]:
        return {key: getattr(state, key) for key in ("metric", "neighbours", "sharpness")}


def _denoised(denoiser: Denoiser, Y: Embeddings) -> FloatArray:
    centred: FloatArray = denoiser(Y.astype(np.float64)) - denoiser.centre
    return centred


def _metrics(known: FloatArray, L: Array) -> dict[str, FloatArray]:
    """Return, by name, the matrices (n, r) that vectors are multiplied by before cosines are taken."""
    values, vectors = spectrum(known.T @ known / len(known))
    if not values.size:  # constant vectors
        return {"plain": np.zeros((known.shape[1], 1))}
    labels = L - L.mean(axis=0, dtype=np.float64)
    cross = vectors.T @ (known.T @ labels / len(known))
    regression = vectors @ (cross / (values + _TOKEN_PENALTY * values.max())[:, None])
    spread = labels.std(axis=0)
    regression /= np.where(spread > 0, spread, 1.0)
    return {"plain": vectors, "tempered": vectors * values**-_TEMPER, "tokens": regression}


def _unit(X: Array) -> Array:
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)


def _nearest(queries: Array, known: Array, count: int) -> tuple[Array, Array]:
    count = min(count, len(known))
    rows = max(1, _CELLS // len(known))
    indices, cosines = [], []
    for i in range(0, len(queries), rows):
        block = queries[i : i + rows] @ known.T
        some = np.argpartition(block, len(known) - count, axis=1)[:, len(known) - count :]
        values = np.take_along_axis(block, some, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        indices.append(np.take_along_axis(some, order, axis=1))
        cosines.append(np.take_along_axis(values, order, axis=1))
    return np.concatenate(indices), np.concatenate(cosines)


def _votes(indices: Array, cosines: Array, labels: Array, label_mean: Array, count: int, rate: float) -> Array:
    """Return the weighted share of the ``count`` nearest that contain each token, with a little of the prior."""
    near, closeness = indices[:, :count], cosines[:, :count]
    # Relative to the nearest text, so that exp cannot overflow.
    weights = np.exp(rate * (closeness - closeness[:, :1]))
    weights /= weights.sum(axis=1, keepdims=True)
    votes = np.empty((len(near), labels.shape[1]), dtype=np.float32)
    rows = max(1, _CELLS // (count * labels.shape[1]))
    for i in range(0, len(near), rows):
        held = labels[near[i : i + rows]].astype(np.float32)
        votes[i : i + rows] = np.matmul(weights[i : i + rows, None, :], held)[:, 0]
    return (1 - _PRIOR) * votes + _PRIOR * label_mean


@dataclass(frozen=True, eq=False)
class _PosteriorFit:
    mean: FloatArray
    whitener: FloatArray
    places: Array
    labels: Array
    label_mean: Array
    sharpness: float
    floor: float


class BayesPosteriorAttack(TokenInferenceAttack):
    """Token probabilities under the posterior over auxiliary texts.

    Text j of the auxiliary corpus (the training texts) has the weight exp(-½ · sharpness · d²), d the Mahalanobis
    distance from the vector to the expected release of text j; a word's probability is the weighted share of texts that
    contain it. With sharpness 1 and the text in the corpus that is Bayes' rule for Gaussian noise. Because the corpus
    contains only similar texts, validation texts choose a sharpness below 1 and a floor under the variances.
    """

    name = "bayes-posterior"
    description = "Posterior over auxiliary texts from the noise's covariance, sharpness chosen on validation texts."
    cost = "seconds on one core"
    source = "Bayes' rule over a finite set of texts; as a smoother Nadaraya (1964) and Watson (1964)."
    state_type = _PosteriorFit
    scores_are_probabilities = True

    def __init__(self, *, draws: int = 16) -> None:
        """Set the oracle draws per text: more sharpen the expected releases."""
        self.draws = check_count(draws, owner="BayesPosteriorAttack", param="draws", minimum=2)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _PosteriorFit:
        knowledge, rng = session.knowledge, session.rng
        # Without an oracle the vectors are released ones: the pairs then teach the identity.
        pairs, other = (PairedVectors(part.X, part.X) for part in (train, validation))
        model = fit_release_model(pairs, other, knowledge, rng, draws=self.draws)
        pilot = validation.take(np.sort(rng.permutation(len(validation))[:_JUDGED_ROWS]))
        held = knowledge.draw(pilot.X, rng)
        known, added = (model.expected(part.X, knowledge, rng) for part in (train, validation))
        labels = train.L.astype(np.float32)
        label_mean = labels.mean(axis=0)
        best = -1.0
        for floor in dict.fromkeys((model.floor, *_FLOORS)):
            trial = replace(model, floor=floor)
            places, queries = (trial.whiten(Y).astype(np.float32) for Y in (known, held))
            logs = _logarithms(queries, places)
            # Sharpness is tried in units of the places' variance, and at 1, which is Bayes' rule.
            scale = 1 / max(float(places.var(axis=0).mean()), 1e-12)
            for rate in (*(scale * factor for factor in _POSTERIOR_SHARPNESS), 1.0):
                value = validation_r_precision(_share(logs, labels, label_mean, rate), pilot.L)
                if value > best:
                    best, chosen, sharpness = value, trial, rate
        places = chosen.whiten(np.concatenate([known, added])).astype(np.float32)
        labels = np.concatenate([train.L, validation.L])
        whitener = chosen.basis / np.sqrt(chosen.variance)
        return _PosteriorFit(chosen.mean, whitener, places, labels, label_mean, sharpness, chosen.floor)

    def _scores(self, state: _PosteriorFit, X: Embeddings) -> Array:
        queries = ((X - state.mean) @ state.whitener).astype(np.float32)
        labels = state.labels.astype(np.float32)
        rows = max(1, _CELLS // len(labels))
        blocks = [
            _share(_logarithms(part, state.places), labels, state.label_mean, state.sharpness)
            for part in (queries[i : i + rows] for i in range(0, len(queries), rows))
        ]
        return np.concatenate(blocks)

    def _details(self, state: _PosteriorFit) -> Mapping[str, Any]:
        return {"sharpness": state.sharpness, "floor": state.floor}


def _logarithms(queries: Array, places: Array) -> Array:
    """Return -½ of the squared distances, (M, A), up to a constant in each row."""
    logs: Array = queries @ places.T
    logs -= 0.5 * np.einsum("pr,pr->p", places, places)
    # The greatest becomes 0, so that exp cannot overflow.
    logs -= logs.max(axis=1, keepdims=True)
    return logs


def _share(logs: Array, labels: Array, label_mean: Array, sharpness: float) -> Array:
    """Return P(token | vector), (M, V), with a little of the prior."""
    weights = np.exp(np.float32(sharpness) * logs)
    weights /= weights.sum(axis=1, keepdims=True)
    return (1 - _PRIOR) * (weights @ labels) + _PRIOR * label_mean
