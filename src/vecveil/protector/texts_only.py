"""The place of the noise in a protector that rewrites texts: it takes no vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from vecveil.accounting import Guarantee, rewriting_guarantee
from vecveil.errors import InvalidInputError, message
from vecveil.mechanisms import Mechanism
from vecveil.mechanisms.base import Arrays, certain_advantage, euclidean_distances
from vecveil.randomness import WordStream
from vecveil.types import Embeddings, Matrix, Vector

if TYPE_CHECKING:
    from vecveil.concepts.rewriting import Rewriter

__all__ = ["TextsOnly", "refuse_repetition", "released_rows", "rewriter_from_record"]

WORDS = {
    "redact": (
        "asterisks",
        "lengths",
        ("That the text holds the concept, where, and how many characters long.",),
    ),
    "replace-random": (
        "random words of other texts",
        "numbers of words",
        ("That words were replaced, where and how many: they fit the sentence badly.",),
    ),
    "replace-semantic": (
        "a member of the same type, drawn at random",
        "types and repetitions",
        (
            "That the text holds the concept, where, and of which type.",
            "The members themselves, where they are those of your texts: they now stand in other texts.",
        ),
    ),
}
"""What takes the concept's place, of what alone that depends, and what is not hidden."""


@dataclass(frozen=True, eq=False, repr=False)
class TextsOnly(Mechanism):
    """Refuses every vector: the concept is taken out of texts, and a vector that is there already holds it.

    Attributes:
        size: n.
        kind: the name of the text-level method.
    """

    size: int
    kind: str = "redact"

    name: ClassVar[str] = "texts-only"
    is_random: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"TextsOnly(n={self.size})"

    @property
    def dimension(self) -> int:
        """Return n."""
        return self.size

    @property
    def step(self) -> float:
        """Return 0: nothing is rounded."""
        return 0.0

    def refusal(self) -> InvalidInputError:
        """Return the error for vectors."""
        return InvalidInputError(
            message("Protector.protect", "X", "left to methods that protect vectors",
                    f"vectors for method {self.kind!r}",
                    "It rewrites texts before they are encoded, and vectors hold the concept already.",
                    "Call encode or rewrite with texts.")
        )  # fmt: skip

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        raise self.refusal()

    def without_noise(self, X: Embeddings) -> Embeddings:
        """Refuse."""
        raise self.refusal()

    def check_rows(self, X: Embeddings) -> None:
        """Refuse."""
        raise self.refusal()

    def noise_covariance(self) -> Matrix:
        """Return zeros: there is no noise."""
        return np.zeros((self.size, self.size))

    def distances(
        self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None
    ) -> Vector:
        """Return the Euclidean distance of each pair of rows."""
        return euclidean_distances(first, second)

    def advantage(self, distances: Vector) -> Vector:
        """Return 1 for every two inputs that differ: nothing is random."""
        return certain_advantage(distances)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        """Return that nothing is proved."""
        what, same, shows = WORDS[self.kind]
        return rewriting_guarantee(dimension=self.size, what=what, same=same, shows=shows)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return nothing: the rewriter is stored beside."""
        return {}

    def parameters(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        """Return the mechanism of a protector file; its kind is the rewriter's."""
        return cls(dimension)


def refuse_repetition(**given: object) -> None:
    """Refuse what goes with noise: the same text is always rewritten the same."""
    for param, value in given.items():
        if value is not None and value is not True:
            raise InvalidInputError(
                message("Protector.encode", param, "left out for a method that rewrites texts", "a value",
                        "There is no noise: the same text always gives the same vector, and repetition adds nothing.")
            )  # fmt: skip


def rewriter_from_record(record: Mapping[str, Any]) -> Rewriter:
    """Return the rewriter of a protector file; raises ValueError, LookupError or TypeError for a wrong record."""
    from vecveil.concepts.concept import concept_from_record
    from vecveil.concepts.rewriting import Redacting, ReplacingAtRandom, ReplacingByMembers

    concept, seed, kind = concept_from_record(record["concept"]), record["seed"], record["kind"]
    if type(seed) is not int or seed < 0:
        raise ValueError("seed")
    if kind == Redacting.kind:
        return Redacting(concept, seed)
    if kind == ReplacingAtRandom.kind:
        words = _strings(record["words"])
        if not words:
            raise ValueError("words")
        return ReplacingAtRandom(concept, seed, words)
    if kind == ReplacingByMembers.kind:
        members = {str(label): _strings(own) for label, own in record["members"].items()}
        return ReplacingByMembers(concept, seed, members)
    raise ValueError("kind")


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TypeError("words")
    return tuple(value)


def released_rows(
    clean: Embeddings, released: Embeddings, *, owner: str
) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
    """Return the release that a utility task asks for: the released row of each clean one; None as generator is clean.

    Args:
        clean, released: (N, n) row i of each from one text.
    """
    place = {np.asarray(row, dtype=np.float32).tobytes(): i for i, row in enumerate(clean)}

    def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
        if rng is None:
            return X
        try:
            rows = [place[np.asarray(row, dtype=np.float32).tobytes()] for row in X]
        except KeyError:
            raise InvalidInputError(
                message(owner, "tasks", "on these texts alone for a method that rewrites texts", "one of other texts",
                        "A task has vectors, and what they were encoded from cannot be rewritten.")
            ) from None  # fmt: skip
        return np.ascontiguousarray(released[rows])

    return release
