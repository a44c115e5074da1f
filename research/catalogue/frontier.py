"""Our table that matters: the strongest adaptive attack against utility, for every method."""

from __future__ import annotations

import math

from research.catalogue.tradeoff import AXES
from research.experiment import Records
from research.grid import Grid
from research.scales import DELTA
from research.specification import Spec
from research.tables import METHOD_NAMES, curve, excess_ratio, point_table
from vecveil.records.experiment import ClaimFinding, Column, Summary, Table, number

BAR = 1 / 3  # of SPARSE's excess over chance, at 95 % utility
AT = "utility 0.95"
SCALES = (
    "Some methods have scales of their own: 'literal E' is for ldp-gaussian its (ε, δ) guarantee with ε = E and "
    f"δ = {DELTA:g}, for a Gaussian without ε it is σ = 1/E; 'radius R' is noise of norm R; 'fixed' has no scale."
)
ATTACKERS = (
    "Every attacker is trained on releases of the method that it attacks, knows the protector and the law of its "
    "noise, and learns from texts that the protector was fitted on too (the 70 % that are not judged). What erases "
    "directions hides more in those than in other texts, so some attackers learn less from them than from texts of "
    "their own; `transplant`, which makes texts, is there for that, and `kernel-further` has texts with exchanged "
    "words and the texts with the concept that the cap of the specification left out, which may be more than the "
    "protector was fitted on. The strongest of all is shown. These are words that were listed; for others see "
    "held-out-terms."
)


class Frontier(Grid):
    """Every method at equal utility and at equal ε."""

    name = "frontier"
    what = "The strongest adaptive attack against utility kept, for every method, at equal utility and at equal ε."
    source = "own"
    version = 2  # 1: attackers did not have the texts that the cap left out

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table and a curve for each problem, the excess of each method over SPARSE's, and the bar."""
        problems = records.values("problem")
        return Summary(
            tables=[
                self._ratios(records),
                *(point_table(records, name, title=name) for name in problems),
            ],
            figures=[curve(records, name, title=name) for name in problems],
            findings=[self._bar(records, name) for name in problems],
            notes=[ATTACKERS, AXES, SCALES],
        )

    def _ratios(self, records: Records) -> Table:
        at = [scale for scale in records.values("scale") if scale.startswith("utility")]
        columns = [
            Column("Problem", text=True), Column("Utility kept", text=True), Column("Method", text=True),
            Column("Leakage, strongest attack", "%"), Column("Chance", "%"), Column("Clean", "%"),
            Column("Excess over chance, share of SPARSE's", "%"),
        ]  # fmt: skip
        body = []
        for problem in records.values("problem"):
            clean = number(
                records.where(problem=problem, method="none").figures("leakage", "value")
            )
            for scale in at:
                for (method,), rows in records.where(problem=problem, scale=scale).each("method"):
                    ratio = excess_ratio(records, problem, method, "sparse", scale)
                    body.append(
                        [
                            problem, scale.split()[1], METHOD_NAMES.get(method, method),
                            number(rows.figures("leakage", "value"), low=rows.figures("leakage", "low"),
                                   high=rows.figures("leakage", "high")),
                            number(rows.figures("leakage", "chance")), clean,
                            number([] if math.isnan(ratio) else [ratio], digits=0),
                        ]
                    )  # fmt: skip
        return Table("At equal utility", columns, body, "The strongest attack of each method.")

    def _bar(self, records: Records, problem: str) -> ClaimFinding:
        ratio = excess_ratio(records, problem, "subspace", "sparse", AT)
        what = f"({problem}, listed words)"
        claim = (
            f"At 95 % utility subspace leaks at most a third of SPARSE's excess over chance {what}."
        )
        if math.isnan(ratio):
            return ClaimFinding(claim, "own", "not measured", "not measured")
        verdict = "agrees" if ratio <= BAR else "disagrees"
        return ClaimFinding(claim, "own", verdict, f"{100 * ratio:.0f} % of SPARSE's excess over chance")  # type: ignore[arg-type]
