"""Candidate matching: rank known texts by how well each explains a released vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Attack, AttackFinding, Session
from vecveil.attacks.evidence import CandidateVectors, Knowledge, PairedVectors
from vecveil.attacks.release_model import ReleaseModel, fit_release_model
from vecveil.errors import InvalidInputError
from vecveil.metrics.leakage import candidate_matching, candidate_matching_of_ranks, subjects_found
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]

_CELLS = 2**23  # distances (or coordinates of options) held at once: 64 MiB
_TIE = 1e-12  # share of the squared lengths below which two squared distances are equal


class CandidateAttack(Attack[PairedVectors, CandidateVectors]):
    """A matching attack: the candidates are ranked by their distance to the released vector.

    Subclasses implement `_places`, the positions of candidates and released vectors, and may implement `_misfit`, a
    function of the distance. Estimates: ``top_1`` (the main one; its metric names the number, ``top-1 of 10``) and
    ``mrr``; where the whole pool is matched and subjects are known, ``subjects`` too. The candidates are each vector's
    ``options``, or the whole pool.
    """

    family = "candidates"

    @abstractmethod
    def _places(self, state: Any, test: CandidateVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        """Return the released vectors, (M, r), and the pool, (P, r), in a space with Euclidean distances."""

    def _misfit(self, state: Any, squares: FloatArray) -> FloatArray:
        """Return the misfit of candidates at these squared distances; the least ranks first.

        It may change by δ at most if a square changes by δ, or ties are missed.
        """
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


class _ExpectedReleaseMatching(CandidateAttack):
    """Candidates ranked by the distance of the released vector to their expected release, E[y | x]."""

    state_type = ReleaseModel

    def __init__(self, *, draws: int = 16) -> None:
        """Keep the oracle draws per text: more sharpen the expected releases and take longer."""
        self.draws = check_count(draws, owner=type(self).__name__, param="draws", minimum=2)

    @abstractmethod
    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        """Return released vectors, or expected ones, in the space of Euclidean distances, (N, r)."""

    @final
    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> ReleaseModel:
        knowledge, rng = session.knowledge, session.rng
        return fit_release_model(train, validation, knowledge, rng, draws=self.draws)

    @final
    def _places(self, state: ReleaseModel, test: CandidateVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        expected = state.expected(test.pool, session.knowledge, session.rng)
        return self._embed(state, test.X.astype(np.float64)), self._embed(state, expected)

    @final
    def _details(self, state: ReleaseModel) -> Mapping[str, Any]:
        expectation = f"mean of {state.draws} draws" if state.draws else "affine map"
        return {"expectation": expectation, "penalty": state.penalty, "floor": state.floor}


class CosineMatching(_ExpectedReleaseMatching):
    """Candidates ranked by the cosine between their expected release and the released vector.

    It needs no noise covariance: an attacker with a vector database does this. Behind noise that differs
    from direction to direction the likelihood finds more.
    """

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

    For Gaussian noise that is the likelihood's order, and for every noise whose density falls with the
    Mahalanobis norm, the elliptical Laplace of `laplace`, `sparse` and `covariance` among them: with a
    uniform prior over candidates no other rule is right more often. S is the declared covariance, or that of
    repeated releases, in the directions in which releases vary.
    """

    name = "matching-likelihood"
    description = "Candidates ranked by the likelihood of the vector: Mahalanobis distance to their expected release."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Maximum likelihood; the distinguishing adversary of differential privacy with more than two inputs."

    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        return model.whiten(Y)


@dataclass(frozen=True)
class _FixedNorm:
    """Median of ‖y − x‖, and the distance of its quartiles as a share of it; 0 where the median is 0."""

    norm: float
    spread: float


class FixedNormMatching(CandidateAttack):
    """Candidates ranked by |‖y − x‖² − r²|, the least first; r is the median of ‖y − x‖ on training texts.

    A method that moves every vector by exactly r thereby reveals which vector it has moved: the true
    candidate is at r from the release to the last bits, any other almost never is, however large r. No mean is
    subtracted from y − x: it may depend on x, but the length does not. Where the norm is random, r says little
    and the likelihood says more.
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
    # Without an oracle `X` holds releases of the clean vectors.
    released = session.draw(pairs.clean) if session.knowledge.adaptive else pairs.X
    difference = released.astype(np.float64) - pairs.clean.astype(np.float64)
    norms: FloatArray = np.linalg.norm(difference, axis=1)
    return norms
