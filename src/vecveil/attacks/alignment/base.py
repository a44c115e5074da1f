"""Known plaintext: with a few released vectors whose clean ones are known, which text is each of the rest?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.alignment.maps import AffineMap, cosines, reached
from vecveil.attacks.base import Attack, Finding, Session
from vecveil.attacks.evidence import CandidateVectors, PairedVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.errors import InvalidInputError
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.matching import candidate_matching_of_ranks
from vecveil.metrics.reconstruction import embedding_cosine
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["PAIRS", "AlignmentAttack", "Alignments"]

FloatArray = npt.NDArray[np.float64]

PAIRS = (10, 50, 200, 1000)
_LEAST = 3
_BLOCK = 20_000_000  # scores held at once: 160 MB


@dataclass(frozen=True, eq=False)
class Alignments:
    """The maps learnt from each number of pairs, in rising order: K of them, stacked.

    Attributes:
        counts: K numbers of pairs.
        weights: (K, m, n).
        source: (K, m).
        target: (K, n).
        choices: What was chosen for each.
    """

    counts: tuple[int, ...]
    weights: FloatArray
    source: FloatArray
    target: FloatArray
    choices: tuple[str, ...]

    @classmethod
    def of(cls, counts: Sequence[int], found: Sequence[AffineMap]) -> Alignments:
        """Return the stack of ``found``."""
        return cls(
            tuple(counts),
            np.stack([one.weights for one in found]),
            np.stack([one.source for one in found]),
            np.stack([one.target for one in found]),
            tuple(one.choice for one in found),
        )

    def map(self, index: int) -> AffineMap:
        """Return one of the maps; -1 is the one of the most pairs."""
        return AffineMap(
            self.weights[index],
            self.source[index],
            self.target[index],
            self.choices[index],
            reached(self.weights[index]),
        )


class AlignmentAttack(Attack[PairedVectors, CandidateVectors]):
    """Learns the map back from known pairs and matches every released vector with the pool.

    What the attacker lacks is a key: it holds released vectors whose clean ones it knows, and a stolen
    store. With a release oracle it makes its pairs itself, one release of each vector.

    Its estimates: ``top_1`` with the most pairs (the main one), ``mrr`` and ``cosine`` with the same,
    and ``top_1_of_10`` and so on with fewer. ``cosine`` is the mean cosine of recovered and true clean
    vectors. Equal scores are put into random order.
    """

    family = "alignment"
    state_type = Alignments
    learns_from: ClassVar[str] = "pairs"

    def __init__(self, *, pairs: Sequence[int] = PAIRS) -> None:
        """Keep the numbers of known pairs to try; more of them in the largest is a stronger attack."""
        owner = type(self).__name__
        given = [check_count(p, owner=owner, param="pairs", minimum=_LEAST) for p in pairs]
        if not given:
            raise InvalidInputError.of(owner, "pairs", "at least one number", "none")
        self.pairs = tuple(sorted(set(given)))

    @abstractmethod
    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        """Return the map from released rows ``Y`` (k, m) to ``clean`` (k, n), row i with row i."""

    def _counts(self, rows: int) -> tuple[int, ...]:
        """Return how many pairs to learn from, rising; the largest is all there are, up to the setting."""
        most = min(rows, self.pairs[-1])
        return (*(p for p in self.pairs if p < most), most)

    def recover(self, state: Alignments, Y: Embeddings) -> FloatArray:
        """Return the clean vectors that the map of the most pairs gives for released ``Y``, (N, n)."""
        last = AffineMap(state.weights[-1], state.source[-1], state.target[-1])
        return last(Y)

    @final
    def learn(
        self,
        known: PairedVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Alignments:
        """Return the maps learnt from ``known``, for those who want the recovered vectors themselves."""
        Y = knowledge.draw(known.X, rng).astype(np.float64)
        clean = known.clean.astype(np.float64)
        order = rng.permutation(len(known))
        counts = self._counts(len(known))
        found = [self._align(Y[order[:k]], clean[order[:k]], rng) for k in counts]
        return Alignments.of(counts, found)

    @final
    def _fit(
        self,
        train: PairedVectors,
        validation: PairedVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> Alignments:
        # The number of known pairs is the measure of this attack, so none is set aside: what there is to
        # choose is chosen by leaving out some of the k pairs at hand.
        known = PairedVectors(
            np.concatenate([train.X, validation.X]),
            np.concatenate([train.clean, validation.clean]),
        )
        return self.learn(known, knowledge, session.rng)

    @final
    def _judge(
        self,
        state: Alignments,
        train: PairedVectors,
        test: CandidateVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        seed = int(rng.integers(2**31))
        choices = len(test.pool) if test.options is None else test.options.shape[1]
        fewer: dict[str, Estimate] = {}
        for index, count in enumerate(state.counts):
            ranks = _ranks(state.map(index), test, rng)
            found = candidate_matching_of_ranks(ranks, choices, test.groups, seed=seed)
            if index < len(state.counts) - 1:
                top = found["top-1 accuracy"]
                fewer[f"top_1_of_{count}"] = _named(top, f"top-1 with {count} {self.learns_from}")
        true = test.pool[_true_rows(test)]
        recovered = self.recover(state, test.X)
        estimates = {
            "top_1": _named(
                found["top-1 accuracy"], f"top-1 with {state.counts[-1]} {self.learns_from}"
            ),
            "mrr": found["MRR"],
            "cosine": embedding_cosine(true.astype(np.float64), recovered, test.groups, seed=seed),
            **fewer,
        }
        details = {self.learns_from: state.counts[-1], "candidates": choices}
        for count, choice in zip(state.counts, state.choices, strict=True):
            if choice:
                details[f"chosen_of_{count}"] = choice
        return Finding(estimates, details=details)

    @final
    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        owner = type(self).__name__
        if train.clean is None:
            raise InvalidInputError.of(
                owner, "train", "pairs with clean vectors", "released vectors alone"
            )
        if train.clean.shape[1] != test.pool.shape[1]:
            raise InvalidInputError.of(owner, "test", f"with a pool of dimension {train.clean.shape[1]}",
                                       f"dimension {test.pool.shape[1]}",
                                       "Known and candidate clean vectors are of one encoder.")  # fmt: skip
        if len(train) < _LEAST:
            raise InvalidInputError.of(owner, "train", f"at least {_LEAST} pairs", f"{len(train)}")


def _named(estimate: Estimate, metric: str) -> Estimate:
    return Estimate(
        metric, estimate.value, estimate.low, estimate.high, estimate.n, estimate.chance
    )


def _true_rows(test: CandidateVectors) -> npt.NDArray[np.intp]:
    if test.options is None:
        return test.truth
    rows: npt.NDArray[np.intp] = test.options[np.arange(len(test)), test.truth]
    return rows


def _ranks(
    found: AffineMap, test: CandidateVectors, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return the rank of each right candidate, from 1; equal scores come in random order."""
    recovered, pool = found.views(test.X, test.pool)
    true = _true_rows(test)
    above, tied = np.empty(len(test), dtype=np.int64), np.empty(len(test), dtype=np.int64)
    step = max(1, _BLOCK // len(pool))
    for start in range(0, len(test), step):
        rows = slice(start, start + step)
        scores = cosines(recovered[rows], pool)
        right = scores[np.arange(len(scores)), true[rows]][:, None]
        if test.options is not None:
            scores = np.take_along_axis(scores, test.options[rows], axis=1)
        above[rows] = (scores > right).sum(axis=1)
        tied[rows] = (scores == right).sum(axis=1)
    ranks: npt.NDArray[np.int64] = above + 1 + rng.integers(0, tied)
    return ranks
