"""Tables, curves and findings that several experiments draw from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from research.experiment import Records, note
from research.judging import Measured, Order, Tally, Trend, verdict
from research.published import Claim, claims, published
from research.results import Cell as TableCell
from research.results import ClaimFinding, Column, Figure, Number, Point, Series, Table, XAxis, YAxis, number
from research.scales import parse_scale
from vecveil.auditing.attacks.ladder import own_attacks

FEW_TEXTS = 100  # judged texts: with fewer, figures decide no claim

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
SETTING = note("setting")


def method_name(method: str) -> str:
    return METHOD_NAMES.get(method, method)


def count(value: float) -> Number:
    """Return a whole number without a unit."""
    return Number(value, percent=False, digits=0)


def known(value: float | None) -> Number | None:
    """Return a printed figure as a whole number, None where the paper has none."""
    return None if value is None else count(value)


Group = tuple[tuple[Any, ...], Records]
"""The values on the axes that a row of a table stands for, and their records."""
Drawn = tuple[Column, Callable[[tuple[Any, ...], Records], TableCell]]
"""A column, and the function that draws its cell in the row of a group."""
Published = Callable[[tuple[Any, ...]], float | None]


def axis(name: str, index: int, shown: Callable[[Any], str] = str) -> Drawn:
    return Column(name, text=True), lambda key, rows: shown(key[index])


def column(
    name: str, cell: Callable[[tuple[Any, ...], Records], TableCell], unit: str | None = None, *, text: bool = False
) -> Drawn:
    """Return a column whose cells ``cell`` computes; ``unit`` is ``%`` or another unit."""
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
    title: str, groups: Iterable[Group], columns: Sequence[Drawn], caption: str = "", notes: Sequence[str] = ()
) -> Table:
    """Return a table with a row for each group."""
    heads, cells = zip(*columns, strict=True)
    rows = [[cell(key, own) for cell in cells] for key, own in groups]
    return Table(title, heads, rows, caption, notes)


def above_chance(rows: Records, *path: str) -> bool:
    """Return whether a figure exceeds chance: by its interval, or by 2 standard errors over seeds."""
    chances, lows, values = (rows.figures(*path, key) for key in ("chance", "low", "value"))
    if not values or len(chances) < len(values):
        return bool(values)
    if len(values) == 1:
        return len(lows) == 1 and lows[0] > chances[0]
    by = number([value - chance for value, chance in zip(values, chances, strict=True)])
    return by is not None and by.sd is not None and by.value > 2 * by.sd / math.sqrt(len(values))


def few_texts(records: Records) -> bool:
    """Return whether too few texts were judged for a verdict on a claim."""
    return min(records.figures("texts", "judged"), default=FEW_TEXTS) < FEW_TEXTS


def counted(records: Records) -> Records:
    """Return the records of the problems with enough judged texts."""
    return Records([row for _, own in records.each("problem") if not few_texts(own) for row in own])


def marked(records: Records, title: str) -> str:
    """Return a title that says for which problems too few texts were judged."""
    texts = min(records.figures("texts", "judged"), default=0)
    return f"{title} ({texts:.0f} judged texts: too few to count in a verdict)" if few_texts(records) else title


def live_attacks(records: Records) -> list[str]:
    """Return the classifiers that exceed chance on the clean vectors of a problem, the strongest first.

    A dead attack is shown but does not count for a claim.
    """
    clean = records.where(scale="clean")
    names = dict.fromkeys(name for row in clean for name in row["found"].get("attacks", {}))
    strength = {
        name: figure.value
        for name in names
        if above_chance(clean, "attacks", name, "r_precision")
        and (figure := clean.number("attacks", name, "r_precision", "value"))
    }
    return sorted(strength, key=strength.__getitem__, reverse=True)


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
    return [
        finding_of(claim, claim.compare.tally(rows, keys), difference=difference, beside=_beside(claim, rows, keys))
        for claim in claims(experiment)
        if not only or claim.id in only
    ]


def _beside(claim: Claim, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Return the comparisons by the paper's Eq. 13, and whether Laplace noise in SPARSE's place agrees as well."""
    compare, said = claim.compare, ""
    if isinstance(compare, Order | Trend) and compare.figure == "leakage":
        eq13 = replace(compare, figure="eq13").tally(rows, keys)
        said += f"; Eq. 13: {eq13}" if eq13.cells else ""
    if isinstance(compare, Order) and compare.by and compare.of.get("method") == "sparse":
        laplace = replace(compare, of={**compare.of, "method": "laplace"})
        if verdict(laplace.tally(rows, keys)) == "agrees" == verdict(compare.tally(rows, keys)):
            said += "; vacuous: Laplace noise agrees, too"
    return said


def finding_of(claim: Claim, ours: Tally, *, difference: str, suffix: str = "", beside: str = "") -> ClaimFinding:
    """Return the finding on a paper's claim; ``suffix`` follows the claim, and ``beside`` our comparisons."""
    theirs = claim.published_tally()
    return ClaimFinding(
        claim.claim + suffix,
        f"{claim.paper}, {claim.source}",
        verdict(ours),
        f"{ours}{beside}" if ours.cells else "not measured",
        f"{theirs} of its tables" if theirs.cells else "shown in a picture" if "Fig." in claim.source else "no figures",
        difference,
        id=claim.id,
        seeds=ours.seeds,
    )


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


def by_scale(records: Records, *axes: str, first: Sequence[Any] = ()) -> list[tuple[tuple[Any, ...], Records]]:
    """Return the records grouped by axes that end with scale and method, in the order of ``first``, then of scales."""
    scales, place = records.values("scale"), axes.index("scale")
    found = list(records.each(*axes))
    return sorted(found, key=lambda one: (first.index(one[0][0]) if first else 0, scales.index(one[0][place])))


def alive(records: Records, *within: str) -> Records:
    """Return the records that count for a claim, with the ``leakage`` of the strongest live attack.

    Problems with too few judged texts have none, nor do records without a live attack; the ``categories`` of a dead
    attack are left out. ``within`` are axes besides ``problem`` by which an attack is live.
    """
    found = []
    for _, own in counted(records).each("problem", *within):
        live = live_attacks(own)
        for row in own:
            attacks = row["found"].get("attacks", {})
            known = {name: attacks[name]["r_precision"] for name in live if name in attacks}
            if known:
                worst = max(known, key=lambda name: known[name]["value"])
                same = worst == row["found"].get("worst", worst)
                kept = {key: value for key, value in row["found"].items() if same or key != "categories"}
                found.append({**row, "found": {**kept, "worst": worst, "leakage": known[worst]}})
    return Records(found)


def point_table(records: Records, problem: str, tables: Sequence[str] = ()) -> Table:
    """Return a table of one problem: a row for each scale and method; over seeds mean and deviation."""
    own = records.where(problem=problem)
    metric = own[0]["found"]["utility"]["metric"] if len(own) else "Utility"

    def paper(name: str) -> Published:
        if not name or few_texts(own):  # no figure of such a small set compares, least of all nDCG among few documents
            return lambda key: None
        return lambda key: share_beside(tables, name, dataset=problem, epsilon=epsilon_of(key[0]), method=key[1])

    mlc, live = ("attacks", "mlc-published"), live_attacks(own)[:1]
    eq14: list[Drawn] = []
    if live and live != ["mlc-published"]:
        eq14 = [
            percent(f"{live[0]}: leakage (Eq. 13)", "attacks", live[0], "leakage", "value"),
            percent("confidence (Eq. 14)", "attacks", live[0], "confidence", "value", published=paper("confidence")),
        ]
    return table(
        marked(own, problem),
        by_scale(own, "scale", "method"),
        [
            axis("Scale", 0),
            axis("Method", 1, method_name),
            estimate("Leakage, strongest attack", "leakage", published=paper("leakage")),
            percent("Chance", "leakage", "chance"),
            column("Strongest attack", lambda key, rows: strongest_names(rows), text=True),
            percent("MLC leakage (Eq. 13)", *mlc, "leakage", "value"),
            percent(
                "MLC confidence (Eq. 14)", *mlc, "confidence", "value", published=paper("" if eq14 else "confidence")
            ),
            *eq14,
            *(
                estimate(f"R-precision of {name}", "attacks", name, "r_precision")
                for name in own_attacks()
                if own.figures("attacks", name, "r_precision", "value")
            ),
            estimate(metric, "utility", published=paper("utility")),
            percent("Utility kept", "utility", "relative"),
            column(
                "ε of the mechanism", lambda key, rows: "–" if key[1] == "none" else rows.plain("protector", "epsilon")
            ),
        ],
    )


def measured(paper: Callable[[str], Published]) -> list[Drawn]:
    """Return the columns of leakage, its chance, utility and the share of utility kept, beside the paper's figures."""
    return [
        estimate("Leakage, strongest attack", "leakage", published=paper("leakage")),
        percent("Chance", "leakage", "chance"),
        estimate("Utility", "utility", published=paper("utility")),
        percent("Utility kept", "utility", "relative"),
    ]


def as_published(name: str) -> Table:
    """Return a paper's own table: its data sets or encoders differ from ours."""
    theirs = published(name)
    is_text = {name: column.text or column.key for name, column in theirs.columns.items()}
    rows = [
        [
            str(row[name]).replace("inf", "∞") if text else None if row[name] is None else Number(row[name] / 100, n=1)
            for name, text in is_text.items()
        ]
        for row in theirs.rows
    ]
    columns = [Column(name.replace("_sd", ", deviation"), text=text) for name, text in is_text.items()]
    return Table(f"As published ({theirs.source})", columns, rows, theirs.caption, list(theirs.notes))


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
) -> Series:
    """Return a line through (x, y), sorted by x; pairs that were not measured are left out."""
    points: list[Point] = []
    for x, y in pairs:
        if x and y:
            low, high = ends(y) if band else (None, None)
            points.append(Point(x.value if isinstance(x, Number) else x, y.value, low, high))
    return Series(name, points, dashed=dashed)


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
        marked(records.where(problem=problem), problem),
        caption=caption,
        x=XAxis("utility kept"),
        y=YAxis("leakage (R-precision)"),
        series=[one for one in series if one.points],
        chance=chance.value if chance else None,
    )


def paper_rows(
    records: Records, *axes: str, kinds: Sequence[str] = ("effective",), within: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return points with the paper's keys and units and their errors: a row for each value on the axes and ε.

    ``leakage`` is of the strongest live attack, ``confidence`` and ``eq13`` of the one that is strongest on clean
    vectors. Problems without a live attack or with too few judged texts have no row.

    Args:
        axes: ``problem`` first, ``scale`` last; ``problem`` becomes the key ``dataset``.
        kinds: kinds of the scales to return.
        within: axes besides ``problem`` by which an attack is live.
    """
    rows: list[dict[str, Any]] = []
    for _, own in alive(records, *within).each("problem", *within):
        live = live_attacks(own)
        for (*values, scale), at in own.each(*axes):
            parsed = parse_scale(scale)
            if parsed.kind not in kinds:
                continue
            keys = ("dataset" if axis == "problem" else axis for axis in axes)
            rows.append(
                dict(zip(keys, values, strict=False))
                | {
                    "epsilon": parsed.value,
                    "axis": parsed.kind,
                    "leakage": at.measured("leakage", factor=100),
                    "utility": at.measured("utility", factor=100),
                    "confidence": at.measured("attacks", live[0], "confidence", factor=100),
                    "eq13": at.measured("attacks", live[0], "leakage", factor=100),
                }
            )
    return rows


def excess(rows: Records, *path: str) -> float:
    """Return the leakage above chance; NaN if it was not measured."""
    where = path or ("leakage",)
    value, chance = rows.number(*where, "value"), rows.number(*where, "chance")
    return math.nan if value is None or chance is None else value.value - chance.value


def excess_of(rows: Records, *path: str) -> Measured | None:
    """Return the leakage above chance in points, with its error."""
    where = path or ("leakage",)
    value, chance = rows.measured(*where, factor=100), rows.measured(*where, "chance", factor=100)
    if value is None or chance is None:
        return None
    return Measured({seed: one - chance.by_seed[seed] for seed, one in value.by_seed.items()}, value.half)


def excess_shares(own: Records, base: Records, *path: str) -> list[float]:
    """Return each seed's leakage above chance as a share of the base's, where the base's is above chance."""
    found = []
    for (seed,), at in own.each("seed"):
        mine, beside = excess(at, *path), excess(base.where(seed=seed), *path)
        if beside > 0 and math.isfinite(mine):
            found.append(mine / beside)
    return found
