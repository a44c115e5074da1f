"""The JSON files of presidio-research: a list of full_text, masked and spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from research.datasets.columns import as_spans, as_texts, field_error
from research.datasets.kinds import TextSet, group_ids
from vecveil.data.files import not_usable

__all__ = ["read_presidio"]

_SPAN = {"start": "start_position", "end": "end_position", "label": "entity_type"}


def read_presidio(name: str, folder: Path, *, file: str) -> TextSet:
    """Return the texts of ``file``; those of one template are a group. There is no split."""
    try:
        rows = json.loads((folder / file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # a wrong byte is a ValueError as well
        raise not_usable(file, "a JSON file in UTF-8", "something else") from None
    if not isinstance(rows, list):
        raise not_usable(file, "a JSON list", f"a JSON {type(rows).__name__}")
    for row, value in enumerate(rows):
        if not isinstance(value, dict):
            raise field_error(file, "row", "an object", f"a {type(value).__name__}", row)
    texts = as_texts((row.get("full_text") for row in rows), file, "full_text")
    masked = as_texts((row.get("masked") for row in rows), file, "masked")
    spans = as_spans([_spans(row.get("spans")) for row in rows], texts, file)
    return TextSet(name, texts, group_ids(masked), spans=spans)


def _spans(value: Any) -> Any:
    """Return spans with the names that all sets share; what is no list of objects, as it is."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return value
    named = [{ours: item.get(theirs) for ours, theirs in _SPAN.items()} for item in value]
    return sorted(named, key=lambda item: str(item["start"]).zfill(12))
