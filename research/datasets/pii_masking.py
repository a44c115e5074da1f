"""PII-Masking-300K (and 200K, 400K) of ai4privacy: JSON lines or Parquet as the hub has them.

Fields read: source_text; privacy_mask (a list of {value, start, end, label}) or span_labels (a list
of [start, end, label]), either also as text; language; set or split, else the folder's name.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.datasets.annotated import joined
from research.datasets.columns import (
    as_spans,
    as_splits,
    as_texts,
    field_error,
    read_columns,
    split_name,
)
from research.datasets.kinds import TextSet, group_ids
from vecveil.data.columns import missing_column
from vecveil.data.files import not_usable

__all__ = ["read_pii_masking"]

_OPTIONAL = ("privacy_mask", "span_labels", "language", "set", "split", "id")
_LETTERED = re.compile(r"(\d+)[A-Z]+")


def read_pii_masking(
    name: str, folder: Path, *, languages: Sequence[str] | None = ("English", "en")
) -> TextSet:
    """Return the texts in ``languages`` of all files in or below ``folder``.

    The .jsonl files (also .gz) are read; where there are none, the .parquet files.
    Texts whose ids differ in the letter at the end alone (40767A, 40767B) are one group.

    Args:
        languages: names or codes, as the column ``language`` has them; upper and lower case are the
            same; None keeps all. A file without that column is kept whole.
    """
    wanted = None if languages is None else {language.casefold() for language in languages}
    below = sorted(folder.rglob("*"))
    files = [path for path in below if path.name.endswith((".jsonl", ".jsonl.gz"))]
    files = files or [path for path in below if path.suffix == ".parquet"]
    parts = [part for path in files if (part := _read_file(name, path, wanted)) is not None]
    if not parts:
        which = "any language" if languages is None else " or ".join(languages)
        raise not_usable(folder.name, f"a folder with texts in {which}", "one without")
    return joined(name, parts)


def _read_file(name: str, path: Path, wanted: set[str] | None) -> TextSet | None:
    rows = read_columns(path, "source_text", optional=_OPTIONAL)
    field = next((field for field in _OPTIONAL[:2] if field in rows), None)
    if field is None:
        raise missing_column(path.name, "columns", "privacy_mask", rows)
    texts = rows["source_text"]
    kept = list(range(len(texts)))
    if wanted is not None and "language" in rows:
        languages = as_texts(rows["language"], path.name, "language")
        kept = [row for row in kept if languages[row].casefold() in wanted]
    if not kept:
        return None
    spans: list[list[Any]] = [[] for _ in texts]
    for row in kept:
        spans[row] = _listed(rows[field][row], path.name, field, row)
    checked = as_spans(spans, texts, path.name, field)
    given = rows.get("split", rows.get("set"))
    splits = (_of_path(path),) * len(texts) if given is None else as_splits(given, path.name)
    ids = rows.get("id")
    keys = [row if ids is None else _document(ids[row], row) for row in kept]
    return TextSet(
        name=name,
        texts=tuple(texts[row] for row in kept),
        groups=np.asarray(group_ids(keys)),
        split=tuple(splits[row] for row in kept),
        spans=tuple(checked[row] for row in kept),
    )


def _listed(value: Any, source: str, field: str, row: int) -> list[Any]:
    """Return spans as objects, from a list or the text of one; "O" is what is no span."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = _literal(value)
    if not isinstance(value, list):
        raise field_error(source, field, "a list of spans", "something else", row)
    spans = [
        dict(zip(("start", "end", "label"), item, strict=True))
        if isinstance(item, list | tuple) and len(item) == 3
        else item
        for item in value
    ]
    return [item for item in spans if not (isinstance(item, dict) and item.get("label") == "O")]


def _literal(value: str) -> Any:
    """Return a list written as Python, with single quotes; None if it is not one."""
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _document(identifier: Any, row: int) -> Any:
    found = _LETTERED.fullmatch(identifier) if isinstance(identifier, str) else None
    return found[1] if found else (identifier if identifier is not None else ("row", row))


def _of_path(path: Path) -> str:
    inside = f"{path.parent.name} {path.name}".lower()
    found = re.search(r"train|validation|valid|dev|test", inside)
    return split_name(found[0]) if found else "train"
