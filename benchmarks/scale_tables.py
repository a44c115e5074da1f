"""The tables of docs/scale.md, from scale.json and scale-cost.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["MISSING", "cost", "load_record", "markdown_table", "scale", "sealed_store"]

MISSING = "not measured"
CASES = {"copy without dictionaries": "copy", "laplace": "`laplace`", "subspace": "`subspace`"}


def load_record(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def markdown_table(head: list[str], rows: list[list[str]], words: int = 1) -> str:
    rule = [":--"] * words + ["--:"] * (len(head) - words)
    lines = rows or [[MISSING] * len(head)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def scale(folder: Path) -> str:
    """Return speeds and peaks for each size, engine and case."""
    rows = []
    for one in load_record(folder, "scale").get("sizes", []):
        for case, found in ((CASES[name], found) for name, found in one["cases"].items() if name in CASES):
            rows.append(
                [
                    f"{one['rows']:,}",
                    one["engine"],
                    case,
                    f"{found['start_seconds']:.1f} s",
                    f"{found['seconds']:.1f} s",
                    f"{found['rows_per_second']:,.0f}",
                    f"{100 * found['of_copy_without_dictionaries']:.0f} %",
                    f"{found['peak_mib']:,.0f} MiB",
                ]
            )
    head = ["rows", "engine", "what", "start", "time", "rows a second", "of the copy", "peak"]
    return markdown_table(head, rows, 3)


def cost(folder: Path) -> str:
    """Return what a thousand million vectors would cost."""
    rows = [
        [
            f"`{one['method']}`",
            f"{one['rows']:,}",
            f"{one['cores']:,}",
            f"{one['core_hours']:,.1f}",
            _hours(one["hours"]),
            f"{one['terabytes_read']:.2f} TB",
            f"{one['terabytes_written']:.2f} TB",
        ]
        for one in load_record(folder, "scale-cost").get("reckoned", [])
    ]
    return markdown_table(["method", "rows", "cores", "core hours", "time", "read", "written"], rows)


SEALED_CASES = {
    "clean": "clean vectors, readable texts",
    "protected": "protected vectors, no texts",
    "sealed": "`ProtectedCollection`",
}


def sealed_store(folder: Path) -> str:
    """Return ingestion, search, disk and memory of a sealed store beside one that is not."""
    rows = [
        [
            f"{one['rows']:,}",
            SEALED_CASES[one["case"]],
            f"{one['rows_per_second']:,.0f}",
            f"{one['milliseconds_a_search']:.0f} ms",
            f"{one['bytes_a_row']:,.0f}",
            f"{one['peak_mib']:,.0f} MiB",
        ]
        for one in load_record(folder, "sealed-store").get("rows", [])
    ]
    return markdown_table(["rows", "what", "rows written a second", "a search", "bytes a row", "peak"], rows, 2)


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
