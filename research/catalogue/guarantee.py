"""The proven bound: the largest advantage of any attacker at detecting the concept."""

from __future__ import annotations

from typing import Any

from research import tables as draw
from research.bench import Bench
from research.experiment import Cell, Records
from research.grid import Grid, GridSpec
from research.judging import within
from research.points import defend, protector_record, utility
from research.results import ClaimFinding, Figure, Summary, Table, XAxis, YAxis
from research.scales import parse_scale

NEAR = 0.9
DISTANCE = ("protector", "concept_distance")

MEANING = (
    "For each pair of a text with the concept and the same text without it, the exact privacy loss of the noise gives "
    "the total variation of the two releases: the largest advantage that any attacker, knowing both texts and the "
    "protector, can have at distinguishing them by one release. 0 is a coin, 1 is certainty. Behind a map that is not "
    "invertible (subspace) the figure is an upper bound. Erased directions are hidden at any noise level. All figures "
    "are conditional on the protector, which was fitted on these pairs. At 'literal E' the Gaussian method, which has "
    "no ε, has σ = 1/E."
)


class ConceptGuarantee(Grid[GridSpec]):
    name = "guarantee"
    what = "The largest advantage of any attacker at detecting the concept in a text."
    source = "own"

    def measure(self, spec: GridSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        material = bench.material(cell["problem"], cell["seed"])
        protector = defend(bench, material, cell["method"], parse_scale(cell["scale"]))
        return {"utility": utility(material.task, protector, material.seed), "protector": protector_record(protector)}

    def summary(self, spec: GridSpec, records: Records) -> Summary:
        problems = records.values("problem")
        return Summary(
            tables=[self._table(records, name) for name in problems],
            figures=[self._figure(records, name) for name in problems],
            findings=[self._finding(records, name) for name in problems],
            notes=[MEANING],
        )

    def _finding(self, records: Records, problem: str) -> ClaimFinding:
        """Return whether noise that keeps 95 % of the task bounds the advantage of every attacker."""
        claim = f"At 95 % utility the noise alone keeps every attacker's mean advantage below {NEAR} ({problem})."
        at = records.where(problem=problem, scale="utility 0.95")
        means = {
            draw.method_name(name): rows.measured(*DISTANCE, "mean_advantage") for (name,), rows in at.each("method")
        }
        measured = {name: mean for name, mean in means.items() if mean}
        found = {name: mean.value for name, mean in measured.items()}
        if not found:
            return ClaimFinding(claim, "own", "not measured", "not measured")
        least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        ours = f"from {found[least]:.3f} ({least}) to {found[most]:.3f} ({most}); 1 is certainty"
        return ClaimFinding(claim, "own", within(measured[most], most=NEAR), ours)

    def _table(self, records: Records, problem: str) -> Table:
        groups = records.where(problem=problem).each("scale", "method")
        return draw.table(
            problem,
            (one for one in groups if one[0][1] != "none"),
            [
                draw.axis("Scale", 0),
                draw.axis("Method", 1, draw.method_name),
                draw.plain("Advantage, mean over pairs", *DISTANCE, "mean_advantage", digits=3),
                draw.plain("5 % of pairs below", *DISTANCE, "advantages", "p5", digits=3),
                draw.plain("Median", *DISTANCE, "advantages", "p50", digits=3),
                draw.plain("95 % of pairs below", *DISTANCE, "advantages", "p95", digits=3),
                draw.plain("Median distance", *DISTANCE, "distances", "p50", digits=3),
                draw.plain("ε", "protector", "epsilon", digits=1),
                draw.percent("Utility kept", "utility", "relative"),
            ],
            "Distances in each mechanism's own norm.",
        )

    def _figure(self, records: Records, problem: str) -> Figure:
        kept, told = ("utility", "relative"), (*DISTANCE, "mean_advantage")
        series = [
            draw.line(
                draw.method_name(method),
                ((at.number(*kept), at.number(*told)) for _, at in rows.each("scale")),
                band=False,
            )
            for (method,), rows in records.where(problem=problem).each("method")
        ]
        return Figure(
            problem,
            x=XAxis("utility kept"),
            y=YAxis("advantage, mean over pairs"),
            chance=0.0,
            series=[one for one in series if one.points],
        )
