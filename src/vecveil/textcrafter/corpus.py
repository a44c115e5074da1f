"""Rows of the PII classifier: texts with PII by a detector, classes of one size, splits by group.

TextCrafter, Eq. 6 to 8: plain texts with detected PII join the positives, and the larger class is sampled down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.concepts import Concept, Detector, PresidioDetector
from vecveil.errors import InvalidInputError
from vecveil.types import Texts
from vecveil.validation import check_texts

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
        raise InvalidInputError(
            f"{owner}: {param} needs an integer or a string for each of the {rows} rows.", param=param
        )
    return array


def row_groups(groups_positive: Any, groups_plain: Any, positive: int, plain: int, *, owner: str) -> Indices:
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
        raise InvalidInputError(
            "groups_positive and groups_plain must both be integers or both be strings: a name in both is one group.",
            param="groups_plain",
        )
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
    groups: Indices, labels: npt.NDArray[np.bool_], share: float, rng: np.random.Generator, *, owner: str
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
        raise InvalidInputError(
            f"{int(positives.sum())} groups of positives and {int(plains.sum())} of plain rows are too few to hold "
            "both classes out. Give more groups.",
            param="groups_positive",
        )
    return test


PII_ENTITIES = (
    "CREDIT_CARD",
    "CRYPTO",
    "EMAIL_ADDRESS",
    "IBAN_CODE",
    "IP_ADDRESS",
    "MAC_ADDRESS",
    "MEDICAL_LICENSE",
    "PHONE_NUMBER",
    "UK_NHS",
    "US_BANK_NUMBER",
    "US_DRIVER_LICENSE",
    "US_ITIN",
    "US_PASSPORT",
    "US_SSN",
)
"""Presidio's English types that need no model and identify a person, an account or a device.

DATE_TIME, URL and UUID are excluded: they are frequent in plain text and identify nobody.
"""

PII_MIN_SCORE = 0.35
"""Above Presidio's format-only patterns (at most 0.3 without a checksum or a supporting word beside them: any seven
digits may be a driving licence), below its telephone numbers (0.4)."""


def pii_detector(
    entities: Sequence[str] = PII_ENTITIES, *, model: Any = None, language: str = "en", min_score: float = PII_MIN_SCORE
) -> PresidioDetector:
    """Return the default detector for relabelling plain texts.

    Without a model it finds no names of people and places: a plain text with only these stays plain.

    Args:
        entities: Presidio's types; some of the defaults are English only.
        model: None for pattern recognisers alone; otherwise as for `vecveil.concepts.PresidioDetector`.
        language: two-letter code.
        min_score: matches below are dropped; 0 takes every long number for PII.
    """
    return PresidioDetector(entities, model=model, language=language, min_score=min_score, owner="pii_detector")


def contains_pii(
    texts: Texts, detector: Detector | None = None, *, show_progress: bool | None = None
) -> npt.NDArray[np.bool_]:
    """Return a (N,) bool array, True for texts in which the detector finds anything.

    ``detector`` has ``detect(texts)``, such as the NER engines of `vecveil.concepts`; None takes `pii_detector`.
    """
    checked = check_texts(texts, owner="contains_pii", min_rows=0)
    # A concept adds blocks, checks of spans and a progress bar to its detector.
    detector = pii_detector() if detector is None else detector
    concept = detector if isinstance(detector, Concept) else Concept("PII", (detector,))
    rows = concept.detect(checked, show_progress=show_progress)
    return np.array([bool(spans) for spans in rows], dtype=bool)
