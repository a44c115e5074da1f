"""SPARSE, Tables 1 and 7: what leaks and what is kept, at equal ε and at equal utility."""

from __future__ import annotations

from vecveil.experiments.catalogue.grid import Grid
from vecveil.experiments.experiment import Records
from vecveil.experiments.specification import Spec
from vecveil.experiments.summary import Summary

__all__ = ["Tradeoff"]


class Tradeoff(Grid):
    """The trade-off of six data sets."""

    name = "tradeoff"
    what = "Leakage, confidence and utility of each method on six data sets, over ε and at equal utility."
    source = "SPARSE, Tables 1 and 7"

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return one table and one figure for each data set, and what becomes of the paper's claims."""
        return Summary()
