"""Term detector: find a list of words and phrases in one pass (Aho-Corasick)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from vecveil.concepts.folding import (
    canonical,
    fold,
    free_space,
    is_boundary,
    offsets,
    original,
    without_page_breaks,
    without_surrogates,
)
from vecveil.concepts.matching import Span
from vecveil.errors import InvalidInputError, optional_import, wrong_type

# Translation table of bytes: 1 for the ASCII characters of words.
_JOINS = bytes(int(chr(i).isalnum()) if i < 128 else 0 for i in range(256))


class TermDetector:
    """Finds terms as whole words, in every spelling that gives an encoder the same tokens.

    Upper and lower case are equal unless ``case_sensitive``, letters with and without accents unless
    ``accent_sensitive``. Always equal are composed and decomposed characters, full-width and plain letters, any run
    of whitespace and one space, a space beside punctuation and none ("St. John 's", "St.John's"), and typographic and
    plain apostrophes and hyphens; invisible characters count for nothing. A match begins and ends at word boundaries
    (``is_boundary``): ``art`` is not found in ``party``, but in ``art's``, ``art-house`` and ``smart_art``; ``c++``
    is found in ``C++.``. Of nested matches the longest counts; a longer candidate that is not a whole word hides
    nothing.

    Args:
        terms: At least one term; duplicates count once.
        accent_sensitive: None ignores accents, unless `Concept.for_encoder` names an encoder that keeps them.

    Attributes:
        terms: The distinct terms as first written; they are text of the concept.
    """

    rescans = True  # results depend on the text alone, so texts after removal can be scanned again
    folds = True  # reads a text as written: it folds by rules of its own

    def __init__(
        self,
        terms: Iterable[str],
        *,
        case_sensitive: bool = False,
        accent_sensitive: bool | None = None,
        label: str = "term",
        owner: str = "TermDetector",
    ) -> None:
        if isinstance(terms, str | bytes) or not hasattr(terms, "__iter__"):
            raise wrong_type(owner, "terms", "a sequence of strings", terms)
        self.case_sensitive = case_sensitive
        self.accent_sensitive = accent_sensitive
        self.label = label
        with optional_import("Finding terms", "ahocorasick_rs", "concepts"):
            import ahocorasick_rs  # noqa: F401
        written: list[tuple[str, str]] = []
        for i, term in enumerate(terms):
            if not isinstance(term, str):
                raise InvalidInputError(
                    f"`terms` has a {type(term).__name__} at position {i}; it takes strings. In YAML, put quotes "
                    "around words like no, yes, on, null and around numbers.",
                    param="terms",
                )
            key = self._fold(term).strip()
            # A term of punctuation alone would match nearly everywhere.
            if all(unicodedata.category(char)[0] in "PZC" for char in key):
                raise InvalidInputError(f"The term at position {i} has no letter, digit or symbol.", param="terms")
            written.append((key, without_surrogates(term)))
        self._free_space = free_space(key for key, _ in written)
        # Two spellings of one term are one pattern; spans report the first spelling.
        folded: dict[str, str] = {}
        for key, term in written:
            key = self._free_space.sub("", key) if self._free_space else key
            folded.setdefault(key, term)
        if not folded:
            raise InvalidInputError("Give at least one of `terms`.", param="terms")
        self.terms = tuple(folded.values())
        self._keys = list(folded)
        self._terms = [canonical(term) for term in self.terms]

    def __len__(self) -> int:
        return len(self._terms)

    def __repr__(self) -> str:
        return f"TermDetector({len(self)} terms, case_sensitive={self.case_sensitive})"

    def describe(self) -> dict[str, Any]:
        """Return kind and counts, without any term."""
        return {"kind": "terms", "terms": len(self), "case_sensitive": self.case_sensitive}

    def keeping_accents(self) -> TermDetector:
        """Return the detector for an encoder that keeps accents; a given ``accent_sensitive`` stays."""
        if self.accent_sensitive is not None:
            return self
        return TermDetector(self.terms, case_sensitive=self.case_sensitive, accent_sensitive=True, label=self.label)

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the longest matches in each text, sorted; they may overlap but not nest."""
        return [self._spans(text) for text in texts]

    def _fold(self, text: str) -> str:
        return fold(text, case_sensitive=self.case_sensitive, accent_sensitive=bool(self.accent_sensitive))

    def _offsets(self, text: str) -> Sequence[int]:
        return offsets(text, case_sensitive=self.case_sensitive, accent_sensitive=bool(self.accent_sensitive))

    def _spans(self, text: str) -> list[Span]:
        matches = self._matches(text)
        # A page break inside a word hides it from nobody but a reader of pages.
        if (joined := without_page_breaks(text)) is not None:
            whole, origin = joined
            matches += [(origin[start], -origin[-end - 1] - 1, term) for start, end, term in self._matches(whole)]
        # Sorted by start, longest first: a nested match ends at or before `reached`.
        matches.sort()
        spans: list[Span] = []
        reached = 0
        for start, minus_end, term in matches:
            end = -minus_end
            if end > reached:
                reached = end
                spans.append(Span(start, end, self.label, self._terms[term]))
        return spans

    def _matches(self, text: str) -> list[tuple[int, int, int]]:
        """Return start, negative end and term of every match in ``text``."""
        folded = self._fold(text)
        whole = _whole(self._matcher, folded)
        # ASCII folding keeps the length unless it collapsed whitespace: then offsets are equal.
        same = text.isascii() and len(folded) == len(text)
        matches = whole if same else []
        if whole and not same:
            origin = self._offsets(text)
            matches = [_placed(text, origin, match) for match in whole]
        if self._free_space is None or (closed := self._free_space.sub("", folded)) == folded:
            return matches
        if further := _whole(self._sign_matcher, closed):
            gaps = {gap.start() for gap in self._free_space.finditer(folded)}
            origin = [i for place, i in enumerate(self._offsets(text)) if place not in gaps]
            matches = matches + [_placed(text, origin, (a, b, self._with_sign[term])) for a, b, term in further]
        return matches

    @cached_property
    def _with_sign(self) -> list[int]:
        """The terms that hold a sign, beside which a text may have a space."""
        return [i for i, key in enumerate(self._keys) if free_space([key])]

    @cached_property
    def _matcher(self) -> Any:
        return _matcher(self._keys)

    @cached_property
    def _sign_matcher(self) -> Any:
        return _matcher([self._keys[i] for i in self._with_sign])


def _placed(text: str, origin: Sequence[int], match: tuple[int, int, int]) -> tuple[int, int, int]:
    start, minus_end, term = match
    start, end = original(text, origin, start, -minus_end)
    return start, -end, term


def _whole(matcher: Any, folded: str) -> list[tuple[int, int, int]]:
    """Return start, negative end and number of each pattern that stands in ``folded`` as whole words."""
    candidates = matcher.find_matches_as_indexes(folded, overlapping=True)
    if not candidates:
        return []
    if folded.isascii():  # is_boundary for all candidates at once, on bytes
        # Padded by one byte on each side: position i of the text lies between joins[i] and joins[i + 1].
        joins = b"\0%b\0" % folded.encode("ascii").translate(_JOINS)
        return [
            (start, -end, term)
            for term, start, end in candidates
            if not (joins[start] and joins[start + 1]) and not (joins[end] and joins[end + 1])
        ]
    return [
        (start, -end, term)
        for term, start, end in candidates
        if is_boundary(folded, start) and is_boundary(folded, end)
    ]


def _matcher(patterns: list[str]) -> Any:
    with optional_import("Finding terms", "ahocorasick_rs", "concepts"):
        import ahocorasick_rs
    return ahocorasick_rs.AhoCorasick(
        patterns,
        # Leftmost-longest matching would drop a term inside a longer one that is no whole word.
        matchkind=ahocorasick_rs.MatchKind.Standard,
        store_patterns=False,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
