"""``vecveil audit``: attack clean and protected vectors, or a store, and report what leaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared
from vecveil.cli.reports import report_files, report_options, write_reports
from vecveil.errors import DataFileError, InvalidInputError

if TYPE_CHECKING:
    from vecveil.auditing import AuditResult
    from vecveil.cli.inputs import Rows, TableFormat
    from vecveil.metrics import UtilityTask

__all__ = ["command"]

EXAMPLE = """\b
Examples:
  vecveil audit notes.csv -p drug.vecveil --concept concept.yaml --json audit.json --html audit.html
  vecveil audit sample.csv --vectors store.npy --row-column row --concept concept.yaml --html leaks.html
"""
FAMILIES = ("probe", "candidates", "averaging", "alignment", "reconstruction", "held-out-terms")

attack_options = shared.stacked(
    click.option(
        "--tier",
        type=click.Choice(["quick", "full"]),
        default="quick",
        show_default=True,
        help="full: larger attackers, and attacks that write the text anew; minutes to an hour.",
    ),
    click.option(
        "--skip",
        type=click.Choice(FAMILIES),
        multiple=True,
        help="Leave out a family of attacks (can be given again).",
    ),
    click.option(
        "--corpus",
        type=shared.FILE,
        help="Further texts, one a line or a table: attackers learn from those in which the concept is found, "
        "and those of tier full learn to write from all.",
    ),
    click.option(
        "--device", default="auto", show_default=True, help="Of learnt attacks: auto, cpu, cuda."
    ),
    click.option(
        "--min-token-count",
        type=click.IntRange(min=1),
        help="Attack a word if so many training texts hold it [default: 15, or 10 or 5 if words are few].",
    ),
    click.option(
        "--work",
        type=shared.FILE,
        metavar="FOLDER",
        help="Keep finished attacks here until the audit is complete; the same command then goes on "
        "[default: beside the embedding cache; none with --no-cache].",
    ),
)


@click.command(
    "audit", epilog=EXAMPLE, short_help="Attack clean and protected vectors; report what leaks."
)
@click.argument("input", type=shared.FILE)
@click.option(
    "-p", "--protector", "protector_file", type=shared.FILE,
    help="Protector file; without it the vectors given are audited as a store.",
)  # fmt: skip
@click.option(
    "--concept", type=shared.FILE, required=True, help="Concept file (YAML): what should be hidden."
)
@click.option(
    "--vectors", "vectors_file", type=shared.FILE,
    help="The store: .npy, or Parquet with a vector column [default: the vectors in INPUT].",
)  # fmt: skip
@click.option(
    "--row-column",
    metavar="NAME",
    help="Column of INPUT with the row (from 0) of each text in --vectors.",
)
@report_options
@shared.table_options
@click.option(
    "--embedding-column",
    metavar="NAME",
    help="Column of vectors, in --vectors or in INPUT [default: embedding].",
)
@click.option("--group-column", metavar="NAME", help="Column of ids of texts that belong together.")
@click.option("--limit", type=click.IntRange(min=2), help="Read this many rows at most.")
@shared.task_options
@shared.encoder_options
@attack_options
@shared.seed_option
def command(
    input: Path,
    protector_file: Path | None,
    concept: Path,
    vectors_file: Path | None,
    row_column: str | None,
    json_file: Path | None,
    html_file: Path | None,
    md_file: Path | None,
    csv_file: Path | None,
    text_column: str | None,
    format: str | None,
    encoding: str,
    delimiter: str | None,
    **given: Any,
) -> None:
    """Attack the vectors of the texts in INPUT and print what attackers find.

    With a protector, clean and protected vectors of the texts are attacked side by side: give texts that it was
    not fitted on, only they show the honest figure. Without one, the vectors of a store are attacked by somebody
    who knows the texts of a part of it.
    """
    from vecveil.cli.inputs import TableFormat
    from vecveil.cli.printing import data, note

    to_stdout, files = report_files(
        "audit", json_file, html_file, md_file, csv_file,
        inputs=(input, protector_file, concept, vectors_file, given["corpus"]),
    )  # fmt: skip
    form = TableFormat(text_column, format, encoding, delimiter)
    given["corpus"] = corpus_texts(given["corpus"])
    if protector_file is None:
        from vecveil.cli.audit_store import audited_store

        result = audited_store(input, concept, vectors_file, row_column, form, given)
    elif vectors_file is not None or row_column is not None:
        name = "vectors" if vectors_file is not None else "row_column"
        raise InvalidInputError.of("audit", name, "given without a protector", "both",
                                   "With a protector the audit protects clean vectors itself.",
                                   "Leave out -p to audit the vectors of a store.")  # fmt: skip
    else:
        result = _audited(input, protector_file, concept, form, given)
    write_reports(result, files)
    if to_stdout:
        click.echo(json.dumps(result.to_record(), indent=1, allow_nan=False))
    (note if to_stdout else data)(result.summary())
    for path in files.values():
        note(f"Wrote {path}")


def audit_arguments(given: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """Return the arguments that both kinds of audit take."""
    from vecveil.cli.printing import as_typed

    column = given["group_column"]
    work = given["work"]
    if work is None and given["cache"]:
        from vecveil.encoders.cache import default_cache_folder

        work = default_cache_folder() / "audits"
    names = (
        "tier",
        "min_token_count",
        "show_terms",
        "show_reconstructions",
        "corpus",
        "skip",
        "device",
        "seed",
    )
    return {
        **{name: given[name] for name in names},
        "groups": None if column is None else rows.table.columns[column],
        "work": work,
        "command": as_typed(),
    }


def corpus_texts(path: Path | None) -> tuple[str, ...]:
    """Return the texts that are not blank of the file of --corpus."""
    if path is None:
        return ()
    from vecveil.data import read_texts

    return tuple(text for text in read_texts(path).texts if text.strip())


def _audited(
    input: Path, protector_file: Path, concept: Path, form: TableFormat, given: dict[str, Any]
) -> AuditResult:
    from vecveil.auditing import audit
    from vecveil.auditing.lint import plaintext_beside
    from vecveil.cli.inputs import is_protected, read_rows
    from vecveil.protector import load
    protector = load(protector_file)
    if is_protected(input, form):
        raise DataFileError.of(input.name, "path", "a table of texts, with clean vectors or none",
                               "one that vecveil has protected",
                               "An audit with a protector protects the clean vectors itself.",
                               "Leave out -p to audit what is in the file.")  # fmt: skip
    rows = read_rows(
        input, concept, form, columns=(given["group_column"], given["label_column"]),
        limit=given["limit"], embeddings=True, embedding_column=given["embedding_column"],
    )  # fmt: skip
    vectors = rows.table.embeddings
    beside = [] if vectors is None else plaintext_beside({rows.table.text_column: rows.texts})
    encoder = None
    if vectors is None or any(given[name] is not None for name in ("encoder", "sts", "retrieval")):
        encoder = protector.encoder_for(given["encoder"], given["precision"], given["cache"])
    if vectors is None:
        assert encoder is not None
        vectors = encoder.encode(rows.texts)
    return audit(
        protector,
        rows.texts,
        rows.concept,
        encoder=encoder,
        embeddings=vectors,
        lint=beside,
        tasks=_tasks(given, encoder, rows, vectors, input),
        **audit_arguments(given, rows),
    )


def _tasks(
    given: dict[str, Any], encoder: Any, rows: Rows, vectors: Any, input: Path
) -> list[UtilityTask]:
    from vecveil.cli.tasks import classification_task, retrieval_task, sts_task

    tasks: list[UtilityTask] = []
    if given["sts"] is not None:
        tasks.append(sts_task(given["sts"], encoder))
    if given["retrieval"] is not None:
        tasks.append(retrieval_task(given["retrieval"], encoder))
    if (column := given["label_column"]) is not None:
        labels = rows.table.columns[column]
        tasks.append(classification_task(vectors, labels, column, input, seed=given["seed"]))
    return tasks
