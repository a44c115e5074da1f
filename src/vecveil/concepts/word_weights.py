"""The words of a fit's texts, and how far each counts as a word of the concept.

A list is never complete, and annotated spans leave most mentions of a word unmarked. So a fit marks the listed words
wherever they stand, and every other frequent word with a weight: the probability that it belongs to the concept,
judged by its own embedding. Words near the concept are erased with the listed ones, though less.
In scripts without spaces a run of characters is one word, so only the token labels mark the terms inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vecveil.concepts.folding import canonical, words

__all__ = ["LISTED_TEXTS", "WordMarks", "mark_words"]

LISTED_TEXTS, OTHER_TEXTS = 3, 5
"""Fewest texts that hold a listed word, and another word, for it to be marked."""
MOST_WORDS = 10_000
"""Most other words, the most frequent ones; each costs one encoding."""
FEWEST_LISTED = 20
"""Fewest listed words from which the weights of others are estimated."""
RELATED = 0.5
"""Total weight of the other words, as a share of that of the listed ones. More hides more of the words that no list
holds, and less of the listed ones."""
RIDGE = 1.0

Encode = Callable[[list[str]], Any]


@dataclass(frozen=True, eq=False, repr=False)
class WordMarks:
    """Marks of words in texts, without the words themselves.

    Attributes:
        marks: (N, V) sparse 0/1, the words in each text.
        listed: (V,) True for a word of the concept's list.
        vectors: (V, n) embeddings of the words, or None with too few listed words to judge others by.
        labels: (L,) the word of each token label of the fit, -1 for a word without marks.
    """

    marks: Any
    listed: npt.NDArray[np.bool_]
    vectors: npt.NDArray[np.float64] | None
    labels: npt.NDArray[np.intp]

    def __repr__(self) -> str:
        return f"WordMarks({int(self.listed.sum())} listed of {len(self.listed)} words)"

    def __len__(self) -> int:
        return len(self.listed)

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """(V,) in [0, 1]: 1 for a listed word, for others in proportion to their probability of being one."""
        weights = self.listed.astype(np.float64)
        others = ~self.listed
        if self.vectors is not None and others.any() and self.listed.any():
            likely = _probabilities(self.vectors, self.listed)
            share = RELATED * int(self.listed.sum()) / max(float(likely.sum()), 1e-12)
            weights[others] = np.minimum(1.0, share * likely)
        return weights

    def of(self, rows: npt.NDArray[np.intp]) -> WordMarks:
        """Return the marks of some texts; the weights depend on the words alone."""
        return replace(self, marks=self.marks[rows])

    def without(self, labels: npt.NDArray[np.intp]) -> WordMarks:
        """Return the same marks for a list that lacks the words of these token labels."""
        listed = self.listed.copy()
        columns = self.labels[labels]
        listed[columns[columns >= 0]] = False
        return replace(self, listed=listed)


def mark_words(
    texts: Sequence[str], listed: Collection[str], encode: Encode, *, labels: Sequence[str] = ()
) -> WordMarks:
    """Return the marks of listed words (casefolded) and of other frequent words in ``texts``.

    Args:
        encode: texts to (N, n) embeddings; each frequent word is encoded by itself.
        labels: the words of the fit's token labels, in the order of their columns.
    """
    rows = [dict.fromkeys(words(canonical(text))) for text in texts]
    counts = Counter(word for row in rows for word in row)
    known = sorted(word for word in set(listed) if counts[word] >= LISTED_TEXTS)
    others: list[str] = []
    if len(known) >= FEWEST_LISTED:
        of_list = set(listed)
        others = [w for w, n in counts.most_common() if n >= OTHER_TEXTS and w not in of_list][:MOST_WORDS]
    marked = known + others
    vectors = np.asarray(encode(marked), dtype=np.float64) if others else None
    column = {word: j for j, word in enumerate(marked)}
    places = [(i, column[word]) for i, row in enumerate(rows) for word in row if word in column]
    i, j = np.array(places, dtype=np.intp).reshape(-1, 2).T
    marks = sparse.csr_matrix((np.ones(len(i)), (i, j)), shape=(len(texts), len(column)))
    of_labels = np.array([column.get(word, -1) for word in labels], dtype=np.intp)
    return WordMarks(marks, np.arange(len(marked)) < len(known), vectors, of_labels)


def _probabilities(
    vectors: npt.NDArray[np.float64], listed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Return for each word that is not listed the probability that it is of the listed kind.

    A ridge regression of ±1 with balanced weights scores each word by the fit without it, so that listed and other
    words are comparable. Two normal laws of one variance turn scores into probabilities at equal odds.
    """
    X = vectors - vectors.mean(axis=0)
    X /= max(float(np.sqrt((X**2).mean())), 1e-12)
    side = np.where(listed, 1.0, -1.0)
    balance = np.where(listed, 0.5 / listed.mean(), 0.5 / (~listed).mean())
    inverse = np.linalg.inv((X * balance[:, None]).T @ X / len(X) + RIDGE * np.eye(X.shape[1]))
    scores = X @ (inverse @ (X.T @ (balance * side)) / len(X))
    # Leave-one-out in closed form: (f − h t) / (1 − h), h the leverage.
    leverage = ((X @ inverse) * X).sum(axis=1) * balance / len(X)
    scores = (scores - leverage * side) / np.maximum(1 - leverage, 1e-6)
    own, rest = scores[listed], scores[~listed]
    slope = (own.mean() - rest.mean()) / max((own.var() + rest.var()) / 2, 1e-12)
    odds = np.clip(slope * (rest - (own.mean() + rest.mean()) / 2), -50, 50)
    likely: npt.NDArray[np.float64] = 1 / (1 + np.exp(-odds))
    return likely
