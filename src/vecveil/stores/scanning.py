"""Scan a store: count rows, classify fields, look for vecveil's own marks, and list findings."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from vecveil.runtime import progress
from vecveil.stores.fields import Field
from vecveil.stores.store import Batch, StoreInfo, VectorStore
from vecveil.stores.survey import Reservoir, Sample, Survey, survey_beside
from vecveil.validation import check_count

SCHEMA = "vecveil.scan/1"
Severity = Literal["high", "medium", "low", "info"]
_SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")
PROTECTION_CODES = ("protected", "unmarked-rows", "protection-unknown")
"""Codes of the finding about protection; a scan of a non-empty store has exactly one."""
_OWNER = "scan"
_LOOKS = {"email": "e-mail addresses", "phone": "telephone numbers", "name": "names", "text": "texts"}
_MIGRATE = "`vecveil migrate` copies the store to a sealed index, which encrypts it, or to a protected store"


@dataclass(frozen=True)
class ScanFinding:
    """One finding; it quotes names of fields and ids of bad rows, and no other content of the store."""

    code: str
    severity: Severity
    message: str
    fix: str

    def to_record(self) -> dict[str, str]:
        return asdict(self)


def in_order(findings: Sequence[ScanFinding]) -> tuple[ScanFinding, ...]:
    """Return the findings sorted by severity, worst first."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


@dataclass(frozen=True, eq=False)
class Scan:
    """Result of a scan.

    Attributes:
        info: the store's description.
        survey: counts over all rows read.
        sample: random rows with their fields; in memory only.
        beside: columns of texts and personal data in tables beside the collection.
        complete: all rows were read.
        seed: seed of the sample.
    """

    info: StoreInfo
    survey: Survey = field(repr=False)
    sample: Sample
    beside: tuple[Field, ...]
    complete: bool
    seed: int

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        """Findings, worst first."""
        if not self.survey.rows:
            return (ScanFinding("empty", "info", "The store has no rows.", "No action is needed."),)
        rows = self.survey.rows
        about_fields = [f for one in self.survey.fields if (f := _field_finding(one, rows))]
        about_tables = [_table_finding(one) for one in self.beside]
        return in_order(
            [*about_fields, *about_tables, *self._id_findings(), self._protection_finding(), *self._row_findings()]
        )

    def to_record(self, *, name: str | None = None) -> dict[str, Any]:
        """Return counts, shares and field names as JSON values (docs/formats.md)."""
        info = self.info
        return {
            "schema": SCHEMA,
            "store": {
                "kind": info.kind,
                "name": name or info.name,
                "count": info.count,
                "dimension": self.survey.dimension,
                "metric": info.metric,
            },
            "complete": self.complete,
            **self.survey.to_record(),
            "beside": [one.to_record(one.rows) for one in self.beside],
            "protection": {"verdict": self.protection, "marked_rows": self.survey.marked},
            "sample": {"rows": len(self.sample), "seed": self.seed},
            "findings": [finding.to_record() for finding in self.findings],
        }

    def _id_findings(self) -> Iterator[ScanFinding]:
        ids = self.survey.ids
        looks = None if ids is None else ids.withheld or ids.personal
        if looks in _LOOKS:
            yield ScanFinding(
                "telling-ids",
                "medium",
                f"Ids look like {_LOOKS[looks]}.",
                "Migrations copy ids unchanged: write rows under ids without meaning.",
            )

    @property
    def protection(self) -> str:
        """``protected``: vecveil marked all rows that were read. ``mixed``: some of them. Else ``unknown``."""
        marked = self.survey.marked
        return "protected" if marked and marked == self.survey.rows else "mixed" if marked else "unknown"

    def _protection_finding(self) -> ScanFinding:
        rows, marked = self.survey.rows, self.survey.marked
        if self.protection == "protected":
            return ScanFinding(
                "protected",
                "info",
                "vecveil wrote all rows: each has a sealed blob or the mark of a protector.",
                "Audit them with their texts to measure what leaks: --concept, and --texts or a field of texts.",
            )
        if self.protection == "mixed":
            return ScanFinding(
                "unmarked-rows",
                "high",
                f"{rows - marked:,} of {rows:,} rows have neither a sealed blob nor the mark of a protector: their "
                "vectors may be clean.",
                "Find the program that wrote them. Delete them, or add them again with ProtectedCollection.",
            )
        return ScanFinding(
            "protection-unknown",
            "medium",
            "vecveil did not write these rows: whether their vectors are protected is unknown.",
            f"Audit them with their texts: --concept, and --texts or a field of texts. If they are not, {_MIGRATE}.",
        )

    def _row_findings(self) -> Iterator[ScanFinding]:
        survey = self.survey
        if survey.bad.total:
            yield ScanFinding(
                "bad-rows",
                "low",
                f"Rows whose vector cannot be used: {survey.bad}. Their ids: {survey.bad.named}.",
                "Write them again, or omit them from a migration with --skip-bad.",
            )
        if survey.norms.zeros:
            yield ScanFinding(
                "zero-vectors",
                "low",
                f"{survey.norms.zeros:,} vectors are zero: they have no direction.",
                "Check which texts were encoded.",
            )
        if survey.equal_vectors.count():
            yield ScanFinding(
                "equal-vectors",
                "low",
                f"{survey.equal_vectors} rows have the vector of another row: the text of one reveals the other's.",
                "Store each text once; noise makes equal vectors different.",
            )
        if survey.equal_ids.count():
            yield ScanFinding(
                "equal-ids",
                "medium",
                f"{survey.equal_ids} rows share their id with another row.",
                "Give each row its own id: a store that is written by id keeps only one of them.",
            )
        if self.complete and survey.rows != self.info.count:
            yield ScanFinding(
                "count",
                "low",
                f"{survey.rows:,} rows were read; the store counts {self.info.count:,}.",
                "Another program may have written to the store: scan again.",
            )


def _field_finding(field: Field, rows: int) -> ScanFinding | None:
    # From the most to the least serious: a field gives one finding.
    name = f"Field {field.name!r}"
    if field.withheld == "sealed":
        return None
    if field.withheld == "text":
        return ScanFinding(
            "plaintext-beside-vectors",
            "high",
            f"{name} holds texts beside the vectors, in {field.text_rows / rows:.0%} of the rows: whoever reads the "
            "store needs no attack.",
            f"Keep texts elsewhere, by id; {_MIGRATE}, which omits them.",
        )
    if field.withheld == "vector":
        return ScanFinding(
            "further-vectors",
            "high",
            f"{name} holds further vectors, in {field.rows / rows:.0%} of the rows: nothing protects them, and a "
            "sparse vector lists the words of its text.",
            f"{_MIGRATE}, which omits them.",
        )
    if field.withheld is not None:
        numbers = "lists of numbers, which may be clean vectors"
        values = numbers if field.withheld == "numbers" else "binary values"
        return ScanFinding(
            f"{field.withheld}-beside-vectors",
            "medium",
            f"{name} holds {values}, in {field.rows / rows:.0%} of the rows: nothing protects them.",
            f"Check the field; {_MIGRATE}, which omits the field unless --keep names it.",
        )
    if field.personal is not None:
        share = field.kinds[field.personal] / rows
        return ScanFinding(
            "personal-data-beside-vectors",
            "medium",
            f"{name} looks like {_LOOKS[field.personal]}, in {share:.0%} of the rows.",
            f"Omit it, or replace it with a pseudonym: vecveil migrate --drop {field.name}.",
        )
    return None


def _table_finding(column: Field) -> ScanFinding:
    looks = column.withheld or column.personal or "text"
    if looks == "numbers":
        return ScanFinding(
            "numbers-in-other-tables",
            "high",
            f"{column.name!r}, a column of another table of the database, holds lists of numbers in {column.rows:,} "
            "rows, which may be clean vectors. Chroma's queue keeps those of replaced and deleted rows.",
            "Migrate to a new database, which gets no other table, and delete this one.",
        )
    code, severity = ("plaintext", "high") if looks == "text" else ("personal-data", "medium")
    return ScanFinding(
        f"{code}-in-other-tables",
        severity,  # type: ignore[arg-type]
        f"{column.name!r}, a column of another table of the database, holds {_LOOKS[looks]}: whoever reads the "
        "database needs no attack.",
        "Keep it in a database of its own. A migration copies no other table.",
    )


def scan(
    store: VectorStore,
    *,
    sample: int = 2000,
    limit: int | None = None,
    batch: int = 1000,
    seed: int = 0,
    among: Container[str] | None = None,
    show_progress: bool | None = None,
) -> Scan:
    """Scan ``store`` in one pass, without changing it.

    Args:
        sample: number of random rows to keep in memory with their fields.
        limit: maximum number of rows to read, in the store's order; None reads all.
        batch: rows to read at once.
        seed: seed of the sample.
        among: ids to sample from; None for all rows.

    Raises:
        StoreError: the store does not exist or does not answer.
    """
    for name, value in (("sample", sample), ("batch", batch), ("limit", limit)):
        if value is not None:
            check_count(value, owner=_OWNER, param=name)
    info = store.info()
    total = -(-(info.count if limit is None else min(info.count, limit)) // batch)
    survey: Survey | None = None
    reservoir = Reservoir(sample, seed, among)
    complete = True
    for rows in progress(store.batches(batch), "scan", total=total, show=show_progress, unit="batch"):
        if survey is None:
            # A store that accepts any dimension: the first batch sets the expected one.
            survey = Survey(info.dimension or rows.vectors.shape[1])
        room = len(rows) if limit is None else limit - survey.rows
        # A batch beyond the limit only shows that rows remain.
        if len(rows) > room:
            complete = False
            if not room:
                break
            rows = Batch(rows.ids[:room], rows.vectors[:room], rows.fields[:room])
        reservoir.add(rows, survey.add(rows))
    survey = survey or Survey(info.dimension)
    drawn = reservoir.sample(survey.dimension)
    return Scan(info, survey, drawn, survey_beside(store), complete, seed)
