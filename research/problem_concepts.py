"""The concept of a problem: listed terms, patterns, entities and annotated spans, as a specification names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from research.datasets import open_dataset
from research.datasets.kinds import TextSet
from research.specification import ConceptSpec, read_yaml
from vecveil.concepts import Concept
from vecveil.concepts.folding import words
from vecveil.errors import DataFileError, InvalidInputError

__all__ = ["Spans", "joined_concept", "listed_terms", "make_concept", "read_terms"]

Spans = Sequence[Sequence[Mapping[str, Any]]]


def read_terms(path: Path) -> dict[str, list[str]]:
    """Return groups of terms: of a JSON or YAML mapping or list, or a term a line; ``#`` starts a comment line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError.of("experiment", "terms_file", "a readable file in the data folder",
                               f"{path.name!r}, which cannot be read ({type(error).__name__})") from None  # fmt: skip
    if path.suffix.lower() not in (".json", ".yaml", ".yml"):
        lines = [line.strip() for line in text.splitlines()]
        terms = [line for line in lines if line and not line.startswith("#")]
        if not terms:
            raise DataFileError.of(path.name, "terms_file", "with at least one term", "none")
        return {"terms": terms}
    found = read_yaml(text, owner=path.name)
    groups = found if isinstance(found, dict) else {"terms": found}
    for key, value in groups.items():
        if not isinstance(value, list) or not all(isinstance(term, str) for term in value):
            raise DataFileError.of(path.name, str(key)[:40], "a list of strings", "something else")
    return {str(key): list(value) for key, value in groups.items()}


def make_concept(name: str, spec: ConceptSpec, spans: Spans | None, data: Path) -> Concept:
    """Return the concept of texts whose annotated spans are ``spans``."""
    return joined_concept(name, spec, spans, listed_terms(spec, data, name)[0])


def listed_terms(spec: ConceptSpec, data: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """Return the listed terms and the group of each of their words."""
    terms = list(spec.terms)
    group_of: dict[str, str] = {}
    if spec.terms_file is not None:
        groups = read_terms(data / spec.terms_file)
        chosen = spec.groups or tuple(groups)
        unknown = [group for group in chosen if group not in groups]
        if unknown:
            raise InvalidInputError.of(
                f"problem {name!r}", "groups", "of " + ", ".join(groups), repr(unknown[0])
            )
        for group in chosen:
            terms += groups[group]
            group_of |= {word: group for term in groups[group] for word in words(term)}
    for source, labels in spec.gazetteer.items():
        found = open_dataset(source, data)
        if not isinstance(found, TextSet) or found.spans is None:
            raise InvalidInputError.of(
                f"problem {name!r}", "gazetteer", "data sets with annotated spans", repr(source)
            )
        for text, row in zip(found.texts, found.spans, strict=True):
            for span in row:
                if span["label"] in labels or "*" in labels:
                    term = text[span["start"] : span["end"]]
                    if any(map(str.isalpha, term)) and len(term) > 2:
                        terms.append(term)
                        group_of |= {word: span["label"] for word in words(term)}
    return list(dict.fromkeys(terms)), group_of


def joined_concept(name: str, spec: ConceptSpec, spans: Spans | None, terms: list[str]) -> Concept:
    parts = []
    if terms:
        parts.append(Concept.from_terms(name, terms))
    if spec.patterns:
        parts.append(Concept.from_patterns(name, spec.patterns))
    if spec.entities:
        parts.append(
            Concept.from_entities(name, spec.entities, engine=spec.engine, model=spec.model)
        )
    if spec.spans:
        if spans is None:
            raise InvalidInputError.of(
                f"problem {name!r}", "spans", "left out for data without annotated spans", "given"
            )
        every = "*" in spec.spans
        kept = [[dict(s) for s in row if every or s["label"] in spec.spans] for row in spans]
        parts.append(
            Concept.from_spans(
                name, [[{k: s[k] for k in ("start", "end", "label")} for s in row] for row in kept]
            )
        )
    if not parts:
        raise InvalidInputError.of(
            f"problem {name!r}", "concept", "given by terms, spans, entities or patterns", "nothing"
        )
    return parts[0] if len(parts) == 1 else Concept.combined(name, parts)
