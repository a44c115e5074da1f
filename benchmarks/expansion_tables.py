"""The table of concept expansion, rendered from ``benchmarks/results/expansion.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["expansion_table"]

KINDS = ("listed", "expanded", "unseen")
NAMES = {
    "none": "clean vectors",
    "words deleted": "clean vectors of the texts without the words",
    "sparse": "`sparse`",
    "laplace": "`laplace`",
    "subspace": "`subspace`, listed words",
    "substitutions only": "the same, expanded by substitutions alone",
    "expansion of 50": "the same, expanded by 50 members",
    "expansion of 200": "the same, expanded by 200 members",
    "expansion of 800": "the same, expanded by 800 members",
    "expansion": "the same, expanded, 2,000 members at most",
    "all words known": "`subspace`, all words listed",
}
HEAD = (
    "texts",
    "what is attacked",
    "STS12 kept",
    "STS13–16 kept",
    *KINDS,
    "members",
    "fit, seconds",
)


def expansion_table(folder: Path) -> str:
    """Return leakage of listed, expanded and unseen words, and its excess over chance as a share of SPARSE's."""
    path = folder / "expansion.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    lines = [HEAD, (":--", ":--", *["--:"] * (len(HEAD) - 2))]
    for concept in ("sts", "ade"):
        for variant, name in NAMES.items():
            found = _rows(rows, concept, variant)
            if found:
                lines.append(
                    (concept.upper(), name, *_cells(found, _rows(rows, concept, "sparse")))
                )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rows(rows: list[dict[str, Any]], concept: str, variant: str) -> list[dict[str, Any]]:
    """Return the rows of one cell, one for each seed."""
    return [row for row in rows if (row["concept"], row["variant"]) == (concept, variant)]


def _cells(rows: list[dict[str, Any]], sparse: list[dict[str, Any]]) -> list[str]:
    kept = [_percent(_mean(row.get(key) for row in rows)) for key in ("sts12", "sts13_16")]
    shares = []
    for kind in KINDS:
        value = _mean(row["leakage"][kind]["value"] for row in rows)
        of = _mean(_excess(row, kind) for row in sparse)
        excess = _mean(_excess(row, kind) for row in rows)
        beside = f" ({100 * excess / of:.0f} %)" if excess is not None and of else ""
        shares.append(_percent(value) + beside)
    members = _mean(row["expansion"]["members"] for row in rows if "expansion" in row)
    seconds = _mean(row.get("fit_seconds") for row in rows)
    counts = ["–" if value is None else f"{value:,.0f}" for value in (members, seconds)]
    return [*kept, *shares, *counts]


def _excess(row: dict[str, Any], kind: str) -> float:
    leak = row["leakage"][kind]
    return float(leak["value"] - leak["chance"])


def _mean(values: Any) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
