"""Kernel ridge regression on released vectors: alone, with transplanted or further texts, and as an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import Knowledge, LabelledVectors
from vecveil.attacks.release_model import InputMap, fit_input_map
from vecveil.attacks.token_inference.base import TokenInferenceAttack, held_out, validation_r_precision
from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings, Matrix
from vecveil.validation import check_count

Array = npt.NDArray[Any]

_SHARPNESS = (0.5, 1.0, 2.0, 4.0)  # 1: a kernel of 1/e at the median squared distance
_PENALTIES = (0.03, 0.1, 0.3, 1.0)
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
        """Return the estimated labels of released vectors."""
        inputs = self.inputs(Y)
        rate = self.sharpness / self.scale
        blocks = [
            _kernel(inputs[i : i + _BLOCK], self.centres, rate) @ self.weights for i in range(0, len(inputs), _BLOCK)
        ]
        estimates: Array = np.concatenate(blocks) + self.label_mean
        return estimates

    def details(self) -> dict[str, Any]:
        """Return the chosen setting and the number of rows."""
        chosen = {key: getattr(self, key) for key in ("sharpness", "penalty", "filtered")}
        return {**chosen, "rows": len(self.centres)}


def choose_setting(
    Y: Embeddings, L: Array, held: Embeddings, judge: Callable[[Array], float], noise_covariance: Matrix | None
) -> KernelSetting:
    """Return the setting with the best figure on held-out releases.

    Inputs with and without the Wiener filter are compared first: a wrong declared covariance must not blind the
    attack. ``judge`` returns the figure of estimated labels of ``held``.
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
            for penalty in _PENALTIES:
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
    """Return the regression from releases ``Y`` to labels ``L``.

    Args:
        weight: (N,) weight of each row; the penalty of a row is divided by it.
        blocks: Parts of the rows that are fitted separately, their predictions averaged: k blocks cost 1/k² of
            one fit. None given: one block.
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
    """Return the median squared distance between some rows of ``inputs``; 1 if that is 0."""
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
    """Training rows of a regression: (N, n) vectors before their release, (N, V) labels, (N,) weights.

    ``blocks`` are rows that are fitted together; empty: all of them.
    """

    X: Embeddings
    L: Array
    weight: Array
    blocks: tuple[npt.NDArray[np.intp], ...] = ()


class KernelAttack(TokenInferenceAttack):
    """Kernel ridge regression: non-linear like the MLP, closed form like the linear attack.

    Width and penalty are chosen on validation texts with a part of the training rows, and, where a noise
    covariance is declared, whether the Wiener filter comes first. With an oracle the training rows are filled
    up to ``rows`` with further fresh releases.
    """

    name = "kernel"
    description = "Gaussian kernel ridge regression, width and penalty chosen on validation texts."
    cost = "10 seconds and a few hundred MiB on one core"
    source = "Own; kernel ridge regression, Saunders, Gammerman and Vovk (1998)."
    state_type = KernelModel
    scores_are_probabilities = True
    _needs = ""  # the field of `LabelledVectors` without which there is nothing to learn from

    def __init__(self, *, rows: int = 8192) -> None:
        """Keep the most training rows to use: time grows with their cube, memory with their square."""
        self.rows = check_count(rows, owner=type(self).__name__, param="rows", minimum=2)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> KernelModel:
        self.require(train)
        knowledge, rng = session.knowledge, session.rng
        setting = self.choose(train, validation, knowledge, rng)
        return self.learn([train, validation], setting, knowledge, rng)

    def require(self, train: LabelledVectors) -> None:
        """Raise `InvalidInputError` if ``train`` lacks what this attack learns from."""
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

    An attacker who has texts with and without the concept can add the difference Φ(s⁺) − Φ(s⁻) of one text to Φ(t⁻)
    of another, scale the sum to the usual norm, and release it: a text that says t about the words of s. There are N²
    such texts, which put the words into new contexts; from them the attack learns to find words behind an erasure.
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
        # Encoders give nearly constant norms; a synthetic vector of another norm would stand out.
        norms = np.linalg.norm(X[source], axis=1) / np.maximum(np.linalg.norm(moved, axis=1), 1e-12)
        moved = (moved * norms[:, None]).astype(X.dtype)
        rows, labels = np.concatenate([X[real], moved]), np.concatenate([L[real], L[source]])
        return KernelRows(rows, labels, np.ones(len(rows), dtype=np.float32))


class FurtherKernelAttack(KernelAttack):
    """Kernel ridge regression on training texts and on further ones, with a lower weight.

    Further texts (`LabelledVectors.further`) are training texts with a concept word exchanged for another, or
    sentences of a corpus that hold the concept's words. More of them than one fit can hold are dealt into
    blocks, each beside freshly released training texts; the blocks' predictions are averaged (Zhang, Duchi and
    Wainwright, 2013).
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
        """Keep the most rows of a block and the most blocks."""
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

    The members learn from different releases and synthetic texts, so that their errors differ. `TransplantAttack` needs
    `LabelledVectors.without`, `FurtherKernelAttack` needs `LabelledVectors.further`. A member joins the best if the
    sum then finds more in validation texts; weights are equal, so that few validation texts suffice.
    """

    name = "ensemble"
    description = "Sum of the kernel attacks' standardised scores, those that help on validation texts."
    cost = "20 seconds on one core, and what its members ask for"
    source = "Own; averaging of regressions, Perrone and Cooper (1993)."
    state_type = _EnsembleFit
    scores_are_probabilities = True

    def __init__(self, *, rows: int = 5000) -> None:
        """Keep the most rows of each member."""
        self.rows = check_count(rows, owner="EnsembleAttack", param="rows", minimum=2)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _EnsembleFit:
        knowledge, rng = session.knowledge, session.rng
        setting = KernelAttack(rows=self.rows).choose(train, validation, knowledge, rng)
        held, labels = held_out(validation, knowledge, rng)
        further = train.further
        # Texts made from validation texts would give them away while members are chosen.
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
    """Return the model that estimates the label mean for every vector."""
    inputs = InputMap(np.zeros(dimension), np.zeros((dimension, 1)))
    weights = np.zeros((1, len(label_mean)), dtype=np.float32)
    centre = np.zeros((1, 1), dtype=np.float32)
    return KernelModel(inputs, centre, weights, label_mean, 1.0, 1.0, 1.0, False)


def _choose_members(scored: Mapping[str, Array], labels: Array) -> list[str]:
    """Return the best member, and each further one, best first, with which the sum finds more."""
    alone = {name: validation_r_precision(scores, labels) for name, scores in scored.items()}
    chosen: list[str] = []
    best = -1.0
    for name in sorted(alone, key=lambda name: -alone[name]):
        total = np.sum([scored[each] for each in (*chosen, name)], axis=0)
        value = validation_r_precision(total, labels)
        if value > best:
            best, chosen = value, [*chosen, name]
    return chosen
