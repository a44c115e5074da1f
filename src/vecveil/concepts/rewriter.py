"""Rewrites texts so that a concept is not in them any more, as far as its detectors find it.

Texts in which nothing is found come back as they are: what a detector misses goes through.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from vecveil.concepts.annotated import AnnotatedSpans
from vecveil.concepts.concept import Concept
from vecveil.concepts.finding import detect_all
from vecveil.concepts.rewriting import redact, replace
from vecveil.concepts.saved_concept import concept_record
from vecveil.concepts.spans import Span, merge_spans
from vecveil.errors import ConceptError, InvalidInputError, ReleaseError
from vecveil.types import Texts
from vecveil.validation import check_texts

__all__ = ["Redacting", "Rewriter"]

ROUNDS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Rewriter(ABC):
    """Rewrites texts; the same text always comes out the same.

    What takes the concept's place never depends on what stood there, but for its length or number of words: whoever
    has the seed and candidate texts that differ in the concept alone gets the same text from all of them.

    Attributes:
        concept: what is found and replaced.
        seed: of what is drawn.
    """

    concept: Concept
    seed: int = 0

    kind: ClassVar[str]
    leaves_members: ClassVar[bool] = False
    """Whether members of the concept are put in place of others, so that it is found in what comes out."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.concept.name!r})"

    @property
    def needs_spans(self) -> bool:
        """Whether the concept's spans were given for certain texts, so that others need spans of their own."""
        return any(getattr(detector, "positional", False) for detector in self.concept.detectors)

    @final
    def rewrite(
        self,
        texts: Texts,
        *,
        spans: Sequence[Sequence[Span]] | None = None,
        show_progress: bool | None = None,
    ) -> list[str]:
        """Return ``texts`` rewritten, one for each.

        Args:
            spans: where the concept is, for each text; None finds it.

        Raises:
            InvalidInputError: spans outside their text, or none given for a concept of given spans.
            ReleaseError: the concept is still found in what came out; nothing is returned.
        """
        owner = "Rewriter.rewrite"
        texts = check_texts(texts, owner=owner, min_rows=0)
        if spans is not None:
            given = AnnotatedSpans(spans, owner=owner).detect(texts)
            found = [merge_spans(text, row) for text, row in zip(texts, given, strict=True)]
        elif self.needs_spans:
            raise InvalidInputError.of(owner, "spans", "given for a concept of given spans", None,
                                       "Those that it has belong to other texts by position.")  # fmt: skip
        else:
            self.concept.require_spans(owner)
            found = self.concept.detect(texts, show_progress=show_progress)
        written = [
            self._rewritten(text, row) if row else text
            for text, row in zip(texts, found, strict=True)
        ]
        return written if self.leaves_members else self._without_rest(written, found)

    def _without_rest(self, written: list[str], found: Sequence[Sequence[Span]]) -> list[str]:
        """Blacken what the replacement has joined into a new match; refuse what cannot be."""
        detectors = [d for d in self.concept.detectors if getattr(d, "rescans", False)]
        todo = [i for i, row in enumerate(found) if row] if detectors else []
        for _ in range(ROUNDS):
            again = detect_all("", detectors, [written[i] for i in todo], show_progress=False)
            left = [(i, row) for i, row in zip(todo, again, strict=True) if row]
            for i, row in left:
                written[i] = redact(written[i], row)
            todo = [i for i, _ in left]
            if not todo:
                return written
        raise ReleaseError(
            f"Rewriter.rewrite: the concept is still found in {len(todo)} of {len(written)} texts after it was "
            "blackened, so nothing was returned. Make its patterns match no asterisks."
        )

    @abstractmethod
    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        """Return ``text`` with its spans replaced."""

    def draws(self, text: str, spans: Sequence[Span]) -> np.random.Generator:
        """Return the generator of one text, from the seed and what stands around the concept."""
        around = replace(text, spans, lambda span: f"\0{span.label}\0")
        key = f"vecveil.rewriting/1 {self.kind} {self.seed}".encode()
        digest = hmac.new(key, around.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def settings(self) -> dict[str, Any]:
        """Return what else decides the outcome, JSON-ready; it may hold words of the texts."""
        return {}

    def counts(self) -> dict[str, Any]:
        """Return numbers about the settings, for a report; no word is in it."""
        return {}

    def to_record(self) -> dict[str, Any]:
        """Return everything that is needed to rewrite again: terms, patterns and lists of words in clear.

        Raises:
            ConceptError: the concept cannot be saved (`vecveil.concepts.saved_concept`).
        """
        concept = concept_record(self.concept, owner="Protector.save")
        return {"kind": self.kind, "seed": self.seed, "concept": concept, **self.settings()}

    def identity(self) -> dict[str, Any]:
        """Return what tells rewriters apart: the record, or where there is none, this object alone."""
        try:
            return self.to_record()
        except ConceptError:  # a detector that nothing is known of: equal to none
            return {"kind": self.kind, "seed": self.seed, "own": self._own, **self.settings()}

    @cached_property
    def _own(self) -> str:
        return secrets.token_hex(16)


@dataclass(frozen=True, eq=False, repr=False)
class Redacting(Rewriter):
    """Every character of a span becomes ``*`` (the RemovePII of SPARSE, appendix F.3); lengths stay."""

    kind: ClassVar[str] = "redact"

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        return redact(text, spans)
