"""Members from a background corpus: its words that the encoder puts near the listed terms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from vecveil.concepts.expansion.grouping import nearest
from vecveil.concepts.expansion.sources import ExpansionContext, unit_vectors
from vecveil.concepts.folding import canonical
from vecveil.validation import check_count, check_probability, check_texts

__all__ = ["CorpusNeighbourSource"]

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class CorpusNeighbourSource:
    """Proposes the words of a corpus that lie nearest to the groups of listed terms.

    A word counts if the corpus holds it often enough, it is not listed, and the cosine of its vector with
    the mean vector of the nearest group is high enough: at least ``min_cosine``, and at least the cosine that
    ``quantile`` of the group's own terms fall below.

    Args:
        texts: the corpus; the user's own texts will do.
        min_count: fewest occurrences of a word.
        most: words of each group, at most; the nearest are taken.
        vocabulary: most frequent words that are looked at; each costs one encoding.
        min_cosine: least cosine with the group's mean.
        quantile: of the cosines of the group's own terms with its mean.
    """

    name = "corpus neighbours"

    def __init__(
        self,
        texts: Sequence[str],
        *,
        min_count: int = 5,
        most: int = 200,
        vocabulary: int = 20_000,
        min_cosine: float = 0.3,
        quantile: float = 0.1,
    ) -> None:
        owner = "CorpusNeighbourSource"
        self.min_count = check_count(min_count, owner=owner, param="min_count")
        self.most = check_count(most, owner=owner, param="most")
        self.vocabulary = check_count(vocabulary, owner=owner, param="vocabulary")
        self.min_cosine = check_probability(min_cosine, owner=owner, param="min_cosine")
        self.quantile = check_probability(quantile, owner=owner, param="quantile")
        checked = check_texts(texts, owner=owner)
        counts: Counter[str] = Counter()
        written: dict[str, Counter[str]] = {}
        for text in checked:
            for word in _WORD.findall(text):
                key = canonical(word)
                counts[key] += 1
                written.setdefault(key, Counter())[word] += 1
        frequent = [key for key, count in counts.items() if count >= self.min_count]
        frequent.sort(key=lambda key: (-counts[key], key))
        # As it is mostly written: the capital letter of a name stays.
        self._words = {
            key: min(written[key].items(), key=lambda item: (-item[1], item[0]))[0]
            for key in frequent
        }

    def __repr__(self) -> str:
        return f"CorpusNeighbourSource({len(self._words)} words)"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return the nearest words of each group of listed terms, the nearest first.

        Raises:
            InvalidInputError: the expansion has no encoder.
        """
        encoder = context.require_encoder("CorpusNeighbourSource")
        assert context.centroids is not None
        keys = [key for key in self._words if not context.is_listed(key)][: self.vocabulary]
        if not keys:
            return {}
        own = unit_vectors(encoder, context.listed)
        found = unit_vectors(encoder, keys)
        group, cosine = nearest(found, context.centroids)
        result: dict[str, list[str]] = {}
        for g in range(len(context.centroids)):
            inside = own[context.clusters == g] @ context.centroids[g]
            least = max(self.min_cosine, float(np.quantile(inside, self.quantile)))
            rows = np.flatnonzero((group == g) & (cosine >= least))
            order = rows[np.argsort(-cosine[rows], kind="stable")][: self.most]
            result[f"near group {g}"] = [self._words[keys[i]] for i in order]
        return result
