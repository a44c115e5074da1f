"""SPARSE, Table 3: leakage by category of personal and clinical facts."""

from __future__ import annotations

import dataclasses
import math

from research import tables as draw
from research.catalogue.tradeoff import AXES
from research.experiment import Records
from research.grid import Grid, GridSpec
from research.published import published
from research.results import Column, Number, Summary, Table
from research.scales import parse_scale

STAND_INS = (
    "The paper's clinical notes (MIMIC-III) are access-restricted and its PII set has a restrictive licence; readers "
    "for both exist (a problem with data: pii-masking-300k). This table uses the synthetic PII of Presidio and "
    "ASQ-PHI, and the annotated diseases, drugs and adverse effects of NCBI-disease, BC5CDR and ADE instead."
)
FEW = 30  # instances: below, a category's figure says little


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
            tables=[*(_table(records, name) for name in problems), _published()],
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
    own = draw.counted(records.where(problem=problem))
    for (method, scale), rows in own.each("method", "scale") if draw.live_attacks(own) else ():
        parsed = parse_scale(scale)
        for name in _categories(rows) if parsed.kind == "effective" else ():
            value, n = rows.measured("categories", name, factor=100), rows.figures("categories", name, "n")
            if value is not None and min(n, default=0) >= FEW:
                share = value.value / 100  # of one seed the interval is that of a share
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


def _published() -> Table:
    """Return the paper's own table: its data sets differ from ours."""
    theirs = published("sparse-table-3")
    is_text = {name: column.text or column.key for name, column in theirs.columns.items()}
    rows = [
        [
            str(row[name]) if text else None if row[name] is None else Number(row[name] / 100, n=1)
            for name, text in is_text.items()
        ]
        for row in theirs.rows
    ]
    columns = [Column(name, text=text) for name, text in is_text.items()]
    return Table(f"As published ({theirs.source})", columns, rows, theirs.caption, list(theirs.notes))
