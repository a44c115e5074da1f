"""The README's table of integrations: what the tests that ran say, and what the examples measured."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["integrations"]

MISSING = "not measured"


def integrations(folder: Path) -> str:
    """Return one row for each integration of the registry."""
    from vecveil.integrations import INTEGRATIONS

    path = folder / "integrations.json"
    if not path.exists():
        return MISSING
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = {row["module"]: row for row in record["integrations"]}
    where = (record["collection"] or "…").capitalize()
    searching = f"nDCG@10 on {where}, clean → protected"
    lines = [
        f"| with | what it is | `pip install` | tests passed | tested with | {searching} |",
        "| :-- | :-- | :-- | --: | :-- | :-- |",
    ]
    for one in INTEGRATIONS:
        row = rows.get(one.module, {})
        passed = f"{row['passed']}" if row.get("passed") else MISSING
        if row.get("failed"):
            passed += f", {row['failed']} failed"
        if row.get("skipped"):
            passed += f", {row['skipped']} skipped"
        ndcg = row.get("ndcg")
        searched = f"{ndcg['clean']:.3f} → {ndcg['protected']:.3f}" if ndcg else MISSING
        lines.append(
            f"| [{one.name}](docs/integrations/{one.module}.md) | {one.what} | `vecveil[{one.extra}]` | "
            f"{passed} | {one.component} {row.get('version', '')} | {searched} |"
        )
    return "\n".join(lines)
