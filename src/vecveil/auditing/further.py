"""Texts that an attacker makes or finds and labels itself: exchanged words, and sentences of a corpus."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from vecveil.attacks import FurtherVectors
from vecveil.attacks.evidence import normalise_text
from vecveil.auditing.case import Case
from vecveil.auditing.substitution import forms_of
from vecveil.concepts.folding import words
from vecveil.errors import VecveilError

__all__ = ["further_vectors"]

MOST_EXCHANGED = 3000
EXCHANGED_WEIGHT = 0.5
MOST_SENTENCES = 11_000
SENTENCE_WEIGHT = 0.3
SAME_COSINE = 0.85  # to a test text: such a sentence is a version of it
_CHUNK = 20_000

Labels = npt.NDArray[np.uint8]


def further_vectors(case: Case) -> FurtherVectors | None:
    """Return training texts with one concept word exchanged, and sentences of the corpus, as clean vectors.

    None without an encoder, or where neither can be made. No test text is used, and sentences that are a test
    text or close to one are left out.
    """
    if case.encode is None or case.embeddings is None or case.matches.labels is not None:
        return None
    made, made_labels, sources = _exchanged(case)
    found, found_labels = _sentences(case)
    texts = [*made, *found]
    if not texts:
        return None
    labels = np.concatenate([made_labels, found_labels])
    weight = np.repeat([EXCHANGED_WEIGHT, SENTENCE_WEIGHT], [len(made), len(found)])
    groups = np.concatenate([case.groups[sources], np.full(len(found), -1)])
    X = case.encode(texts)
    kept = np.ones(len(texts), dtype=bool)
    kept[len(made) :] = _closest(X[len(made) :], case.embeddings[case.test]) < SAME_COSINE
    if not kept.any():
        return None
    return FurtherVectors(X[kept], labels[kept], weight[kept], groups[kept])


def _exchanged(case: Case) -> tuple[list[str], Labels, npt.NDArray[np.intp]]:
    """Return training texts in which one span is exchanged for another attacked term, their labels and rows."""
    rng = np.random.default_rng([case.options.seed, 4])
    forms = {term: form for term, form in forms_of(case)[None].items() if _attacked(case, term)}
    terms = sorted(forms)
    count = min(MOST_EXCHANGED, 2 * len(case.train))
    if len(terms) < 2:
        nothing = np.zeros((0, len(case.vocabulary)), dtype=np.uint8)
        return [], nothing, np.zeros(0, dtype=np.intp)
    rows = np.concatenate([rng.permutation(case.train) for _ in range(2)])[:count]
    texts: list[str] = []
    tested = _tested(case)
    labels = np.zeros((len(rows), len(case.vocabulary)), dtype=np.uint8)
    for i, row in enumerate(rows):
        spans = case.matches.spans[row]
        place = int(rng.integers(len(spans)))
        span, text = spans[place], case.texts[row]
        others = [term for term in terms if term != span.term]
        term = others[int(rng.integers(len(others)))]
        texts.append(text[: span.start] + forms[term] + text[span.end :])
        left = [other.term for j, other in enumerate(spans) if j != place]
        _mark(case, labels[i], [*left, term])
    new = np.array([normalise_text(text) not in tested for text in texts])
    return [text for text, is_new in zip(texts, new, strict=True) if is_new], labels[new], rows[new]


def _sentences(case: Case) -> tuple[list[str], Labels]:
    """Return sentences of the corpus in which the concept finds an attacked word, and their labels."""
    nothing = np.zeros((0, len(case.vocabulary)), dtype=np.uint8)
    corpus = case.options.corpus
    if case.detect is None or not corpus:
        return [], nothing
    tested = _tested(case)
    order = np.random.default_rng([case.options.seed, 5]).permutation(len(corpus))
    texts: dict[str, Labels] = {}
    for start in range(0, len(order), _CHUNK):
        part = [corpus[i] for i in order[start : start + _CHUNK]]
        try:
            detected = case.detect(part)
        except (
            VecveilError
        ):  # spans that belong to the audited texts by position find nothing elsewhere
            return [], nothing
        for text, spans in zip(part, detected, strict=True):
            label = np.zeros(len(case.vocabulary), dtype=np.uint8)
            _mark(case, label, [span.term for span in spans])
            if label.any() and normalise_text(text) not in tested:
                texts.setdefault(text, label)
            if len(texts) == MOST_SENTENCES:
                break
        if len(texts) == MOST_SENTENCES:
            break
    return list(texts), np.stack(list(texts.values())) if texts else nothing


def _tested(case: Case) -> set[str]:
    """Return what is judged on, in letters and digits."""
    return {normalise_text(case.texts[row]) for row in (*case.test, *case.ordinary_test)}


def _attacked(case: Case, term: str) -> bool:
    return any(word in case.vocabulary for word in words(term))


def _mark(case: Case, label: Labels, terms: Iterable[str]) -> None:
    """Set the columns of the words of ``terms``."""
    for term in terms:
        for word in words(term):
            if word in case.vocabulary:
                label[case.vocabulary.index(word)] = 1


def _closest(
    X: npt.NDArray[np.floating], others: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64]:
    """Return the greatest cosine of each row of ``X`` to a row of ``others``."""
    left, right = (
        Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        for Z in (X.astype(np.float64), others.astype(np.float64))
    )
    blocks = [(left[i : i + 2000] @ right.T).max(axis=1) for i in range(0, len(left), 2000)]
    return np.concatenate(blocks) if blocks else np.zeros(0)
