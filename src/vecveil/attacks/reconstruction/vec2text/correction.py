"""Iterative correction with a sequence beam: the texts whose own vectors come closest are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.runtime import progress

__all__ = ["Propose", "correct"]

Array = npt.NDArray[Any]

Propose = Callable[[Array, Sequence[str], Array], list[list[str]]]
"""``propose(targets, texts, vectors)``: better texts for each text, given its own and the target's vector."""

Place = Callable[[Sequence[str]], Array]
"""Vectors of texts in the space of the targets."""


@dataclass(eq=False)
class _Pool:
    """The best texts for one target so far, with their scores."""

    scores: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)

    def unasked(self) -> list[str]:
        return [text for text in self.scores if text not in self.asked]

    def keep(self, beam: int) -> None:
        # Stable: of two texts with one score the earlier stays.
        ranked = sorted(self.scores.items(), key=lambda item: -item[1])
        self.scores = dict(ranked[:beam])


def correct(
    targets: Array,
    first: Sequence[Sequence[str]],
    propose: Propose,
    place: Place,
    *,
    rounds: int,
    beam: int,
) -> tuple[list[str], int]:
    """Return for each target the text whose vector has the highest cosine with it, and the rounds made.

    Formula: Morris et al. 2023, section 3 and its sequence beam. In each round every kept text that has not
    been corrected yet is; what comes out is encoded, and the ``beam`` best of old and new are kept. A round in
    which nothing better appears is the last. The first guesses stay in the running, so that no target gets a
    text further from it than its first guess.

    Args:
        targets: (N, m).
        first: For each target its first guesses, at least one.
        propose: The corrector.
        place: The encoder, and what releases its vectors. A text is placed once.
        rounds: Rounds at most.
        beam: Texts that are kept for each target.
    """
    pools = [_Pool() for _ in targets]
    vectors: dict[str, Array] = {}
    _add(targets, pools, first, vectors, place, beam)
    for done in progress(range(rounds), "correction", show=False):  # heeds what stops a thread
        asks = [(i, text) for i, pool in enumerate(pools) for text in pool.unasked()]
        if not asks:
            return _best(pools), done
        for i, text in asks:
            pools[i].asked.add(text)
        rows = np.array([i for i, _ in asks])
        texts = [text for _, text in asks]
        proposed = propose(targets[rows], texts, np.stack([vectors[text] for text in texts]))
        new: list[list[str]] = [[] for _ in pools]
        for i, some in zip(rows, proposed, strict=True):
            new[i] += some
        _add(targets, pools, new, vectors, place, beam)
    return _best(pools), rounds


def _best(pools: Sequence[_Pool]) -> list[str]:
    return [next(iter(pool.scores)) for pool in pools]


def _add(
    targets: Array,
    pools: Sequence[_Pool],
    new: Sequence[Sequence[str]],
    vectors: dict[str, Array],
    place: Place,
    beam: int,
) -> None:
    """Score the new texts of each target and keep the best."""
    fresh = [
        [t for t in dict.fromkeys(some) if t not in p.seen]
        for p, some in zip(pools, new, strict=True)
    ]
    unknown = [t for t in dict.fromkeys(t for some in fresh for t in some) if t not in vectors]
    if unknown:
        vectors.update(zip(unknown, place(unknown), strict=True))
    for target, pool, some in zip(targets, pools, fresh, strict=True):
        pool.seen.update(some)
        if some:
            pool.scores.update(
                zip(some, _cosines(target, np.stack([vectors[t] for t in some])), strict=True)
            )
            pool.keep(beam)
    kept = {text for pool in pools for text in pool.scores}
    for text in [text for text in vectors if text not in kept]:
        del vectors[text]


def _cosines(target: Array, vectors: Array) -> list[float]:
    target, vectors = target.astype(np.float64), vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(target)
    products = vectors @ target
    return [
        float(c) for c in np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    ]
