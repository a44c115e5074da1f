"""What to hide: a concept, the detectors that find it in texts, and the pairs D+ and D-.

A :class:`Concept` is a name and one or several detectors. ``concept.find(texts)`` gives
:class:`ConceptMatches`: spans, the texts with the concept removed, and token labels. Detectors that
need heavy packages are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vecveil.concepts.annotated import AnnotatedSpans
from vecveil.concepts.concept import Concept
from vecveil.concepts.matches import ConceptMatches, TokenVocabulary
from vecveil.concepts.patterns import PatternDetector
from vecveil.concepts.rewriting import redact, remove
from vecveil.concepts.spans import Detector, Span, merge_spans
from vecveil.concepts.terms import TermDetector

if TYPE_CHECKING:
    from vecveil.concepts.huggingface import HuggingFaceDetector
    from vecveil.concepts.presidio import PresidioDetector
    from vecveil.concepts.spacy_ner import SpacyDetector

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
    "merge_spans",
    "redact",
    "remove",
]

_LAZY = {
    "HuggingFaceDetector": "huggingface",
    "PresidioDetector": "presidio",
    "SpacyDetector": "spacy_ner",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"vecveil.concepts.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'vecveil.concepts' has no attribute {name!r}")
