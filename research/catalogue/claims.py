"""What becomes of the papers' claims in our records: counted in our rows as in the paper's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from research.published import Claim, claims, published
from research.summary import Finding, Verdict

__all__ = ["beside", "findings_of", "verdict_of"]

AGREES = 0.8  # share of comparisons in which a claim holds
DISAGREES = 0.5  # what two equal methods give
FEWEST = 4  # comparisons that a verdict needs


def verdict_of(held: int, cells: int) -> Verdict:
    """Return ``agrees`` if a claim holds in four of five comparisons, ``disagrees`` if in no more than half.

    Fewer than four comparisons decide nothing.
    """
    if not cells:
        return "not measured"
    if cells < FEWEST:
        return "unclear"
    share = held / cells
    return "agrees" if share >= AGREES else "disagrees" if share <= DISAGREES else "unclear"


def findings_of(
    experiment: str,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    *,
    difference: str,
    only: Sequence[str] = (),
) -> list[Finding]:
    """Return a finding for each claim that an experiment tests.

    Args:
        rows: our figures with the paper's keys and in its units, such as ``dataset``, ``epsilon``, ``method``,
            ``leakage`` (%), ``utility``; and any further key of ours, such as ``axis``.
        keys: columns that say which cell a row is.
        difference: what differs between the paper's setting and ours.
        only: ids of claims; none takes all of the experiment's.
    """
    return [
        _finding(claim, rows, keys, difference)
        for claim in claims(experiment)
        if not only or claim.id in only
    ]


def _finding(
    claim: Claim, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], difference: str
) -> Finding:
    ours = claim.compare.tally(rows, keys)
    theirs = claim.published_tally()
    source = f"{claim.paper}, {claim.source}"
    said = (
        f"holds in {theirs.held} of {theirs.cells} comparisons of its tables"
        if theirs.cells
        else "shown in a picture"
    )
    found = f"holds in {ours.held} of {ours.cells} comparisons" if ours.cells else "not measured"
    return Finding(claim.claim, source, verdict_of(ours.held, ours.cells), found, said, difference)


def beside(tables: Sequence[str], figure: str, **keys: Any) -> float | None:
    """Return a published figure from the first table that has the row, or None."""
    for name in tables:
        table = published(name)
        if any(key not in table.columns for key in keys):
            continue
        row = table.find(**keys)
        if row is not None and row.get(figure) is not None:
            return float(row[figure])
    return None
