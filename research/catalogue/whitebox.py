"""SPARSE, Table 4: how near the learnt mask comes to noise that is shaped by the attack's own gradients."""

from __future__ import annotations

from research.catalogue.tradeoff import AXES
from research.experiment import Records
from research.grid import Grid
from research.specification import Spec
from research.tables import SETTING, curve, findings_of, point_table, published_rows
from vecveil.records.experiment import Summary

TABLES = ("sparse-table-4",)
ATTACKED = (
    "SPARSE-WB knows a multi-label classifier (MLC) that the defender trains; the attackers that judge it are trained "
    "anew on what it releases."
)


class WhiteBox(Grid):
    """SPARSE beside its white-box variant."""

    name = "whitebox"
    what = "SPARSE, its white-box variant (integrated gradients of a known attack) and Laplace noise, over ε."
    source = "SPARSE, Table 4"

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table and a figure for each data set, and what becomes of the claims."""
        problems = records.values("problem")
        rows = published_rows(records, "effective")
        return Summary(
            tables=[point_table(records, name, title=name, tables=TABLES) for name in problems],
            figures=[curve(records, name, title=name) for name in problems],
            findings=findings_of(
                "whitebox", rows, ("dataset", "epsilon", "method"), difference=SETTING
            ),
            notes=[AXES, SETTING, ATTACKED],
        )
