"""The words of texts, for hybrid search by BM25.

A segment has the postings of its texts: by word the rows and counts, and the length of each text. A word is its hash of
64 bits. Document frequencies are added up over all segments at each search, so that a new segment needs no rebuilding
of the others. Scores as in Lucene: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.texts.folding import UNSPACED, canonical

Mask = npt.NDArray[np.bool_]
_K1, _B = 1.2, 0.75  # of BM25
_MOST = 2**16 - 1  # counts of a word in a text; the score hardly grows beyond
# A word, or one sign of a script that does not set spaces between words.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


class Words:
    """The words of one segment.

    Args:
        read: returns an array that `word_sections` yields, or some values of it.
        parsed: context in which postings are read; see `Segment.parsed`.
    """

    def __init__(
        self,
        read: Callable[[str, npt.DTypeLike, slice], npt.NDArray[Any]],
        parsed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._read, self._parsed = read, parsed
        whole = slice(None)
        self._terms = read("words", "<u8", whole)  # hashes, sorted
        self._ends = read("words.ends", "<u4", whole)
        self.lengths = read("words.lengths", "<f4", whole)
        if len(self._ends) != len(self._terms) + 1:
            raise ValueError
        # Their sum counts for the rows of other segments, too.
        if not ((self.lengths >= 0) & np.isfinite(self.lengths)).all():
            raise ValueError

    @classmethod
    def of(cls, texts: Sequence[str]) -> Words:
        """Return the words of texts."""
        sections = dict(word_sections(texts))
        return cls(lambda name, _, part: sections[name][part])

    def find(self, word: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16]] | None:
        """Return the rows that have the word, and how often, or None."""
        term = _hash(word)
        at = int(np.searchsorted(self._terms, term))
        if at == len(self._terms) or self._terms[at] != term:
            return None
        with self._parsed():
            span = slice(int(self._ends[at]), int(self._ends[at + 1]))
            rows, counts = self._read("words.rows", "<i4", span), self._read("words.counts", "<u2", span)
            if self.lengths[rows].shape != counts.shape:
                raise ValueError
        return rows, counts

    def among(self, visible: Mask) -> Words:
        """Return the words of the rows in ``visible``: no word, and no posting, that only other rows have."""
        whole = slice(None)
        rows = self._read("words.rows", "<i4", whole)
        kept = visible[rows]
        ends = np.concatenate([[0], np.cumsum(kept)])[self._ends]
        some = np.diff(ends) > 0
        sections = {
            "words": self._terms[some],
            "words.ends": np.concatenate([ends[:1], ends[1:][some]]),
            "words.rows": rows[kept],
            "words.counts": self._read("words.counts", "<u2", whole)[kept],
            "words.lengths": self.lengths,
        }
        return Words(lambda name, _, part: sections[name][part])


def word_sections(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the sections that `Words` reads."""
    vocabulary: dict[str, int] = {}
    listed, lengths = array("i"), array("i")
    for text in texts:
        words = words_of(text)
        lengths.append(len(words))
        listed.extend([vocabulary.setdefault(word, len(vocabulary)) for word in words])
    terms, named = np.unique(np.array(list(map(_hash, vocabulary)), np.uint64), return_inverse=True)
    # One place for each occurrence, in few copies: a segment has tens of millions.
    places = named[np.frombuffer(listed, np.int32)] if listed else np.empty(0, np.int64)
    del listed
    places *= len(texts)
    places += np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
    places.sort()
    first = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))[: len(places)]
    counts, places = np.diff(first, append=len(places)), places[first]
    ends = np.searchsorted(places, np.arange(len(terms) + 1) * len(texts))
    yield "words", terms
    yield "words.ends", ends.astype(np.uint32)
    yield "words.rows", (places % max(len(texts), 1)).astype(np.int32)
    yield "words.counts", np.minimum(counts, _MOST).astype(np.uint16)
    yield "words.lengths", np.array(lengths, np.float32)


def scores(query: str, segments: Sequence[tuple[Words, Mask]]) -> list[npt.NDArray[np.float32]]:
    """Return the BM25 score of each row of each segment; the masks say which rows count as documents."""
    sizes = [int(np.count_nonzero(mask)) for _, mask in segments]
    documents = sum(sizes)
    total = sum(float(words.lengths[mask].sum()) for words, mask in segments)
    average = total / max(documents, 1) or 1.0
    result = [np.zeros(len(mask), np.float32) for _, mask in segments]
    for word in dict.fromkeys(words_of(query)):
        found = [(i, *posting) for i, (words, _) in enumerate(segments) if (posting := words.find(word)) is not None]
        # A segment's writer may list a row several times.
        frequency = sum(min(int(np.count_nonzero(segments[i][1][rows])), sizes[i]) for i, rows, _ in found)
        weight = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
        for i, rows, count in found:
            norm = _K1 * (1 - _B + _B * segments[i][0].lengths[rows] / average)
            result[i][rows] += weight * count * (_K1 + 1) / (count + norm)
    return result


def words_of(text: str) -> list[str]:
    """Return the words of a text, in their canonical spelling."""
    return _WORD.findall(canonical(text))


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
