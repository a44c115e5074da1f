"""Up to ten versions of a text that differ in one concept word: the attacker knows all the rest of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.auditing.case import Case
from vecveil.types import Embeddings

__all__ = ["Substitutes", "forms_of", "substitutes"]

VERSIONS = 10
FEWEST_VERSIONS = 4
MOST_TEXTS = 200
FEWEST_TEXTS = 20


@dataclass(frozen=True, eq=False, repr=False)
class Substitutes:
    """Texts with their versions, as vectors.

    Attributes:
        rows: (M,) rows of the texts.
        pool: (P, n) clean vectors of all versions.
        options: (M, C) the versions of each text, indices into ``pool``.
        truth: (M,) which of them is the text itself.
    """

    rows: npt.NDArray[np.intp]
    pool: Embeddings
    options: npt.NDArray[np.intp]
    truth: npt.NDArray[np.intp]


def substitutes(case: Case) -> Substitutes | None:
    """Return up to 200 test texts with C = 10 versions each, the text itself among them.

    With fewer than ten terms there are as many versions; None if they are fewer than four, or without an encoder.

    One span of a text is exchanged for spans found in training texts: of its own label (drug for drug) where there
    are enough others, else of any.
    """
    if case.encode is None or case.embeddings is None or case.matches.labels is not None:
        return None
    rng = np.random.default_rng([case.options.seed, 3])
    forms = forms_of(case)
    count = min(VERSIONS, len(forms[None]))
    if count < FEWEST_VERSIONS:
        return None
    rows, texts, truth = [], [], []
    for row in rng.permutation(case.test):
        spans = case.matches.spans[row]
        span = spans[int(rng.integers(len(spans)))]
        others = [form for term, form in forms[span.label].items() if term != span.term]
        if len(others) < count - 1:
            others = [form for term, form in forms[None].items() if term != span.term]
        if len(others) < count - 1:
            continue
        text = case.texts[row]
        chosen = rng.choice(len(others), count - 1, replace=False)
        versions = [text[: span.start] + others[i] + text[span.end :] for i in chosen]
        place = int(rng.integers(count))
        versions.insert(place, text)
        rows.append(row)
        texts += versions
        truth.append(place)
        if len(rows) == MOST_TEXTS:
            break
    if len(rows) < FEWEST_TEXTS:
        return None
    options = np.arange(len(texts)).reshape(len(rows), count)
    pool = case.encode(texts)
    pool[options[np.arange(len(rows)), truth]] = case.embeddings[rows]
    return Substitutes(np.array(rows), pool, options, np.array(truth))


def forms_of(case: Case) -> dict[str | None, dict[str, str]]:
    """Return the terms of the training texts, each as it is first written, by label and all of them under None."""
    found: dict[str | None, dict[str, str]] = defaultdict(dict)
    for row in case.train:
        for span in case.matches.spans[row]:
            written = case.texts[row][span.start : span.end]
            for label in (span.label, None):
                found[label].setdefault(span.term, written)
    return found
