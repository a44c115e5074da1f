"""``vecveil scan``: report what a vector database gives away, and audit a sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from vecveil.auditing import AuditResult, audit_store
from vecveil.auditing.auditor import clean_vectors, plaintext_beside
from vecveil.cli import options as shared
from vecveil.cli.audit import attack_arguments, attack_options
from vecveil.cli.output import as_typed, block, data, data_json, note, report_files, write_reports, writing
from vecveil.cli.tables import load_encoder_named, table_format
from vecveil.errors import ConceptError, DataFileError, InvalidInputError
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept
from vecveil.stores import open_store
from vecveil.stores.locations import index_place, short_name
from vecveil.stores.scanning import PROTECTION_CODES, Scan, ScanFinding, in_order, leaves, scan
from vecveil.texts.tables import read_table
from vecveil.texts.tables.columns import missing_column, python_values
from vecveil.texts.tables.reading import TableFormat
from vecveil.types import Embeddings
from vecveil.version import __version__

_REMEDY = (
    "Copy the store (vecveil migrate): to a sealed index if you hold a key where you search, else with a protector "
    "(vecveil fit), a stronger one if it has one. Audit again."
)
EXAMPLE = """\b
Examples:
  vecveil scan chroma:db#notes
  vecveil scan chroma:db#notes --concept concept.yaml --html leaks.html --json scan.json
  vecveil scan pgvector:postgresql://reader@db/app#notes --texts notes.csv --id-column id \\
      --concept concept.yaml --html leaks.html

\b
STORE is KIND:WHERE#COLLECTION:
  chroma:FOLDER#COLLECTION      chroma:http://HOST:8000#COLLECTION
  lancedb:FOLDER#TABLE          qdrant:FOLDER#COLLECTION   qdrant:http://HOST:6333#COLLECTION
  pgvector:postgresql://USER@HOST/DATABASE#TABLE
  faiss:FILE or faiss:FOLDER    sqlite-vec:FILE#TABLE
  milvus:FILE.db#COLLECTION     milvus:http://HOST:19530#COLLECTION
  sealed:FOLDER or sealed:URL, a sealed index: reports objects, sizes and times, which need no key

Behind COLLECTION, ?vector=NAME chooses one of several vectors of a row. Chroma takes ?tenant=NAME&database=NAME, and
Milvus ?database=NAME.
"""
SECTIONS = {
    "Rows": "--sample --limit",
    "Texts": "--concept --text-field --group-field --texts --id-column --encoder",
    "Attacks": "--tier",
    "Output": "--json --audit-json --html --csv",
}


@shared.command("scan", EXAMPLE, SECTIONS)
@click.argument("store")
@shared.count_option("--sample", least=2, default=2000, show_default=True, help="Rows to draw at random.")
@shared.count_option("--limit", help="Read at most this many rows.")
@shared.count_option("--batch", default=1000, show_default=True, help="Rows per read.")
@shared.file_option("--concept", help="Concept file (YAML): attack the sample for it.")
@click.option("--text-field", metavar="NAME", help="Field of the texts [default: the longest].")
@click.option("--group-field", metavar="NAME", help="Field of ids of texts that belong together.")
@shared.file_option("--texts", "texts_file", help="Table of texts of the store's rows, instead of a field.")
@click.option("--id-column", metavar="NAME", help="Column of --texts with the rows' ids in the store.")
@shared.table_options
@shared.file_option("--json", "json_file", help="Write the scan to this file; - is stdout.")
@shared.file_option("--audit-json", help="Write the audit's record to this file.")
@shared.page_options
@shared.encoder_options
@attack_options
@shared.seed_option
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(
    store: str,
    concept: Path | None,
    texts_file: Path | None,
    id_column: str | None,
    json_file: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Read STORE and report what it reveals: texts stored with the vectors, vectors without protection.

    Nothing is written to the store, and no text is shown. With --concept, an attacker who knows some of the texts
    attacks a random sample. The texts are those of the store, or of --texts.
    """
    reports = {f"--{kind}": options[f"{kind}_file"] for kind in ("html", "md", "csv")}
    reports["--audit-json"] = options["audit_json"]
    if (texts_file is None) != (id_column is None):
        raise click.UsageError("--texts and --id-column go together: the ids say whose texts they are.")
    if texts_file is not None and options["text_field"] is not None:
        raise click.UsageError("Give --texts or --text-field, not both.")
    if concept is None and any(path is not None for path in reports.values()):
        raise click.UsageError("Reports of an audit need --concept.")
    inputs = (concept, texts_file, options["attacker_texts"])
    files = report_files({"--json": json_file, **reports}, inputs=inputs, overwrite=force)
    out, to_stdout = files.pop("--json", None), str(json_file) == "-"
    if index_place(store) is not None:
        from vecveil.cli import sealed

        sealed.refuse_other_options("json_file", "force")
        seen_there = sealed.scan_command(store, json_file)
        if to_stdout:
            data_json(seen_there)
        elif out is not None:
            with writing(out):
                write_text(out, json.dumps(seen_there, indent=1) + "\n")
        return
    form = table_format(options)
    hidden = None if concept is None else Concept.from_file(concept)
    texts = None
    if texts_file is not None and id_column is not None:
        texts = _TextsFile(texts_file, form, id_column)
    with open_store(store) as opened:
        seen = scan(
            opened,
            sample=options["sample"],
            limit=options["limit"],
            batch=options["batch"],
            seed=options["seed"],
            among=None if texts is None else texts.ids(),
        )
    if texts is None:
        known = _texts_beside(seen, options["text_field"])
    else:
        known = texts.of_sample(seen, () if hidden is None else hidden.columns)
    name, typed = short_name(store), as_typed({store: short_name(store)})
    result, refused, clean = None, None, False
    if known is not None and hidden is not None:
        try:
            result = _audit_sample(seen, known, hidden, options, command=typed)
            clean = any(entry["code"] == "vectors-not-protected" for entry in result.record["lint"])
        except ConceptError as error:
            refused = error  # the findings of the scan are still reported
    elif known is not None and options["encoder"] is not None:
        clean = _is_clean(known, options)
    elif hidden is not None:
        said = "The store has no texts to look for the concept in. Give them with --texts FILE --id-column NAME."
        refused = ConceptError(said, param="concept")
    # A mark is a claim of the database; the comparison with the encoder is proof.
    others = [finding for finding in seen.findings if not (clean and finding.code in PROTECTION_CODES)]
    findings = in_order([*_findings_of_audit(result, clean=clean), *others])
    untested = _not_tested(seen, known, concept, options["encoder"], None if refused is None else str(refused))
    record = _record(seen, name, findings, untested, typed)
    record["audit"] = None if result is None else result.to_record()
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if out is not None:
        with writing(out):
            write_text(out, text)
    if to_stdout:
        data_json(record)
    show = note if to_stdout else data
    for line in _lines(seen, name, findings, untested):
        show(line)
    if result is not None:
        block(f"\n{result.summary()}", err=to_stdout)
        write_reports(result, files)
    for path in (out, *(files.values() if result is not None else ())):
        if path is not None:
            note(f"Wrote {path}")
    if refused is not None:
        raise refused


# Texts of the sample -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleTexts:
    """Rows of a sample whose text is known; the repr shows no text.

    ``rows`` are their positions in the sample; ``columns`` further columns of the file, a value for each row.
    """

    texts: list[str] = field(repr=False)
    vectors: Embeddings = field(repr=False)
    rows: list[int] = field(repr=False)
    columns: Mapping[str, Sequence[Any]] = field(repr=False)


@dataclass(frozen=True)
class _TextsFile:
    """A table of texts of a store's rows, joined by id."""

    path: Path
    form: TableFormat
    id_column: str

    def _chunks(self, columns: Sequence[str], *, texts: bool) -> Any:
        reader = read_table(self.path, columns=columns, **vars(self.form))
        if reader.text_column is None:
            raise missing_column(reader.name, "text_column", None, reader.types)
        return reader.select(columns, texts=texts, vectors=False)

    def ids(self) -> frozenset[str]:
        """Return the ids of the texts; raise `DataFileError` for a missing column or a repeated id."""
        ids: list[str] = []
        for chunk in self._chunks([self.id_column], texts=False):
            ids += [str(item) for item in python_values(chunk.columns[self.id_column]) if item not in (None, "")]
        if repeated := len(ids) - len(set(ids)):
            said = f"{self.path.name}: {repeated:,} ids of `id_column` repeat another. A row has one text."
            raise DataFileError(said, param="id_column")
        return frozenset(ids)

    def of_sample(self, scan: Scan, columns: Sequence[str]) -> SampleTexts:
        """Return the texts of sampled rows with their ``columns``; raise `InvalidInputError` if there are none."""
        positions = {item: i for i, item in enumerate(scan.sample.ids)}
        names = list(dict.fromkeys([self.id_column, *columns]))
        matches: dict[int, tuple[str, list[Any]]] = {}
        for chunk in self._chunks(names, texts=True):
            values = [python_values(chunk.columns[name]) for name in names]
            for i, text in enumerate(chunk.texts or []):
                row = None if values[0][i] in (None, "") else positions.get(str(values[0][i]))
                if row is not None and text.strip():
                    matches[row] = (text, [column[i] for column in values])
        rows = sorted(matches)
        if not rows:
            said = "`texts` has none of the store's ids. Check that --id-column names the column of these ids."
            raise InvalidInputError(said, param="texts")
        beside = {name: [matches[row][1][i] for row in rows] for i, name in enumerate(names)}
        return SampleTexts([matches[row][0] for row in rows], scan.sample.vectors[rows], rows, beside)


def _texts_beside(scan: Scan, name: str | None) -> SampleTexts | None:
    """Return the texts stored with the sampled vectors: of the field ``name``, else of the longest texts."""
    fields = scan.survey.fields
    if name is None:
        texts = [each for each in fields if each.withheld == "text"]
        if not texts:
            return None
        name = max(texts, key=lambda each: each.characters * each.strings).name
    elif all(each.name != name for each in fields):
        known = ", ".join(repr(each.name) for each in fields) or "none"
        raise InvalidInputError(f"The store has no field {name[:80]!r}. It has: {known}.", param="text_field")
    values = _values_of(scan, name)
    rows = [i for i, value in enumerate(values) if isinstance(value, str) and value.strip()]
    return SampleTexts([values[i] for i in rows], scan.sample.vectors[rows], rows, {}) if rows else None


def _values_of(scan: Scan, name: str) -> list[Any]:
    return [next((value for each, value in leaves(row) if each == name), None) for row in scan.sample.fields]


# The audit of the sample -------------------------------------------------------------------------


def _audit_sample(
    scan: Scan, known: SampleTexts, concept: Concept, options: dict[str, Any], *, command: str
) -> AuditResult:
    def of_known(name: str) -> list[Any]:
        values = _values_of(scan, name)
        return [values[i] for i in known.rows]

    groups = None if options["group_field"] is None else of_known(options["group_field"])
    if groups is not None and (missing := sum(value is None for value in groups)):
        raise InvalidInputError(f"{missing:,} sampled rows have no `group_field`.", param="group_field")
    columns = {name: known.columns[name] if name in known.columns else of_known(name) for name in concept.columns}
    beside = {each.name: _values_of(scan, each.name) for each in scan.survey.fields}
    return audit_store(
        known.vectors,
        known.texts,
        concept.with_columns(columns),
        encoder=load_encoder_named(options),
        groups=groups,
        lint=plaintext_beside(beside),
        command=command,
        **attack_arguments(options),
    )


def _is_clean(known: SampleTexts, options: dict[str, Any]) -> bool:
    """Return whether the vectors equal the encoder's for these texts, so that nothing protects them."""
    encoder = load_encoder_named(options)
    assert encoder is not None
    return bool(clean_vectors(known.vectors, encoder.encode(known.texts)))


def _findings_of_audit(result: AuditResult | None, *, clean: bool) -> list[ScanFinding]:
    findings = []
    if clean:
        findings.append(
            ScanFinding(
                "vectors-not-protected", "high", "These are the encoder's own vectors: nothing protects them.", _REMEDY
            )
        )
    if result is None:
        return findings
    worst = result.worst
    recovered = f"{worst['value']:.0%} of the concept's words (guessing: {worst['chance']:.0%})"
    if worst["low"] > worst["chance"]:
        findings.append(
            ScanFinding(
                "concept-leaks",
                "high",
                f"An attacker who knows the texts of some rows recovers {recovered} from the vectors of the others.",
                _REMEDY,
            )
        )
    else:
        findings.append(
            ScanFinding(
                "concept-not-read",
                "info",
                f"The attacks on words recover {recovered}, no more than guessing within the error.",
                "See the other attacks in the report, and give more rows (--sample) for narrower intervals.",
            )
        )
    return findings


def _not_tested(
    scan: Scan, known: SampleTexts | None, concept: Path | None, encoder: str | None, failed: str | None
) -> list[str]:
    attackers, sentences = "What attackers recover from the vectors", []
    if not scan.complete:
        sentences.append(f"Rows behind the first {scan.survey.rows:,} (--limit).")
    if known is None:
        sentences.append(
            f"{attackers}: the store has no texts, and none were given (--texts FILE --id-column NAME, or "
            "--text-field NAME)."
        )
    elif concept is None:
        sentences.append(f"{attackers}: no concept was given (--concept FILE).")
    elif failed is not None:
        sentences.append(f"{attackers}: {failed}")
    elif len(known.texts) < scan.survey.rows:
        sentences.append(f"Rows beyond the {len(known.texts):,} that were attacked, a random sample.")
    if known is None or encoder is None:
        sentences.append("Whether the vectors are an encoder's own: that needs texts and --encoder.")
    return sentences


# The report --------------------------------------------------------------------------------------


def _record(seen: Scan, name: str, findings: Sequence[ScanFinding], untested: list[str], typed: str) -> dict[str, Any]:
    record = seen.to_record(name=name)
    return {
        "schema": record.pop("schema"),
        "vecveil": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": typed,
        **record,
        "findings": [finding.to_record() for finding in findings],
        "not_tested": untested,
    }


def _lines(seen: Scan, name: str, findings: Sequence[ScanFinding], untested: Sequence[str]) -> list[str]:
    survey, metric = seen.survey, seen.info.metric or "not said"
    lines = [f"{name}: {seen.info.count:,} rows of {survey.dimension} dimensions, metric {metric}"]
    if survey.rows:
        norms = survey.norms
        spread = f"Norms {norms.least:.4g} to {norms.largest:.4g}, {norms.unit_share:.0%} of them 1."
        lines.append(f"{spread} Bad rows: {survey.bad}.")
    for each in survey.fields:
        holds = each.to_record(survey.rows)["holds"]
        lines.append(f"  {each.name}: {holds}, {each.rows / survey.rows:.0%} of the rows")
    lines.append("")
    for finding in findings:
        lines += [f"{finding.severity:<7} {finding.message}", f"        {finding.fix}"]
    return [*lines, *(f"Not tested: {sentence}" for sentence in untested)]
