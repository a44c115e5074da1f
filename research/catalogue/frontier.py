"""The strongest adaptive attack against utility, for every method."""

from __future__ import annotations

import math

from research import tables as draw
from research.catalogue.tradeoff import AXES
from research.experiment import Records
from research.grid import Grid, GridSpec
from research.judging import Measured, within
from research.results import ClaimFinding, Number, Summary, Table, number
from research.scales import DELTA

BAR = 1 / 3  # of SPARSE's excess over chance, at 95 % utility
AT = "utility 0.95"
SCALES = (
    "Some methods have further scales: 'literal E' is the (ε, δ) guarantee of ldp-gaussian with ε = E and "
    f"δ = {DELTA:g}, and σ = 1/E for a Gaussian without ε; 'radius R' is noise of norm R; 'fixed' has no scale."
)
ATTACKERS = (
    "Every attacker is trained on releases of the method it attacks, knows the protector and the distribution of its "
    "noise, and learns from the texts that the protector was fitted on (the 70 % that are not judged). Erasing "
    "directions hides more in these texts than in others, so some attackers learn less from them. Two attacks make up "
    "for that: `transplant` makes texts, and `kernel-further` has texts with exchanged words and the texts with the "
    "concept that the cap of the specification left out, which may be more than the protector was fitted on. The table "
    "shows the strongest attack. All words are listed words; for others see other-texts."
)


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
            problem, scale, method = key
            return number([draw.excess_ratio(records, problem, method, "sparse", scale)], digits=0)

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
        at = records.where(problem=problem, scale=AT)
        shares = draw.excess_shares(at.where(method="subspace"), at.where(method="sparse"))
        ratio = draw.excess_ratio(records, problem, "subspace", "sparse", AT)
        claim = (
            f"At 95 % utility subspace leaks at most a third of SPARSE's excess over chance ({problem}, listed words)."
        )
        if math.isnan(ratio) or not shares:
            return ClaimFinding(claim, "own", "not measured", "not measured")
        ours = f"{100 * ratio:.0f} % of SPARSE's excess over chance"
        measured = Measured(dict(enumerate(shares)))
        return ClaimFinding(claim, "own", within(measured, most=BAR), ours)
