"""Texts in one table: a column of texts, and what else is known of each in further columns.

Most sets lie in this form: JSON lines of {text, split, spans: [{start, end, label}], label}, or
Parquet with the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from research.datasets.columns import (
    as_classes,
    as_spans,
    as_splits,
    as_texts,
    read_columns,
)
from research.datasets.kinds import TextSet, group_ids

__all__ = ["joined", "read_split_tables", "read_text_table"]


def read_text_table(
    name: str,
    folder: Path,
    *,
    file: str,
    text: str = "text",
    split: str | None = None,
    spans: str | None = None,
    label: str | None = None,
    classes: Mapping[str, str] | None = None,
    group: str | None = None,
) -> TextSet:
    """Return the texts of a table (JSON lines, CSV, TSV or Parquet; text formats also .gz).

    Args:
        file: in ``folder``.
        text, split, spans, label, group: columns; None for what the table does not have. Without a
            group each row is one by itself.
        classes: names of the classes by what the label column has; None takes its texts.
    """
    path = folder / file
    named = [column for column in (split, spans, label, group) if column is not None]
    rows = read_columns(path, text, [*named])
    labels = None
    if label is not None:
        found = rows[label]
        labels = (
            as_texts(found, path.name, label)
            if classes is None
            else as_classes(found, classes, path.name, label)
        )
    return TextSet(
        name=name,
        texts=tuple(rows[text]),
        groups=np.arange(len(rows[text])) if group is None else group_ids(rows[group]),
        split=None if split is None else as_splits(rows[split], path.name),
        spans=None if spans is None else as_spans(rows[spans], rows[text], path.name, spans),
        labels=labels,
    )


def read_split_tables(
    name: str, folder: Path, *, files: Mapping[str, str], text: str, label: str | None = None
) -> TextSet:
    """Return the texts of several tables, of which each is a split.

    Args:
        files: split to file in ``folder``; those that are not there are left out.
        text, label: columns, as in :func:`read_text_table`.
    """
    parts = []
    for split, file in files.items():
        if (folder / file).is_file():
            part = read_text_table(name, folder, file=file, text=text, label=label)
            parts.append(replace(part, split=(split,) * len(part.texts)))
    return joined(name, parts)


def joined(name: str, sets: Sequence[TextSet]) -> TextSet:
    """Return the rows of all ``sets``, which hold the same columns, one set after the other."""
    groups, first = [], 0
    for part in sets:
        groups.append(part.groups + first)
        first += int(part.groups.max()) + 1
    with_split = all(part.split is not None for part in sets)
    with_spans = all(part.spans is not None for part in sets)
    with_labels = all(part.labels is not None for part in sets)
    return TextSet(
        name=name,
        texts=tuple(text for part in sets for text in part.texts),
        groups=np.concatenate(groups),
        split=tuple(x for part in sets for x in part.split or ()) if with_split else None,
        spans=tuple(x for part in sets for x in part.spans or ()) if with_spans else None,
        labels=tuple(x for part in sets for x in part.labels or ()) if with_labels else None,
    )
