"""Matches of a concept in given texts: spans, pairs D+ and D-, token labels, windows, and word marks.

Encoders truncate long texts: matches are cut to the encoder's window, or the text is split into windows.

Lists are never complete, and annotated spans miss most mentions of a word. So a fit marks the listed words wherever
they occur, and every other frequent word with a weight: the probability, judged by the word's embedding, that it
belongs to the concept. In scripts without spaces, listed words are found inside runs, and pairs of characters are the
other words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vecveil.errors import ConceptError, InvalidInputError, wrong_type
from vecveil.privacy.concepts.matching import Detector, Span, WordSplitter, remove, removed_again, words
from vecveil.texts.folding import canonical
from vecveil.validation import check_count

LEAST_TEXTS = 20
"""Minimum number of texts with the concept for a fit."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenVocabulary:
    """Words whose leakage is measured, in the order of token labels; the repr shows only their number."""

    tokens: tuple[str, ...]
    _columns: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owner = "TokenVocabulary"
        if isinstance(self.tokens, str):
            raise wrong_type(owner, "tokens", "a sequence of strings", self.tokens)
        tokens = tuple(self.tokens)
        repeated = len(tokens) - len(set(tokens))
        if repeated:
            raise InvalidInputError(f"`tokens` has {repeated} repetitions.", param="tokens")
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "_columns", {token: j for j, token in enumerate(tokens)})

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._columns

    def __repr__(self) -> str:
        return f"TokenVocabulary({len(self)} tokens)"

    @classmethod
    def most_frequent(cls, tokens: Iterable[Iterable[str]], least: int) -> Self:
        """Return the tokens in at least ``least`` texts, most frequent first."""
        counts = Counter(token for row in tokens for token in row)
        frequent = (token for token, count in counts.items() if count >= least)
        # ties in alphabetical order, for determinism
        return cls(tuple(sorted(frequent, key=lambda token: (-counts[token], token))))

    def labels(self, tokens: Sequence[Iterable[str]]) -> npt.NDArray[np.uint8]:
        """Return the (N, V) array of 0 and 1 that marks the tokens of each text."""
        labels = np.zeros((len(tokens), len(self)), dtype=np.uint8)
        for i, row in enumerate(tokens):
            labels[i, [self._columns[token] for token in row if token in self._columns]] = 1
        return labels

    def index(self, token: str) -> int:
        """Return the column of ``token``; the KeyError does not quote it."""
        try:
            return self._columns[token]
        except KeyError:
            raise KeyError("TokenVocabulary.index: the token is not in the vocabulary") from None


@dataclass(frozen=True, eq=False, repr=False)
class ConceptMatches:
    """Matches of a concept in given texts. It contains the texts: keep it in memory, never save it.

    Every text is in exactly one of ``with_concept``, ``without_concept`` and ``emptied``.

    Attributes:
        spans: Spans of each text, sorted and disjoint; empty for a concept given by labels.
        with_concept: Indices of the texts that contain the concept and other words: the pairs.
        without_concept: Indices of the texts without a match.
        emptied: Indices of the texts in which removal leaves no letter or digit; they make no pair.
        labels: Label of each text for a concept given by labels; else None.
    """

    name: str
    texts: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...]
    with_concept: Indices
    without_concept: Indices
    emptied: Indices
    labels: tuple[str | None, ...] | None = None
    _negatives: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.texts)} texts, {len(self.with_concept)} with the concept"
        return f"ConceptMatches({self.name!r}, {counts})"

    def positives(self) -> list[str]:
        """Return D+: the texts with the concept, in the order of ``with_concept``."""
        return [self.texts[i] for i in self.with_concept]

    def negatives(self) -> list[str]:
        """Return D-: the texts of D+ without the concept, in order; a concept given by labels raises `ConceptError`."""
        if self.labels is not None:
            raise ConceptError(
                f"The concept {self.name!r} is given by labels, which name no words to remove. Use token_labels, "
                "or a concept of terms, patterns, entities or spans.",
                param="concept",
            )
        return list(self._negatives)

    def tokens(self) -> list[tuple[str, ...]]:
        """Return for each text with the concept the distinct casefolded words in its spans, or its label alone."""
        if self.labels is not None:
            return [(str(self.labels[i]),) for i in self.with_concept]
        return [
            tuple(dict.fromkeys(word for span in self.spans[i] for word in words(span.term))) for i in self.with_concept
        ]

    def token_labels(
        self, vocabulary: TokenVocabulary | None = None, min_count: int = 15
    ) -> tuple[npt.NDArray[np.uint8], TokenVocabulary]:
        """Return a 0/1 array (len(with_concept), V), dtype uint8, of the concept's words in each text, and the words.

        Only words inside spans count.

        Args:
            vocabulary: The columns, for example the training texts' words; None takes the words in at least
                ``min_count`` texts, most frequent first.
            min_count: A lower value measures rare words on few examples. If no word reaches it, the array has no
                column.
        """
        minimum = check_count(min_count, owner="ConceptMatches.token_labels", param="min_count")
        tokens = self.tokens()
        if vocabulary is None:
            vocabulary = TokenVocabulary.most_frequent(tokens, minimum)
        return vocabulary.labels(tokens), vocabulary

    def frequent_tokens(self, thresholds: Sequence[int], rows: Indices | None = None) -> TokenVocabulary:
        """Return the vocabulary at the highest threshold that keeps half of all occurrences, else at the lowest.

        ``thresholds`` are numbers of texts, descending; ``rows`` are positions in ``with_concept``, None for all.
        """
        tokens = self.tokens()
        chosen = tokens if rows is None else [tokens[i] for i in rows]
        counts = Counter(word for row in chosen for word in row)
        vocabulary = TokenVocabulary(())
        for threshold in thresholds:
            vocabulary = TokenVocabulary.most_frequent(chosen, threshold)
            if 2 * sum(counts[word] for word in vocabulary) >= counts.total():
                break
        return vocabulary

    def report(self) -> dict[str, Any]:
        """Return the counts as JSON-ready values, without any text or label."""
        labels = [span.label for spans in self.spans for span in spans]
        return {
            "concept": self.name,
            "texts": len(self.texts),
            "with_concept": len(self.with_concept),
            "without_concept": len(self.without_concept),
            "emptied": len(self.emptied),
            "spans": len(labels),
            "span_labels": len(set(labels)),
        }


def build_matches(
    name: str,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    negatives: Sequence[str],
    labels: Sequence[str | None] | None,
    *,
    min_texts: int,
    owner: str,
) -> ConceptMatches:
    """Return the matches; raise if the concept matches nothing, too few texts, or whole texts only."""
    empty: list[int] = []
    rests: list[str] = []
    if labels is not None:
        holding = [i for i, label in enumerate(labels) if label is not None]
    else:
        holding = []
        for i, rest in zip((i for i, row in enumerate(spans) if row), negatives, strict=True):
            # A text that consists of the concept alone has no counterpart without it.
            if any(map(str.isalnum, rest)):
                holding.append(i)
                rests.append(rest)
            else:
                empty.append(i)
    without = sorted(set(range(len(texts))) - set(holding) - set(empty))
    if not holding and not empty:
        raise ConceptError(
            f"The concept {name!r} matches nothing: 0 of {len(texts)} texts contain it. Check its terms, "
            "patterns or entity types, and the column of the texts.",
            code="E-CONCEPT-NO-MATCH",
            param="texts",
        )
    if not holding:
        whole = f"every text that it matches ({len(empty)} of {len(texts)})" if without else "every text"
        raise ConceptError(
            f"The concept {name!r} covers the whole of {whole}: removing it leaves nothing. Narrow it "
            "to the words to hide.",
            code="E-CONCEPT-WHOLE",
            param="texts",
        )
    # A fit takes no fewer than 20, so only a higher minimum can be lowered.
    lower = ", or lower `min_texts`." if min_texts > LEAST_TEXTS else "."
    needed = f"contain the concept {name!r} and other words; {owner} needs {min_texts}"
    if len(holding) < min_texts:
        alone = f" ({len(empty)} more consist of it alone)" if empty else ""
        raise ConceptError(
            f"{len(holding)} of {len(texts)} texts {needed}{alone}. Give more texts or a wider concept{lower}",
            code="E-CONCEPT-FEW",
            param="texts",
        )
    # Copies raise the count but add no information.
    different = len({canonical(texts[i]) for i in holding})
    if different < min_texts:
        raise ConceptError(
            f"{different} different texts {needed}; {len(holding) - different} more are copies, which "
            f"add no information. Give more texts{lower}",
            code="E-CONCEPT-FEW",
            param="texts",
        )
    # Token labels need the canonical term of every span.
    complete = tuple(
        tuple(s if s.term else Span(s.start, s.end, s.label, canonical(texts[i][s.start : s.end])) for s in row)
        for i, row in enumerate(spans)
    )
    return ConceptMatches(
        name=name,
        texts=tuple(texts),
        spans=complete,
        with_concept=_indices(holding),
        without_concept=_indices(without),
        emptied=_indices(empty),
        labels=None if labels is None else tuple(labels),
        _negatives=tuple(rests),
    )


def _indices(values: list[int]) -> Indices:
    array = np.asarray(values, dtype=np.int64)
    array.setflags(write=False)  # frozen dataclass, frozen arrays
    return array


ReadLengths = Callable[[Sequence[str]], list[int]]
"""Maps texts to the number of leading characters that the encoder reads of each."""

SPLIT = "Split long texts (in a fit long_texts='split', --long-texts split), or take an encoder with a longer window."
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+|(?<=[。！？])")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
    """Matches in the encoder's windows, the index of each window's text, and counts for a record."""

    matches: ConceptMatches
    source: Indices
    report: dict[str, Any]

    @property
    def warning(self) -> str:
        """The report as a sentence; empty without long texts."""
        if not self.report:
            return ""
        many, unread = self.report["texts"], self.report["beyond"]
        if self.report["split"]:
            return f"{many} texts are longer than the encoder reads; they were split into windows."
        sentence = f"The encoder reads {many} of {self.report['of']} texts only in part; what it does not read was cut."
        if unread:
            sentence += f" {unread} of them contain the concept only in that part: they count as texts without it."
        return f"{sentence} {SPLIT}"


def within_window(
    detectors: Sequence[Detector],
    matches: ConceptMatches,
    read: ReadLengths | None,
    *,
    split: bool,
    min_texts: int,
    owner: str,
) -> Windows:
    """Return the matches in the part of each text that the encoder reads, or in windows of long texts.

    A window ends between sentences, else between words, and never within a span.

    Args:
        detectors: the concept's, to remove matches that a removal joins.
        read: the encoder's; None if its window is unknown.
        split: False drops what lies beyond the window.
    """
    texts = matches.texts
    lengths = [len(text) for text in texts] if read is None else read(texts)
    long = [i for i, text in enumerate(texts) if text[lengths[i] :].strip()]
    if read is None or not long:
        return Windows(matches, np.arange(len(texts)), {})
    pieces = [[(0, len(text))] for text in texts]
    unfinished = {i: 0 for i in long}
    for i in long:
        pieces[i] = []
    while unfinished:
        rests = [texts[i][start:] for i, start in unfinished.items()]
        following = {}
        for (i, start), rest, length in zip(unfinished.items(), rests, read(rests), strict=True):
            end = len(texts[i])
            if rest[length:].strip():
                end = start + max(1, length)
                end = _border(texts[i], start, end, matches.spans[i], sentences=split)
                if split:
                    following[i] = end
            pieces[i].append((start, end))
        unfinished = following
    source = [i for i, parts in enumerate(pieces) for _ in parts]
    windows, spans = [], []
    for i, parts in enumerate(pieces):
        for start, end in parts:
            windows.append(texts[i][start:end])
            inside = (span for span in matches.spans[i] if start <= span.start and span.end <= end)
            spans.append(tuple(replace(span, start=span.start - start, end=span.end - start) for span in inside))
    labels = None if matches.labels is None else [matches.labels[i] for i in source]
    rests = [remove(text, row) for text, row in zip(windows, spans, strict=True) if row]
    rests = removed_again(detectors, rests)
    holding = {i for i, row in zip(source, spans, strict=True) if row}
    before = [i for i in long if matches.spans[i]]
    beyond = sum(i not in holding for i in before)
    report = {"texts": len(long), "of": len(texts), "beyond": beyond, "split": split, "windows": len(windows)}
    try:
        found = build_matches(matches.name, windows, spans, rests, labels, min_texts=min_texts, owner=owner)
    except ConceptError as error:
        if not beyond:
            raise
        raise ConceptError(
            f"{owner}: {len(holding)} of {len(texts)} texts contain the concept {matches.name!r} in the part that the "
            f"encoder reads, and {beyond} only beyond it; at least {min_texts} must. {SPLIT}",
            code="E-CONCEPT-WINDOW",
            param="texts",
        ) from error
    return Windows(found, np.asarray(source), report)


def _border(text: str, start: int, end: int, spans: Sequence[Span], *, sentences: bool) -> int:
    """Return where the window from ``start`` ends: at most at ``end``, between sentences or words, in no span."""
    taken = [span for span in spans if span.start < end < span.end]
    end = taken[0].start if taken and taken[0].start > start else end
    for kind in (_SENTENCE, _SPACE) if sentences else (_SPACE,):
        if kind is _SPACE and text[end].isspace():
            break
        # Search the second half alone: a short window would contain little besides the concept.
        places = [m.end() for m in kind.finditer(text, (start + end) // 2, end) if m.end() <= end]
        places = [place for place in places if not any(s.start < place < s.end for s in spans)]
        if places:
            return places[-1]
    return end


LISTED_TEXTS, OTHER_TEXTS = 3, 5
"""Minimum number of texts with a listed word, and with another word, to mark it."""
MOST_WORDS = 10_000
"""Maximum number of other words, the most frequent ones; each costs one encoding."""
FEWEST_LISTED = 20
"""Minimum number of listed words to estimate the weights of others."""
RELATED = 0.5
"""Total weight of other words relative to the listed ones; a higher value hides more unlisted, fewer listed words."""
RIDGE = 1.0

Encode = Callable[[list[str]], Any]


@dataclass(frozen=True, eq=False, repr=False)
class WordMarks:
    """Marks of words in texts, without the words themselves.

    Attributes:
        marks, listed: (N, V) sparse 0/1, the words in each text; and (V,) True for a word of the concept's list.
        vectors: (V, n) embeddings of the words, or None if too few listed words exist to weight others.
        labels: (L,) column in ``marks`` of each token label of the fit, -1 for a word without marks.
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
        """(V,) in [0, 1]: 1 for a listed word, in proportion to the probability of being one for others."""
        weights = self.listed.astype(np.float64)
        others = ~self.listed
        if self.vectors is not None and others.any() and self.listed.any():
            likely = _probabilities(self.vectors, self.listed)
            share = RELATED * int(self.listed.sum()) / max(float(likely.sum()), 1e-12)
            weights[others] = np.minimum(1.0, share * likely)
        return weights

    def of(self, rows: npt.NDArray[np.intp]) -> WordMarks:
        """Return the marks of the texts ``rows``; the weights stay, as they depend on the words alone."""
        return replace(self, marks=self.marks[rows])

    def without(self, labels: npt.NDArray[np.intp]) -> WordMarks:
        """Return the same marks for a list without the words of these token labels."""
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
        labels: words of the fit's token labels, in column order.
    """
    split = WordSplitter(listed)
    rows = [dict.fromkeys(split(canonical(text))) for text in texts]
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


def _probabilities(vectors: npt.NDArray[np.float64], listed: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return for each unlisted word the probability that it is of the listed kind.

    Leave-one-out scores of a ridge regression on ±1 with balanced weights keep listed and other words comparable. Two
    normal distributions of equal variance turn scores into probabilities at equal odds.
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
