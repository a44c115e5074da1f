"""SPARSE, Tables 1 and 7: what leaks and what is kept, at equal ε and at equal utility."""

from __future__ import annotations

from research.experiment import Records
from research.grid import Grid
from research.scales import EFFECTIVE_NORM
from research.specification import Spec
from research.tables import SETTING, curve, findings_of, point_table, published_rows
from vecveil.records.experiment import Summary

TABLES = ("sparse-table-1", "sparse-table-7")
AXES = (
    "Literal ε is Algorithm 1's: the noise of n dimensions has a norm of about n/ε, on unit vectors so much that "
    f"nothing is left at the paper's values. Effective ε is noise of norm {EFFECTIVE_NORM}/ε, the scale that matches "
    "the paper's curve of relative utility; published figures stand beside effective ones. The Purkayastha mechanism "
    "has there the ε that Laplace has, and turns a vector by less than that norm says. At 'utility 0.95' every "
    "method has the noise that keeps 95 % of its task, both sides protected."
)


class Tradeoff(Grid):
    """The trade-off of six data sets."""

    name = "tradeoff"
    what = "Leakage, confidence and utility of each method on six data sets, over ε and at equal utility."
    source = "SPARSE, Tables 1 and 7"

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return one table and one figure for each data set, and what becomes of the paper's claims."""
        problems = records.values("problem")
        keys = ("dataset", "epsilon", "method")
        rows = published_rows(records, "effective")
        findings = findings_of("tradeoff", rows, keys, difference=SETTING)
        return Summary(
            tables=[point_table(records, name, title=name, tables=TABLES) for name in problems],
            figures=[curve(records, name, title=name) for name in problems],
            findings=findings,
            notes=[AXES, SETTING],
        )
