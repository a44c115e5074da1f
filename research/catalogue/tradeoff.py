"""Experiments on the grid of problems, methods, scales and seeds: SPARSE's Tables 1, 3, 4 and 7, and two of ours."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from research import tables as draw
from research.bench import Bench
from research.experiment import Cell, Records, note
from research.grid import Grid, GridSpec
from research.judging import Measured, within
from research.points import defend, protector_record, utility
from research.results import ClaimFinding, Figure, Number, Summary, Table, XAxis, YAxis, number
from research.scales import DELTA, EFFECTIVE_NORM, parse_scale

AXES = note("axes").format(effective_norm=EFFECTIVE_NORM)
ATTACKED = note("whitebox")


class Tradeoff(Grid[GridSpec]):
    name = "tradeoff"
    what = "Leakage, confidence and utility of each method on six data sets, over ε and at equal utility."
    source = "SPARSE, Tables 1 and 7"
    tables: ClassVar[tuple[str, ...]] = ("sparse-table-1", "sparse-table-7")
    notes: ClassVar[tuple[str, ...]] = (AXES, draw.SETTING)

    def summary(self, spec: GridSpec, records: Records) -> Summary:
        problems, keys = records.values("problem"), ("dataset", "epsilon", "method")
        rows = draw.paper_rows(records, "problem", "method", "scale", kinds=("effective", "clean"))
        return Summary(
            tables=[draw.point_table(records, name, self.tables) for name in problems],
            figures=[draw.curve(records, name) for name in problems],
            findings=draw.findings_of(self.name, rows, keys, difference=draw.SETTING),
            notes=self.notes,
        )


class WhiteBox(Tradeoff):
    """SPARSE beside its white-box variant (Table 4): how close the learnt mask is to the attack's own gradients."""

    name = "whitebox"
    what = "SPARSE, its white-box variant (integrated gradients of a known attack) and Laplace noise, over ε."
    source = "SPARSE, Table 4"
    tables = ("sparse-table-4",)
    notes = (AXES, draw.SETTING, ATTACKED)


STAND_INS = note("categories")
FEW = 30  # instances: with fewer, a category's figure is unreliable


class Categories(Grid[GridSpec]):
    """Leakage by category."""

    name = "categories"
    what = "Leakage of each category of PII and of clinical terms at effective ε = 10 and at equal utility."
    source = "SPARSE, Table 3"

    def summary(self, spec: GridSpec, records: Records) -> Summary:
        problems = records.values("problem")
        keys = ("dataset", "category", "method", "epsilon")
        rows = [row for name in problems for row in _rows(records, name)]
        return Summary(
            tables=[*(_table(records, name) for name in problems), draw.as_published("sparse-table-3")],
            findings=draw.findings_of(self.name, rows, keys, difference=f"{draw.SETTING} {STAND_INS}"),
            notes=[AXES, draw.SETTING, STAND_INS],
        )


def _categories(records: Records) -> list[str]:
    return list(dict.fromkeys(name for row in records for name in row["found"].get("categories", {})))


def _table(records: Records, problem: str) -> Table:
    own = records.where(problem=problem)
    groups = [((name, *key), rows) for name in _categories(own) for key, rows in own.each("method", "scale")]

    def figure(column: str, name: str) -> draw.Drawn:
        return draw.column(column, lambda key, rows: rows.number("categories", key[0], name), "%")

    return draw.table(
        draw.marked(own, problem),
        groups,
        [
            draw.axis("Category", 0),
            draw.axis("Method", 1, draw.method_name),
            draw.axis("Scale", 2),
            figure("Leakage, strongest attack", "value"),
            figure("Chance", "chance"),
            draw.column("Instances judged", lambda key, rows: rows.plain("categories", key[0], "n")),
        ],
        notes=[f"Figures of fewer than {FEW} instances are unreliable."],
    )


def _rows(records: Records, problem: str) -> list[dict[str, object]]:
    """Return our figures with the paper's keys and units, of categories with enough instances."""
    found: list[dict[str, object]] = []
    for (method, scale), rows in draw.alive(records.where(problem=problem)).each("method", "scale"):
        parsed = parse_scale(scale)
        for name in _categories(rows) if parsed.kind == "effective" else ():
            value, n = rows.measured("categories", name, factor=100), rows.figures("categories", name, "n")
            if value is not None and min(n, default=0) >= FEW:
                share = value.value / 100  # with one seed, the interval is that of a share
                half = 196 * math.sqrt(share * (1 - share) / min(n))
                found.append(
                    {
                        "dataset": problem,
                        "category": name,
                        "method": method,
                        "epsilon": parsed.value,
                        "leakage": dataclasses.replace(value, half=half),
                    }
                )
    return found


BAR = 1 / 3  # of SPARSE's excess over chance, at 95 % utility
AT = "utility 0.95"
SCALES = note("frontier-scales").format(delta=DELTA)
ATTACKERS = note("frontier-attackers")


class Frontier(Grid[GridSpec]):
    """Every method at equal utility and at equal ε."""

    name = "frontier"
    what = "The strongest adaptive attack against utility kept, for every method, at equal utility and at equal ε."
    source = "own"
    version = 2  # 1: attackers did not have the texts that the cap left out

    def summary(self, spec: GridSpec, records: Records) -> Summary:
        problems = records.values("problem")
        return Summary(
            tables=[self._ratios(records), *(draw.point_table(records, name) for name in problems)],
            figures=[draw.curve(records, name) for name in problems],
            findings=[self._bar(records, name) for name in problems],
            notes=[ATTACKERS, AXES, SCALES],
        )

    def _ratios(self, records: Records) -> Table:
        scales = [one for one in records.values("scale") if one.startswith("utility")]
        groups = [
            ((problem, scale, method), rows)
            for problem in records.values("problem")
            for scale in scales
            for (method,), rows in records.where(problem=problem, scale=scale).each("method")
        ]
        clean = {
            problem: records.where(problem=problem, method="none").number("leakage", "value")
            for problem in records.values("problem")
        }

        def ratio(key: tuple[str, str, str], rows: Records) -> Number | None:
            return number(
                draw.excess_shares(rows, records.where(problem=key[0], scale=key[1], method="sparse")), digits=0
            )

        columns = [
            draw.axis("Problem", 0),
            draw.axis("Utility kept", 1, lambda scale: scale.split()[1]),
            draw.axis("Method", 2, draw.method_name),
            draw.estimate("Leakage, strongest attack", "leakage"),
            draw.percent("Chance", "leakage", "chance"),
            draw.column("Clean", lambda key, rows: clean[key[0]], "%"),
            draw.column("Excess over chance, share of SPARSE's", ratio, "%"),
        ]
        return draw.table("At equal utility", groups, columns, "The strongest attack of each method.")

    def _bar(self, records: Records, problem: str) -> ClaimFinding:
        at = draw.alive(records.where(problem=problem)).where(scale=AT)
        shares = draw.excess_shares(at.where(method="subspace"), at.where(method="sparse"))
        claim = (
            f"At 95 % utility subspace leaks at most a third of SPARSE's excess over chance ({problem}, listed words)."
        )
        if not shares:
            return ClaimFinding(claim, "own", "not measured", "not measured")
        measured = Measured(dict(enumerate(shares)))
        ours = f"{100 * measured.value:.0f} % of SPARSE's excess over chance"
        return ClaimFinding(claim, "own", within(measured, most=BAR), ours)


NEAR = 0.9
DISTANCE = ("protector", "concept_distance")

MEANING = note("guarantee")


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
