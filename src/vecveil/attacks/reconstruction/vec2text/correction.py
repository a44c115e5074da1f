"""Iterative correction: encode guesses, compare their vectors with the target, keep the best of each round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.evidence import Knowledge
from vecveil.attacks.reconstruction.base import EncodeTexts
from vecveil.attacks.release_model import Denoiser, ridge_path
from vecveil.errors import InvalidInputError
from vecveil.runtime import progress
from vecveil.validation import check_embeddings

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

Propose = Callable[[Array, Sequence[str], Array], list[list[str]]]
"""``propose(targets, texts, vectors)``: better texts for each text, given its own and the target's vector."""

Place = Callable[[Sequence[str]], Array]
"""Returns the vectors of texts in the space of the targets."""

_PENALTIES = tuple(10.0**e for e in range(-8, 4))  # shares of the largest eigenvalue
_SAME = 0.999  # mean cosine from which two sets of vectors are the same up to rounding
_BLANK = "."  # replaces a blank text, which some encoders refuse


def fit_ridge(X: Array, Y: Array, held_X: Array, held_Y: Array) -> Denoiser:
    """Return the ridge regression of ``Y`` on ``X`` whose penalty has the least error on held-out rows."""
    source, target = X.mean(axis=0, dtype=np.float64), Y.mean(axis=0, dtype=np.float64)
    maps = [
        Denoiser(source, weights, target, penalty)
        for penalty, weights in ridge_path(X - source, Y - target, _PENALTIES)
    ]
    exact = held_X.astype(np.float64)
    return min(maps, key=lambda predict: float(((predict(exact) - held_Y) ** 2).sum()))


def same_space(X: Array, Y: Array) -> bool:
    """Return whether the rows of ``X`` and ``Y`` are the same vectors up to rounding."""
    if X.shape != Y.shape:
        return False
    norms = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    products = (X.astype(np.float64) * Y).sum(axis=1)
    return bool(_over(products, norms).mean() > _SAME)


def _over(products: FloatArray, norms: Array) -> FloatArray:
    cosines: FloatArray = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return cosines


def encode_checked(encode: EncodeTexts, texts: Sequence[str], dimension: int | None = None) -> Array:
    """Return the vectors of ``texts``; raise `InvalidInputError` unless they are finite and of ``dimension``."""
    owner = "Vec2TextAttack"
    given = [text if text.strip() else _BLANK for text in texts]
    vectors = check_embeddings(np.asarray(encode(given)), owner=owner, param="encode")
    expected = (len(given), vectors.shape[1] if dimension is None else dimension)
    if vectors.shape != expected:
        raise InvalidInputError(
            f"encode returned shape {vectors.shape} for {len(given)} texts, not {expected}: give the encoder of the "
            "training vectors.",
            code="E-INPUT-SHAPE",
            param="encode",
        )
    return vectors


@dataclass(frozen=True, eq=False)
class Space:
    """Encodes texts, and maps their vectors to the space of the targets.

    With a release oracle clean vectors are released ``draws`` times and averaged; without one they pass
    the ridge map, or stay unchanged if the training vectors are the encoder's own.
    """

    encode: EncodeTexts
    knowledge: Knowledge
    ridge: Denoiser | None
    draws: int
    dimension: int  # of the encoder's vectors

    def clean(self, texts: Sequence[str]) -> Array:
        """Return the clean vectors of ``texts``."""
        return encode_checked(self.encode, texts, self.dimension)

    def release(self, clean: Array, rng: np.random.Generator) -> Array:
        """Return clean vectors as they would have been released, (N, m)."""
        if self.knowledge.adaptive:
            drawn = [self.knowledge.draw(clean, rng) for _ in range(self.draws)]
            total: FloatArray = np.sum(drawn, axis=0, dtype=np.float64)
            return (total / self.draws).astype(np.float32)
        return clean if self.ridge is None else self.ridge(clean).astype(np.float32, copy=False)


@dataclass(eq=False)
class _Pool:
    """The best texts for one target so far, with their scores, best first."""

    scores: dict[str, float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)


def correct(
    targets: Array, first: Sequence[Sequence[str]], propose: Propose, place: Place, *, rounds: int, beam: int
) -> tuple[list[str], int]:
    """Return for each target the text whose vector has the highest cosine with it, and the rounds made.

    Formula: Morris et al. 2023, section 3 and its sequence beam. Each round corrects every kept text that has not
    been corrected yet, encodes the results, and keeps the ``beam`` best of old and new. Rounds end when no better
    text appears. The first guesses remain candidates, so no target gets a text further from it than its first guess.

    ``targets`` are (N, m); ``first`` holds the first guesses of each target, at least one.
    """
    pools = [_Pool() for _ in targets]
    vectors: dict[str, Array] = {}
    _add(targets, pools, first, vectors, place, beam)
    # `progress` without a bar: a loop that other threads can stop.
    for done in progress(range(rounds), "correction", show=False):
        pending = [(i, t) for i, p in enumerate(pools) for t in p.scores if t not in p.corrected]
        if not pending:
            return _best(pools), done
        for i, text in pending:
            pools[i].corrected.add(text)
        rows = np.array([i for i, _ in pending])
        texts = [text for _, text in pending]
        proposed = propose(targets[rows], texts, np.stack([vectors[text] for text in texts]))
        new: list[list[str]] = [[] for _ in pools]  # a target may have several pending texts
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
    fresh = [[t for t in dict.fromkeys(some) if t not in p.seen] for p, some in zip(pools, new, strict=True)]
    unknown = [t for t in dict.fromkeys(t for some in fresh for t in some) if t not in vectors]
    if unknown:
        vectors.update(zip(unknown, place(unknown), strict=True))
    for target, pool, some in zip(targets, pools, fresh, strict=True):
        pool.seen.update(some)
        if some:
            cosines = _cosines(target, np.stack([vectors[t] for t in some]))
            pool.scores.update(zip(some, cosines, strict=True))
            # A stable sort: of two texts with equal scores the earlier stays.
            ranked = sorted(pool.scores.items(), key=lambda item: -item[1])
            pool.scores = dict(ranked[:beam])
    # Only kept texts are corrected, so only their vectors are needed.
    kept = {text for pool in pools for text in pool.scores}
    for text in [text for text in vectors if text not in kept]:
        del vectors[text]


def _cosines(target: Array, vectors: Array) -> list[float]:
    target, vectors = target.astype(np.float64), vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(target)
    return [float(cosine) for cosine in _over(vectors @ target, norms)]
