"""``vecveil search``: search a sealed store, rank exactly, and print the texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import note
from vecveil.errors import SealingError
from vecveil.protector import load
from vecveil.search.collection import ProtectedCollection
from vecveil.stores.locations import index_place

EXAMPLE = """\b
Example:
  vecveil migrate chroma:db#notes chroma:db#notes-sealed -p drug.vecveil --seal-key search.keys
  vecveil search chroma:db#notes-sealed "nausea after dinner" -p drug.vecveil --seal-key search.keys
  vecveil search chroma:db#notes-sealed "nausea" -p drug.vecveil --seal-key search.keys --where year=2024
  vecveil search sealed:notes/ "nausea" --seal-key search.keys --encoder minilm --where 'year>=2024' --hybrid
"""


@click.command("search", epilog=EXAMPLE)
@click.argument("database")
@click.argument("query")
@click.option(
    "-p",
    "--protector",
    "protector_file",
    type=shared.PROTECTOR,
    help="Protector file; a sealed index (sealed:) has none.",
)
@shared.database_seal_options
@shared.encoder_name_options
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows to print.")
@click.option(
    "--candidates",
    type=click.IntRange(min=1),
    help="Rows to open and rank [default: what the protector was fitted for, or 200].",
)
@click.option("--map-queries", is_flag=True, help="Send the query without noise: finds more, tells the database more.")
@click.option(
    "--where",
    type=shared.Condition(),
    multiple=True,
    metavar="FIELD=VALUE",
    help="Rows with this value in a filter field: a number, true, false or else a text ('\"2024\"' is a text). Of "
    "sealed: any field, also with != > >= < <= (quote the condition).",
)
@click.option("--hybrid", is_flag=True, help="Of sealed: rank by the query's words as well.")
@shared.json_option
def command(
    database: str,
    query: str,
    protector_file: Path | None,
    where: tuple[tuple[str, str, Any], ...],
    hybrid: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the rows of DATABASE whose exact vectors are nearest to QUERY.

    The database proposes candidates by protected vectors; their sealed rows are opened and ranked here.
    Of a sealed index, sealed:FOLDER or sealed:URL, nothing but encrypted segments leaves the storage, and all rows are
    ranked here.
    """
    from vecveil.cli import sealed

    if index_place(database) is not None:
        sealed.refuse_other_options(
            "seal_key", "encoder", "encoder_options", "top", "candidates", "where", "hybrid", "as_json"
        )
        named = options["encoder"], options["encoder_options"]
        settings = {name: options[name] for name in ("top", "candidates")}
        given = {"encoder": named, "where": where, "hybrid": hybrid, "as_json": as_json, **settings}
        return sealed.search_command(database, query, options["seal_key"], **given)
    if protector_file is None:
        raise click.UsageError("Missing option '-p' / '--protector'. A sealed index needs none: name it sealed:FOLDER.")
    if hybrid:
        raise click.UsageError("--hybrid needs a sealed index (sealed:).")
    values: dict[str, list[Any]] = {}
    for field, operator, value in where:
        if operator != "=":
            raise click.UsageError(
                f"--where: {operator} needs a sealed index (sealed:). A database filters by equal "
                "values only: FIELD=VALUE."
            )
        values.setdefault(field, []).append(value)
    protector = load(protector_file)
    collection = ProtectedCollection(
        database,
        protector,
        options["seal_key"],
        name=options["seal_name"],
        candidates=options["candidates"],
        query_noise=not options["map_queries"],
    )
    with collection.database:
        # Before an encoder is loaded, which may take long.
        collection.sealer.keys.check_protector(collection.name, protector.fingerprint, adding=False)
        if options["encoder"] is not None or options["encoder_options"]:
            own = dict(options["encoder_options"])
            collection.encoder = protector.encoder_for(options["encoder"], options=own)
        ranking = collection.search(query, top=options["top"], where=values, on_invalid="skip")
    if ranking.skipped and not ranking.ids:
        said = "No candidate has a sealed row that this key opens. Fill the store with `vecveil migrate --seal-key`."
        raise SealingError(said, code="E-SEAL-OPEN", param="database")
    if ranking.skipped:
        note(f"{len(ranking.skipped)} candidates have no sealed row that opens with this key; they are left out.")
    sealed.show_hits(ranking, as_json)
