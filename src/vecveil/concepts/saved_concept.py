"""A concept as a JSON record, for files that must find it again: its terms and patterns stand in it as they are."""

from __future__ import annotations

from typing import Any

from vecveil.concepts.concept import Concept
from vecveil.concepts.patterns import PatternDetector
from vecveil.concepts.spans import Detector
from vecveil.concepts.terms import TermDetector
from vecveil.errors import ConceptError, message

__all__ = ["concept_from_record", "concept_record"]

LONGEST_TIME_LIMIT = 60.0


def concept_record(concept: Concept, *, owner: str) -> dict[str, Any]:
    """Return the record of a concept of terms, patterns, and entity types that need no model.

    Raises:
        ConceptError: it has another detector. A file never names a model to load: loading one can run code.
    """
    detectors = [_record(detector) for detector in concept.detectors]
    if concept.columns or concept.labels is not None or None in detectors:
        raise ConceptError(
            message(owner, "concept", "of terms, patterns, or entities of Presidio without a model, to be saved",
                    "one with other detectors",
                    "A file holds no code, names no model, and given spans belong to their own texts.")
        )  # fmt: skip
    return {"name": concept.name, "detectors": detectors}


def concept_from_record(record: dict[str, Any]) -> Concept:
    """Return the concept; raises ValueError, LookupError or TypeError for a record that is wrong."""
    return Concept(record["name"], tuple(_detector(one) for one in record["detectors"]))


def _record(detector: Detector) -> dict[str, Any] | None:
    if type(detector) is TermDetector:
        return {
            "kind": "terms",
            "terms": list(detector.terms),
            "case_sensitive": detector.case_sensitive,
            "label": detector.label,
        }
    if type(detector) is PatternDetector:
        return {
            "kind": "patterns",
            "patterns": list(detector.patterns),
            "time_limit": detector.time_limit,
            "label": detector.label,
        }
    described = detector.describe() if hasattr(detector, "describe") else {}
    if described.get("engine") == "presidio" and described.get("model") is None:
        return {key: described[key] for key in ("kind", "types", "language", "min_score")}
    return None


def _detector(record: dict[str, Any]) -> Detector:
    kind = record["kind"]
    if kind == "terms":
        sensitive, label = record["case_sensitive"], record["label"]
        if not isinstance(sensitive, bool) or not isinstance(label, str):
            raise TypeError("terms")
        return TermDetector(record["terms"], case_sensitive=sensitive, label=label)
    if kind == "patterns":
        if not 0 < record["time_limit"] <= LONGEST_TIME_LIMIT or not isinstance(
            record["label"], str
        ):
            raise ValueError("patterns")
        return PatternDetector(
            record["patterns"], time_limit=record["time_limit"], label=record["label"]
        )
    if kind == "entities":
        from vecveil.concepts.presidio import PresidioDetector

        return PresidioDetector(
            record["types"], language=record["language"], min_score=record["min_score"]
        )
    raise ValueError("kind")
