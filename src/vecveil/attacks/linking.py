"""Linking: find the row of another store, or of a public list, that belongs to the same text or person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.optimize is slow

from vecveil.attacks.attack import Attack, AttackFinding, Session
from vecveil.attacks.evidence import CandidateVectors, Knowledge, PairedVectors
from vecveil.errors import InvalidInputError
from vecveil.metrics.estimates import share_estimate
from vecveil.metrics.leakage import auc, candidate_matching
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

FloatArray = npt.NDArray[np.float64]

_SHRINKAGE = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)  # shares of the mean variance added to the variances
_MOST = 1 - 1e-9  # correlation; an exact copy would get an infinite score
_DRAWS = 8  # releases of each training text
_LEAST = 4


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
        """Return log p(a, b | same) − log p(a) p(b) for every row of ``A`` and of ``B``, without its constant."""
        a = (A.astype(np.float64) - self.first_mean) @ self.first
        b = (B.astype(np.float64) - self.second_mean) @ self.second
        r = self.correlations
        weight, loss = r / (1 - r**2), r**2 / (1 - r**2) / 2
        result: FloatArray = (a * weight) @ b.T - (a**2 @ loss)[:, None] - b**2 @ loss
        return result


class LinkingAttack(Attack[PairedVectors, CandidateVectors]):
    """The likelihood ratio of two released vectors under "same text" and "two texts".

    ``test.X`` are rows of one store and ``test.pool`` rows of another, protected with other noise, by another key or
    by another protector, or clean vectors of a public list. Both are taken as jointly Gaussian: canonical
    correlations of training pairs give the directions in which rows of one text agree, and the likelihood ratio weighs
    them. Training pairs are ``train.X`` and ``train.clean`` (a row of either store for each text). With a
    release oracle ``train`` holds clean vectors, and the attack releases both sides itself, as two independent draws.

    Estimates: ``top_1`` (the main one) and ``mrr`` of each row's partner in the pool, ``one_to_one`` (the same share
    where no two rows may share a partner), and ``same`` (AUC of partners against other pairs).
    """

    family = "candidates"
    name = "linking"
    description = "Rows of two stores that belong to one text, by the likelihood ratio of canonical correlations."
    cost = "seconds on one core; texts of the kind, or known pairs"
    source = "Own; Hotelling (1936), canonical correlations; Fellegi and Sunter (1969), record linkage."
    state_type = _Link

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        if len(train) < _LEAST:
            raise InvalidInputError(f"Give at least {_LEAST} known pairs; train has {len(train)}.", param="train")
        if test.options is not None:
            raise InvalidInputError("Linking compares with the whole pool: leave options out of test.", param="test")
        size = test.dimension if knowledge.adaptive else train.clean.shape[1]
        if test.pool.shape[1] != size:
            raise InvalidInputError(
                f"The pool of test has dimension {test.pool.shape[1]}, not {size}.", code="E-INPUT-SHAPE", param="test"
            )

    def _pairs(self, evidence: PairedVectors, session: Session) -> tuple[FloatArray, FloatArray]:
        if not session.knowledge.adaptive:
            return evidence.X.astype(np.float64), evidence.clean.astype(np.float64)
        draws = [session.draw(evidence.X).astype(np.float64) for _ in range(_DRAWS)]
        # Each draw with the next one, the last with the first: independent noise on the two sides.
        return np.concatenate(draws), np.concatenate([*draws[1:], draws[0]])

    def _fit(self, train: PairedVectors, validation: PairedVectors, session: Session) -> _Link:
        A, B = self._pairs(train, session)
        held_A, held_B = (part[: len(validation)] for part in self._pairs(validation, session))
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

    def _judge(self, state: _Link, train: PairedVectors, test: CandidateVectors, session: Session) -> AttackFinding:
        rng = session.rng
        scores = state.scores(test.X, test.pool)
        seed = int(rng.integers(2**31))
        matching = candidate_matching(scores, test.truth, test.groups, seed=seed)
        # A random order of the pool: an assignment must not find partners by their place.
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

    def _details(self, state: _Link) -> Mapping[str, Any]:
        return {"shrinkage": state.shrinkage, "directions": len(state.correlations)}


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
