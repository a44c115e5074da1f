"""The figures and the claims of the two papers, as data: what our own figures are shown beside.

One YAML file a table of a paper, in rows of one cell of the paper each; the names of data sets, methods and attacks
are ours. Where a paper contradicts itself, the ``notes`` of the table say so and the rows stand as printed.
"""

from __future__ import annotations

from research.published.claims import Claim, claims
from research.published.comparison import Order, Tally, Trend
from research.published.tables import TABLES, Column, PublishedTable, published

__all__ = [
    "TABLES",
    "Claim",
    "Column",
    "Order",
    "PublishedTable",
    "Tally",
    "Trend",
    "claims",
    "published",
]
