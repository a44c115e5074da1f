"""What the tables are made of: the gathered records of a folder, and figures as they are shown.

Nothing beside the standard library is needed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "LABEL", "MISSING", "NONE", "TITLES", "Results", "at", "labelled", "load", "markdown",
    "mean_and_deviation", "percent", "with_interval",
]  # fmt: skip

MISSING = "not measured"
NONE = "–"  # there is no such figure
LABEL = "empirical, no formal privacy guarantee"
TITLES = {
    "phrasebank": "Financial PhraseBank",
    "ade": "ADE",
    "sst2": "SST-2",
    "agnews": "AG News",
}

Record = dict[str, Any]


class Results:
    """The rows of both parts, and the defences in their order."""

    def __init__(self, folder: Path) -> None:
        """Read what there is."""
        parts = [load(folder / f"textcrafter-{part}.json") for part in ("utility", "sentences")]
        self.utility, self.sentences = (part.get("rows", []) for part in parts)
        self.titles: dict[str, str] = {}
        for part in parts:
            self.titles |= part.get("defences", {})

    def measured(self, some: Iterable[str] | None = None) -> list[str]:
        """Return the defences with a record, in their order."""
        held = {row["defence"] for row in (*self.utility, *self.sentences)}
        return [name for name in (some or self.titles) if name in held]

    def figures(self, where: str, defence: str, *path: str) -> list[float]:
        """Return a figure of each seed; ``*`` in the path takes the highest of several."""
        rows = [r for r in self.utility if r["set"] == where and r["defence"] == defence]
        return [value for row in rows if (value := at(row, path)) is not None]

    def sentence(self, where: str, defence: str, name: str, what: str = "value") -> float | None:
        """Return a figure of the sentence-level attack, an end of its interval, or its chance level."""
        for row in self.sentences:
            if row["set"] == where and row["defence"] == defence:
                return at(row, ("figures", name, what))
        return None

    def title(self, defence: str) -> str:
        """Return a defence as the tables call it; TextCrafter never without its label."""
        return labelled(defence, self.titles.get(defence, defence))


def labelled(defence: str, title: str) -> str:
    """Return the title of a defence, with the label if it is a TextCrafter."""
    return f"{title}; {LABEL}" if defence.startswith("textcrafter") else title


def load(path: Path) -> Record:
    """Return a gathered file; nothing if there is none."""
    record: Record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return record


def at(row: Any, path: Sequence[str]) -> float | None:
    """Return the number at a path of a record, or None."""
    for key in path:
        if not isinstance(row, dict):
            return None
        row = max(row.values(), default=None) if key == "*" else row.get(key)
    return row if isinstance(row, int | float) else None


def mean_and_deviation(values: Sequence[float], factor: float = 100.0, digits: int = 1) -> str:
    """Return mean ± standard deviation over seeds, of a single value the value."""
    if not values:
        return MISSING
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {factor * statistics.stdev(values):.{digits}f}"


def percent(value: float | None, factor: float = 100.0, digits: int = 1) -> str:
    """Return a single figure, by itself in per cent."""
    return MISSING if value is None else f"{factor * value:.{digits}f}"


def with_interval(found: Sequence[float | None], factor: float = 100.0, digits: int = 1) -> str:
    """Return a figure and its interval from value, low and high."""
    value, low, high = found
    if value is None or low is None or high is None:
        return percent(value, factor, digits)
    ends = (f"{factor * end:.{digits}f}" for end in (low, high))
    return f"{percent(value, factor, digits)} [{', '.join(ends)}]"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Return a table whose first ``words`` columns hold words; without rows it says that none was measured."""
    rule = [":--"] * words + ["--:"] * (len(head) - words)
    lines = [head, rule, *(rows or [[MISSING] * len(head)])]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
