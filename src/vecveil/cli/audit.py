"""``vecveil audit``: attack clean and protected vectors and report what leaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared
from vecveil.errors import DataFileError, message

if TYPE_CHECKING:
    from vecveil.cli.inputs import Rows
    from vecveil.metrics import UtilityTask

__all__ = ["command"]

EXAMPLE = """\b
Example:
  vecveil audit notes.csv -p drug.vecveil --concept concept.yaml --json audit.json --html audit.html
"""


@click.command(
    "audit", epilog=EXAMPLE, short_help="Attack clean and protected vectors; report what leaks."
)
@click.argument("input", type=shared.FILE)
@click.option(
    "-p", "--protector", "protector_file", type=shared.FILE, required=True, help="Protector file."
)
@click.option(
    "--concept", type=shared.FILE, required=True, help="Concept file (YAML): what should be hidden."
)
@click.option(
    "--json", "json_file", type=shared.FILE, help="Write the record to this file; - is stdout."
)
@click.option("--html", "html_file", type=shared.FILE, help="Write the report page to this file.")
@shared.table_options
@click.option(
    "--embedding-column", metavar="NAME", help="Parquet column of clean vectors of the texts."
)
@click.option("--group-column", metavar="NAME", help="Column of ids of texts that belong together.")
@click.option("--limit", type=click.IntRange(min=2), help="Read this many rows at most.")
@shared.task_options
@shared.encoder_options
@click.option(
    "--tier",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="full: larger attackers.",
)
@click.option(
    "--min-token-count",
    type=click.IntRange(min=1),
    help="Attack a word if so many training texts hold it [default: 15, or 5 if words are few].",
)
@click.option(
    "--show-terms", is_flag=True, help="Write the concept's words into the record and the page."
)
@shared.seed_option
def command(
    input: Path,
    protector_file: Path,
    concept: Path,
    json_file: Path | None,
    html_file: Path | None,
    embedding_column: str | None,
    group_column: str | None,
    limit: int | None,
    label_column: str | None,
    tier: str,
    min_token_count: int | None,
    show_terms: bool,
    seed: int,
    text_column: str | None,
    format: str | None,
    encoding: str,
    delimiter: str | None,
    **given: Any,
) -> None:
    """Attack clean and protected vectors of the texts in INPUT and print what attackers find.

    Give texts that the protector was not fitted on: only they show the honest figure.
    """
    from vecveil.auditing import audit
    from vecveil.cli.inputs import TableFormat, is_protected, read_rows
    from vecveil.cli.outputs import check_new_file, writing
    from vecveil.cli.printing import as_typed, data, note
    from vecveil.protector import load

    to_stdout = json_file is not None and str(json_file) == "-"
    for path in (json_file, html_file):  # an earlier report may be replaced, an input never
        if path is not None and str(path) != "-":
            check_new_file(path, force=True, inputs=(input, protector_file, concept))
    form = TableFormat(text_column, format, encoding, delimiter)
    protector = load(protector_file)
    if is_protected(input, form):
        raise DataFileError(
            message(input.name, "path", "a table of texts, with clean vectors or none",
                    "one that vecveil has protected",
                    "An audit protects the clean vectors itself.")
        )  # fmt: skip
    rows = read_rows(
        input, concept, form, columns=(group_column, label_column), limit=limit,
        embeddings=True, embedding_column=embedding_column,
    )  # fmt: skip
    vectors = rows.table.embeddings
    encoder = None
    if vectors is None or any(given[name] is not None for name in ("encoder", "sts", "retrieval")):
        from vecveil.cli.inputs import encoder_for

        encoder = encoder_for(protector, given["encoder"], given["precision"], given["cache"])
    if vectors is None:
        assert encoder is not None
        vectors = encoder.encode(rows.texts)
    result = audit(
        protector,
        rows.texts,
        rows.concept,
        embeddings=vectors,
        tasks=_tasks(given, encoder, rows, label_column, vectors, input, seed),
        groups=None if group_column is None else rows.table.columns[group_column],
        tier=tier,
        min_token_count=min_token_count,
        show_terms=show_terms,
        seed=seed,
        command=as_typed(),
    )
    if json_file is not None and not to_stdout:
        with writing(json_file):
            result.save(json_file)
    if html_file is not None:
        with writing(html_file):
            result.to_html(html_file)
    if to_stdout:
        click.echo(json.dumps(result.to_record(), indent=1, allow_nan=False))
    (note if to_stdout else data)(result.summary())
    for path in (None if to_stdout else json_file, html_file):
        if path is not None:
            note(f"Wrote {path}")


def _tasks(
    given: dict[str, Any],
    encoder: Any,
    rows: Rows,
    column: str | None,
    vectors: Any,
    input: Path,
    seed: int,
) -> list[UtilityTask]:
    from vecveil.cli.tasks import classification_task, retrieval_task, sts_task

    tasks: list[UtilityTask] = []
    if given["sts"] is not None:
        tasks.append(sts_task(given["sts"], encoder))
    if given["retrieval"] is not None:
        tasks.append(retrieval_task(given["retrieval"], encoder))
    if column is not None:
        tasks.append(
            classification_task(vectors, rows.table.columns[column], column, input, seed=seed)
        )
    return tasks
