"""Records of cells: one file each, written when the cell is done, and one file that gathers them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vecveil.atomic import write_text

__all__ = ["Store"]


class Store:
    """The finished cells in a folder.

    A cell is known by its key and by a digest of its settings, which stands in the name of its file: records that
    other settings led to lie beside it and are never overwritten. Several processes may write to one folder, each
    its own cells.

    Args:
        folder: where the files lie; made at the first write.
        schema: of the gathered file.
    """

    def __init__(self, folder: Path, schema: str) -> None:
        """Keep where and what."""
        self.folder, self.schema = folder, schema

    def _path(self, key: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
        parts = (*key.values(), digest(settings))
        return self.folder / ("-".join(str(value) for value in parts) + ".json")

    def get(self, key: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the record of a cell, or None if it has not been measured with these settings."""
        try:
            record: dict[str, Any] = json.loads(
                self._path(key, settings).read_text(encoding="utf-8")
            )
        except (OSError, ValueError):
            return None
        return record if record.get("settings") == digest(settings) else None

    def put(
        self, key: Mapping[str, Any], settings: Mapping[str, Any], found: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the record of a cell and return it."""
        record = {**key, "settings": digest(settings), **found}
        write_text(self._path(key, settings), json.dumps(record, indent=1) + "\n")
        return record

    def gather(self, path: Path, records: Iterable[Mapping[str, Any]], **more: Any) -> None:
        """Write the records of many cells as one file."""
        rows = [{k: v for k, v in record.items() if k != "settings"} for record in records]
        whole = {"schema": self.schema, **more, "rows": rows}
        write_text(path, json.dumps(whole, indent=1) + "\n")


def digest(settings: Mapping[str, Any]) -> str:
    """Return a hash of settings, the same whatever their order."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
