"""What is proved of the concept, without any attack: the largest advantage at telling "with" from "without"."""

from __future__ import annotations

from typing import Any

from research.bench import Bench
from research.experiment import Cell as Axes
from research.experiment import Records
from research.grid import Grid
from research.points import defend, protector_record, utility
from research.scales import parse_scale
from research.specification import Spec
from research.tables import METHOD_NAMES
from vecveil.records.experiment import ClaimFinding, Column, Figure, Series, Summary, Table, number

NEAR = 0.9

MEANING = (
    "For each pair of a text with the concept and the same text without it, the exact privacy loss of the noise gives "
    "the total variation of the two releases: the largest advantage that any attacker, knowing both texts and the "
    "protector, can have at telling them apart from one release. 0 is a coin, 1 is certainty. Behind a map that is not "
    "invertible (subspace) the figure is an upper bound. Erased directions are hidden whatever the noise; conditional "
    "on the protector, which was fitted on these very pairs. At "
    "'literal E' the Gaussian method, which has no ε, has σ = 1/E."
)


class ConceptGuarantee(Grid):
    """The concept-level guarantee at equal utility."""

    name = "guarantee"
    what = "The largest advantage of any attacker at telling a text with the concept from the same without it."
    source = "own"

    def measure(self, spec: Spec, cell: Axes, bench: Bench) -> dict[str, Any]:
        """Return utility and the distances and advantages over the pairs."""
        material = bench.material(cell["problem"], cell["seed"])
        protector = defend(bench, material, cell["method"], parse_scale(cell["scale"]))
        return {
            "utility": utility(material.task, protector, material.seed),
            "protector": protector_record(protector),
        }

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table for each problem, and the advantage over utility."""
        problems = records.values("problem")
        return Summary(
            tables=[self._table(records, name) for name in problems],
            figures=[self._figure(records, name) for name in problems],
            findings=[self._finding(records, name) for name in problems],
            notes=[MEANING],
        )

    def _finding(self, records: Records, problem: str) -> ClaimFinding:
        """Return whether noise that keeps 95 % of the task bounds what any attacker can tell."""
        claim = f"At 95 % utility the noise alone keeps every attacker's mean advantage below {NEAR} ({problem})."
        where = ("protector", "concept_distance", "mean_advantage")
        found = {
            METHOD_NAMES.get(method, method): mean.value
            for (method,), rows in records.where(problem=problem, scale="utility 0.95").each(
                "method"
            )
            if (mean := number(rows.figures(*where)))
        }
        if not found:
            return ClaimFinding(claim, "own", "not measured", "not measured")
        least, most = (
            min(found, key=lambda name: found[name]),
            max(found, key=lambda name: found[name]),
        )
        ours = f"from {found[least]:.3f} ({least}) to {found[most]:.3f} ({most}); 1 is certainty"
        return ClaimFinding(claim, "own", "agrees" if found[most] < NEAR else "disagrees", ours)

    def _table(self, records: Records, problem: str) -> Table:
        columns = [
            Column("Scale", text=True), Column("Method", text=True), Column("Advantage, mean over pairs"),
            Column("5 % of pairs below"), Column("Median"), Column("95 % of pairs below"),
            Column("Median distance"), Column("ε"), Column("Utility kept", "%"),
        ]  # fmt: skip
        where = ("protector", "concept_distance")
        body = []
        for (scale, method), rows in records.where(problem=problem).each("scale", "method"):
            shares = [
                number(rows.figures(*where, *path), percent=False, digits=3)
                for path in (
                    ("mean_advantage",),
                    *(("advantages", p) for p in ("p5", "p50", "p95")),
                )
            ]
            distance = number(rows.figures(*where, "distances", "p50"), percent=False, digits=3)
            epsilon = number(rows.figures("protector", "epsilon"), percent=False, digits=1)
            kept = number(rows.figures("utility", "relative"))
            if method != "none":
                body.append(
                    [scale, METHOD_NAMES.get(method, method), *shares, distance, epsilon, kept]
                )
        return Table(problem, columns, body, "Distances in each mechanism's own norm.")

    def _figure(self, records: Records, problem: str) -> Figure:
        series = []
        for (method,), rows in records.where(problem=problem).each("method"):
            points = []
            for (_,), at in rows.each("scale"):
                x = number(at.figures("utility", "relative"))
                y = number(at.figures("protector", "concept_distance", "mean_advantage"))
                if x and y:
                    points.append((x.value, y.value, None, None))
            if points:
                series.append(Series(METHOD_NAMES.get(method, method), sorted(points)))
        return Figure(
            problem, x="utility kept", y="advantage, mean over pairs", series=series, chance=0.0
        )
