"""Tables, curves and findings that several experiments draw from their records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from research.experiment import Records
from research.published import Claim, claims, published
from research.scales import parse_scale
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import (
    ClaimFinding,
    Column,
    Figure,
    Number,
    Series,
    Table,
    Verdict,
    number,
)

AGREES = 0.8  # share of comparisons in which a claim holds
DISAGREES = 0.5  # what two equal methods give
FEWEST = 4  # comparisons that a verdict needs


def verdict_of(held: int, cells: int) -> Verdict:
    """Return ``agrees`` if a claim holds in four of five comparisons, ``disagrees`` if in no more than half.

    Fewer than four comparisons decide nothing.
    """
    if not cells:
        return "not measured"
    if cells < FEWEST:
        return "unclear"
    share = held / cells
    return "agrees" if share >= AGREES else "disagrees" if share <= DISAGREES else "unclear"


def findings_of(
    experiment: str,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    *,
    difference: str,
    only: Sequence[str] = (),
) -> list[ClaimFinding]:
    """Return a finding for each claim that an experiment tests.

    Args:
        rows: our figures with the paper's keys and in its units, such as ``dataset``, ``epsilon``, ``method``,
            ``leakage`` (%), ``utility``; and any further key of ours, such as ``axis``.
        keys: columns that say which cell a row is.
        difference: what differs between the paper's setting and ours.
        only: ids of claims; none takes all of the experiment's.
    """
    return [
        _finding(claim, rows, keys, difference)
        for claim in claims(experiment)
        if not only or claim.id in only
    ]


def _finding(
    claim: Claim, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], difference: str
) -> ClaimFinding:
    ours = claim.compare.tally(rows, keys)
    theirs = claim.published_tally()
    source = f"{claim.paper}, {claim.source}"
    said = (
        f"holds in {theirs.held} of {theirs.cells} comparisons of its tables"
        if theirs.cells
        else "shown in a picture"
    )
    found = f"holds in {ours.held} of {ours.cells} comparisons" if ours.cells else "not measured"
    return ClaimFinding(claim.claim, source, verdict_of(ours.held, ours.cells), found, said, difference)


def beside(tables: Sequence[str], figure: str, **keys: Any) -> float | None:
    """Return a published figure from the first table that has the row, or None."""
    for name in tables:
        table = published(name)
        if any(key not in table.columns for key in keys):
            continue
        row = table.find(**keys)
        if row is not None and row.get(figure) is not None:
            return float(row[figure])
    return None


METHOD_NAMES = {
    "none": "no protection",
    "laplace": "Laplace",
    "purkayastha": "Purkayastha",
    "gaussian": "Gaussian",
    "sparse": "SPARSE",
    "sparse-whitebox": "SPARSE-WB",
    "covariance": "covariance (ours)",
    "subspace": "subspace (ours)",
}

SETTING = (
    "The paper: GTR-base, leakage of Vec2Text. Here: the encoder of the specification, leakage is R-precision of the "
    "strongest token-inference attack that was trained on protected vectors, among words that enough texts hold."
)


def point_row(
    rows: Records, problem: str, method: str, scale: str, tables: Sequence[str]
) -> list[TableCell]:
    """Return the figures of one defence at one scale: over seeds mean and deviation, of one seed its interval."""
    parsed = parse_scale(scale)
    epsilon = parsed.value if parsed.kind in ("effective", "clean") else None

    def paper(figure: str) -> float | None:
        if epsilon is None:
            return None
        found = beside(tables, figure, dataset=problem, epsilon=epsilon, method=method)
        return None if found is None else found / 100

    leak = number(
        rows.figures("leakage", "value"),
        low=rows.figures("leakage", "low"),
        high=rows.figures("leakage", "high"),
        published=paper("leakage"),
    )
    mlc = ("attacks", "mlc-published")
    return [
        leak,
        number(rows.figures("leakage", "chance")),
        ", ".join(dict.fromkeys(row["found"]["worst"] for row in rows)),
        number(rows.figures(*mlc, "leakage", "value")),
        number(rows.figures(*mlc, "confidence", "value"), published=paper("confidence")),
        number(
            rows.figures("utility", "value"),
            low=rows.figures("utility", "low"),
            high=rows.figures("utility", "high"),
            published=paper("utility"),
        ),
        number(rows.figures("utility", "relative")),
        "–"
        if method == "none"
        else number(rows.figures("protector", "epsilon"), percent=False, digits=0),
    ]


def point_table(
    records: Records, problem: str, *, title: str, tables: Sequence[str] = (), caption: str = ""
) -> Table:
    """Return a table of one problem: a row for each scale and method."""
    own = records.where(problem=problem)
    metric = own[0]["found"]["utility"]["metric"] if len(own) else "Utility"
    columns = [
        Column("Scale", text=True), Column("Method", text=True), Column("Leakage, strongest attack", "%"),
        Column("Chance", "%"), Column("Strongest attack", text=True), Column("MLC leakage (Eq. 13)", "%"),
        Column("MLC confidence (Eq. 14)", "%"), Column(metric, "%"), Column("Utility kept", "%"),
        Column("ε of the mechanism"),
    ]  # fmt: skip
    rows = [
        [scale, METHOD_NAMES.get(method, method), *point_row(rows, problem, method, scale, tables)]
        for (scale, method), rows in own.each("scale", "method")
    ]
    order = {scale: i for i, scale in enumerate(records.values("scale"))}
    rows.sort(key=lambda row: order[row[0]])
    return Table(title, columns, rows, caption)


def curve(records: Records, problem: str, *, title: str, axis: str = "effective") -> Figure:
    """Return leakage against utility kept, a line for each method, a point for each scale."""
    own = records.where(problem=problem)
    series, chance = [], None
    for (method,), rows in own.each("method"):
        points = []
        for (scale,), at in rows.each("scale"):
            if parse_scale(scale).kind not in (axis, "utility", "clean"):
                continue
            x = number(at.figures("utility", "relative"))
            y = number(
                at.figures("leakage", "value"),
                low=at.figures("leakage", "low"),
                high=at.figures("leakage", "high"),
            )
            guess = number(at.figures("leakage", "chance"))
            chance = guess.value if guess else chance
            if x and y:
                points.append((x.value, y.value, *_ends(y)))
        if points:
            series.append(
                Series(METHOD_NAMES.get(method, method), sorted(points), dashed=method == "none")
            )
    caption = "Lower right is better. Bands: 95 % intervals, or one standard deviation over seeds."
    return Figure(
        title,
        caption=caption,
        x="utility kept",
        y="leakage (R-precision)",
        series=series,
        chance=chance,
    )


def _ends(y: Number) -> tuple[float | None, float | None]:
    if y.sd is not None:
        return y.value - y.sd, y.value + y.sd
    return y.low, y.high


def published_rows(records: Records, kind: str) -> list[dict[str, Any]]:
    """Return points with the paper's keys and units: a row for each problem, method and ε, means over seeds."""
    found = []
    for (problem, method, scale), rows in records.each("problem", "method", "scale"):
        parsed = parse_scale(scale)
        if parsed.kind not in (kind, "clean"):
            continue
        mlc = ("attacks", "mlc-published", "confidence", "value")
        figures = {
            "leakage": number(rows.figures("leakage", "value")),
            "confidence": number(rows.figures(*mlc)),
            "utility": number(rows.figures("utility", "value")),
        }
        found.append(
            {"dataset": problem, "epsilon": parsed.value, "method": method, "axis": kind}
            | {k: None if v is None else 100 * v.value for k, v in figures.items()}
        )
    return found


def excess_ratio(
    records: Records, problem: str, method: str, against: str, scale: str, *path: str
) -> float:
    """Return the leakage of one method above chance as a share of another's at the same scale.

    NaN if one of them was not measured, or if the other's is not above chance: then there is nothing to be a share of.
    """
    where = path or ("leakage",)

    def excess(name: str) -> float:
        rows = records.where(problem=problem, method=name, scale=scale)
        value, chance = (
            number(rows.figures(*where, "value")),
            number(rows.figures(*where, "chance")),
        )
        return math.nan if value is None or chance is None else value.value - chance.value

    base = excess(against)
    return excess(method) / base if base > 0 else math.nan
