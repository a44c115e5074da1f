"""Build the texts of the PII classifier: a PII corpus and plain texts, relabelled by a detector, 1:1.

TextCrafter, Eq. 5 to 8: draw texts from both corpora, move plain texts with detected PII to the positives, and
sample the larger class down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.concepts import Concept, Detector, PresidioDetector
from vecveil.errors import ConceptError, InvalidInputError
from vecveil.types import Embeddings, Texts
from vecveil.validation import check_count, check_texts

__all__ = [
    "PII_ENTITIES",
    "PII_MIN_SCORE",
    "PiiCorpus",
    "balanced_rows",
    "contains_pii",
    "label_corpus",
    "pii_detector",
    "row_groups",
    "split_by_group",
]

Indices = npt.NDArray[np.int64]


def balanced_rows(positive: int, plain: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return row numbers of both classes, equally many, in order (TextCrafter, Eq. 8).

    ``rng`` samples the larger class down, without replacement.
    """
    size = min(positive, plain)
    chosen = [
        np.arange(rows) if rows == size else np.sort(rng.choice(rows, size, replace=False))
        for rows in (positive, plain)
    ]
    return chosen[0].astype(np.int64), chosen[1].astype(np.int64)


def check_groups(groups: Any, rows: int, *, owner: str, param: str) -> npt.NDArray[Any]:
    """Return ``groups`` as an array of integers or strings, one for each row."""
    array = np.asarray(groups)
    if array.shape != (rows,) or array.dtype.kind not in "iuU":
        constraint = f"{rows} integers or strings, one for each row"
        got = f"shape {array.shape} of dtype {array.dtype}"
        raise InvalidInputError.of(owner, param, constraint, got)
    return array


def row_groups(
    groups_positive: Any, groups_plain: Any, positive: int, plain: int, *, owner: str
) -> Indices:
    """Return each row's group as a number, positives first; rows without given groups are groups."""
    given = [
        None if groups is None else check_groups(groups, rows, owner=owner, param=param)
        for param, groups, rows in (
            ("groups_positive", groups_positive, positive),
            ("groups_plain", groups_plain, plain),
        )
    ]
    known = [array for array in given if array is not None]
    if len({array.dtype.kind == "U" for array in known}) > 1:  # NumPy would turn 1 into "1"
        got = " and ".join(str(array.dtype) for array in known)
        raise InvalidInputError.of(owner, "groups_plain", "of the kind of `groups_positive`", got,
                                   "One name in both is one group.")  # fmt: skip
    numbers, count = np.empty(0, dtype=np.int64), 0
    # Numbered together: a name in both arguments is one group.
    if known:
        values, numbers = np.unique(np.concatenate(known), return_inverse=True)
        numbers, count = numbers.reshape(-1), len(values)
    result, start = [], 0
    for array, rows in zip(given, (positive, plain), strict=True):
        if array is None:
            result.append(np.arange(count, count + rows))
            count += rows
        else:
            result.append(numbers[start : start + rows])
            start += rows
    return np.concatenate(result).astype(np.int64)


def split_by_group(
    groups: Indices,
    labels: npt.NDArray[np.bool_],
    share: float,
    rng: np.random.Generator,
    *,
    owner: str,
) -> npt.NDArray[np.bool_]:
    """Return the mask of held-out rows: whole groups, with both classes on both sides.

    The share is taken separately from groups with positives only, with plain rows only and with both.
    ``groups`` (N,) are numbers, ``labels`` (N,) True for positives, ``share`` is in (0, 1).
    """
    values, index = np.unique(groups, return_inverse=True)
    index = index.reshape(-1)
    positives = np.bincount(index, weights=labels, minlength=len(values)) > 0
    plains = np.bincount(index, weights=~labels, minlength=len(values)) > 0
    out = np.zeros(len(values), dtype=bool)
    # Each kind of group is split separately, so that both sides keep the mixture.
    for kind in (positives & plains, positives & ~plains, ~positives & plains):
        members = rng.permutation(np.flatnonzero(kind))
        if len(members) >= 2:
            # at least one group on each side
            count = min(max(round(share * len(members)), 1), len(members) - 1)
            out[members[:count]] = True
    test: npt.NDArray[np.bool_] = out[index]
    sides = (labels[test], labels[~test])
    if any(side.all() or not side.any() for side in sides):
        got = f"{int(positives.sum())} groups of positives and {int(plains.sum())} of plain rows"
        raise InvalidInputError.of(owner, "groups_positive", "enough for both classes on both sides", got,
                                   "Rows of one group are held out together.", "Give more groups.")  # fmt: skip
    return test


PII_ENTITIES = (
    "CREDIT_CARD", "CRYPTO", "EMAIL_ADDRESS", "IBAN_CODE", "IP_ADDRESS", "MAC_ADDRESS", "MEDICAL_LICENSE",
    "PHONE_NUMBER", "UK_NHS", "US_BANK_NUMBER", "US_DRIVER_LICENSE", "US_ITIN", "US_PASSPORT", "US_SSN",
)  # fmt: skip
"""Presidio's English types that need no model and identify a person, an account or a device.

DATE_TIME, URL and UUID are excluded: they are frequent in plain text and identify nobody.
"""

PII_MIN_SCORE = 0.35
"""Above Presidio's format-only patterns (at most 0.3 without a checksum or a supporting word beside them: any seven
digits may be a driving licence), below its telephone numbers (0.4)."""


def pii_detector(
    entities: Sequence[str] = PII_ENTITIES,
    *,
    model: Any = None,
    language: str = "en",
    min_score: float = PII_MIN_SCORE,
) -> PresidioDetector:
    """Return the default detector for relabelling plain texts.

    Without a model it finds no names of people and places: a plain text with only these stays plain.

    Args:
        entities: Presidio's types; some of the defaults are English only.
        model: None for pattern recognisers alone; otherwise as for `vecveil.concepts.PresidioDetector`.
        language: two-letter code.
        min_score: matches below are dropped; 0 takes every long number for PII.
    """
    return PresidioDetector(
        entities, model=model, language=language, min_score=min_score, owner="pii_detector"
    )


def contains_pii(
    texts: Texts, detector: Detector | None = None, *, show_progress: bool | None = None
) -> npt.NDArray[np.bool_]:
    """Return a (N,) bool array, True for texts in which the detector finds anything.

    ``detector`` has ``detect(texts)``, such as the NER engines of `vecveil.concepts`; None takes `pii_detector`.
    """
    checked = check_texts(texts, owner="contains_pii", min_rows=0)
    rows = _concept(detector).detect(checked, show_progress=show_progress)
    return np.array([bool(spans) for spans in rows], dtype=bool)


@dataclass(frozen=True, eq=False, repr=False)
class PiiCorpus:
    """Row numbers of the positives and of equally many plain texts; it holds no text.

    Attributes:
        pii_rows: rows of the PII corpus among the positives.
        moved_rows: rows of the plain corpus among the positives, in which the detector found PII.
        plain_rows: rows of the plain corpus that stay plain.
        positive_groups: (P,) a number for each positive text, in the order of `texts`; equal texts share it.
        plain_groups: (Q,) the same for the plain texts, in the same numbering.
    """

    pii_rows: Indices
    moved_rows: Indices
    plain_rows: Indices
    positive_groups: Indices
    plain_groups: Indices
    counts: dict[str, int]
    seed: int
    detector: dict[str, Any]

    def __repr__(self) -> str:
        each = len(self.plain_rows)
        return f"PiiCorpus({each} of each class, {self.counts['moved']} plain texts moved)"

    def texts(self, pii_texts: Texts, plain_texts: Texts) -> tuple[list[str], list[str]]:
        """Return positives and plain texts, from the arguments of `label_corpus`."""
        self._check(len(pii_texts), len(plain_texts))
        positive = [pii_texts[i] for i in self.pii_rows]
        positive += [plain_texts[i] for i in self.moved_rows]
        return positive, [plain_texts[i] for i in self.plain_rows]

    def vectors(self, pii: Embeddings, plain: Embeddings) -> tuple[Embeddings, Embeddings]:
        """Return the vectors of positives and plain texts, from one for each text of `label_corpus`."""
        self._check(len(pii), len(plain))
        positive = np.concatenate([pii[self.pii_rows], plain[self.moved_rows]])
        return positive, plain[self.plain_rows]

    def to_record(self) -> dict[str, Any]:
        """Return counts, detector and seed as JSON-ready values, without any text."""
        return {"counts": dict(self.counts), "detector": dict(self.detector), "seed": self.seed}

    def _check(self, pii: int, plain: int) -> None:
        for param, rows, name in (("pii", pii, "pii_given"), ("plain", plain, "plain_given")):
            if rows != self.counts[name]:
                raise InvalidInputError.of("PiiCorpus", param, f"of the {self.counts[name]} rows that were labelled",
                            f"{rows} rows")  # fmt: skip


def label_corpus(
    pii_texts: Texts,
    plain_texts: Texts,
    detector: Detector | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
) -> PiiCorpus:
    """Return the positive and the plain texts after relabelling, 1:1 (TextCrafter, Eq. 5 to 8).

    The detector reads only plain texts; the labels of the PII corpus are trusted.

    Args:
        pii_texts: texts that hold PII.
        plain_texts: texts that should not.
        detector: as for `contains_pii`. One with spans by position needs ``sample=None``.
        sample: number of texts to draw from each corpus; None, or more than exist, takes all.

    Raises:
        ConceptError: the detector finds PII in every plain text.
    """
    owner = "label_corpus"
    pii, plain = (
        check_texts(texts, owner=owner, param=param, min_rows=0)
        for texts, param in ((pii_texts, "pii_texts"), (plain_texts, "plain_texts"))
    )
    for texts, param in ((pii, "pii_texts"), (plain, "plain_texts")):
        if not texts:
            raise InvalidInputError.of(
                owner, param, "at least one text", "none", "A classifier needs both classes."
            )
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    most = max(len(pii), len(plain))
    size = most if sample is None else check_count(sample, owner=owner, param="sample")
    rng = np.random.default_rng(seed)
    drawn_pii, drawn_plain = (_draw(len(texts), size, rng) for texts in (pii, plain))
    concept = _concept(detector)
    drawn = [plain[i] for i in drawn_plain]
    # Only drawn texts are scanned: detection is the slow part.
    flagged = contains_pii(drawn, concept, show_progress=show_progress)
    moved, kept = drawn_plain[flagged], drawn_plain[~flagged]
    if not kept.size:
        raise ConceptError.of(owner, "plain_texts", "in part without PII",
                              f"{len(moved)} texts, in each of which the detector finds some",
                              "Nothing plain is left to learn from.",
                              "Give plain texts, or a detector with fewer types or a higher score.")  # fmt: skip
    # Eq. 6 and 7: positives are the PII corpus and the flagged plain texts.
    rows_positive, rows_plain = balanced_rows(len(drawn_pii) + len(moved), len(kept), rng)
    # The positives are the PII corpus first, then the moved texts.
    from_pii = rows_positive < len(drawn_pii)
    pii_rows = drawn_pii[rows_positive[from_pii]]
    moved_rows = moved[rows_positive[~from_pii] - len(drawn_pii)]
    plain_rows = kept[rows_plain]
    # Equal texts share a group, so that no text is on both sides of a split.
    numbers: dict[str, int] = {}
    positive = [pii[i] for i in pii_rows] + [plain[i] for i in moved_rows]
    groups = [
        np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
        for texts in (positive, [plain[i] for i in plain_rows])
    ]
    counts = {
        "pii_given": len(pii),
        "plain_given": len(plain),
        "pii_drawn": len(drawn_pii),
        "plain_drawn": len(drawn_plain),
        "moved": len(moved),
        "moved_kept": len(moved_rows),
        "of_each": len(plain_rows),
    }
    described = _described(concept)
    return PiiCorpus(
        pii_rows, moved_rows, plain_rows, groups[0], groups[1], counts, seed, described
    )


def _concept(detector: Detector | None) -> Concept:
    """Return the detector as a concept, which adds blocks, checks of spans and a progress bar."""
    if isinstance(detector, Concept):
        return detector
    return Concept("PII", (pii_detector() if detector is None else detector,))


def _described(concept: Concept) -> dict[str, Any]:
    """Return the records of the detectors; for the user's detector its type alone."""
    records = []
    for detector in concept.detectors:
        own = type(detector).__module__.startswith("vecveil.concepts.")
        describe = getattr(detector, "describe", None) if own else None
        records.append({"kind": type(detector).__name__} if describe is None else describe())
    return {"name": concept.name, "detectors": records}


def _draw(rows: int, size: int, rng: np.random.Generator) -> Indices:
    """Return at most ``size`` of ``rows`` row numbers, in order (Eq. 5)."""
    if size >= rows:
        return np.arange(rows, dtype=np.int64)
    return np.sort(rng.choice(rows, size, replace=False)).astype(np.int64)
