"""Concepts: what to hide, the detectors that find it in texts, and the pairs D+ and D-.

A :class:`Concept` is a name and its detectors. ``concept.find(texts)`` returns :class:`ConceptMatches`. Detectors
import their packages on construction.
"""

from vecveil.privacy.concepts.concept import AnnotatedSpans, Concept
from vecveil.privacy.concepts.entities import HuggingFaceDetector, PresidioDetector, SpacyDetector
from vecveil.privacy.concepts.matching import Detector, Span, TermDetector, merge_spans, redact, remove
from vecveil.privacy.concepts.pairs import ConceptMatches, TokenVocabulary, WordMarks, mark_words
from vecveil.privacy.concepts.patterns import PatternDetector

__all__ = [
    "AnnotatedSpans",
    "Concept",
    "ConceptMatches",
    "Detector",
    "HuggingFaceDetector",
    "PatternDetector",
    "PresidioDetector",
    "SpacyDetector",
    "Span",
    "TermDetector",
    "TokenVocabulary",
    "WordMarks",
    "mark_words",
    "merge_spans",
    "redact",
    "remove",
]
