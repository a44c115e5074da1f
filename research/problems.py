"""Problems: texts of data sets, a concept in them, and groups of related texts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.datasets import open_dataset
from research.datasets.kinds import PairSet, RetrievalSet, TextSet
from research.specification import ConceptSpec, ProblemSpec
from vecveil.auditing.attacks import text_groups
from vecveil.errors import DataFileError, InvalidInputError, renamed, unknown_name
from vecveil.privacy.concepts import Concept, ConceptMatches
from vecveil.privacy.concepts.concept_file import load_yaml, read_text
from vecveil.privacy.concepts.matching import Span, TermDetector, words

Spans = Sequence[Sequence[Mapping[str, Any]]]


def read_terms(path: Path) -> dict[str, list[str]]:
    """Return the terms of a JSON or YAML file by group; a plain list, or one term a line, is the group ``terms``."""
    text = read_text(path, owner="read_terms", most=1 << 28)
    if path.suffix.lower() in (".json", ".yaml", ".yml"):
        content: Any = load_yaml(text, path.name, owner="read_terms")
    else:
        content = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
    groups = content if isinstance(content, dict) else {"terms": content}
    terms = [term for own in groups.values() for term in (own if isinstance(own, list) else [None])]
    if not terms or not all(isinstance(each, str) for each in (*groups, *terms)):
        raise DataFileError(
            f"read_terms: {path.name!r} (`path`) has no list of terms, or lists by group.", param="path"
        )
    return groups


def make_concept(name: str, spec: ConceptSpec, spans: Spans | None, data: Path) -> Concept:
    """Return the concept of texts with the annotated ``spans``."""
    return joined_concept(name, spec, spans, listed_terms(spec, data, name)[0])


def listed_terms(spec: ConceptSpec, data: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """Return the listed terms, and the group of each of their words."""
    terms = list(spec.terms)
    group_of: dict[str, str] = {}
    if spec.terms_file is not None:
        groups = read_terms(data / spec.terms_file)
        chosen = spec.groups or tuple(groups)
        unknown = [group for group in chosen if group not in groups]
        if unknown:
            raise unknown_name(f"problem {name!r}", "groups", groups, unknown[0])
        for group in chosen:
            terms += groups[group]
            group_of |= {word: group for term in groups[group] for word in words(term)}
    for source, labels in spec.gazetteer.items():
        found = open_dataset(source, data)
        if not isinstance(found, TextSet) or found.spans is None:
            text = f"problem {name!r}: the data set {source!r} of `gazetteer` has no annotated spans."
            raise InvalidInputError(text, param="gazetteer")
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
        parts.append(Concept.from_entities(name, spec.entities, engine=spec.engine, model=spec.model))
    if spec.spans:
        if spans is None:
            text = f"problem {name!r}: its data has no annotated spans. Leave out `spans`."
            raise InvalidInputError(text, param="spans")
        every = "*" in spec.spans
        kept = [[dict(s) for s in row if every or s["label"] in spec.spans] for row in spans]
        parts.append(
            Concept.from_spans(name, [[{k: s[k] for k in ("start", "end", "label")} for s in row] for row in kept])
        )
    if not parts:
        text = f"problem {name!r}: `concept` is empty. Give terms, spans, entities or patterns."
        raise InvalidInputError(text, param="concept")
    return parts[0] if len(parts) == 1 else Concept.combined(name, parts)


SAMPLE_SEED = 0  # which texts are taken is the same for every seed: they are encoded once
DataSet = PairSet | RetrievalSet | TextSet


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Distinct texts of one or several data sets.

    Attributes:
        groups: (N,) texts of one pair, document or template, and copies, share a group.
        spans: annotated spans of each text, or None.
    """

    texts: list[str]
    groups: npt.NDArray[np.intp]
    spans: Spans | None


def read_corpus(names: Sequence[str], data: Path) -> Corpus:
    """Return the pooled texts of data sets, in order of first appearance."""
    where: dict[str, int] = {}
    spans: list[Sequence[Mapping[str, Any]]] = []
    edges: list[tuple[int, int]] = []
    annotated = True
    for name in names:
        found = open_dataset(name, data)
        texts, own_spans, own_edges = related_texts(found)
        annotated = annotated and own_spans is not None
        rows = []
        for i, text in enumerate(texts):
            row = where.setdefault(text, len(where))
            rows.append(row)
            if row == len(spans):
                spans.append([] if own_spans is None else own_spans[i])
        edges += [(rows[a], rows[b]) for a, b in own_edges]
    texts = list(where)
    groups = text_groups(texts, pairs=np.array(edges, dtype=np.intp).reshape(-1, 2))
    return Corpus(texts, groups, spans if annotated else None)


def related_texts(found: DataSet) -> tuple[list[str], Spans | None, list[tuple[int, int]]]:
    """Return non-blank texts, their spans, and edges between related texts."""
    if isinstance(found, PairSet):
        texts = [*found.left, *found.right]
        half = len(found.left)
        return texts, None, [(i, half + i) for i in range(half)]
    if isinstance(found, RetrievalSet):
        texts = [*found.documents, *found.queries]
        first = len(found.documents)
        place = {key: i for i, key in enumerate(found.document_ids)}
        edges = []
        if found.same_pool:  # duplicates of each other: they must not be parted
            for j, query in enumerate(found.query_ids):
                edges += [(first + j, place[d]) for d in found.relevant.get(query, {}) if d in place]
        kept = [i for i, text in enumerate(texts) if text.strip()]
        back = {row: i for i, row in enumerate(kept)}
        edges = [(back[a], back[b]) for a, b in edges if a in back and b in back]
        return [texts[i] for i in kept], None, edges
    first_of: dict[int, int] = {}
    edges = [(first_of.setdefault(int(g), i), i) for i, g in enumerate(found.groups)]
    return list(found.texts), found.spans, edges


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Texts with a concept found in them.

    Attributes:
        matches: spans of the concept in the sampled texts.
        groups: (N,) group of each text.
        concept: finds the same spans in these texts.
        rest: texts with the concept that the cap left out, of unsampled groups, with spans: an attacker may have them.
        categories: category of each concept word: the label of its spans, or its group in the terms file.
    """

    name: str
    spec: ProblemSpec
    matches: ConceptMatches
    groups: npt.NDArray[np.intp]
    concept: Concept
    categories: Mapping[str, str]
    rest: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.matches.texts

    @cached_property
    def digest(self) -> str:
        found = hashlib.sha256()
        for text, row, group in zip(self.texts, self.matches.spans, self.groups, strict=True):
            spans = [(span.start, span.end, span.label) for span in row]
            found.update(json.dumps([text, spans, int(group)]).encode())
        return found.hexdigest()[:16]


def make_problem(name: str, spec: ProblemSpec, data: Path) -> Problem:
    """Read a problem's data sets, sample their texts, and find the concept.

    Raises:
        DataFileError: a data set or file of terms is missing or damaged.
        ConceptError: the concept is in too few texts.
    """
    with renamed("name", f"problems.{name}.data"):
        corpus = read_corpus(spec.data, data)
    terms, groups_of = listed_terms(spec.concept, data, name)
    concept = joined_concept(name, spec.concept, corpus.spans, terms)
    matches = concept.find(corpus.texts)
    groups = corpus.groups
    rest: dict[str, tuple[Span, ...]] = {}
    if spec.texts is not None and max(len(matches.with_concept), len(matches.without_concept)) > spec.texts:
        rows = np.sort(
            np.concatenate(
                [_sample(part, groups, spec.texts) for part in (matches.with_concept, matches.without_concept)]
            )
        )
        taken = [corpus.texts[i] for i in rows]
        spans = None if corpus.spans is None else [corpus.spans[i] for i in rows]
        held = set(groups[rows].tolist())
        free = [i for i in matches.with_concept if int(groups[i]) not in held]
        rest = {corpus.texts[i]: matches.spans[i] for i in free}
        concept, groups = joined_concept(name, spec.concept, spans, terms), groups[rows]
        matches = concept.find(taken)
    found = _categories(matches, groups_of)
    return Problem(name, spec, matches, groups, concept, found, rest)


def _sample(rows: npt.NDArray[np.int64], groups: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.int64]:
    """Return about ``count`` of the rows, whole groups in random order."""
    names, index = np.unique(groups[rows], return_inverse=True)
    rank = np.random.default_rng(SAMPLE_SEED).permutation(len(names))[index]
    return rows[np.argsort(rank, kind="stable")[:count]]


def grouped_concept(problem: Problem, data: Path) -> Concept:
    """Return the problem's concept with listed terms labelled by group, so that replacements stay in the group."""
    terms, group_of = listed_terms(problem.spec.concept, data, problem.name)
    if not terms or len(set(group_of.values())) < 2:
        return problem.concept
    by_group: dict[str, list[str]] = {}
    for term in terms:
        first = next(iter(words(term)), "")
        by_group.setdefault(group_of.get(first, "term"), []).append(term)
    listed = [TermDetector(own, label=group) for group, own in by_group.items()]
    others = [d for d in problem.concept.detectors if not isinstance(d, TermDetector)]
    return Concept(problem.name, (*listed, *others))


def _categories(matches: ConceptMatches, group_of: Mapping[str, str]) -> dict[str, str]:
    """Return for each word of the concept its group of terms, or the most frequent label of its spans."""
    counts: dict[str, Counter[str]] = {}
    for row in matches.spans:
        for span in row:
            for word in words(span.term):
                counts.setdefault(word, Counter())[span.label] += 1
    return {
        word: group_of.get(word) or min(own.items(), key=lambda one: (-one[1], one[0]))[0]
        for word, own in counts.items()
    }
