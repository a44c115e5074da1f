"""What a source of members is told, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vecveil.concepts.folding import canonical, words
from vecveil.errors import InvalidInputError

__all__ = ["ExpansionContext", "MemberSource", "checked_members", "unit_vectors"]

LONGEST_MEMBER = 100
"""Characters; anything longer is a sentence and no member of a concept."""


@dataclass(frozen=True, eq=False, repr=False)
class ExpansionContext:
    """What a source may know. It holds terms: keep it in memory.

    Attributes:
        listed: the different terms that the concept finds in the texts, canonical, most frequent first.
        labels: for each of them the span label that it was found with.
        clusters: (T,) for each of them its group, from 0; all zeros without an encoder.
        centroids: (G, n) mean unit vector of each group, or None without an encoder.
        encoder: with ``encode(texts) -> (N, n)``, or None.
        seed: of the expansion; a source that draws derives its own generator from it.
        show_progress: None shows bars on a terminal only.
    """

    listed: tuple[str, ...]
    labels: tuple[str, ...]
    clusters: npt.NDArray[np.intp]
    centroids: npt.NDArray[np.float64] | None = None
    encoder: Any = None
    seed: int = 0
    show_progress: bool | None = None
    _known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        known = {term for term in self.listed} | {w for term in self.listed for w in words(term)}
        object.__setattr__(self, "_known", frozenset(known))

    def __repr__(self) -> str:
        groups = int(self.clusters.max(initial=-1)) + 1
        return f"ExpansionContext({len(self.listed)} terms, {groups} groups)"

    def is_listed(self, member: str) -> bool:
        """Return whether ``member`` is a listed term, or a word of one."""
        return canonical(member) in self._known

    def require_encoder(self, owner: str) -> Any:
        """Return the encoder.

        Raises:
            InvalidInputError: there is none.
        """
        if self.encoder is None or self.centroids is None:
            raise InvalidInputError.of(owner, "encoder", "given to expand", "None",
                                       "Nearness is measured in the encoder's space.")  # fmt: skip
        return self.encoder


@runtime_checkable
class MemberSource(Protocol):
    """Anything that proposes members of a concept."""

    name: str
    """How reports call it; it names no member."""

    def members(self, context: ExpansionContext) -> Mapping[str, Sequence[str]]:
        """Return members by group. A group weighs as much as any other, however many members it has.

        The group ``""`` is for members whose group is not known: `Concept.expand` puts each of them to the
        listed terms that it is nearest to.
        """
        ...


def checked_members(source: MemberSource, found: Any) -> dict[str, list[str]]:
    """Return what a source answered, without empty and overlong members; refuses another type."""
    owner = type(source).__name__
    if not isinstance(found, Mapping):
        raise InvalidInputError.of(
            owner, "members", "returning a mapping of groups to members", type(found).__name__
        )
    checked: dict[str, list[str]] = {}
    for i, (group, members) in enumerate(found.items()):
        plain = isinstance(members, Iterable) and not isinstance(members, str | bytes)
        if not isinstance(group, str) or not plain:
            got = f"{type(group).__name__} to {type(members).__name__} at position {i}"
            raise InvalidInputError.of(
                owner, "members", "returning strings mapped to sequences of strings", got
            )
        rows = list(members)
        wrong = next((m for m in rows if not isinstance(m, str)), None)
        if wrong is not None:
            got = f"{type(wrong).__name__} in group {i}"
            raise InvalidInputError.of(owner, "members", "returning strings", got)
        checked[group] = [
            " ".join(m.split()) for m in rows if len(m) <= LONGEST_MEMBER and words(canonical(m))
        ]
    return checked


def unit_vectors(encoder: Any, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the vectors of ``texts`` in float64, each of norm 1 (a zero vector stays zero)."""
    X = np.asarray(encoder.encode(list(texts)), dtype=np.float64)
    unit: npt.NDArray[np.float64] = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    return unit
