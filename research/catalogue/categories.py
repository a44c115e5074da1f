"""SPARSE, Table 3: what leaks of each category of personal and clinical facts."""

from __future__ import annotations

from research.catalogue.tradeoff import AXES
from research.experiment import Records
from research.grid import Grid
from research.published import published
from research.scales import parse_scale
from research.specification import Spec
from research.tables import METHOD_NAMES, SETTING, findings_of
from vecveil.records.experiment import Cell as TableCell
from vecveil.records.experiment import Column, Summary, Table, number

STAND_INS = (
    "The paper's clinical notes (MIMIC-III) are access-restricted and its PII set has a licence of its own; readers "
    "for both exist (a problem with data: pii-masking-300k). Here the synthetic PII of Presidio and ASQ-PHI, and the "
    "annotated diseases, drugs and adverse effects of NCBI-disease, BC5CDR and ADE stand in."
)
FEW = 30  # instances: below, a category's figure says little


class Categories(Grid):
    """Leakage by category."""

    name = "categories"
    what = "Leakage of each category of PII and of clinical terms at effective ε = 10 and at equal utility."
    source = "SPARSE, Table 3"

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table for each data set, the published one, and what becomes of the claim."""
        tables = [self._table(records, name) for name in records.values("problem")]
        rows = [row for name in records.values("problem") for row in self._rows(records, name)]
        findings = findings_of(
            "categories",
            rows,
            ("dataset", "category", "method", "epsilon"),
            difference=f"{SETTING} {STAND_INS}",
        )
        return Summary([*tables, _published()], findings=findings, notes=[AXES, SETTING, STAND_INS])

    def _table(self, records: Records, problem: str) -> Table:
        own = records.where(problem=problem)
        names = list(
            dict.fromkeys(name for row in own for name in row["found"].get("categories", {}))
        )
        body: list[list[TableCell]] = []
        for name in names:
            for (method, scale), rows in own.each("method", "scale"):
                counts = rows.figures("categories", name, "n")
                body.append(
                    [
                        name, METHOD_NAMES.get(method, method), scale,
                        number(rows.figures("categories", name, "value")),
                        number(rows.figures("categories", name, "chance")),
                        number(counts, percent=False, digits=0),
                    ]
                )  # fmt: skip
        columns = [
            Column("Category", text=True), Column("Method", text=True), Column("Scale", text=True),
            Column("Leakage, strongest attack", "%"), Column("Chance", "%"), Column("Instances judged"),
        ]  # fmt: skip
        return Table(problem, columns, body, notes=[f"Below {FEW} instances a figure says little."])

    def _rows(self, records: Records, problem: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        own = records.where(problem=problem)
        for (method, scale), rows in own.each("method", "scale"):
            parsed = parse_scale(scale)
            if parsed.kind != "effective":
                continue
            for name in dict.fromkeys(
                name for row in rows for name in row["found"].get("categories", {})
            ):
                value = number(rows.figures("categories", name, "value"))
                counts = rows.figures("categories", name, "n")
                if value is not None and counts and min(counts) >= FEW:
                    found.append(
                        {"dataset": problem, "category": name, "method": method, "epsilon": parsed.value,
                         "leakage": 100 * value.value}
                    )  # fmt: skip
        return found


def _published() -> Table:
    """Return the paper's own table, for its data sets are others."""
    table = published("sparse-table-3")
    columns = [Column(name, text=c.text or c.key) for name, c in table.columns.items()]
    rows: list[list[TableCell]] = []
    for row in table.rows:
        rows.append(
            [
                str(row[name]) if column.text or column.key else _percent(row[name])
                for name, column in table.columns.items()
            ]
        )
    return Table(f"As published ({table.source})", columns, rows, table.caption, list(table.notes))


def _percent(value: float | None) -> TableCell:
    return None if value is None else number([value / 100])
