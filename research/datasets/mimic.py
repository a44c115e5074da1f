"""MIMIC-III notes: NOTEEVENTS.csv, which PhysioNet gives to people who signed its agreement.

The file has about two million notes in four gigabytes; it is read record by record, and no more is
held than what is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from research.datasets.columns import field_error
from research.datasets.kinds import TextSet, group_ids
from research.datasets.lines import existing, records
from vecveil.data.columns import missing_column
from vecveil.data.files import not_usable
from vecveil.validation import check_count

__all__ = ["read_mimic_notes"]

CHARACTERS = 1 << 28
_COLUMNS = ("TEXT", "CATEGORY", "SUBJECT_ID")


def read_mimic_notes(
    name: str,
    folder: Path,
    *,
    categories: Sequence[str] | None = ("Discharge summary",),
    most: int = 5_000,
) -> TextSet:
    """Return the first notes of ``categories``: no split, no spans, the category as the label.

    Notes marked as errors and empty ones are passed over. The notes of a patient are one group.

    Args:
        categories: as the column CATEGORY has them; upper and lower case are the same; None: all.
        most: notes to return; reading stops there, or at 268 million characters.
    """
    most = check_count(most, owner="read_mimic_notes", param="most")
    wanted = None if categories is None else {category.casefold() for category in categories}
    path = existing(folder, "NOTEEVENTS.csv", "noteevents.csv") or folder / "NOTEEVENTS.csv"
    texts: list[str] = []
    labels: list[str] = []
    patients: list[str] = []
    characters = 0
    rows = records(path)
    header = [column.strip().upper() for column in next(rows, (0, [""]))[1]]
    for column in _COLUMNS:
        if column not in header:
            raise missing_column(path.name, "columns", column, header)
    text, category, patient = (header.index(column) for column in _COLUMNS)
    error = header.index("ISERROR") if "ISERROR" in header else None
    for number, fields in rows:
        if len(fields) != len(header):
            where = f"record {number}"
            raise field_error(path.name, "fields", f"{len(header)}", len(fields), where)
        label, note = fields[category].strip(), fields[text].strip()
        is_error = error is not None and fields[error].strip() in ("1", "1.0")
        if is_error or not note or (wanted is not None and label.casefold() not in wanted):
            continue
        texts.append(note)
        labels.append(label)
        patients.append(fields[patient])
        characters += len(note)
        if len(texts) >= most or characters >= CHARACTERS:
            break
    if not texts:
        which = "any category" if categories is None else " or ".join(categories)
        raise not_usable(path.name, f"a file with notes of {which}", "one without")
    return TextSet(name, tuple(texts), group_ids(patients), labels=tuple(labels))
