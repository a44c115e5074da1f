"""Build the texts of the PII classifier: a PII corpus and plain texts, relabelled by a detector, 1:1.

TextCrafter, Eq. 5 to 8: draw texts from both corpora, move the plain ones in which a detector finds PII to the
others, and sample the larger class down.
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
    """Return row numbers of both classes, equally many: the larger is sampled down (TextCrafter, Eq. 8).

    Args:
        positive, plain: rows of each class.
        rng: draws the sample, without replacement; the rows keep their order.
    """
    size = min(positive, plain)
    chosen = [
        np.arange(rows) if rows == size else np.sort(rng.choice(rows, size, replace=False))
        for rows in (positive, plain)
    ]
    return chosen[0].astype(np.int64), chosen[1].astype(np.int64)


def check_groups(groups: Any, rows: int, *, owner: str, param: str) -> npt.NDArray[Any]:
    """Return ``groups`` as an array of integers or strings, one for each of ``rows`` rows."""
    array = np.asarray(groups)
    if array.shape != (rows,) or array.dtype.kind not in "iuU":
        constraint = f"{rows} integers or strings, one for each row"
        got = f"shape {array.shape} of dtype {array.dtype}"
        raise InvalidInputError.of(owner, param, constraint, got)
    return array


def row_groups(
    groups_positive: Any, groups_plain: Any, positive: int, plain: int, *, owner: str
) -> Indices:
    """Return each row's group as a number, positives first; rows without given groups stand alone.

    Raises:
        InvalidInputError: not one group a row, or the two are of different kinds.
    """
    given = [
        None if groups is None else check_groups(groups, rows, owner=owner, param=param)
        for param, groups, rows in (
            ("groups_positive", groups_positive, positive),
            ("groups_plain", groups_plain, plain),
        )
    ]
    known = [array for array in given if array is not None]
    if len({array.dtype.kind == "U" for array in known}) > 1:
        got = " and ".join(str(array.dtype) for array in known)
        raise InvalidInputError.of(owner, "groups_plain", "of the kind of `groups_positive`", got,
                                   "One name in both is one group.")  # fmt: skip
    numbers, count = np.empty(0, dtype=np.int64), 0
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
    """Return which rows are held out: whole groups, with both classes on both sides.

    The share is taken from groups with positives alone, with plain rows alone and with both, each apart.

    Args:
        groups: (N,) group numbers.
        labels: (N,) whether a row is positive.
        share: of the groups to hold out, in (0, 1).
        rng: draws which.

    Raises:
        InvalidInputError: the groups are too few to leave both classes on both sides.
    """
    values, index = np.unique(groups, return_inverse=True)
    index = index.reshape(-1)
    positives = np.bincount(index, weights=labels, minlength=len(values)) > 0
    plains = np.bincount(index, weights=~labels, minlength=len(values)) > 0
    out = np.zeros(len(values), dtype=bool)
    # Split each kind of group apart, so that both sides keep the mixture.
    for kind in (positives & plains, positives & ~plains, ~positives & plains):
        members = rng.permutation(np.flatnonzero(kind))
        if len(members) >= 2:
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
"""Presidio's English types that need no model and point at a person, an account or a device.

DATE_TIME, URL and UUID are left out: plain text is full of dates and addresses of pages, and they name nobody.
"""

PII_MIN_SCORE = 0.35
"""Above Presidio's patterns of mere form (at most 0.3 without a checksum or a word beside them that supports them:
any seven digits may be a driving licence), below its telephone numbers (0.4)."""


def pii_detector(
    entities: Sequence[str] = PII_ENTITIES,
    *,
    model: Any = None,
    language: str = "en",
    min_score: float = PII_MIN_SCORE,
) -> PresidioDetector:
    """Return the detector that relabels plain texts when none is given.

    Names of people and places are not found without a model: a plain text that holds only these stays plain.

    Args:
        entities: Presidio's types. Other languages know others; some of the default are English only.
        model: None for pattern recognisers alone; the rest as for `vecveil.concepts.PresidioDetector`.
        language: two letters.
        min_score: finds below are left out; 0 takes every long number for PII.

    Raises:
        MissingDependencyError: presidio-analyzer is not installed.
    """
    return PresidioDetector(
        entities, model=model, language=language, min_score=min_score, owner="pii_detector"
    )


def contains_pii(
    texts: Texts, detector: Detector | None = None, *, show_progress: bool | None = None
) -> npt.NDArray[np.bool_]:
    """Return whether the detector finds anything in each text: (N,) bool.

    Args:
        texts: N texts.
        detector: anything with ``detect(texts)``, such as the NER engines of `vecveil.concepts`; None takes
            `pii_detector`.
        show_progress: a bar on stderr; None shows it on a terminal only.
    """
    checked = check_texts(texts, owner="contains_pii", min_rows=0)
    rows = _concept(detector).detect(checked, show_progress=show_progress)
    return np.array([bool(spans) for spans in rows], dtype=bool)


@dataclass(frozen=True, eq=False, repr=False)
class PiiCorpus:
    """Row numbers of the positives and of as many plain texts; it holds no text.

    Attributes:
        pii_rows: rows of the PII corpus among the positives.
        moved_rows: rows of the plain corpus among the positives: the detector found PII in them.
        plain_rows: rows of the plain corpus that are plain.
        positive_groups: (P,) a number for each text of the positives, in the order of `texts`; equal texts share it.
        plain_groups: (Q,) the same for the plain ones, in the same numbering.
        counts: how many texts were given, drawn, moved and kept.
        seed: of both draws.
        detector: what found the PII: its kind, types and lowest score.
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
        """Return positives and plain texts; the arguments are those of `label_corpus`."""
        self._check(len(pii_texts), len(plain_texts))
        positive = [pii_texts[i] for i in self.pii_rows]
        positive += [plain_texts[i] for i in self.moved_rows]
        return positive, [plain_texts[i] for i in self.plain_rows]

    def vectors(self, pii: Embeddings, plain: Embeddings) -> tuple[Embeddings, Embeddings]:
        """Return the positives' and the plain texts' vectors, given one for each text of `label_corpus`."""
        self._check(len(pii), len(plain))
        positive = np.concatenate([pii[self.pii_rows], plain[self.moved_rows]])
        return positive, plain[self.plain_rows]

    def to_record(self) -> dict[str, Any]:
        """Return counts, detector and seed, JSON-ready; no text."""
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
    """Return which texts are positives and which plain, after relabelling, 1:1 (TextCrafter, Eq. 5 to 8).

    The labels of the PII corpus are taken as given; only plain texts are looked through.

    Args:
        pii_texts: texts that hold PII.
        plain_texts: texts that should not.
        detector: as for `contains_pii`. One whose spans belong to texts by position needs ``sample=None``.
        sample: how many texts are drawn from each corpus; None, or more than there are, takes all.
        seed: of this draw and of the one that makes the classes equal.
        show_progress: a bar on stderr; None shows it on a terminal only.

    Raises:
        InvalidInputError: a corpus is empty.
        ConceptError: the detector finds PII in every plain text.
        MissingDependencyError: no detector is given and presidio-analyzer is not installed.
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
    flagged = contains_pii(drawn, concept, show_progress=show_progress)
    moved, kept = drawn_plain[flagged], drawn_plain[~flagged]
    if not kept.size:
        raise ConceptError.of(owner, "plain_texts", "in part without PII",
                              f"{len(moved)} texts, in each of which the detector finds some",
                              "Nothing plain is left to learn from.",
                              "Give plain texts, or a detector with fewer types or a higher score.")  # fmt: skip
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
    """Return the detector as a concept, which detects in blocks, checks the spans and shows a bar."""
    if isinstance(detector, Concept):
        return detector
    return Concept("PII", (pii_detector() if detector is None else detector,))


def _described(concept: Concept) -> dict[str, Any]:
    """Return the record of the detectors; of one that is the user's own, its type alone."""
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
