"""What a ledger says in sum: how many items, how often each, what they have spent."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

__all__ = ["LedgerSummary", "ProtectorReleases", "summarise"]


@dataclass(frozen=True)
class ProtectorReleases:
    """The releases by one protector.

    Attributes:
        protector: its fingerprint.
        items: items that it released.
        releases: releases, repeatable ones counted once.
        most_releases: of one item.
        most_epsilon: the largest sum of ε over one item's releases (basic composition), per unit of
            the protector's own metric; None if a release came without a formal ε.
    """

    protector: str
    items: int
    releases: int
    most_releases: int
    most_epsilon: float | None

    def to_record(self) -> dict[str, Any]:
        """Return the row as JSON-ready values."""
        return dict(vars(self))


@dataclass(frozen=True)
class LedgerSummary:
    """A ledger in numbers; it names no item.

    Attributes:
        items: items that were released at least once.
        releases: releases of all of them.
        most_releases: of one item.
        cap: releases that an item may have; None for no cap.
        histogram: number of releases → number of items with that many.
        protectors: one row for each protector, by fingerprint.
        head: the end of the hash chain; kept elsewhere, it shows later whether rows are missing.
    """

    items: int
    releases: int
    most_releases: int
    cap: int | None
    histogram: dict[int, int]
    protectors: tuple[ProtectorReleases, ...]
    head: str

    def to_record(self) -> dict[str, Any]:
        """Return the summary as JSON-ready values."""
        return {
            **vars(self),
            "histogram": {str(count): items for count, items in self.histogram.items()},
            "protectors": [row.to_record() for row in self.protectors],
        }


_HISTOGRAM = """
SELECT releases, count(*) FROM (SELECT count(*) AS releases FROM events GROUP BY item)
GROUP BY releases ORDER BY releases
"""

_PROTECTORS = """
SELECT protector, count(*), sum(releases), max(releases), max(epsilon), min(formal) FROM (
  SELECT protector, count(*) AS releases, sum(epsilon) AS epsilon,
         count(epsilon) = count(*) AS formal
  FROM events GROUP BY protector, item)
GROUP BY protector ORDER BY protector
"""


def summarise(opened: sqlite3.Connection, *, cap: int | None, head: str) -> LedgerSummary:
    """Return the summary of the ledger that ``opened`` is connected to."""
    histogram = dict(opened.execute(_HISTOGRAM))
    protectors = tuple(
        ProtectorReleases(name, items, releases, most, epsilon if formal else None)
        for name, items, releases, most, epsilon, formal in opened.execute(_PROTECTORS)
    )
    return LedgerSummary(
        items=sum(histogram.values()),
        releases=sum(count * items for count, items in histogram.items()),
        most_releases=max(histogram, default=0),
        cap=cap,
        histogram=histogram,
        protectors=protectors,
        head=head,
    )
