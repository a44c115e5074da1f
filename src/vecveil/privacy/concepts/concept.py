"""`Concept`: a name for what to hide, and the detectors, spans or labels that locate it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecveil.errors import ConceptError, DataFileError, InvalidInputError, wrong_type
from vecveil.io import parse_json
from vecveil.privacy.concepts.concept_file import read_concept_file
from vecveil.privacy.concepts.entities import (
    EntityDetector,
    HuggingFaceDetector,
    NamedModelDetector,
    PresidioDetector,
    SpacyDetector,
)
from vecveil.privacy.concepts.matching import (
    Detector,
    Span,
    TermDetector,
    check_range,
    detect_all,
    remove,
    removed_again,
)
from vecveil.privacy.concepts.pairs import LEAST_TEXTS, ConceptMatches, build_matches
from vecveil.privacy.concepts.patterns import PatternDetector
from vecveil.validation import check_count, check_sequence, check_texts

_ENGINES = ("presidio", "spacy", "huggingface")


@dataclass(frozen=True, eq=False, repr=False)
class Concept:
    """A name and the detectors that find what to hide.

    Attributes:
        name: Appears in messages and reports; choose one that may be public.
        detectors: Overlapping spans of several detectors are merged.
        spans_column: Table column with spans, to be passed to ``with_columns``.
        labels_column: Table column with one label per text.
        labels: Label of each text, None for none; only for a concept given by labels.
    """

    name: str
    detectors: tuple[Detector, ...] = ()
    spans_column: str | None = None
    labels_column: str | None = None
    labels: tuple[str | None, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidInputError("The `name` of a concept must be a string that is not empty.", param="name")
        object.__setattr__(self, "detectors", tuple(self.detectors))
        for i, detector in enumerate(self.detectors):
            if not isinstance(detector, Detector):
                raise InvalidInputError(
                    f"The detector at position {i}, a {type(detector).__name__}, has no method detect(texts).",
                    param="detectors",
                )
        # A label states that a text contains the concept, not where: there is no span to remove.
        by_label = self.labels is not None or self.labels_column is not None
        if by_label and (self.detectors or self.spans_column is not None):
            raise InvalidInputError(
                "A concept has either `labels` or detectors: a label does not locate the concept in its text.",
                param="labels",
            )
        if not by_label and not self.detectors and self.spans_column is None:
            raise InvalidInputError("A concept needs `detectors`, a column of spans, or labels.", param="detectors")

    def __repr__(self) -> str:
        if self.labels is not None:
            return f"Concept({self.name!r}, labels of {len(self.labels)} texts)"
        parts = [repr(d) if hasattr(d, "describe") else type(d).__name__ for d in self.detectors]
        parts += [f"column {column!r}" for column in self.columns]
        return f"Concept({self.name!r}, {', '.join(parts)})"

    @classmethod
    def from_terms(
        cls, name: str, terms: Iterable[str], *, case_sensitive: bool = False, accent_sensitive: bool | None = None
    ) -> Concept:
        """Return a concept of words and phrases; :class:`TermDetector` defines equal spellings."""
        owner = "Concept.from_terms"
        detector = TermDetector(terms, case_sensitive=case_sensitive, accent_sensitive=accent_sensitive, owner=owner)
        return cls(name, (detector,))

    @classmethod
    def from_patterns(cls, name: str, patterns: Iterable[str], *, time_limit: float = 2.0) -> Concept:
        """Return a concept of regular expressions; see :class:`PatternDetector`."""
        owner = "Concept.from_patterns"
        return cls(name, (PatternDetector(patterns, time_limit=time_limit, owner=owner),))

    @classmethod
    def from_entities(
        cls,
        name: str,
        entities: Iterable[str],
        *,
        engine: str = "presidio",
        model: Any = None,
        language: str = "en",
        regions: Iterable[str] | None = None,
    ) -> Concept:
        """Return a concept of entity types.

        Args:
            engine: ``"presidio"``, ``"spacy"`` or ``"huggingface"``.
            model: For Presidio None (pattern recognisers alone), a spaCy pipeline or an ``AnalyzerEngine``; for the
                others a loaded model, or its name or folder.
            language, regions: For Presidio only; see :class:`PresidioDetector`.
        """
        owner = "Concept.from_entities"
        detector: Detector
        if regions is not None and engine != "presidio":
            raise InvalidInputError("`regions` requires the engine presidio.", param="regions")
        if engine == "presidio":
            detector = PresidioDetector(entities, model=model, language=language, regions=regions, owner=owner)
        elif engine == "spacy":
            detector = SpacyDetector(entities, model=model, owner=owner)
        elif engine == "huggingface":
            detector = HuggingFaceDetector(entities, model=model, owner=owner)
        else:
            raise InvalidInputError(f"`engine` must be {', '.join(_ENGINES)}, not {engine!r}.", param="engine")
        return cls(name, (detector,))

    @classmethod
    def from_spans(cls, name: str, spans: Sequence[Any]) -> Concept:
        """Return a concept of given spans, one list per text; see :class:`AnnotatedSpans`."""
        return cls(name, (AnnotatedSpans(spans, owner="Concept.from_spans"),))

    @classmethod
    def from_labels(cls, name: str, labels: Sequence[str | int | None]) -> Concept:
        """Return an abstract concept: one label per text, None for texts without the concept.

        It has no spans and so no D-: `vecveil.fit` learns from the labels, as `vecveil.fit_labels` does.
        """
        return cls(name, labels=checked_labels(labels, owner="Concept.from_labels"))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Concept:
        """Return the concept of a YAML file; :mod:`vecveil.privacy.concepts.concept_file` lists its keys."""
        owner = "Concept.from_file"
        settings = read_concept_file(path)
        detectors: list[Detector] = []
        if "terms" in settings:
            spelling = {key: settings[key] for key in ("case_sensitive", "accent_sensitive") if key in settings}
            detectors.append(TermDetector(settings["terms"], owner=owner, **spelling))
        if "patterns" in settings:
            detectors.append(PatternDetector(settings["patterns"], owner=owner))
        if "entities" in settings:
            options = dict(settings["entities"])
            detectors += cls.from_entities("entities", options.pop("types"), **options).detectors
        return cls(settings["name"], tuple(detectors), settings.get("spans_column"), settings.get("labels_column"))

    @classmethod
    def combined(cls, name: str, concepts: Sequence[Concept]) -> Concept:
        """Return the union of ``concepts``, which detects the spans of all of them."""
        columns = {c.spans_column for c in concepts if c.spans_column is not None}
        labels = any(c.labels is not None or c.labels_column is not None for c in concepts)
        if labels or len(columns) > 1:
            # Labels give no spans to unite, and two span columns would need two sets of values.
            raise InvalidInputError(
                "Concepts given by labels, and concepts with different columns of spans, cannot be combined.",
                param="concepts",
            )
        return cls(name, tuple(d for c in concepts for d in c.detectors), next(iter(columns), None))

    @property
    def columns(self) -> tuple[str, ...]:
        """Table columns that `with_columns` must supply before the concept can be used."""
        return tuple(c for c in (self.spans_column, self.labels_column) if c is not None)

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> Concept:
        """Return the concept with the values of its columns, one per text.

        Args:
            columns: At least those in ``self.columns``; others are ignored. Spans are lists of ``{start, end, label}``
                or JSON strings of them; labels are strings or integers. None marks a text without the concept.
        """
        for column in self.columns:
            if column not in columns:
                known = ", ".join(map(repr, columns)) or "none"
                raise DataFileError(
                    f"The concept {self.name!r} needs the column {column!r}. The table has {known}.", param="columns"
                )
        if self.labels_column is not None:
            owner = f"Concept {self.name!r}, column {self.labels_column!r}"
            labels = checked_labels(columns[self.labels_column], owner=owner)
            return replace(self, labels=labels, labels_column=None)
        if self.spans_column is None:
            return self
        owner = f"Concept {self.name!r}, column {self.spans_column!r}"
        given = AnnotatedSpans(columns[self.spans_column], column=self.spans_column, owner=owner)
        return replace(self, detectors=(*self.detectors, given), spans_column=None)

    def for_encoder(self, encoder: Any) -> Concept:
        """Return the concept whose terms ignore accents as ``encoder`` does; terms with ``accent_sensitive`` stay.

        Accents are ignored unless the encoder has a true attribute ``keeps_accents``.
        """
        if not getattr(encoder, "keeps_accents", None):
            return self
        fitted = tuple(d.keeping_accents() if isinstance(d, TermDetector) else d for d in self.detectors)
        return replace(self, detectors=fitted) if fitted != self.detectors else self

    def describe(self) -> dict[str, Any]:
        """Return kinds and counts as JSON-ready values, without any term, pattern or text."""
        kinds = [
            d.describe() if hasattr(d, "describe") else {"kind": "custom", "type": type(d).__name__}
            for d in self.detectors
        ]
        kinds += [{"kind": "spans", "column": self.spans_column}] if self.spans_column else []
        kinds += [{"kind": "labels", "column": self.labels_column}] if self.labels_column else []
        kinds += [{"kind": "labels", "texts": len(self.labels)}] if self.labels is not None else []
        return {"name": self.name, "detectors": kinds}

    def detect(self, texts: Sequence[str], *, show_progress: bool | None = None) -> list[list[Span]]:
        """Return the spans of each text, sorted and merged; a concept given by labels raises `ConceptError`."""
        checked = check_texts(texts, owner="Concept.detect", min_rows=0)
        self._require_columns("Concept.detect")
        self.require_spans("Concept.detect")
        return detect_all(self.name, self.detectors, checked, show_progress)

    def find(
        self, texts: Sequence[str], *, min_texts: int = LEAST_TEXTS, show_progress: bool | None = None
    ) -> ConceptMatches:
        """Return the matches of the concept in ``texts``: spans, pairs D+ / D-, token labels.

        Raises:
            ConceptError: fewer than ``min_texts`` texts contain the concept, or removing it leaves no other words.
        """
        owner = "Concept.find"
        checked = check_texts(texts, owner=owner)
        minimum = check_count(min_texts, owner=owner, param="min_texts")
        self._require_columns(owner)
        if self.labels is not None:
            if len(self.labels) != len(checked):
                raise InvalidInputError(
                    f"The concept has {len(self.labels)} labels for {len(checked)} texts. Labels belong to their "
                    "texts by position.",
                    param="texts",
                )
            none: list[list[Span]] = [[] for _ in checked]
            return build_matches(self.name, checked, none, [], self.labels, min_texts=minimum, owner=owner)
        spans = detect_all(self.name, self.detectors, checked, show_progress)
        rests = [remove(text, row) for text, row in zip(checked, spans, strict=True) if row]
        # Removal can join two halves of a term into a new match, which D- must not contain.
        rests = removed_again(self.detectors, rests)
        return build_matches(self.name, checked, spans, rests, None, min_texts=minimum, owner=owner)

    def require_spans(self, owner: str) -> None:
        """Raise ConceptError if the concept is given by labels, which name no words."""
        if self.labels is not None or self.labels_column is not None:
            raise ConceptError(
                f"The concept {self.name!r} is given by labels, which do not locate it in its texts. Give terms, "
                "patterns, entity types or spans.",
                param="concept",
            )

    def _require_columns(self, owner: str) -> None:
        if self.columns:
            raise InvalidInputError(
                f"The concept {self.name!r} needs its column {self.columns[0]!r}. Call "
                "concept.with_columns({...}) with the values of the table.",
                param="concept",
            )


class AnnotatedSpans:
    """Given spans, which belong to the texts by position.

    Args:
        rows: For each text a list of :class:`Span` or of ``{"start", "end", "label"}`` (``label`` is optional), the
            same as a JSON string, or None. Offsets count characters.
        column: Table column of the rows, for messages.
    """

    positional = True  # must see all texts at once, in their order

    def __init__(self, rows: Sequence[Any], *, column: str | None = None, owner: str = "AnnotatedSpans") -> None:
        given = check_sequence(rows, "a list of spans for each text", owner=owner, param="spans")
        self.column = column
        self._owner = owner
        self._rows = [self._row(i, row) for i, row in enumerate(given)]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"AnnotatedSpans({len(self)} texts, {sum(map(len, self._rows))} spans)"

    def describe(self) -> dict[str, Any]:
        counts = {"texts": len(self), "spans": sum(map(len, self._rows))}
        return {"kind": "spans", "column": self.column, **counts}

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the given spans; raise for a different number of texts or a span outside its text."""
        if len(texts) != len(self):
            raise InvalidInputError(
                f"{self._owner}: `spans` has {len(self)} rows for {len(texts)} texts. Spans belong to their texts "
                "by position.",
                param="spans",
            )
        for i, (text, row) in enumerate(zip(texts, self._rows, strict=True)):
            for span in row:
                start, end = span.start, span.end
                check_range(start, end, len(text), owner=self._owner, param="spans", row=i)
        return [list(row) for row in self._rows]

    def _row(self, i: int, row: Any) -> list[Span]:
        # Table columns hold spans as JSON strings.
        if isinstance(row, str):
            try:
                row = parse_json(row) if row.strip() else None
            except (ValueError, RecursionError):  # RecursionError: JSON nested thousands deep
                raise self._wrong("a string that is not JSON", i) from None
        if row is None:
            return []
        if isinstance(row, bytes | Mapping) or not hasattr(row, "__iter__"):
            raise self._wrong(f"a {type(row).__name__}, not a list of spans", i)
        return [self._span(i, item) for item in row]

    def _span(self, i: int, item: Any) -> Span:
        if isinstance(item, Span):
            start, end, label = item.start, item.end, item.label
        elif isinstance(item, Mapping):
            if "start" not in item or "end" not in item:
                raise self._wrong("a span without start or end", i)
            start, end, label = item["start"], item["end"], item.get("label", "span")
        else:
            raise self._wrong(f"a {type(item).__name__}, not a span {{start, end, label}}", i)
        if not isinstance(label, str):
            raise self._wrong(f"a label that is a {type(label).__name__}, not a string", i)
        # Checks order and type only: the length of the text is unknown until `detect`.
        check_range(start, end, None, owner=self._owner, param="spans", row=i)
        return Span(int(start), int(end), label)

    def _wrong(self, got: str, row: int) -> InvalidInputError:
        return InvalidInputError(f"{self._owner}: `spans` has {got} in row {row}.", param="spans")


def check_concept(value: Any, *, owner: str) -> Concept:
    """Return ``value``, a concept; raise `InvalidInputError` for its name or file alone."""
    if not isinstance(value, Concept):
        fix = "Make one with Concept.from_terms(name, terms) or Concept.from_file(path)."
        raise wrong_type(owner, "concept", "a vecveil.Concept", value, fix=fix)
    return value


def checked_labels(labels: Sequence[Any], *, owner: str, param: str = "labels") -> tuple[str | None, ...]:
    """Return one string or None for each text; an empty string counts as None."""
    values = check_sequence(labels, "a sequence with one label for each text", owner=owner, param=param)
    if hasattr(labels, "tolist"):  # the scalars of an array become Python's
        values = labels.tolist()
    for i, value in enumerate(values):
        known = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
        if value is not None and not known:
            raise InvalidInputError(
                f"{owner}: the label at position {i} is a {type(value).__name__}; use strings, integers or None.",
                code="E-INPUT-TYPE",
                param=param,
            )
    return tuple(None if value is None or value == "" else str(value) for value in values)


LONGEST_TIME_LIMIT = 60.0  # seconds; a record from a file must not stall the caller


def concept_record(concept: Concept, *, owner: str) -> dict[str, Any]:
    """Return the record of a concept of terms, patterns and named models; raise `ConceptError` for others."""
    detectors = [_record(detector) for detector in concept.detectors]
    if concept.columns or concept.labels is not None or None in detectors:
        raise ConceptError(
            f"The concept {concept.name!r} cannot be saved: a file can contain terms, patterns and entity types, but "
            "no code, model or spans. Give a detector the name or folder of its model.",
            param="concept",
        )
    return {"name": concept.name, "detectors": detectors}


def concept_from_record(record: dict[str, Any]) -> Concept:
    """Return the concept of a record; raise ValueError, LookupError or TypeError for an invalid one."""
    return Concept(record["name"], tuple(_detector(item) for item in record["detectors"]))


def _record(detector: Detector) -> dict[str, Any] | None:
    # Exact types: a subclass may detect differently, which the record could not restore.
    if type(detector) is TermDetector:
        own = {"terms": list(detector.terms), "case_sensitive": detector.case_sensitive}
        if not detector.accent_sensitive:
            own["accent_sensitive"] = False
        return {"kind": "terms", **own, "label": detector.label}
    if type(detector) is PatternDetector:
        limits = {"patterns": list(detector.patterns), "time_limit": detector.time_limit}
        return {"kind": "patterns", **limits, "label": detector.label}
    if isinstance(detector, NamedModelDetector):
        return detector.describe()
    known: tuple[type, ...] = (PresidioDetector, SpacyDetector, HuggingFaceDetector)
    if not isinstance(detector, EntityDetector) or type(detector) not in known or not detector.named:
        return None
    described = detector.describe()
    if described["model"] is None:  # Presidio's patterns
        return {key: described[key] for key in described if key not in ("engine", "model")}
    folder = os.path.isdir(described["model"])
    return described | ({"model": os.path.abspath(described["model"])} if folder else {})


def _detector(record: dict[str, Any]) -> Detector:
    kind = record["kind"]
    if kind == "terms":
        case, accents, label = record["case_sensitive"], record.get("accent_sensitive", True), record["label"]
        # Records come from files that others may have written: types are checked before use.
        if not isinstance(case, bool) or not isinstance(accents, bool) or not isinstance(label, str):
            raise TypeError("terms")
        return TermDetector(record["terms"], case_sensitive=case, accent_sensitive=accents, label=label)
    if kind == "patterns":
        limit, label = record["time_limit"], record["label"]
        if not 0 < limit <= LONGEST_TIME_LIMIT or not isinstance(label, str):
            raise ValueError("patterns")
        return PatternDetector(record["patterns"], time_limit=limit, label=label)
    if kind == "entities" and "model" in record:
        return NamedModelDetector(record)
    if kind == "entities":
        own: dict[str, Any] = {"language": record["language"], "min_score": record["min_score"]}
        return PresidioDetector(record["types"], regions=record.get("regions"), **own)
    raise ValueError("kind")
