"""Terms: a list of words and phrases, all found in one pass (Aho-Corasick)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from vecveil.concepts.folding import canonical, fold, is_boundary, offsets
from vecveil.concepts.matching import Span
from vecveil.errors import InvalidInputError, MissingDependencyError, wrong_type

__all__ = ["TermDetector"]

# 1 for the ASCII characters that a word is made of.
_JOINS = bytes(int(chr(i).isalnum() or chr(i) == "_") if i < 128 else 0 for i in range(256))


class TermDetector:
    """Finds terms as whole words.

    Upper and lower case are equal unless ``case_sensitive``; always equal are composed and
    decomposed characters, any run of whitespace and one space, typographic and plain apostrophes
    and hyphens. A match begins and ends where a word may (``is_boundary``): ``art`` is not found in
    ``party``, but in ``art's`` and ``art-house``; ``c++`` is found in ``C++.``. Of matches inside
    one another the longest counts; a longer candidate that is not a whole word hides nothing.

    Args:
        terms: At least one term; the same term twice counts once.
        case_sensitive: Whether case matters.
        label: The label of the spans.
        owner: The name that error messages begin with.

    Attributes:
        terms: The terms as they are looked for, folded; they are text of the concept.
    """

    rescans = True  # finds the same in any text, so what removal has joined can be found again

    def __init__(
        self,
        terms: Iterable[str],
        *,
        case_sensitive: bool = False,
        label: str = "term",
        owner: str = "TermDetector",
    ) -> None:
        if isinstance(terms, str | bytes) or not hasattr(terms, "__iter__"):
            raise wrong_type(owner, "terms", "a sequence of strings", terms)
        folded: dict[str, str] = {}
        for i, term in enumerate(terms):
            if not isinstance(term, str):
                fix = "In YAML, put quotes around words like no, yes, on, null and around numbers."
                raise InvalidInputError.of(owner, "terms", "a sequence of strings",
                                           f"{type(term).__name__} at position {i}", fix=fix)  # fmt: skip
            key = fold(term, case_sensitive=case_sensitive).strip()
            # A term of punctuation alone would match nearly everywhere.
            if all(unicodedata.category(char)[0] in "PZC" for char in key):
                got = "an empty one" if not key else "one of punctuation only"
                got += f" at position {i}"
                raise InvalidInputError.of(
                    owner, "terms", "terms with a letter, digit or symbol", got
                )
            # Two spellings of one term are one pattern; the first is reported.
            folded.setdefault(key, canonical(term))
        if not folded:
            raise InvalidInputError.of(owner, "terms", "at least one term", "none")
        self.case_sensitive = case_sensitive
        self.label = label
        self.terms = tuple(folded)
        self._terms = list(folded.values())
        self._matcher = _matcher(list(folded))

    def __len__(self) -> int:
        return len(self._terms)

    def __repr__(self) -> str:
        return f"TermDetector({len(self)} terms, case_sensitive={self.case_sensitive})"

    def describe(self) -> dict[str, Any]:
        """Return kind and counts, without any term."""
        return {"kind": "terms", "terms": len(self), "case_sensitive": self.case_sensitive}

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return for each text its longest matches, sorted; they may overlap, not enclose."""
        return [self._spans(text) for text in texts]

    def _spans(self, text: str) -> list[Span]:
        folded = fold(text, case_sensitive=self.case_sensitive)
        candidates = self._matcher.find_matches_as_indexes(folded, overlapping=True)
        if not candidates:
            return []
        if folded.isascii():  # the same as is_boundary, without a call for each candidate
            joins = b"\0%b\0" % folded.encode("ascii").translate(_JOINS)
            whole = [
                (start, -end, term)
                for term, start, end in candidates
                if not (joins[start] and joins[start + 1]) and not (joins[end] and joins[end + 1])
            ]
        else:
            whole = [
                (start, -end, term)
                for term, start, end in candidates
                if is_boundary(folded, start) and is_boundary(folded, end)
            ]
        if not whole:
            return []
        # Sorted by start, longest first: of matches that enclose one another the first counts.
        whole.sort()
        # ASCII text of the same length folds character by character: offsets are equal.
        if text.isascii() and len(folded) == len(text):
            origin: Sequence[int] = range(len(text) + 1)
        else:
            origin = offsets(text, case_sensitive=self.case_sensitive)
        spans: list[Span] = []
        reached = 0
        for start, minus_end, term in whole:
            end = -minus_end
            if end > reached:
                reached = end
                spans.append(Span(origin[start], origin[end], self.label, self._terms[term]))
        return spans


def _matcher(patterns: list[str]) -> Any:
    try:
        import ahocorasick_rs
    except ImportError:
        raise MissingDependencyError("Finding terms", "ahocorasick_rs", "concepts") from None
    return ahocorasick_rs.AhoCorasick(
        patterns,
        # Standard matching reports overlaps, of which the whole words are selected.
        matchkind=ahocorasick_rs.MatchKind.Standard,
        store_patterns=False,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
