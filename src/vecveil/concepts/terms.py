"""Term detector: find a list of words and phrases in one pass (Aho-Corasick)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from vecveil.concepts.folding import canonical, fold, is_boundary, offsets
from vecveil.concepts.matching import Span
from vecveil.errors import InvalidInputError, optional_import, wrong_type

# Translation table of bytes: 1 for the ASCII characters of words.
_JOINS = bytes(int(chr(i).isalnum() or chr(i) == "_") if i < 128 else 0 for i in range(256))


class TermDetector:
    """Finds terms as whole words.

    Upper and lower case are equal unless ``case_sensitive``. Composed and decomposed characters, any
    run of whitespace and one space, typographic and plain apostrophes and hyphens are always equal. A
    match begins and ends at word boundaries (``is_boundary``): ``art`` is not found in ``party``, but in
    ``art's`` and ``art-house``; ``c++`` is found in ``C++.``. Of nested matches the longest counts; a
    longer candidate that is not a whole word hides nothing.

    Args:
        terms: At least one term; duplicates count once.

    Attributes:
        terms: The folded terms; they are text of the concept.
    """

    rescans = True  # results depend on the text alone, so texts after removal can be scanned again

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
            # Two spellings of one term are one pattern; spans report the first spelling.
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
        """Return the longest matches in each text, sorted; they may overlap but not nest."""
        return [self._spans(text) for text in texts]

    def _spans(self, text: str) -> list[Span]:
        folded = fold(text, case_sensitive=self.case_sensitive)
        candidates = self._matcher.find_matches_as_indexes(folded, overlapping=True)
        if not candidates:
            return []
        if folded.isascii():  # is_boundary for all candidates at once, on bytes
            # Padded by one byte on each side: position i of the text lies between joins[i] and joins[i + 1].
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
        # Sorted by start, longest first: a nested match ends at or before `reached`.
        whole.sort()
        # ASCII folding keeps the length unless it collapsed whitespace: then offsets are equal.
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
    with optional_import("Finding terms", "ahocorasick_rs", "concepts"):
        import ahocorasick_rs
    return ahocorasick_rs.AhoCorasick(
        patterns,
        # Leftmost-longest matching would drop a term inside a longer one that is no whole word.
        matchkind=ahocorasick_rs.MatchKind.Standard,
        store_patterns=False,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
