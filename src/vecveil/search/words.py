"""BM25 over the texts of loaded segments, for hybrid search.

Word counts are kept a segment; document frequencies are added up over all segments at each search, so that a new
segment needs no rebuilding of the others. Scores as in Lucene: Robertson and Zaragoza, "The Probabilistic Relevance
Framework", 2009, with k1 = 1.2 and b = 0.75.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from vecveil.concepts.folding import UNSPACED, canonical

_K1, _B = 1.2, 0.75
_MOST = 2**16 - 1  # counts of a word in a text; the score hardly grows beyond
# A word, or one sign of a script that does not set spaces between words.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text, in their canonical spelling."""
    return _WORD.findall(canonical(text))


class WordCounts:
    """The words of one segment's texts: rows and counts by word, and the length of each text."""

    def __init__(self, texts: Iterable[str]) -> None:
        rows: dict[str, list[int]] = {}
        counts: dict[str, list[int]] = {}
        lengths = []
        for row, text in enumerate(texts):
            words = words_of(text)
            lengths.append(len(words))
            for word, count in Counter(words).items():
                rows.setdefault(word, []).append(row)
                counts.setdefault(word, []).append(count)
        self.lengths = np.array(lengths, np.float32)
        self.postings = {
            word: (np.array(listed, np.int32), np.minimum(counts[word], _MOST).astype(np.uint16))
            for word, listed in rows.items()
        }


def scores(query: str, segments: Sequence[tuple[WordCounts, npt.NDArray[np.bool_]]]) -> list[npt.NDArray[np.float32]]:
    """Return the BM25 score of each row of each segment; the masks say which rows count as documents."""
    documents = sum(int(np.count_nonzero(mask)) for _, mask in segments)
    total = sum(float(counts.lengths[mask].sum()) for counts, mask in segments)
    average = total / max(documents, 1) or 1.0
    result = [np.zeros(len(mask), np.float32) for _, mask in segments]
    for word in dict.fromkeys(words_of(query)):
        found = [(i, *counts.postings[word]) for i, (counts, _) in enumerate(segments) if word in counts.postings]
        frequency = sum(int(np.count_nonzero(segments[i][1][rows])) for i, rows, _ in found)
        weight = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
        for i, rows, count in found:
            norm = _K1 * (1 - _B + _B * segments[i][0].lengths[rows] / average)
            result[i][rows] += weight * count * (_K1 + 1) / (count + norm)
    return result
