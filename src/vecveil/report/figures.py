"""How a number is written: shares in percent, intervals, counts, times, parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

__all__ = [
    "MISSING",
    "NBSP",
    "count",
    "decimal",
    "duration",
    "interval",
    "moment",
    "parameter",
    "percent",
    "plain_interval",
    "scale",
]

NBSP = "\u00a0"
MISSING = "–"


def percent(share: float | None) -> str:
    """Return a share in percent with one decimal; a number beyond [-1, 1] is no share and stays."""
    if share is None:
        return MISSING
    if abs(share) > 1 + 1e-9:
        return f"{share:.4g}"
    if 0 < share < 0.0005:
        return f"<0.1{NBSP}%"
    return f"{_minus(f'{100 * share:.1f}')}{NBSP}%"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of shares, such as ``21.4–24.5 %``."""
    if low is None or high is None:
        return MISSING
    if max(abs(low), abs(high)) > 1 + 1e-9:
        return f"{low:.4g} to {high:.4g}"
    if low < 0:
        return f"{percent(low)} to {percent(high)}"
    return f"{100 * low:.1f}–{100 * high:.1f}{NBSP}%"


def decimal(value: float | None) -> str:
    """Return a score, such as a correlation or nDCG, with three decimals."""
    return (
        MISSING if value is None else _minus(f"{value:.3f}" if abs(value) < 100 else f"{value:.6g}")
    )


def plain_interval(low: float | None, high: float | None) -> str:
    """Return an interval of scores, such as ``0.901 to 0.913``."""
    return MISSING if low is None or high is None else f"{decimal(low)} to {decimal(high)}"


def count(number: int | None) -> str:
    """Return a whole number with a comma between thousands."""
    return MISSING if number is None else f"{number:,}"


def scale(value: float) -> str:
    """Return a privacy parameter or another number without a natural number of decimals."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a time span in the unit that fits it."""
    if seconds < 10:
        return f"{seconds:.1f}{NBSP}s"
    if seconds < 120:
        return f"{seconds:.0f}{NBSP}s"
    if seconds < 7200:
        return f"{seconds / 60:.0f}{NBSP}min"
    return f"{seconds / 3600:.1f}{NBSP}h"


def moment(text: str) -> str:
    """Return an ISO time to the minute, such as ``2026-01-15 09:30 UTC``; other text as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    offset = time.strftime("%z")
    zone = (
        ""
        if not offset
        else " UTC"
        if offset in ("+0000", "-0000")
        else f" UTC{offset[:3]}:{offset[3:5]}"
    )
    return f"{time:%Y-%m-%d %H:%M}{zone}"


def parameter(value: Any) -> str:
    """Return any JSON value of the record's ``parameters`` as one line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(parameter(each) for each in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")
