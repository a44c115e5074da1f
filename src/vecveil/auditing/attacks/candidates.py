"""Known texts and known stores: match a vector with candidate texts, link two stores, test membership."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.optimize is slow

from vecveil.auditing.attacks.attack import (
    Attack,
    AttackFinding,
    CandidateVectors,
    Knowledge,
    PairedVectors,
    Rows,
    Session,
)
from vecveil.auditing.attacks.release_model import ReleaseModel, fit_release_model
from vecveil.auditing.metrics.leakage import candidate_matching, candidate_matching_of_ranks, subjects_found, tpr_at_fpr
from vecveil.errors import InvalidInputError
from vecveil.privacy.utility.estimates import share_estimate
from vecveil.privacy.utility.ranking import auc
from vecveil.privacy.utility.tasks import unit_rows
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

FloatArray = npt.NDArray[np.float64]

_CELLS = 2**23  # distances (or coordinates of options) held at once: 64 MiB
_TIE = 1e-12  # share of the squared lengths below which two squared distances are equal


class CandidateAttack(Attack[PairedVectors, CandidateVectors]):
    """A matching attack, which ranks the candidates by their distance to the released vector.

    Subclasses implement `_places` and may override `_misfit`. Estimates: ``top_1`` (the main one; its metric names the
    number, ``top-1 of 10``) and ``mrr``; for a whole pool with known subjects ``subjects`` too. The candidates are each
    vector's ``options``, or the whole pool.
    """

    family = "candidates"

    @abstractmethod
    def _places(self, state: Any, test: CandidateVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        """Return the released vectors, (M, r), and the pool, (P, r), in a space with Euclidean distances."""

    def _misfit(self, state: Any, squares: FloatArray) -> FloatArray:
        """Return the misfit at these squared distances (Lipschitz constant 1 at most); the least ranks first."""
        return squares

    @abstractmethod
    def _details(self, state: Any) -> Mapping[str, Any]:
        """Return the fitted values, for the result: numbers and names only."""

    @final
    def _judge(self, state: Any, train: PairedVectors, test: CandidateVectors, session: Session) -> AttackFinding:
        released, places = self._places(state, test, session)
        rng = session.rng
        seed = int(rng.integers(2**31))
        by_subject = {}
        if test.options is None:
            ranks = self._ranks(state, released, places, test.truth, rng)
            both = candidate_matching_of_ranks(ranks, len(places), test.groups, seed=seed)
            if test.subjects is not None:
                hits = (ranks == 1).astype(np.float64)
                by_subject = subjects_found(hits, test.subjects, candidates=len(places), seed=seed)
        else:
            scores = -self._misfit(state, _option_distances(released, places, test.options))
            both = candidate_matching(scores, test.truth, test.groups, seed=seed)
        top_1, mrr = both.values()
        top_1 = replace(top_1, metric=f"top-1 of {test.choices:,}")
        return AttackFinding({"top_1": top_1, "mrr": mrr, **by_subject}, details=self._details(state))

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        expected, got = train.clean.shape[1], test.pool.shape[1]
        if expected != got:
            raise InvalidInputError(
                f"The pool of test has dimension {got} and train.clean has {expected}.", param="test"
            )

    def _ranks(
        self,
        state: Any,
        released: FloatArray,
        places: FloatArray,
        truth: npt.NDArray[np.intp],
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Return the rank of the true candidate in the pool, from 1; ties are broken at random."""
        ranks = np.empty(len(released), dtype=np.int64)
        lengths = np.einsum("pr,pr->p", places, places)
        rows = max(1, _CELLS // len(places))
        for i in range(0, len(released), rows):
            part, right = released[i : i + rows], truth[i : i + rows]
            own_lengths = np.einsum("mr,mr->m", part, part)
            # ‖y − p‖² = ‖y‖² − 2 y·p + ‖p‖², in place: this block is the largest array.
            squares = part @ places.T
            squares *= -2
            squares += lengths
            squares += own_lengths[:, None]
            misfit = self._misfit(state, squares)
            own = misfit[np.arange(len(part)), right]
            # The expansion cancels: its rounding error grows with the lengths, not with the distance.
            slack = _TIE * (lengths[right] + own_lengths)
            closer = (misfit < (own - slack)[:, None]).sum(axis=1)
            tied = (misfit <= (own + slack)[:, None]).sum(axis=1) - closer
            # A random place among ties: equal candidates earn chance.
            ranks[i : i + rows] = closer + rng.integers(tied) + 1
        return ranks


def _option_distances(released: FloatArray, places: FloatArray, options: npt.NDArray[np.intp]) -> FloatArray:
    """Return squared distances to each vector's options, (M, C); equal options get equal ones."""
    distances = np.empty(options.shape)
    rows = max(1, _CELLS // (options.shape[1] * released.shape[1]))
    for i in range(0, len(released), rows):
        # Differences, without the cancellation above: options are few enough.
        difference = places[options[i : i + rows]] - released[i : i + rows, None]
        distances[i : i + rows] = np.einsum("mcr,mcr->mc", difference, difference)
    return distances


class _ReleaseModelAttack(Attack[PairedVectors, CandidateVectors]):
    state_type = ReleaseModel

    def __init__(self, *, draws: int = 16) -> None:
        """Set the oracle draws per text: more sharpen the expected releases and take longer."""
        self.draws = check_count(draws, owner=type(self).__name__, param="draws", minimum=2)

    @final
    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> ReleaseModel:
        return fit_release_model(train, validation, session.knowledge, session.rng, draws=self.draws)


class _ExpectedReleaseMatching(_ReleaseModelAttack, CandidateAttack):
    """Candidates ranked by the distance of the released vector to their expected release, E[y | x]."""

    @abstractmethod
    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        """Return released vectors, or expected ones, in the space of Euclidean distances, (N, r)."""

    @final
    def _places(self, state: ReleaseModel, test: CandidateVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        expected = state.expected(test.pool, session.knowledge, session.rng)
        return self._embed(state, test.X.astype(np.float64)), self._embed(state, expected)

    @final
    def _details(self, state: ReleaseModel) -> Mapping[str, Any]:
        expectation = f"mean of {state.draws} draws" if state.draws else "affine map"
        return {"expectation": expectation, "penalty": state.penalty, "floor": state.floor}


class CosineMatching(_ExpectedReleaseMatching):
    """Candidates ranked by the cosine between their expected release and the released vector."""

    name = "matching-cosine"
    description = "Candidates ranked by the cosine of their expected release with the vector."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Nearest-neighbour matching in cosine, as vector databases rank."

    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        norms = np.linalg.norm(Y, axis=1, keepdims=True)
        unit: FloatArray = Y / np.maximum(norms, np.finfo(np.float64).tiny)
        return unit


class LikelihoodMatching(_ExpectedReleaseMatching):
    """Candidates ranked by the Mahalanobis distance (y − E[y|x])ᵀ S⁺ (y − E[y|x]), the least first.

    For noise whose density falls with the Mahalanobis norm, such as Gaussian noise and the elliptical Laplace of
    `laplace`, `sparse` and `covariance`, that is the likelihood's order: with a uniform prior over candidates no other
    rule is right more often. S is the declared covariance, or that of repeated releases, in the directions in which
    releases vary.
    """

    name = "matching-likelihood"
    description = "Candidates ranked by the likelihood of the vector: Mahalanobis distance to their expected release."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Maximum likelihood; the distinguishing adversary of differential privacy with more than two inputs."

    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        return model.whiten(Y)


@dataclass(frozen=True)
class _FixedNorm:
    """Median of ‖y − x‖, and the distance of its quartiles as a share of it; 0 if the median is 0."""

    norm: float
    spread: float


class FixedNormMatching(CandidateAttack):
    """Candidates ranked by |‖y − x‖² − r²|, the least first; r is the median of ‖y − x‖ on training texts.

    A method that moves every vector by exactly r reveals which vector it moved: the true candidate is at r from the
    release to the last bits, any other almost never. No mean is subtracted from y − x: it may depend on x, but the
    length does not. If the norm is random, the likelihood recovers more.
    """

    name = "matching-norm"
    description = "Candidates ranked by how near their distance to the vector is to the usual length of the noise."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Consistency with a known distortion: ‖e' − e‖ = r, as TextCrafter states it of its releases."
    state_type = _FixedNorm

    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> _FixedNorm:
        # No setting is chosen, so the validation texts count as training texts.
        norms = np.concatenate([_norms(each, session) for each in (train, validation)])
        low, norm, high = (float(q) for q in np.quantile(norms, (0.25, 0.5, 0.75)))
        return _FixedNorm(norm, (high - low) / norm if norm else 0.0)

    def _places(self, state: _FixedNorm, test: CandidateVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        return test.X.astype(np.float64), test.pool.astype(np.float64)

    def _misfit(self, state: _FixedNorm, squares: FloatArray) -> FloatArray:
        # Near r, squares give the order of |‖y − x‖ − r| without the root's rounding errors near 0.
        misfit: FloatArray = np.abs(squares - state.norm**2)
        return misfit

    def _details(self, state: _FixedNorm) -> Mapping[str, Any]:
        return {"norm": state.norm, "relative_spread": state.spread}

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        super()._check(train, test, knowledge)
        expected = test.pool.shape[1]
        if test.dimension != expected:
            raise InvalidInputError(
                f"The released vectors have dimension {test.dimension} and the pool has {expected}. This attack "
                "measures distances between them: match reduced releases by cosine or by likelihood.",
                param="test",
            )


def _norms(pairs: PairedVectors, session: Session) -> FloatArray:
    """Return ‖y − x‖ of one release of each vector, (N,)."""
    # Without an oracle `X` contains releases of the clean vectors.
    released = session.draw(pairs.clean) if session.knowledge.adaptive else pairs.X
    difference = released.astype(np.float64) - pairs.clean.astype(np.float64)
    norms: FloatArray = np.linalg.norm(difference, axis=1)
    return norms


_SHRINKAGE = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)  # shares of the mean variance added to the variances
_MOST = 1 - 1e-9  # correlation; an exact copy would get an infinite score
_DRAWS = 8  # releases of each training text
_LEAST = 4
_ROUNDS = 10  # in which anchors grow, at most
_VIEWS = 10  # random selections of the anchors in each round
_SEEN, _NEAR = 256, 10  # anchors of a selection at most; rows whose mean similarity is subtracted


@dataclass(frozen=True, eq=False)
class _Link:
    """Canonical directions of both stores, and the correlation of each pair of directions."""

    first_mean: FloatArray
    second_mean: FloatArray
    first: FloatArray
    second: FloatArray
    correlations: FloatArray
    shrinkage: float

    def scores(self, A: Embeddings, B: Embeddings) -> FloatArray:
        """Return log p(a, b | same) − log p(a) p(b) for every row of ``A`` and of ``B``, up to a constant."""
        a = (A.astype(np.float64) - self.first_mean) @ self.first
        b = (B.astype(np.float64) - self.second_mean) @ self.second
        r = self.correlations
        weight, loss = r / (1 - r**2), r**2 / (1 - r**2) / 2
        result: FloatArray = (a * weight) @ b.T - (a**2 @ loss)[:, None] - b**2 @ loss
        return result


class LinkingAttack(Attack[PairedVectors, CandidateVectors]):
    """The likelihood ratio of two released vectors under "same text" and "two texts".

    ``test.X`` are rows of one store and ``test.pool`` rows of another, protected with other noise, key or protector, or
    clean vectors of a public list. Both are modelled as jointly Gaussian: canonical correlations of training pairs give
    the directions in which rows of one text agree. Training pairs are ``train.X`` and ``train.clean`` (a row of either
    store for each text). With a release oracle ``train`` contains clean vectors, and the attack makes two independent
    releases of each.

    Estimates: ``top_1`` (the main one) and ``mrr`` of each row's partner in the pool, ``one_to_one`` (the same share if
    no two rows may share a partner), and ``same`` (AUC of partners against other pairs).
    """

    family = "candidates"
    name = "linking"
    description = "Rows of two stores that belong to one text, by the likelihood ratio of canonical correlations."
    cost = "seconds on one core; texts of the kind, or known pairs"
    source = "Own; Hotelling (1936), canonical correlations; Fellegi and Sunter (1969), record linkage."
    state_type: Any = _Link

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        if len(train) < _LEAST:
            raise InvalidInputError(f"Give at least {_LEAST} known pairs; train has {len(train)}.", param="train")
        if test.options is not None:
            raise InvalidInputError("Linking compares with the whole pool: leave options out of test.", param="test")
        size = self._pool_dimension(train, test, knowledge)
        if test.pool.shape[1] != size:
            raise InvalidInputError(
                f"The pool of test has dimension {test.pool.shape[1]}, not {size}.", code="E-INPUT-SHAPE", param="test"
            )

    def _pool_dimension(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> int:
        return test.dimension if knowledge.adaptive else int(train.clean.shape[1])

    def _pairs(self, evidence: PairedVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        if not session.knowledge.adaptive:
            return evidence.X.astype(np.float64), evidence.clean.astype(np.float64)
        draws = [session.draw(evidence.X).astype(np.float64) for _ in range(_DRAWS)]
        # Each draw with the next one, the last with the first: independent noise on the two sides.
        return np.concatenate(draws), np.concatenate([*draws[1:], draws[0]])

    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> _Link:
        pairs = self._pairs(train, session)
        return _fit_link(*pairs, *(part[: len(validation)] for part in self._pairs(validation, session)))

    def _scores(self, state: Any, test: CandidateVectors, session: Session) -> FloatArray:
        scores: FloatArray = state.scores(test.X, test.pool)
        return scores

    def _judge(self, state: Any, train: PairedVectors, test: CandidateVectors, session: Session) -> AttackFinding:
        rng = session.rng
        scores = self._scores(state, test, session)
        seed = int(rng.integers(2**31))
        matching = candidate_matching(scores, test.truth, test.groups, seed=seed)
        # Shuffle the pool: an assignment must not find partners by their position.
        order = rng.permutation(scores.shape[1])
        rows, places = scipy.optimize.linear_sum_assignment(scores[:, order], maximize=True)
        hits = np.zeros(len(test))
        hits[rows] = order[places] == test.truth[rows]
        choices = test.choices
        others = (test.truth + rng.integers(1, choices, len(test))) % choices
        every = np.arange(len(test))
        pairs = np.concatenate([scores[every, test.truth], scores[every, others]])
        groups = None if test.groups is None else np.tile(test.groups, 2)
        return AttackFinding(
            {
                "top_1": replace(matching["top-1 accuracy"], metric=f"top-1 of {choices:,} rows"),
                "mrr": matching["MRR"],
                "one_to_one": share_estimate(
                    "one-to-one links", hits, groups=test.groups, chance=1 / choices, seed=seed
                ),
                "same": replace(auc(pairs, np.repeat([1, 0], len(test)), groups), metric="AUC of same or not"),
            },
            details=self._details(state),
        )

    def _details(self, state: Any) -> Mapping[str, Any]:
        return {"shrinkage": state.shrinkage, "directions": len(state.correlations)}


@dataclass(frozen=True, eq=False)
class _Anchors:
    """Known pairs: row i of both stores is of one text."""

    first: FloatArray
    second: FloatArray


class AnchorLinkingAttack(LinkingAttack):
    """Linking from few known pairs ("anchors"): the links that are found become further pairs.

    The cosines of a row to the anchors of its store describe it in terms that both stores share, whatever secret map or
    encoder made them: near texts stay near. Rows that are mutually most alike under most random selections of the
    anchors join them, until no more do; `LinkingAttack`'s canonical correlations of all anchors give the figures.

    Training pairs are ``train.X`` and ``train.clean``, of either store; with a release oracle, releases of ``train.X``
    and ``train.clean``. Estimates as of `LinkingAttack`.
    """

    name = "linking-anchors"
    description = "Rows of two stores that belong to one text, from few known pairs and the cosines to them."
    cost = "seconds on one core; some 30 known pairs, no protector"
    source = "After Vector Linking (2026, arXiv:2605.31100), with canonical correlations of the anchors at the end."
    state_type = _Anchors

    def __init__(self, pairs: int = 30) -> None:
        """Set the number of known pairs."""
        self.pairs = check_count(pairs, owner="AnchorLinkingAttack", param="pairs", minimum=_LEAST)

    def _pool_dimension(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> int:
        return int(train.clean.shape[1])

    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> Any:
        # The number of known pairs measures the attacker, so none is set aside.
        X, clean = (np.concatenate([getattr(part, name) for part in (train, validation)]) for name in ("X", "clean"))
        some = session.rng.permutation(len(X))[: self.pairs]
        return _Anchors(session.draw(X[some]).astype(np.float64), clean[some].astype(np.float64))

    def _scores(self, state: Any, test: CandidateVectors, session: Session) -> FloatArray:
        first, second = state.first, state.second
        for _ in range(_ROUNDS):
            # The surest first, and at most twice as many as before: early rounds are often wrong.
            links = (part[: 2 * len(first)] for part in _links(test.X, test.pool, first, second, session.rng))
            before, (rows, partners) = len(first), links
            first = np.concatenate([state.first, test.X[rows].astype(np.float64)])
            second = np.concatenate([state.second, test.pool[partners].astype(np.float64)])
            if len(first) <= before:
                break
        order = session.rng.permutation(len(first))
        held, fitted = np.split(order, [max(1, len(order) // 5)])
        return _fit_link(first[fitted], second[fitted], first[held], second[held]).scores(test.X, test.pool)

    def _details(self, state: Any) -> Mapping[str, Any]:
        return {"pairs": len(state.first)}


def _links(
    A: Embeddings, B: Embeddings, first: FloatArray, second: FloatArray, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return rows of ``A`` and of ``B`` that are mutually most alike under most selections of anchors, surest first."""
    views = [(unit_rows(rows) @ unit_rows(anchors).T).astype(np.float32) for rows, anchors in ((A, first), (B, second))]
    votes: Counter[tuple[int, int]] = Counter()
    for _ in range(_VIEWS):
        columns = rng.choice(len(first), max(_LEAST, min(2 * len(first) // 3, _SEEN)), replace=False)
        a, b = (_standardised(view[:, columns]) for view in views)
        scores = a @ b.T
        # A row alike to many is near the mean, not the partner of many.
        most = min(_NEAR, *scores.shape)
        near = [np.partition(side, -most, axis=1)[:, -most:].mean(axis=1) for side in (scores, scores.T)]
        scores = 2 * scores - near[0][:, None] - near[1]
        partner, back = scores.argmax(axis=1), scores.argmax(axis=0)
        rows = np.flatnonzero(back[partner] == np.arange(len(partner)))
        votes.update(zip(rows.tolist(), partner[rows].tolist(), strict=True))
    sure = [pair for pair, count in votes.most_common() if count > _VIEWS / 2]
    rows, partners = np.array(sure, dtype=np.intp).reshape(-1, 2).T
    return rows, partners


def _standardised(similarities: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return unit rows after each anchor's column has mean 0 and variance 1: encoders differ in scale."""
    spread = np.maximum(similarities.std(axis=0), np.finfo(np.float32).tiny)
    columns = (similarities - similarities.mean(axis=0)) / spread
    rows = columns - columns.mean(axis=1, keepdims=True)
    standardised: npt.NDArray[Any] = unit_rows(rows)
    return standardised


def _fit_link(A: FloatArray, B: FloatArray, held_A: FloatArray, held_B: FloatArray) -> _Link:
    """Return the link of the pairs ``A`` and ``B`` with the shrinkage that held-out pairs prefer."""
    best, chosen = -np.inf, None
    for shrinkage in _SHRINKAGE:
        link = _canonical(A, B, shrinkage)
        scores = link.scores(held_A, held_B)
        # The log-probability of the right partner; a share would be too coarse for few pairs.
        peak = scores.max(axis=1, keepdims=True)
        likely = float((np.diag(scores - peak) - np.log(np.exp(scores - peak).sum(axis=1))).mean())
        if chosen is None or likely > best:
            best, chosen = likely, link
    assert chosen is not None
    return chosen


def _canonical(A: FloatArray, B: FloatArray, shrinkage: float) -> _Link:
    """Return the canonical correlations of paired rows; ``shrinkage`` raises the variances of both sides."""
    means = A.mean(axis=0), B.mean(axis=0)
    a, b = A - means[0], B - means[1]
    whiteners = [_whitener(part.T @ part / len(part), shrinkage) for part in (a, b)]
    left, correlations, right = np.linalg.svd(whiteners[0].T @ (a.T @ b / len(a)) @ whiteners[1], full_matrices=False)
    first, second = whiteners[0] @ left, whiteners[1] @ right.T
    return _Link(*means, first, second, np.minimum(correlations, _MOST), shrinkage)


def _whitener(covariance: FloatArray, shrinkage: float) -> FloatArray:
    values, axes = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    floor = max(shrinkage * float(values.mean()), np.finfo(np.float64).tiny)
    whitener: FloatArray = axes / np.sqrt(values + floor)
    return whitener


def group_means(X: Embeddings, groups: npt.NDArray[Any]) -> tuple[Embeddings, npt.NDArray[Any]]:
    """Return the mean vector of each group, and the groups in order: a person by all of their texts."""
    checked = check_embeddings(X, owner="group_means", param="X", min_rows=1)
    names, index = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), checked.shape[1]))
    np.add.at(sums, index, checked)
    return (sums / np.bincount(index)[:, None]).astype(checked.dtype), names


RATE = 0.01
"""False-positive rate of the second figure."""
_ABSENT = 2000  # training texts, none of which is in the store
_BLOCK = 1024


class MembershipAttack(_ReleaseModelAttack):
    """The likelihood ratio of the row that a known text explains best, against any text.

    ``test.X`` are the rows of the store and ``test.pool`` the texts in question, of which ``test.truth`` names members.
    A text scores max over rows y of log p(y | text) − log p(y), with the Gaussian likelihood of `LikelihoodMatching`
    and a Gaussian of the releases of training texts, none of which is in the store. They also set the threshold of the
    rate.

    Estimates: ``auc`` (the main one) and ``tpr`` at 1 % false positives, which needs 100 non-members.
    """

    family = "membership"
    name = "membership"
    description = "Whether a known text is in the store: the likelihood ratio of the row that it explains best."
    cost = "seconds on one core; the encoder's vectors of the text and of others of the kind"
    source = "Own; Carlini et al. (2022), likelihood-ratio membership inference, with rows in the place of losses."

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        members = len(np.unique(test.truth))
        if test.options is not None or not 0 < members < len(test.pool):
            raise InvalidInputError(
                f"Give a pool of members and others, without options; {members} of {len(test.pool)} are members.",
                param="test",
            )

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
        # The rate's threshold comes from texts outside the store; the one member only satisfies the interface.
        given = np.append(unknown, unknown.max() + 1), np.append(np.zeros(len(unknown)), 1)
        if (rate := tpr_at_fpr(known, member, *given, false_positive_rate=RATE)) is not None:
            estimates["tpr"] = rate
        return AttackFinding(estimates, details={"penalty": state.penalty, "floor": state.floor})


def _log_likelihood(places: FloatArray, rows: FloatArray) -> FloatArray:
    """Return −d²/2 of every place (P) and row (M), (P, M)."""
    squares = np.einsum("pr,pr->p", places, places)[:, None] + np.einsum("mr,mr->m", rows, rows)
    result: FloatArray = places @ rows.T - squares / 2
    return np.minimum(result, 0.0)  # the expansion cancels
