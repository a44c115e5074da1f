"""The encoders side by side, beside the paper's three."""

from __future__ import annotations

import math
from typing import Any

from research.catalogue.claims import beside, findings_of
from research.catalogue.point_tables import METHOD_NAMES, SETTING
from research.experiment import Records
from research.published import published
from research.scales import parse_scale
from research.summary import (
    Cell,
    Column,
    Figure,
    Finding,
    Number,
    Series,
    Summary,
    Table,
    number,
)

__all__ = ["embedding_models_summary"]

TABLE = "sparse-table-8"


def embedding_models_summary(records: Records) -> Summary:
    """Return tables, figures and findings."""
    measured = Records([row for row in records if "skipped" not in row["found"]])
    missing = {
        row["cell"]["encoder"]: row["found"]["skipped"]
        for row in records
        if "skipped" in row["found"]
    }
    tables = [*(_table(records, name) for name in records.values("problem")), _paper()]
    figures = [_curve(measured, name) for name in measured.values("problem")]
    notes = [f"{name}: not measured. {reason}" for name, reason in missing.items()]
    return Summary(
        tables=tables, figures=figures, findings=_findings(measured, sorted(missing)),
        notes=[*notes, *published(TABLE).notes],
    )  # fmt: skip


def _table(records: Records, problem: str) -> Table:
    columns = [
        Column("Encoder", text=True), Column("Dimension"), Column("Method", text=True), Column("Scale", text=True),
        Column("Leakage, strongest attack", "%"), Column("Chance", "%"), Column("Utility", "%"),
        Column("Utility kept", "%"),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    own = records.where(problem=problem)
    for (encoder, method, scale), at in own.each("encoder", "method", "scale"):
        if "skipped" in at[0]["found"]:
            if [encoder] != [row[0] for row in rows[-1:]]:
                rows.append([encoder, None, "not measured", "", None, None, None, None])
            continue
        keys: dict[str, Any] = {
            "encoder": encoder, "method": method, "epsilon": parse_scale(scale).value, "problem": problem,
        }  # fmt: skip
        close = parse_scale(scale).kind in ("effective", "clean")
        rows.append(
            [
                encoder, number(at.figures("encoder", "dimension")[:1], percent=False, digits=0),
                METHOD_NAMES.get(method, method), scale, _figure(at, "leakage", keys if close else None),
                number(at.figures("leakage", "chance")), _figure(at, "utility", keys if close else None),
                number(at.figures("utility", "relative")),
            ]
        )  # fmt: skip
    caption = f"{SETTING} An encoder that could not be loaded is not measured; the notes say why."
    return Table(f"{problem}: encoders", columns, rows, caption)


def _paper() -> Table:
    """Return the paper's figures, also of encoders that could not be loaded here."""
    columns = [
        Column("Encoder", text=True), Column("Method", text=True), Column("ε"), Column("Leakage", "%"),
        Column("Utility", "%"),
    ]  # fmt: skip
    table = published(TABLE)
    rows: list[list[Cell]] = [
        [
            row["encoder"], METHOD_NAMES.get(row["method"], row["method"]),
            None if math.isinf(row["epsilon"]) else Number(row["epsilon"], percent=False, digits=0),
            Number(row["leakage"] / 100), Number(row["utility"] / 100),
        ]
        for row in table.rows
    ]  # fmt: skip
    return Table(f"As printed in {table.source}", columns, rows, table.caption)


def _figure(rows: Records, key: str, keys: dict[str, Any] | None) -> Number | None:
    paper = None
    if keys is not None and keys["problem"] in (published(TABLE).setting["data"] or ()):
        own = {k: v for k, v in keys.items() if k != "problem"}
        found = beside([TABLE], key, **own)
        paper = None if found is None else found / 100
    return number(
        rows.figures(key, "value"), low=rows.figures(key, "low"), high=rows.figures(key, "high"), published=paper,
    )  # fmt: skip


def _curve(records: Records, problem: str) -> Figure:
    """Return leakage against utility kept: a line for each encoder and method, a point for each scale."""
    series = []
    for (encoder, method), own in records.where(problem=problem).each("encoder", "method"):
        points = []
        for _, at in own.each("scale"):
            x, y = number(at.figures("utility", "relative")), number(at.figures("leakage", "value"))
            if x is not None and y is not None:
                points.append((x.value, y.value, None, None))
        name = f"{encoder}, {METHOD_NAMES.get(method, method)}"
        series.append(Series(name, sorted(points), dashed=method == "none"))
    return Figure(
        f"{problem}: leakage and utility by encoder", caption="Lower right is better.",
        x="utility kept", y="leakage (R-precision)", series=series,
    )  # fmt: skip


def _findings(records: Records, missing: list[str]) -> list[Finding]:
    rows = []
    for (problem, encoder, method, scale), at in records.each(
        "problem", "encoder", "method", "scale"
    ):
        parsed = parse_scale(scale)
        leak, kept = number(at.figures("leakage", "value")), number(at.figures("utility", "value"))
        if parsed.kind == "effective" and leak is not None and kept is not None:
            rows.append(
                {"problem": problem, "encoder": encoder, "method": method, "epsilon": parsed.value,
                 "leakage": 100 * leak.value, "utility": 100 * kept.value}
            )  # fmt: skip
    without = f" Of the encoders asked for, not measured: {', '.join(missing)}." if missing else ""
    keys = ("problem", "encoder", "epsilon", "method")
    return [
        *findings_of("encoders", rows, keys, difference=SETTING + without),
        *_ours(records),
    ]


def _ours(records: Records) -> list[Finding]:
    """Return whether the subspace method leaks less than SPARSE at equal utility, under every encoder."""
    said, held = [], 0
    for (problem, encoder, scale), at in records.each("problem", "encoder", "scale"):
        if parse_scale(scale).kind != "utility":
            continue
        excess = {method: _excess(at.where(method=method)) for method in ("sparse", "subspace")}
        if not all(map(math.isfinite, excess.values())):
            continue
        held += excess["subspace"] < excess["sparse"]
        said.append(
            f"{problem}, {encoder}: {100 * excess['subspace']:.1f} against {100 * excess['sparse']:.1f} points"
        )
    if not said:
        return []
    return [
        Finding(
            "At equal utility the subspace method leaks less above chance than SPARSE, whatever the encoder.", "own",
            "agrees" if held == len(said) else "disagrees" if held == 0 else "unclear", "; ".join(said),
        )
    ]  # fmt: skip


def _excess(rows: Records) -> float:
    value, chance = (
        number(rows.figures("leakage", "value")),
        number(rows.figures("leakage", "chance")),
    )
    return math.nan if value is None or chance is None else value.value - chance.value
