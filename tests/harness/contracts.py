"""Compares a contract that is kept as JSON with what the package does now, and names every difference."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["GOLDEN", "differences", "read_contract", "write_contract"]

GOLDEN = Path(__file__).parents[1] / "golden"
_MISSING = object()


def read_contract(name: str) -> Any:
    """Return the contract ``tests/golden/NAME.json``."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def write_contract(name: str, content: Any) -> None:
    """Write the contract ``tests/golden/NAME.json``."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, sort_keys=True)
    (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def differences(expected: Any, found: Any, *, at: str = "", tolerances: Mapping[str, float] | None = None) -> list[str]:
    """Return one line for each value that vanished, appeared or changed, with the path to it.

    Args:
        expected: the JSON value of the contract.
        found: the JSON value of now.
        at: the path of both.
        tolerances: relative tolerance of floats by prefix of their path; the longest prefix counts, none is exact.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        lines = []
        for key in sorted({*expected, *found}):
            here = f"{at} / {key}" if at else key
            old, new = expected.get(key, _MISSING), found.get(key, _MISSING)
            if new is _MISSING:
                lines.append(f"vanished: {here} (was {_short(old)})")
            elif old is _MISSING:
                lines.append(f"appeared: {here} (is {_short(new)})")
            else:
                lines += differences(old, new, at=here, tolerances=tolerances)
        return lines
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [
            line for i, (old, new) in pairs for line in differences(old, new, at=f"{at} / {i}", tolerances=tolerances)
        ]
    if isinstance(expected, float) and isinstance(found, float | int) and tolerances:
        prefixes = [one for one in tolerances if at.startswith(one)]
        tolerance = tolerances[max(prefixes, key=len)] if prefixes else 0.0
        if math.isclose(expected, found, rel_tol=tolerance, abs_tol=tolerance / 1000):
            return []
    if type(expected) is type(found) and expected == found:
        return []
    return [f"changed: {at}: was {_short(expected)}, is {_short(found)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"
