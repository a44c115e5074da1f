"""Alignment: learn the map back to clean vectors, from known pairs or without any, then re-identify the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.optimize is slow

from vecveil.auditing.attacks.attack import (
    Attack,
    AttackFinding,
    CandidateVectors,
    Knowledge,
    LabelledVectors,
    PairedVectors,
    Session,
)
from vecveil.auditing.attacks.token_inference import LinearAttack
from vecveil.auditing.metrics.leakage import candidate_matching_of_ranks
from vecveil.errors import InvalidInputError, optional_import
from vecveil.privacy.utility.estimates import Estimate
from vecveil.privacy.utility.tasks import embedding_cosine, unit_rows
from vecveil.types import Embeddings
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]

PAIRS = (10, 50, 200, 1000)
_LEAST = 3  # pairs: two to fit and one to hold out
_BLOCK = 20_000_000  # scores held at once: 160 MB
_CUT_OFF = 1e-9  # share of the largest singular value below which a direction is not reached
_FOLDS = 5
_ENOUGH = 100  # pairs from which one held-out fifth suffices
_SIMILARITIES = ("product", "covariance", "correlation")
_SHARES = (1.0, 0.5, 0.25)  # of the directions that the pairs determine
_PENALTIES = tuple(10.0**e for e in range(-10, 3))  # shares of the mean squared singular value of the pairs


@dataclass(frozen=True, eq=False)
class AffineMap:
    """The map y -> (y - source) @ weights + target, with weights (m, n), in a ``choice`` of variants.

    ``reach`` (n, r) are orthonormal directions in the range of the map; None: all.
    """

    weights: FloatArray
    source: FloatArray
    target: FloatArray
    choice: str = ""
    reach: FloatArray | None = None

    def __call__(self, Y: npt.NDArray[Any]) -> FloatArray:
        """Return the clean vectors recovered from ``Y``, (N, n) float64."""
        recovered: FloatArray = self._centred(Y) + self.target
        return recovered

    def _centred(self, Y: npt.NDArray[Any]) -> FloatArray:
        moved: FloatArray = (np.asarray(Y, dtype=np.float64) - self.source) @ self.weights
        return moved

    def views(self, Y: npt.NDArray[Any], clean: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return unit rows for released and for clean vectors, whose products are the cosines.

        Both are taken relative to ``target`` and within `reach`: the rest of a candidate would only blur the
        comparison.
        """
        recovered = self._centred(Y)
        candidates = np.asarray(clean, dtype=np.float64) - self.target
        if self.reach is not None:
            recovered, candidates = recovered @ self.reach, candidates @ self.reach
        return unit_rows(recovered), unit_rows(candidates)


def fit_scale(moved: FloatArray, clean: FloatArray) -> float:
    """Return the least-squares s of ``clean ~ s * moved``; 0 if ``moved`` is zero."""
    square = float((moved * moved).sum())
    return float((moved * clean).sum()) / square if square > 0 else 0.0


def reached(weights: FloatArray) -> FloatArray | None:
    """Return orthonormal directions (n, r) of the range of ``weights`` (m, n); None if that is all of them."""
    _, values, axes = np.linalg.svd(weights, full_matrices=False)
    live = values > _CUT_OFF * max(values.max(initial=0.0), np.finfo(np.float64).tiny)
    return None if live.sum() == weights.shape[1] else axes[live].T


def folds(rows: int) -> list[npt.NDArray[np.bool_]]:
    """Return masks of the held-out pairs: fifths of few pairs, one fifth of many."""
    parts = min(_FOLDS, rows)
    part = np.arange(rows) % parts
    return [part == i for i in range(1 if rows >= _ENOUGH else parts)]


def choose_map(
    Y: FloatArray, clean: FloatArray, variants: Callable[[FloatArray, FloatArray], dict[str, AffineMap]]
) -> AffineMap:
    """Return the variant, fitted on all pairs, that best separates held-out pairs from the others.

    ``variants(Y, clean)`` returns the candidate maps by name; a name that is missing in some fold cannot win.
    """
    scores: dict[str, list[float]] = {}
    masks = folds(len(Y))
    for held in masks:
        for name, variant in variants(Y[~held], clean[~held]).items():
            values = _separation(variant, Y[held], clean[held], clean[~held])
            scores.setdefault(name, []).append(float(values.mean()))
    fitted = variants(Y, clean)
    full = {name: sum(s) for name, s in scores.items() if len(s) == len(masks) and name in fitted}
    return fitted[max(full, key=lambda name: full[name])]


def _separation(fitted: AffineMap, Y: FloatArray, clean: FloatArray, others: FloatArray) -> FloatArray:
    """Return for each pair by how many deviations the true cosine exceeds the cosines of ``others``."""
    recovered, pool = fitted.views(Y, np.concatenate([clean, others]))
    right = (recovered * pool[: len(clean)]).sum(axis=1)
    scores = recovered @ pool[len(clean) :].T
    spread = np.maximum(scores.std(axis=1), 1e-12)
    # Exact recovery has almost no spread: the bound keeps one pair from dominating the mean.
    distance: FloatArray = np.minimum((right - scores.mean(axis=1)) / spread, 1e6)
    return distance


@dataclass(frozen=True, eq=False)
class Alignments:
    """Maps learnt from K increasing numbers of pairs: the fields of `AffineMap`, with a first axis of K."""

    counts: tuple[int, ...]
    weights: FloatArray
    source: FloatArray
    target: FloatArray
    choices: tuple[str, ...]

    @classmethod
    def of(cls, counts: Sequence[int], maps: Sequence[AffineMap]) -> Alignments:
        return cls(
            tuple(counts),
            np.stack([each.weights for each in maps]),
            np.stack([each.source for each in maps]),
            np.stack([each.target for each in maps]),
            tuple(each.choice for each in maps),
        )

    def map(self, index: int) -> AffineMap:
        """Return one of the maps; index -1 is the map of the most pairs."""
        weights = self.weights[index]
        offsets = self.source[index], self.target[index]
        return AffineMap(weights, *offsets, self.choices[index], reached(weights))


class AlignmentAttack(Attack[PairedVectors, CandidateVectors]):
    """Learns the map back from known pairs and matches every released vector with the pool.

    The attacker lacks a key; it has a stolen store and known pairs of released and clean vectors. With a release oracle
    it makes the pairs, one release of each vector.

    Estimates: ``top_1`` with the most pairs (the main one), ``mrr`` and ``cosine`` (the mean cosine of recovered and
    true clean vectors) with the same, and ``top_1_of_10`` and so on with fewer. If both sides have ``labels``,
    ``words`` and ``words_of_10`` are token inference on the recovered vectors.
    """

    family = "alignment"
    state_type = Alignments
    learns_from: ClassVar[str] = "pairs"

    def __init__(self, *, pairs: Sequence[int] = PAIRS) -> None:
        """Set the numbers of known pairs to try; a larger maximum is a stronger attack."""
        owner = type(self).__name__
        given = [check_count(p, owner=owner, param="pairs", minimum=_LEAST) for p in pairs]
        if not given:
            raise InvalidInputError("pairs must name at least one number of known pairs.", param="pairs")
        self.pairs = tuple(sorted(set(given)))

    @abstractmethod
    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        """Return the map from released rows ``Y`` (k, m) to ``clean`` (k, n), row i with row i."""

    def _counts(self, rows: int) -> tuple[int, ...]:
        """Return the increasing numbers of pairs to learn from; the last is all rows, up to the setting."""
        most = min(rows, self.pairs[-1])
        return (*(p for p in self.pairs if p < most), most)

    def recover(self, state: Alignments, Y: Embeddings) -> FloatArray:
        """Return the clean vectors recovered from released ``Y`` by the map of the most pairs, (N, n)."""
        return AffineMap(state.weights[-1], state.source[-1], state.target[-1])(Y)

    @final
    def learn(self, known: PairedVectors, knowledge: Knowledge, rng: np.random.Generator) -> Alignments:
        """Return the maps learnt from ``known``, for callers that need the recovered vectors."""
        Y = knowledge.draw(known.X, rng).astype(np.float64)
        clean = known.clean.astype(np.float64)
        # One order for all counts: every larger set of pairs contains the smaller ones.
        order = rng.permutation(len(known))
        counts = self._counts(len(known))
        return Alignments.of(counts, [self._align(Y[order[:k]], clean[order[:k]], rng) for k in counts])

    @final
    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> Alignments:
        # The number of known pairs measures the attacker, so no pair is set aside: cross-validation within
        # the k pairs chooses the variant.
        X = np.concatenate([train.X, validation.X])
        clean = np.concatenate([train.clean, validation.clean])
        return self.learn(PairedVectors(X, clean), session.knowledge, session.rng)

    @final
    def _judge(
        self, state: Alignments, train: PairedVectors, test: CandidateVectors, session: Session
    ) -> AttackFinding:
        rng = session.rng
        seed = int(rng.integers(2**31))
        tops: list[Estimate] = []
        for index, count in enumerate(state.counts):
            ranks = _ranks(state.map(index), test, rng)
            matching = candidate_matching_of_ranks(ranks, test.choices, test.groups, seed=seed)
            metric = f"top-1 with {count} {self.learns_from}"
            tops.append(replace(matching["top-1 accuracy"], metric=metric))
        # Matching compares within the reach of the map; the cosine is of whole vectors.
        true = test.pool[_true_rows(test)].astype(np.float64)
        recovered = self.recover(state, test.X)
        estimates = {
            "top_1": tops[-1],
            "mrr": matching["MRR"],
            "cosine": embedding_cosine(true, recovered, test.groups, seed=seed),
        }
        estimates |= {f"top_1_of_{k}": t for k, t in zip(state.counts[:-1], tops[:-1], strict=True)}
        if train.labels is not None and test.labels is not None and test.labels.any():
            for index in reversed(range(len(state.counts))):
                count = state.counts[index]
                read = _words(state.map(index)(test.X), train, test, seed)
                key = "words" if count == state.counts[-1] else f"words_of_{count}"
                metric = f"{read.metric} after {count} {self.learns_from}"
                estimates[key] = replace(read, metric=metric)
        details: dict[str, Any] = {self.learns_from: state.counts[-1], "candidates": test.choices}
        for count, choice in zip(state.counts, state.choices, strict=True):
            if choice:
                details[f"chosen_of_{count}"] = choice
        return AttackFinding(estimates, details=details)

    @final
    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        expected = train.clean.shape[1]
        if expected != test.pool.shape[1]:
            raise InvalidInputError(
                f"The pool of test has dimension {test.pool.shape[1]} and train.clean has {expected}: encode both with "
                "one encoder.",
                param="test",
            )
        if len(train) < _LEAST:
            raise InvalidInputError(f"Give at least {_LEAST} known pairs; train has {len(train)}.", param="train")


def _words(recovered: FloatArray, train: PairedVectors, test: CandidateVectors, seed: int) -> Estimate:
    """Return the R-precision of linear token inference on recovered vectors, learnt from the attacker's clean ones."""
    assert train.labels is not None
    assert test.labels is not None
    rows, held = (np.flatnonzero(L.any(axis=1)) for L in (train.labels, test.labels))
    # Errors of the map widen the recovered vectors: the attacker learns with as much noise, in the same directions.
    values, axes = np.linalg.eigh(np.cov(recovered.T) - np.cov(train.clean.T.astype(np.float64)))
    half = axes * np.sqrt(np.maximum(values, 0.0))

    def blurred(X: Embeddings, rng: np.random.Generator) -> Embeddings:
        noisy: Embeddings = X + rng.standard_normal(X.shape) @ half.T
        return noisy

    own = LabelledVectors(train.clean[rows].astype(np.float64), train.labels[rows])
    of = None if test.groups is None else test.groups[held]
    met = LabelledVectors(recovered[held], test.labels[held], of)
    return LinearAttack(draws=2).run(own, met, release=blurred, noise_covariance=half @ half.T, rng=seed).main


def _true_rows(test: CandidateVectors) -> npt.NDArray[np.intp]:
    if test.options is None:
        return test.truth
    rows: npt.NDArray[np.intp] = test.options[np.arange(len(test)), test.truth]
    return rows


def _ranks(fitted: AffineMap, test: CandidateVectors, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the rank of each true candidate, from 1; ties are broken at random."""
    recovered, pool = fitted.views(test.X, test.pool)
    true = _true_rows(test)
    above, tied = np.empty(len(test), dtype=np.int64), np.empty(len(test), dtype=np.int64)
    step = max(1, _BLOCK // len(pool))
    for start in range(0, len(test), step):
        rows = slice(start, start + step)
        scores = recovered[rows] @ pool.T
        np.round(scores, 12, out=scores)  # equal candidates must tie despite rounding
        right = scores[np.arange(len(scores)), true[rows]][:, None]
        if test.options is not None:
            scores = np.take_along_axis(scores, test.options[rows], axis=1)
        above[rows] = (scores > right).sum(axis=1)
        tied[rows] = (scores == right).sum(axis=1)
    # A random place among ties: a constant release earns chance, not rank 1.
    ranks: npt.NDArray[np.int64] = above + 1 + rng.integers(0, tied)
    return ranks


class PermutationAlignment(AlignmentAttack):
    """Recovers a secret order of the coordinates, possibly with secret signs and one secret scale.

    An assignment matches coordinates by the sum of their similarities over the known pairs: products, covariances or
    correlations, with signs or without, whichever best separates held-out pairs. It needs enough pairs to distinguish n
    coordinates, far fewer than n.
    """

    name = "permutation-alignment"
    description = "Coordinates matched by correlation and Hungarian assignment over known pairs."
    cost = "seconds on one core, and from ten known pairs"
    source = "Own; Kuhn (1955), The Hungarian method for the assignment problem."

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        return choose_map(Y, clean, _assignments)


def _assignments(Y: FloatArray, clean: FloatArray) -> dict[str, AffineMap]:
    maps = [_assign(Y, clean, kind, signs) for kind in _SIMILARITIES for signs in (False, True)]
    return {each.choice: each for each in maps}


def _assign(Y: FloatArray, clean: FloatArray, similarity: str, signs: bool) -> AffineMap:
    source, target = np.zeros(Y.shape[1]), np.zeros(clean.shape[1])
    if similarity != "product":
        source, target = Y.mean(axis=0), clean.mean(axis=0)
    y, x = Y - source, clean - target
    # Means identify coordinates, unless a shift hides them: products include them, covariances do not.
    like = y.T @ x
    if similarity == "correlation":
        norms = np.outer(np.linalg.norm(y, axis=0), np.linalg.norm(x, axis=0))
        like = np.divide(like, norms, out=np.zeros_like(like), where=norms > 0)
    # With secret signs a coordinate may correlate negatively with its partner.
    released, own = scipy.optimize.linear_sum_assignment(np.abs(like) if signs else like, maximize=True)
    weights = np.zeros(like.shape)
    weights[released, own] = np.sign(like[released, own]) if signs else 1.0
    weights *= fit_scale(y @ weights, x)
    # With fewer released coordinates, the unmatched clean ones cannot be compared.
    reach = None if len(own) == len(target) else np.eye(len(target))[:, own]
    return AffineMap(weights, source, target, f"{similarity}{', signs' if signs else ''}", reach)


class ProcrustesAlignment(AlignmentAttack):
    """Recovers a secret rotation or reflection, possibly into fewer dimensions, with a scale and a shift.

    Fewer pairs than dimensions determine the rotation in their span only; outside it the map is zero. With noise the
    weaker directions hurt, so cross-validation chooses their number, and whether to centre.
    """

    name = "procrustes-alignment"
    description = "A rotation, scale and shift fitted to known pairs by orthogonal Procrustes."
    cost = "seconds on one core; exact from as many known pairs as dimensions"
    source = "Schönemann (1966), A generalized solution of the orthogonal Procrustes problem."

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        return choose_map(Y, clean, _rotations)


def _rotations(Y: FloatArray, clean: FloatArray) -> dict[str, AffineMap]:
    maps = {}
    for centred in (False, True):
        source = Y.mean(axis=0) if centred else np.zeros(Y.shape[1])
        target = clean.mean(axis=0) if centred else np.zeros(clean.shape[1])
        y, x = Y - source, clean - target
        left, right = _directions(y, x)
        for share in _SHARES:  # behind noise the weakest directions are noise alone
            rank = max(1, round(share * left.shape[1]))
            weights = left[:, :rank] @ right[:, :rank].T
            weights *= fit_scale(y @ weights, x)
            name = f"{'centred' if centred else 'as it is'}, {share:.0%} of the directions"
            maps[name] = AffineMap(weights, source, target, name, right[:, :rank])
    return maps


def procrustes(y: FloatArray, x: FloatArray) -> FloatArray:
    """Return the partial isometry W (m, n) with the largest tr(Wᵀ yᵀ x), zero where the rows determine nothing.

    Formula: W = U Vᵀ for yᵀ x = U S Vᵀ (Schönemann 1966), over the singular values above zero.
    """
    left, right = _directions(y, x)
    weights: FloatArray = left @ right.T
    return weights


def _directions(y: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the left and right singular vectors of yᵀ x, as columns, strongest first."""
    if len(y) < min(y.shape[1], x.shape[1]):  # k pairs span k directions: a (k, k) SVD suffices
        basis, core = np.linalg.qr(y.T)
        other, others_core = np.linalg.qr(x.T)
        left, values, right = np.linalg.svd(core @ others_core.T)
        left, right = basis @ left, right @ other.T
    else:
        left, values, right = np.linalg.svd(y.T @ x, full_matrices=False)
    # The singular vectors of zero singular values are arbitrary.
    rank = int((values > _CUT_OFF * values.max(initial=0.0)).sum())
    return left[:, :rank], right[:rank].T


class RidgeAlignment(AlignmentAttack):
    """Regresses clean vectors on released ones; the penalty has the least leave-one-out error.

    It inverts any linear map with noise as well as k pairs allow, also into fewer or more dimensions. It assumes less
    than a rotation and so needs more pairs for one.
    """

    name = "ridge-alignment"
    description = "Ridge regression from released to clean vectors over known pairs."
    cost = "seconds on one core, and about as many known pairs as dimensions"
    source = "Hoerl and Kennard (1970); leave-one-out in closed form, Allen (1974), PRESS."

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        with optional_import("The alignment of vectors", "scikit-learn", "attacks"):
            from sklearn.linear_model import RidgeCV

        source, target = Y.mean(axis=0), clean.mean(axis=0)
        scale = float(((Y - source) ** 2).sum()) / min(Y.shape)
        if not scale > 0:
            return AffineMap(np.zeros((Y.shape[1], clean.shape[1])), source, target)
        model = RidgeCV(scale * np.array(_PENALTIES)).fit(Y, clean)
        return AffineMap(model.coef_.T, source, target, f"penalty {model.alpha_:.6g}")


Rows = npt.NDArray[np.intp]

_STEPS = 25  # of k-means; the centres need not be final
_QUERY_BLOCK = 500
_AXES = (8, 16, 32)
_RESTARTS = 10
_QUERIES = 2000  # rows matched in a round
_SHARE = 0.006  # of the attacker's rows are averaged as the neighbours of a row
_TRIAL = 4  # rounds that every start gets
_PATIENCE = 3
_GAIN = 1e-3


class UnpairedAlignment(AlignmentAttack):
    """Aligns a store with the attacker's own vectors of other texts, as mini-vec2vec does.

    ``train.X`` are released vectors of the store and ``train.clean`` as many clean vectors of the attacker's own texts,
    in unrelated order. A release oracle is not used: it would give pairs.

    Initial guesses come from the principal axes of either side, with signs from third moments, and from matched k-means
    centres (mini-vec2vec). A round of refinement maps some rows, takes the mean of the nearest clean rows as their
    partners, and refits the rotation. The start whose mapped rows come nearest to clean ones is refined until
    convergence. No step needs the truth.
    """

    name = "unpaired-alignment"
    description = "A rotation found without any known pair, from vectors of other texts of the domain."
    cost = "a minute on one core, and thousands of own texts like those in the store"
    source = "After Dar (2025), mini-vec2vec: scaling universal geometry alignment with linear transformations."
    learns_from = "unpaired vectors"

    def __init__(self, *, rows: int = 8000, clusters: int = 20, runs: int = 10, rounds: int = 30) -> None:
        """Set the sizes of the search.

        Args:
            rows: Maximum number of vectors of either side; more align better and take longer.
            clusters: Centres of a clustering; more are more specific and harder to match.
            runs: Clusterings; 0 omits this kind of start.
            rounds: Maximum number of refinements.
        """
        owner = type(self).__name__
        self.rows = check_count(rows, owner=owner, param="rows", minimum=3)
        self.clusters = check_count(clusters, owner=owner, param="clusters", minimum=2)
        self.runs = check_count(runs, owner=owner, param="runs", minimum=0)
        self.rounds = check_count(rounds, owner=owner, param="rounds")

    def _counts(self, rows: int) -> tuple[int, ...]:
        return (min(rows, self.rows),)

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        clean = clean[rng.permutation(len(clean))]  # the order must not help
        source, target = Y.mean(axis=0), clean.mean(axis=0)
        A, B = unit_rows(Y - source), unit_rows(clean - target)
        neighbours = max(1, round(_SHARE * len(B)))
        starts = [
            (*_refine(A, B, start, rng, rounds=_TRIAL, neighbours=neighbours), name)
            for name, start in self._starts(A, B, rng, neighbours)
        ]
        _, weights, name = max(starts, key=lambda start: start[0])
        near, weights = _refine(A, B, weights, rng, rounds=self.rounds, neighbours=neighbours)
        part = rng.permutation(len(A))[:_QUERIES]
        partners, _ = _mean_of_nearest(unit_rows(A[part] @ weights), B, clean - target, neighbours)
        weights = weights * fit_scale((Y[part] - source) @ weights, partners)
        return AffineMap(weights, source, target, f"{name}, nearest at {near:.3f}")

    def _starts(
        self, A: FloatArray, B: FloatArray, rng: np.random.Generator, neighbours: int
    ) -> list[tuple[str, FloatArray]]:
        most = min(A.shape[1], B.shape[1])
        starts = [
            (f"{axes} principal axes", from_principal_axes(A, B, axes))
            for axes in sorted({min(axes, most) for axes in _AXES})
        ]
        if self.runs:
            rows = rng.permutation(len(A))[:_QUERIES]
            partners = self._from_clusters(A, B, rng, rows, neighbours)
            starts.append(("clusters", procrustes(A[rows], partners)))
        # A start of few directions comes nearer than any rotation without being better, so refit in all directions.
        part = rng.permutation(len(A))[:_QUERIES]

        def full(start: FloatArray) -> FloatArray:
            partners, _ = _mean_of_nearest(unit_rows(A[part] @ start), B, B, neighbours)
            return procrustes(A[part], partners)

        return [(name, full(start)) for name, start in starts]

    def _from_clusters(
        self, A: FloatArray, B: FloatArray, rng: np.random.Generator, rows: Rows, neighbours: int
    ) -> FloatArray:
        """Return for each of the ``rows`` of ``A`` the mean of the rows of ``B`` most similar to matched clusters.

        Each run clusters both sides, matches the centres by a quadratic assignment of their cosines, and describes a
        row by its cosines to all matched centres (approximate parallel pairs of mini-vec2vec, Dar 2025).
        """
        seen_A, seen_B = [], []
        for _ in range(self.runs):
            centres_A, centres_B = (cluster_centres(part, self.clusters, rng) for part in (A, B))
            order = _match(centres_A @ centres_A.T, centres_B @ centres_B.T, rng)
            seen_A.append(A[rows] @ centres_A.T)
            seen_B.append(B @ centres_B[order].T)
        described_A, described_B = np.hstack(seen_A), np.hstack(seen_B)
        described_A = unit_rows(described_A - described_A.mean(axis=0))
        described_B = unit_rows(described_B - described_B.mean(axis=0))
        return _mean_of_nearest(described_A, described_B, B, neighbours)[0]


def from_principal_axes(A: FloatArray, B: FloatArray, axes: int) -> FloatArray:
    """Return the map (m, n) that takes the first principal axes of ``A`` to the axes of ``B``, both centred.

    Texts of one domain have their variances in the same axes, in the same order; late axes have similar variances and
    may be swapped. The sign of axis i is that in which the third moments E[z_i z_j²], all j, agree.
    """
    turned, moments = [], []
    for rows in (A, B):
        _, vectors = np.linalg.eigh(rows.T @ rows)
        first = vectors[:, ::-1][:, :axes]
        z = rows @ first
        spread = z.std(axis=0)
        z = np.divide(z, spread, out=np.zeros_like(z), where=spread > 0)
        turned.append(first)
        moments.append(z.T @ z**2 / len(z))
    width = min(part.shape[1] for part in turned)
    agree = (moments[0][:width, :width] * moments[1][:width, :width]).sum(axis=1)
    signs = np.where(agree < 0, -1.0, 1.0)
    start: FloatArray = (turned[0][:, :width] * signs) @ turned[1][:, :width].T
    return start


def cluster_centres(rows: FloatArray, clusters: int, rng: np.random.Generator) -> FloatArray:
    """Return unit centres (c, n) of unit ``rows`` by spherical k-means with k-means++ seeds."""
    count = min(clusters, len(rows))
    centres = rows[[int(rng.integers(len(rows)))]]
    for _ in range(count - 1):
        far = np.maximum(1 - (rows @ centres.T).max(axis=1), 0.0)
        total = far.sum()
        chance = far / total if total > 0 else None
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=chance)]])
    for _ in range(_STEPS):
        nearest = (rows @ centres.T).argmax(axis=1)
        member = np.zeros((len(rows), count))
        member[np.arange(len(rows)), nearest] = 1.0
        sums = member.T @ rows
        empty = ~member.any(axis=0)  # a centre without rows stays where it is
        sums[empty] = centres[empty]
        moved = unit_rows(sums)
        if np.abs(moved - centres).max() < 1e-6:
            break
        centres = moved
    return centres


def _match(first: FloatArray, second: FloatArray, rng: np.random.Generator) -> Rows:
    """Return for each centre of the first its partner among the second, the best of some random starts."""
    best, chosen = -np.inf, np.arange(len(first))
    for _ in range(_RESTARTS):
        # FAQ descends to a local optimum, which depends on the random start.
        result = scipy.optimize.quadratic_assignment(
            first, second, method="faq", options={"maximize": True, "P0": "randomized", "rng": rng}
        )
        if result.fun > best:
            best, chosen = float(result.fun), np.asarray(result.col_ind)
    return chosen


def _mean_of_nearest(
    queries: FloatArray, keys: FloatArray, values: FloatArray, neighbours: int
) -> tuple[FloatArray, float]:
    """Return the mean of the values of each query's nearest keys, and the mean of the best products."""
    count = min(neighbours, len(keys))
    means = np.empty((len(queries), values.shape[1]))
    best = 0.0
    # float32 halves the time of the largest product; neighbours near in rank are averaged anyway.
    small, all_keys = queries.astype(np.float32), keys.astype(np.float32).T
    for start in range(0, len(queries), _QUERY_BLOCK):
        block = slice(start, start + _QUERY_BLOCK)
        scores = small[block] @ all_keys
        nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        means[block] = values[nearest].mean(axis=1)
        best += float(scores.max(axis=1).sum())
    return means, best / len(queries)


def _refine(
    A: FloatArray, B: FloatArray, weights: FloatArray, rng: np.random.Generator, *, rounds: int, neighbours: int
) -> tuple[float, FloatArray]:
    """Return how near mapped rows come to clean ones, and the map refitted to nearest rows."""
    best, best_weights, waited = -np.inf, weights, 0
    for _ in range(rounds):
        part = rng.permutation(len(A))[:_QUERIES]
        partners, near = _mean_of_nearest(unit_rows(A[part] @ weights), B, B, neighbours)
        waited = 0 if near > best + _GAIN else waited + 1  # rows differ from round to round
        if near > best:
            best, best_weights = near, weights
        if waited >= _PATIENCE:
            break
        weights = procrustes(A[part], partners)
    return best, best_weights
