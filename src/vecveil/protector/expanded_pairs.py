"""The texts of a fit together with those of an expansion of its concept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vecveil.errors import IncompatibleError
from vecveil.sensitivity.predictability import near_duplicate_groups
from vecveil.types import Embeddings, Groups, TokenLabels

if TYPE_CHECKING:
    from vecveil.concepts import TokenVocabulary
    from vecveil.concepts.expansion import Expansion

__all__ = ["ExpandedPairs", "check_expansion", "with_expansion"]

MEMBER_COUNT = 3
"""A member is a label of its own if so many texts hold it."""


@dataclass(frozen=True, eq=False, repr=False)
class ExpandedPairs:
    """Pairs of a fit, own ones first. It holds texts: keep it in memory.

    Attributes:
        positive, negative: texts with and without the concept.
        ordinary: texts without it.
        labels: (N, V) which words of the concept each positive holds.
        originals: for each pair the user's text that it was made of.
    """

    positive: list[str]
    negative: list[str]
    ordinary: list[str]
    labels: TokenLabels
    originals: list[str]

    def groups(self, X: Embeddings) -> Groups:
        """Return ids of pairs that belong together: near-duplicates, and what was made of one text.

        Args:
            X: (N, n) embeddings of ``positive``.
        """
        natural = [i for i, text in enumerate(self.positive) if text == self.originals[i]]
        near = near_duplicate_groups(X[natural])
        known = {self.positive[i]: int(group) for i, group in zip(natural, near, strict=True)}
        for text in self.originals:
            known.setdefault(text, len(natural) + len(known))
        return np.array([known[text] for text in self.originals], dtype=np.intp)


def check_expansion(expansion: Expansion, concept: str) -> None:
    """Raise IncompatibleError if the expansion is one of another concept."""
    if expansion.concept != concept:
        raise IncompatibleError.of(
            "fit", "expansion", f"of the concept {concept!r}", repr(expansion.concept)
        )


def with_expansion(
    positive: Sequence[str],
    negative: Sequence[str],
    ordinary: Sequence[str],
    tokens: Sequence[tuple[str, ...]],
    listed: TokenVocabulary,
    expansion: Expansion,
) -> ExpandedPairs:
    """Return own pairs and those of the expansion.

    An own text that the expansion found a member in stands there alone, with the member removed as well.

    Args:
        tokens: of each own positive, the words of the concept.
        listed: those of them that are labels.
    """
    found = {row.text for row in expansion.rows if row.text == row.original}
    own = [i for i, text in enumerate(positive) if text not in found]
    everything = [*(tokens[i] for i in own), *(row.tokens for row in expansion.rows)]
    counts = Counter(word for row in expansion.rows for word in row.tokens)
    columns = {word: j for j, word in enumerate(listed.tokens)}
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        if counts[word] >= MEMBER_COUNT:
            columns.setdefault(word, len(columns))
    labels = np.zeros((len(everything), len(columns)), dtype=np.uint8)
    for i, row in enumerate(everything):
        for word in row:
            if word in columns:
                labels[i, columns[word]] = 1
    return ExpandedPairs(
        positive=[*(positive[i] for i in own), *expansion.texts],
        negative=[*(negative[i] for i in own), *expansion.negatives],
        ordinary=[text for text in ordinary if text not in found],
        labels=labels,
        originals=[*(positive[i] for i in own), *(row.original for row in expansion.rows)],
    )
