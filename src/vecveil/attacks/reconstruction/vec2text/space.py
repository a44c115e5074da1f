"""Where guesses meet targets: vectors of the attacker's own texts, brought into the released space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.reconstruction.base import EncodeTexts
from vecveil.errors import InvalidInputError
from vecveil.validation import check_embeddings

__all__ = ["RidgeMap", "Space", "encode_checked", "fit_ridge", "same_space"]

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_PENALTIES = tuple(10.0**e for e in range(-8, 4))  # shares of the mean eigenvalue
_SAME = 0.999  # mean cosine from which two sets of vectors are the same up to rounding
_BLANK = "."  # encoded in place of a text without a character, which some encoders refuse


@dataclass(frozen=True, eq=False)
class RidgeMap:
    """The map x -> (x - source) @ weights + target from clean to released vectors."""

    weights: FloatArray
    source: FloatArray
    target: FloatArray

    def __call__(self, X: Array) -> Array:
        """Return released vectors as predicted from clean ones, (N, m) float32."""
        found = (X.astype(np.float64) - self.source) @ self.weights + self.target
        return found.astype(np.float32)


def fit_ridge(X: Array, Y: Array, held_X: Array, held_Y: Array) -> RidgeMap:
    """Return the ridge regression of ``Y`` on ``X`` whose penalty has the least error on held-out rows."""
    source, target = X.mean(axis=0, dtype=np.float64), Y.mean(axis=0, dtype=np.float64)
    x, y = X - source, Y - target
    values, axes = np.linalg.eigh(x.T @ x)
    values, turned = np.maximum(values, 0.0), axes.T @ (x.T @ y)
    scale = max(float(values.mean()), np.finfo(np.float64).tiny)
    best: tuple[float, FloatArray] | None = None
    for share in _PENALTIES:
        weights = axes @ (turned / (values + share * scale)[:, None])
        error = float((((held_X - source) @ weights - (held_Y - target)) ** 2).sum())
        if best is None or error < best[0]:
            best = error, weights
    assert best is not None  # there are penalties
    return RidgeMap(best[1], source, target)


def same_space(X: Array, Y: Array) -> bool:
    """Return whether the rows of ``X`` and ``Y`` are the same vectors up to rounding."""
    if X.shape != Y.shape:
        return False
    norms = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
    products = (X.astype(np.float64) * Y).sum(axis=1)
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return bool(cosines.mean() > _SAME)


def encode_checked(
    encode: EncodeTexts, texts: Sequence[str], dimension: int | None = None
) -> Array:
    """Return the vectors of ``texts``, checked.

    Raises:
        InvalidInputError: no finite (N, n) array, or n is not ``dimension``.
    """
    owner = "Vec2TextAttack"
    given = [text if text.strip() else _BLANK for text in texts]
    found = check_embeddings(np.asarray(encode(given)), owner=owner, param="encode")
    wanted = (len(given), found.shape[1] if dimension is None else dimension)
    if found.shape != wanted:
        raise InvalidInputError.of(owner, "encode", f"a function that returns shape {wanted}",
                                   f"shape {found.shape}", "Guesses are compared with the training vectors.",
                                   "Give the encoder that made them.")  # fmt: skip
    return found


class Space:
    """Encodes texts, and brings their vectors to where the targets are.

    With a release oracle clean vectors are released ``draws`` times and averaged; without one they go through
    the ridge map, or stay as they are if the training vectors are the encoder's own.
    """

    def __init__(
        self,
        encode: EncodeTexts,
        knowledge: Knowledge,
        ridge: RidgeMap | None,
        draws: int,
        clean: int,
    ) -> None:
        """Keep what is needed; ``clean`` is the dimension of the encoder's vectors."""
        self.encode, self.knowledge, self.ridge = encode, knowledge, ridge
        self.draws, self.dimension = draws, clean

    def clean(self, texts: Sequence[str]) -> Array:
        """Return the clean vectors of ``texts``."""
        return encode_checked(self.encode, texts, self.dimension)

    def release(self, clean: Array, rng: np.random.Generator) -> Array:
        """Return clean vectors as they would have been released, (N, m)."""
        if self.knowledge.adaptive:
            drawn = [self.knowledge.draw(clean, rng) for _ in range(self.draws)]
            total: FloatArray = np.sum(drawn, axis=0, dtype=np.float64)
            return (total / self.draws).astype(np.float32)
        return clean if self.ridge is None else self.ridge(clean)
