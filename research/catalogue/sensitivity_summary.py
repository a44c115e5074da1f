"""What the deciles' tests say, beside the paper's p-value."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from research.catalogue.claims import findings_of
from research.catalogue.deciles import ALPHA
from research.experiment import Records, number_at
from research.published import published
from research.summary import (
    Cell,
    Column,
    Figure,
    Finding,
    Series,
    Summary,
    Table,
    number,
)

__all__ = ["sensitivity_summary"]

TABLE = "sparse-appendix-a"
OVER = {
    "pairs": "largest over pairs", "sets": "largest over D+ × D- (Definition 7)", "mean": "mean over pairs",
}  # fmt: skip
NEARLY_ZERO = 0.2  # of the mean of the top tenth
DIFFERENCE = (
    "The paper ranks the dimensions on the figures that it then tests; here they are ranked on one half of the pairs "
    "and tested on the other."
)


def sensitivity_summary(records: Records) -> Summary:
    """Return tables, curves and findings."""
    return Summary(
        tables=[_deciles(records), _controls(records)],
        figures=[_curve(name, rows) for (name,), rows in records.each("problem")],
        findings=_findings(records),
        notes=list(published(TABLE).notes),
    )


def _deciles(records: Records) -> Table:
    columns = [
        Column("Data", text=True), Column("Change", text=True), Column("Pairs"),
        Column("Mean of the top tenth"), Column("Mean of the bottom tenth"),
        Column("p, ranked on the other half", text=True), Column("p, ranked on the same (as the paper)", text=True),
        Column("p of pure noise, ranked on the same", text=True),
    ]  # fmt: skip
    theirs = published(TABLE).find(decile="top")
    paper = None if theirs is None else float(theirs["sensitivity"])
    rows = []
    for (name, over), own in records.each("problem", "over"):
        rows.append(
            [
                name, OVER[over], number(own.figures("pairs"), percent=False, digits=0),
                number(own.figures("held_out", "top"), percent=False, digits=4,
                       published=paper if over != "mean" else None),
                number(own.figures("held_out", "bottom"), percent=False, digits=4),
                _p(own, "held_out", "p_value"), _p(own, "circular", "p_value"), _p(own, "noise", "circular"),
            ]
        )  # fmt: skip
    caption = (
        "Sensitivity of the tenth of the dimensions with the most and with the least of it, and two-sided p-values of "
        "Wilcoxon's signed-rank test between them; medians over seeds, and over draws of noise."
    )
    p = published(TABLE).setting["p_value"]
    return Table("Deciles", columns, rows, caption, [f"The paper's p-value is {float(p):.2e}."])


def _controls(records: Records) -> Table:
    columns = [
        Column("Data", text=True), Column("Change", text=True),
        Column(f"Permuted ranks with p ≤ {ALPHA}", "%"), Column(f"Noise, halves, p ≤ {ALPHA}", "%"),
        Column("p, ranked by other words", text=True), Column("p, relative to each spread", text=True),
        Column("Rank correlation, halves"), Column("with other words"), Column("with the spread"),
    ]  # fmt: skip
    rows = [
        [
            name, OVER[over], number(own.figures("permuted", "share")),
            number(own.figures("noise", "held_out_share")), _p(own, "other_words", "p_value"),
            _p(own, "relative", "p_value"),
            *(number(own.figures("agreement", key), percent=False, digits=2)
              for key in ("halves", "other_words", "spread")),
        ]
        for (name, over), own in records.each("problem", "over")
    ]  # fmt: skip
    caption = (
        "Controls. Permuted ranks and noise: how often the test by halves finds what is not there. Other words: the "
        "ranking comes from removing as many words at random that are not of the concept, from the same texts. "
        "Spread: the standard deviation of each dimension over the texts."
    )
    return Table("Controls", columns, rows, caption)


def _p(rows: Records, *path: str) -> str | None:
    values = rows.figures(*path)
    return f"{statistics.median(values):.1e}" if values else None


def _curve(name: str, records: Records) -> Figure:
    first = records.values("over")[0]
    rows, over = records.where(over=first), OVER[first]
    names = {
        "concept": "ranked by the concept", "other_words": "ranked by other words", "permuted": "permuted ranks",
    }  # fmt: skip
    series = []
    for key, title in names.items():
        lines = [row["found"]["deciles"][key] for row in rows]
        points = [
            (float(i + 1), statistics.fmean(values), None, None)
            for i, values in enumerate(zip(*lines, strict=True))
        ]
        series.append(Series(title, points, dashed=key == "permuted"))
    return Figure(
        f"{name}: sensitivity of the held-out half by decile",
        caption=f"Decile 1 has the dimensions that the other half ranks highest. Change: {over}.",
        x="decile", y="mean sensitivity", series=series,
    )  # fmt: skip


def _findings(records: Records) -> list[Finding]:
    keys = ("problem", "over", "decile")
    rows: list[dict[str, Cell | float]] = [
        {"problem": problem, "over": over, "decile": decile, "sensitivity": statistics.fmean(values)}
        for (problem, over), own in records.each("problem", "over")
        for decile in ("top", "bottom")
        if (values := own.figures("held_out", decile))
    ]  # fmt: skip
    found = findings_of("sensitivity", rows, keys, difference=DIFFERENCE)
    if not len(records):
        return found
    source = "SPARSE, Appendix A"
    noise = statistics.median(records.figures("noise", "circular"))
    real = statistics.median(records.figures("circular", "p_value"))
    found.append(
        Finding(
            "A p-value from ranking and testing on the same figures shows that there are privacy neurons.", source,
            "disagrees" if noise <= ALPHA else "unclear",
            f"the same test gives p = {noise:.1e} on pure noise, and {real:.1e} on the texts",
            f"p = {float(published(TABLE).setting['p_value']):.2e}",
            "The test has no null hypothesis that data could keep to: the top of a ranking is above its bottom.",
        )
    )  # fmt: skip
    cells = len(records)
    told = _count(records, lambda one: one("held_out", "p_value") <= ALPHA)
    found.append(
        Finding(
            "Dimensions that are sensitive to the concept on some texts are so on others.", source,
            "agrees" if told >= 0.8 * cells else "unclear" if told > 0.2 * cells else "disagrees",
            f"p ≤ {ALPHA} in {told} of {cells} cells ranked on one half and tested on the other",
        )
    )  # fmt: skip
    shares = [
        bottom / top
        for bottom, top in zip(
            records.figures("held_out", "bottom"), records.figures("held_out", "top"), strict=True
        )
    ]
    lowest, highest = min(shares), max(shares)
    found.append(
        Finding(
            "The tenth with the least sensitivity has nearly none.", source,
            "agrees" if highest <= NEARLY_ZERO else "unclear" if lowest <= NEARLY_ZERO else "disagrees",
            f"it has {lowest:.0%} to {highest:.0%} of the top tenth's, on the half that did not rank",
            "nearly zero, against 0.04",
        )
    )  # fmt: skip
    found += [_of_the_concept(over, own) for (over,), own in records.each("over")]
    return found


def _of_the_concept(over: str, records: Records) -> Finding:
    """Return whether words that are not of the concept rank the dimensions as the concept does."""
    cells = len(records)
    same = _count(
        records,
        lambda one: (
            one("other_words", "p_value") <= ALPHA
            and one("agreement", "other_words") >= 0.8 * one("agreement", "halves")
        ),
    )
    halves, others = (
        statistics.fmean(records.figures("agreement", key)) for key in ("halves", "other_words")
    )
    return Finding(
        f"The sensitive dimensions are those of the concept, not those that any removed word moves ({OVER[over]}).",
        "SPARSE, Appendix A",
        "disagrees" if same >= 0.8 * cells else "unclear" if same > 0.2 * cells else "agrees",
        f"rank correlation with the concept on other texts: {halves:.2f} ranked by the concept, {others:.2f} by other "
        f"words; these rank as well in {same} of {cells} cells",
        "not tested",
    )  # fmt: skip


def _count(records: Records, holds: Callable[[Callable[..., float]], bool]) -> int:
    def of(row: Mapping[str, Any]) -> Callable[..., float]:
        return lambda *path: number_at(row["found"], path) or 0.0

    return sum(holds(of(row)) for row in records)
