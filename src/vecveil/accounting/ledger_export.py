"""Writes a ledger's releases as CSV or JSON lines, with hashed ids only."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vecveil.errors import InvalidInputError
from vecveil.io import atomic_path

__all__ = ["write_events"]

_COLUMNS = ("row", "item", "protector", "epsilon", "release", "chain")


def write_events(opened: sqlite3.Connection, target: Path) -> None:
    """Write one line per release to ``target``, a .csv or .jsonl file.

    The columns are the row's number, the item's hashed id, the protector's fingerprint, ε, the
    hashed tag of a repeatable release, and the value of the hash chain; None is an empty field.
    """
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise InvalidInputError.of(
            "Ledger.export", "path", "a file that ends in .csv or .jsonl", f"the ending {suffix!r}"
        )
    with (
        atomic_path(target) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        if suffix == ".csv":
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_COLUMNS)
            writer.writerows(_events(opened))
        else:
            for event in _events(opened):
                record = dict(zip(_COLUMNS, event, strict=True))
                file.write(json.dumps(record, allow_nan=False) + "\n")


def _events(opened: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    for event in opened.execute(f"SELECT {', '.join(_COLUMNS)} FROM events ORDER BY row"):
        yield tuple(value.hex() if isinstance(value, bytes) else value for value in event)
