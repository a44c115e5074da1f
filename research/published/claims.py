"""What the papers claim, in our words, each with the comparison of figures that tests it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from research.published.comparison import Order, Tally, Trend
from research.published.tables import published, text_of
from research.specification import read_yaml

__all__ = ["Claim", "claims"]


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
        id: its name in records.
        paper, source: where it is made, such as ``Table 1, section 4.2``.
        claim: what is claimed.
        experiment: the experiment of ours that tests it.
        tables: the published tables with the figures that it rests on; none where it rests on a picture.
        compare: the comparison that decides it.
    """

    id: str
    paper: str
    source: str
    claim: str
    experiment: str
    tables: tuple[str, ...]
    compare: Order | Trend

    def published_tally(self) -> Tally:
        """Return in how many cells of the paper's own tables the claim holds."""
        tables = [published(name) for name in self.tables]
        parts = [self.compare.tally(table.rows, table.keys) for table in tables]
        return Tally(
            sum(part.held for part in parts),
            sum(part.cells for part in parts),
            tuple(cell for part in parts for cell in part.broken),
        )


@functools.cache
def claims(experiment: str | None = None) -> tuple[Claim, ...]:
    """Return the claims of the papers, or those that one experiment tests.

    Raises:
        MissingDependencyError: PyYAML is not installed.
    """
    found = []
    for held in read_yaml(text_of("claims"), owner="claims"):
        compare = held.pop("compare")
        kind = Trend if "along" in compare else Order
        tables = tuple(held.pop("tables"))
        found.append(Claim(**held, tables=tables, compare=kind(**compare)))
    return tuple(claim for claim in found if experiment in (None, claim.experiment))
