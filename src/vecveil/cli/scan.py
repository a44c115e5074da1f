"""``vecveil scan``: what a vector database holds, what lies beside the vectors, and what leaks from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared
from vecveil.cli.audit import attack_options
from vecveil.cli.reports import page_options, report_files, write_reports
from vecveil.errors import ConceptError, InvalidInputError, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vecveil.databases.scanning import Scan, ScanFinding

__all__ = ["command"]

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
  faiss:FILE                    sqlite-vec:FILE#TABLE
  milvus:FILE.db#COLLECTION     milvus:http://HOST:19530#COLLECTION
"""


@click.command(
    "scan", epilog=EXAMPLE, short_help="Say what a vector database gives away; audit a sample."
)
@click.argument("store")
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    default=2000,
    show_default=True,
    help="Rows to draw at random.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Look at the first so many rows only.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Rows to read at once.",
)
@click.option("--concept", type=shared.FILE, help="Concept file (YAML): attack the sample for it.")
@click.option(
    "--text-field",
    metavar="NAME",
    help="Field of the texts [default: the one of the longest texts].",
)
@click.option("--group-field", metavar="NAME", help="Field of ids of texts that belong together.")
@click.option(
    "--texts",
    "texts_file",
    type=shared.FILE,
    help="Table of texts of the store's rows, instead of a field.",
)
@click.option(
    "--id-column", metavar="NAME", help="Column of --texts with the rows' ids in the store."
)
@shared.table_options
@click.option(
    "--json", "json_file", type=shared.FILE, help="Write the scan to this file; - is stdout."
)
@click.option("--audit-json", type=shared.FILE, help="Write the audit's record to this file.")
@page_options
@shared.encoder_options
@attack_options
@shared.seed_option
def command(
    store: str,
    concept: Path | None,
    texts_file: Path | None,
    id_column: str | None,
    json_file: Path | None,
    audit_json: Path | None,
    html_file: Path | None,
    md_file: Path | None,
    csv_file: Path | None,
    text_column: str | None,
    format: str | None,
    encoding: str,
    delimiter: str | None,
    **given: Any,
) -> None:
    """Read STORE and say what it gives away: texts beside the vectors, vectors that nobody protected.

    Nothing is written to the store, and no text is shown. With --concept a random sample is attacked, by somebody
    who knows the texts of a part of it: with texts that lie beside the vectors, or of --texts.
    """
    from vecveil.cli.inputs import TableFormat
    from vecveil.cli.printing import as_typed, data, note
    from vecveil.cli.scan_audit import audited_sample, clean_sample, found_by_audit, not_tested
    from vecveil.cli.scan_texts import ids_in, texts_beside, texts_from_file
    from vecveil.databases import open_store
    from vecveil.databases.locations import short_name
    from vecveil.databases.scanning import SIGN_CODES, in_order, scan

    if (texts_file is None) != (id_column is None):
        raise click.UsageError(
            "--texts and --id-column go together: the ids say whose texts they are."
        )
    if texts_file is not None and given["text_field"] is not None:
        raise click.UsageError("Give --texts or --text-field, not both.")
    reports = (audit_json, html_file, md_file, csv_file)
    if concept is None and any(path is not None for path in reports):
        raise click.UsageError("Reports of an audit need --concept.")
    inputs = (concept, texts_file, given["corpus"])
    to_stdout, out = _scan_file(json_file, reports, inputs)
    _, files = report_files("scan", *reports, inputs=inputs)
    form = TableFormat(text_column, format, encoding, delimiter)
    hidden = None
    if concept is not None:
        from vecveil.concepts import Concept

        hidden = Concept.from_file(concept)
    among = None
    if texts_file is not None and id_column is not None:
        among = ids_in(texts_file, form, id_column)
    with open_store(store) as opened:
        seen = scan(
            opened,
            sample=given["sample"],
            limit=given["limit"],
            batch=given["batch"],
            seed=given["seed"],
            among=among,
        )
    if texts_file is not None and id_column is not None:
        known = texts_from_file(
            seen, texts_file, form, id_column, () if hidden is None else hidden.columns
        )
        if known is None:
            raise InvalidInputError.of("scan", "texts", "a table of texts of this store's rows",
                                       "one with none of their ids",
                                       fix="See that --id-column names the ids that the store has.")  # fmt: skip
    else:
        known = texts_beside(seen, given["text_field"])
    name, typed = short_name(store), as_typed({store: short_name(store)})
    result, refused, clean = None, None, False
    if known is not None and hidden is not None:
        try:
            result = audited_sample(seen, known, hidden, given, command=typed)
            clean = any(one["code"] == "vectors-not-protected" for one in result.record["lint"])
        except ConceptError as error:
            refused = error  # what was counted is said all the same
    elif known is not None and given["encoder"] is not None:
        clean = clean_sample(known, given)
    elif hidden is not None:
        refused = ConceptError(
            message("scan", "concept", "given with texts to look for it in", "no texts",
                    "None lie beside the vectors.", "Give them with --texts FILE --id-column NAME.")
        )  # fmt: skip
    guesses = SIGN_CODES if clean else ()  # what is known needs no signs
    signs = [one for one in seen.findings if one.code not in guesses]
    findings = in_order([*found_by_audit(result, clean=clean), *signs])
    untested = not_tested(
        seen,
        known,
        concept=concept,
        encoder=given["encoder"],
        failed=None if refused is None else str(refused),
    )
    record = _record(seen, name, findings, untested, typed)
    record["audit"] = None if result is None else result.to_record()
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if out is not None:
        from vecveil.cli.outputs import writing
        from vecveil.io import write_text

        with writing(out):
            write_text(out, text)
    if to_stdout:
        data(text)
    for line in _lines(seen, name, findings, untested):
        (note if to_stdout else data)(line)
    if result is not None:
        (note if to_stdout else data)("\n" + result.summary())
        write_reports(result, files)
    for path in (out, *(files.values() if result is not None else ())):
        if path is not None:
            note(f"Wrote {path}")
    if refused is not None:
        raise refused


def _scan_file(
    json_file: Path | None, reports: tuple[Path | None, ...], inputs: tuple[Path | None, ...]
) -> tuple[bool, Path | None]:
    """Return whether the scan goes to stdout, and its file."""
    if json_file is None or str(json_file) == "-":
        return json_file is not None, None
    _, files = report_files("scan", json_file, *reports[1:], inputs=inputs)
    if reports[0] is not None and reports[0].absolute() == json_file.absolute():
        raise InvalidInputError.of(
            "scan", "output", "a file of its own for each report", "one file twice"
        )
    return False, files["save"]


def _record(
    seen: Scan, name: str, findings: Sequence[ScanFinding], untested: list[str], typed: str
) -> dict[str, Any]:
    from datetime import UTC, datetime

    from vecveil.version import __version__

    record = seen.to_record(name=name)
    record["findings"] = [one.to_record() for one in findings]
    head = {
        "schema": record.pop("schema"),
        "vecveil": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": typed,
    }
    return {**head, **record, "not_tested": untested}


def _lines(
    seen: Scan, name: str, findings: Sequence[ScanFinding], untested: Sequence[str]
) -> list[str]:
    survey = seen.survey
    metric = seen.info.metric or "not said"
    lines = [f"{name}: {seen.info.count:,} rows of {survey.dimension} dimensions, metric {metric}"]
    if survey.rows:
        norms = survey.norms
        lines.append(
            f"Norms {norms.least:.4g} to {norms.largest:.4g}, {norms.unit_share:.0%} of them 1. Bad rows: {survey.bad}."
        )
    for one in survey.fields:
        record = one.to_record(survey.rows)
        lines.append(f"  {one.name}: {record['holds']}, {one.rows / survey.rows:.0%} of the rows")
    lines.append("")
    for finding in findings:
        lines += [f"{finding.severity:<7} {finding.message}", f"        {finding.fix}"]
    return [*lines, *(f"Not tested: {sentence}" for sentence in untested)]
