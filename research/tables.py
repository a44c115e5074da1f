"""Tables, curves and findings that several experiments draw from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from research.experiment import Records
from research.published import claims, published
from research.results import Cell as TableCell
from research.results import (
    ClaimFinding,
    Column,
    Figure,
    Number,
    Point,
    Series,
    Table,
    Verdict,
)
from research.scales import parse_scale

AGREES = 0.8  # share of comparisons in which a claim holds
DISAGREES = 0.5  # what two equal methods give
FEWEST = 4  # comparisons that a verdict on a paper's claim needs

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
    "strongest token-inference attack trained on protected vectors, among words that enough texts hold."
)


def method_name(method: str) -> str:
    return METHOD_NAMES.get(method, method)


def count(value: float) -> Number:
    """Return a whole number without a unit."""
    return Number(value, percent=False, digits=0)


Group = tuple[tuple[Any, ...], Records]
"""The values on the axes that a row of a table stands for, and their records."""
Drawn = tuple[Column, Callable[[tuple[Any, ...], Records], TableCell]]
"""A column, and the function that draws its cell in the row of a group."""
Published = Callable[[tuple[Any, ...]], float | None]


def axis(name: str, index: int, shown: Callable[[Any], str] = str) -> Drawn:
    """Return the column of one axis of the groups."""
    return Column(name, text=True), lambda key, rows: shown(key[index])


def column(
    name: str,
    cell: Callable[[tuple[Any, ...], Records], TableCell],
    unit: str | None = None,
    *,
    text: bool = False,
) -> Drawn:
    """Return a column whose cells ``cell`` computes; ``unit`` is ``%`` or another one."""
    return Column(name, unit, text), cell


def percent(name: str, *path: str, published: Published = lambda key: None) -> Drawn:
    """Return the column of a share, its mean over seeds."""
    return column(name, lambda key, rows: rows.number(*path, published=published(key)), "%")


def estimate(name: str, *path: str, published: Published = lambda key: None) -> Drawn:
    """Return the column of a share with its interval or deviation."""
    return column(name, lambda key, rows: rows.estimate(*path, published=published(key)), "%")


def plain(name: str, *path: str, digits: int = 0) -> Drawn:
    """Return the column of a number without a unit."""
    return column(name, lambda key, rows: rows.plain(*path, digits=digits))


def table(
    title: str,
    groups: Iterable[Group],
    columns: Sequence[Drawn],
    caption: str = "",
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with a row for each group."""
    heads, cells = zip(*columns, strict=True)
    rows = [[cell(key, own) for cell in cells] for key, own in groups]
    return Table(title, heads, rows, caption, notes)


def share_verdict(
    held: float, cells: int, *, agrees: float = AGREES, disagrees: float = DISAGREES
) -> Verdict:
    """Return the verdict on a claim that holds in ``held`` of the cells; unclear between the two limits."""
    if held >= agrees * cells:
        return "agrees"
    return "disagrees" if held <= disagrees * cells else "unclear"


def verdict_of(held: int, cells: int) -> Verdict:
    """Return the verdict on a paper's claim; fewer than four comparisons are unclear."""
    if not cells:
        return "not measured"
    return "unclear" if cells < FEWEST else share_verdict(held, cells)


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
        rows: our figures with the paper's keys and units, such as ``dataset``, ``epsilon``, ``method``,
            ``leakage`` (%), ``utility``, and further keys of ours, such as ``axis``.
        keys: columns that identify a cell.
        difference: how the paper's setting and ours differ.
        only: ids of claims; none takes all of the experiment's.
    """
    found = []
    for claim in claims(experiment):
        if only and claim.id not in only:
            continue
        ours, theirs = claim.compare.tally(rows, keys), claim.published_tally()
        there = f"holds in {theirs.held} of {theirs.cells} comparisons of its tables"
        here = f"holds in {ours.held} of {ours.cells} comparisons" if ours.cells else "not measured"
        found.append(
            ClaimFinding(
                claim.claim, f"{claim.paper}, {claim.source}", verdict_of(ours.held, ours.cells), here,
                there if theirs.cells else "shown in a picture", difference,
            )
        )  # fmt: skip
    return found


def beside(tables: Sequence[str], figure: str, **keys: Any) -> float | None:
    """Return a published figure from the first table that has the row, or None."""
    for name in tables:
        table = published(name)
        if all(key in table.columns for key in keys):
            row = table.find(**keys)
            if row is not None and row.get(figure) is not None:
                return float(row[figure])
    return None


def share_beside(tables: Sequence[str], figure: str, **keys: Any) -> float | None:
    """Return a published figure as a share; None where a key has no counterpart in the paper."""
    found = None if None in keys.values() else beside(tables, figure, **keys)
    return None if found is None else found / 100


def epsilon_of(scale: str) -> float | None:
    """Return the paper's ε of a scale; None for a scale without a counterpart."""
    parsed = parse_scale(scale)
    return parsed.value if parsed.kind in ("effective", "clean") else None


def by_scale(
    records: Records, *axes: str, first: Sequence[Any] = ()
) -> list[tuple[tuple[Any, ...], Records]]:
    """Return the records grouped by axes that end with scale and method, in the order of ``first``, then of scales."""
    scales, place = records.values("scale"), axes.index("scale")
    found = list(records.each(*axes))
    return sorted(
        found, key=lambda one: (first.index(one[0][0]) if first else 0, scales.index(one[0][place]))
    )


def point_table(records: Records, problem: str, tables: Sequence[str] = ()) -> Table:
    """Return a table of one problem: a row for each scale and method; over seeds mean and deviation."""
    own = records.where(problem=problem)
    metric = own[0]["found"]["utility"]["metric"] if len(own) else "Utility"

    def paper(name: str) -> Published:
        return lambda key: share_beside(
            tables, name, dataset=problem, epsilon=epsilon_of(key[0]), method=key[1]
        )

    mlc = ("attacks", "mlc-published")
    return table(problem, by_scale(own, "scale", "method"), [
        axis("Scale", 0),
        axis("Method", 1, method_name),
        estimate("Leakage, strongest attack", "leakage", published=paper("leakage")),
        percent("Chance", "leakage", "chance"),
        column("Strongest attack", lambda key, rows: strongest_names(rows), text=True),
        percent("MLC leakage (Eq. 13)", *mlc, "leakage", "value"),
        percent("MLC confidence (Eq. 14)", *mlc, "confidence", "value", published=paper("confidence")),
        estimate(metric, "utility", published=paper("utility")),
        percent("Utility kept", "utility", "relative"),
        column("ε of the mechanism", lambda key, rows: "–" if key[1] == "none" else rows.plain("protector", "epsilon")),
    ])  # fmt: skip


def strongest_names(rows: Records) -> str:
    """Return the strongest attack of each record, each name once."""
    return ", ".join(dict.fromkeys(row["found"]["worst"] for row in rows))


def ends(figure: Number) -> tuple[float | None, float | None]:
    """Return the ends of a figure's band: one standard deviation over seeds, or its interval."""
    if figure.sd is not None:
        return figure.value - figure.sd, figure.value + figure.sd
    return figure.low, figure.high


def line(
    name: str, pairs: Iterable[tuple[float | Number | None, Number | None]], *, band: bool = True, dashed: bool = False
) -> Series:  # fmt: skip
    """Return a line through (x, y), sorted by x; pairs that were not measured are left out."""
    points: list[Point] = []
    for x, y in pairs:
        if x and y:
            low, high = ends(y) if band else (None, None)
            points.append((x.value if isinstance(x, Number) else x, y.value, low, high))
    return Series(name, sorted(points), dashed=dashed)


def curve(records: Records, problem: str) -> Figure:
    """Return leakage against utility kept, a line for each method, a point for each scale."""
    series, chance = [], None
    for (method,), rows in records.where(problem=problem).each("method"):
        pairs = []
        for (scale,), at in rows.each("scale"):
            if parse_scale(scale).kind in ("effective", "utility", "clean"):
                pairs.append((at.number("utility", "relative"), at.estimate("leakage")))
                chance = at.number("leakage", "chance") or chance
        series.append(line(method_name(method), pairs, dashed=method == "none"))
    caption = "Lower right is better. Bands: 95 % intervals, or one standard deviation over seeds."
    return Figure(
        problem, caption=caption, x="utility kept", y="leakage (R-precision)",
        series=[one for one in series if one.points], chance=chance.value if chance else None,
    )  # fmt: skip


def paper_rows(
    records: Records, *axes: str, figures: Mapping[str, Sequence[str]], kinds: Sequence[str] = ("effective",)
) -> list[dict[str, Any]]:  # fmt: skip
    """Return points with the paper's keys and units, means over seeds: a row for each value on the axes and ε.

    Args:
        axes: ``scale`` last; ``problem`` becomes the key ``dataset``.
        figures: name of a figure in per cent -> its path in ``found``.
        kinds: kinds of the scales to return.
    """
    rows: list[dict[str, Any]] = []
    for (*values, scale), at in records.each(*axes):
        parsed = parse_scale(scale)
        if parsed.kind in kinds:
            keys = ("dataset" if axis == "problem" else axis for axis in axes)
            row = dict(zip(keys, values, strict=False)) | {
                "epsilon": parsed.value,
                "axis": parsed.kind,
            }
            means = {name: at.number(*path) for name, path in figures.items()}
            rows.append(row | {name: mean and 100 * mean.value for name, mean in means.items()})
    return rows


def excess(rows: Records, *path: str) -> float:
    """Return the leakage above chance; NaN where it was not measured."""
    where = path or ("leakage",)
    value, chance = rows.number(*where, "value"), rows.number(*where, "chance")
    return math.nan if value is None or chance is None else value.value - chance.value


def excess_shares(own: Records, base: Records, *path: str) -> list[float]:
    """Return each seed's leakage above chance as a share of the base's, where the base's is above chance."""
    found = []
    for (seed,), at in own.each("seed"):
        mine, beside = excess(at, *path), excess(base.where(seed=seed), *path)
        if beside > 0 and math.isfinite(mine):
            found.append(mine / beside)
    return found


def excess_ratio(records: Records, problem: str, method: str, against: str, scale: str) -> float:
    """Return the leakage of one method above chance as a share of another's at the same scale.

    NaN if either was not measured, or if the other's is not above chance.
    """
    at = records.where(problem=problem, scale=scale)
    base = excess(at.where(method=against))
    return excess(at.where(method=method)) / base if base > 0 else math.nan
