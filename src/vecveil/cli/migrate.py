"""``vecveil migrate``: copy a vector database to a protected one."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import counted, data_json, doing, note, warn
from vecveil.cli.releases import Release
from vecveil.cli.sealed import index_encoder, opened, refuse_other_options
from vecveil.errors import InvalidInputError, StoreError
from vecveil.index import Sealer
from vecveil.privacy.protector import Protector, load
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import VectorStore, open_store
from vecveil.stores.locations import default_state_file, index_place, public_name, short_name
from vecveil.stores.migrating import Migration, MigrationOptions, SourceCheck, migrate, verify_migration
from vecveil.texts.tables import read_table

if TYPE_CHECKING:
    from vecveil.stores.filling import Filling

EXAMPLE = """\b
Examples:
  vecveil migrate chroma:db#notes chroma:db#notes-protected -p drug.vecveil
  vecveil migrate faiss:notes.faiss pgvector:postgresql://writer@db/app#notes -p drug.vecveil \\
      --key-file noise.key --ledger releases.ledger --cap 1 --drop author
  vecveil key new search.keys
  vecveil migrate chroma:db#notes chroma:db#notes-sealed -p drug.vecveil --seal-key search.keys
  vecveil migrate chroma:db#notes sealed:notes/ --seal-key search.keys --encoder minilm
  vecveil migrate notes.parquet sealed:notes/ --seal-key search.keys --encoder minilm --id-column note
  vecveil migrate chroma:db#notes chroma:db#notes-protected --verify-only

Locations are written as for `vecveil scan`. A password is best left to what the database's own
client reads, such as PGPASSWORD: command lines are seen by others on the machine.
"""
BATCH, ENCODED_BATCH = 20_000, 2_000  # into a sealed index
_TABLE = ("text_column", "id_column", "embedding_column", "format", "encoding", "delimiter")
SECTIONS = {
    "Protection": "--protector --encoder --seal-key --filter-field",
    "Fields": "--keep-text --keep --drop",
    "Table": "--text-column --id-column --embedding-column",
    "Run": "--add --skip-bad --json",
}


@shared.command("migrate", EXAMPLE, SECTIONS)
@click.argument("source")
@click.argument("dest")
@click.option("-p", "--protector", "protector_file", type=shared.PROTECTOR, help="Protector file.")
@click.option("--keep-text", is_flag=True, help="Also copy fields that contain text, unprotected.")
@click.option(
    "--keep", multiple=True, metavar="FIELD", help="Copy this field regardless of its content; may be repeated."
)
@click.option("--drop", multiple=True, metavar="FIELD", help="Leave out this field; may be repeated.")
@click.option("--skip-bad", is_flag=True, help="Leave out rows without a finite vector of the right dimension.")
@click.option("--add", is_flag=True, help="Into sealed: keep the rows of the index that SOURCE lacks.")
@click.option(
    "--seal-key",
    type=shared.SEAL_KEY,
    help="Also write exact vectors and all fields, sealed under this key file or env:NAME:FILE.",
)
@shared.filter_field_option
@shared.count_option("--batch", help="Rows per write [default: 1,000; into sealed: 20,000].")
@shared.file_option("--state", "state_file", help="Progress file [default: in the folder of DEST].")
@click.option("--verify-only", is_flag=True, help="Verify a finished copy again.")
@click.option("--yes", is_flag=True, help="Copy even if the fit reported that the protector is not ready.")
@click.option("--id-column", metavar="NAME", help="Column of the ids [default: id, or the row numbers].")
@click.option("--embedding-column", metavar="NAME", help="Column of the vectors [default: embedding].")
@shared.table_options
@shared.encoder_name_options
@shared.named_options
@shared.json_option
def command(source: str, dest: str, protector_file: Path | None, **options: Any) -> None:
    """Copy the rows of SOURCE to DEST with protected vectors, and verify the copy.

    DEST is created, or must be empty. Fields of texts, lists of numbers and binary values are left out; other fields
    and the ids are copied unchanged. After an interruption the same command continues. SOURCE is not changed.

    DEST sealed:FOLDER or sealed:URL is a sealed index: it takes exact vectors, texts and all fields, encrypted, and no
    protector. It may contain rows of an interrupted copy; with --add it keeps other rows too. --encoder records which
    encoder made the vectors. SOURCE may then be a table too: CSV, JSON lines (also .gz), Parquet or .npy. Without
    vectors, --encoder encodes its texts; the other columns become metadata.

    With --filter-field the database sees which rows have equal values in that field, not the values.
    """
    table = {name: options.pop(name) for name in _TABLE}
    if index_place(dest) is not None:
        return _to_index(source, dest, options, table)
    if named := next((name for name, value in table.items() if value not in (None, "utf-8")), None):
        raise click.UsageError(f"--{named.replace('_', '-')} is for a table as SOURCE, with sealed: as DEST.")
    if options.pop("add"):
        raise click.UsageError("--add is for sealed: as DEST.")
    batch, seal_key, as_json = options.pop("batch") or 1000, options.pop("seal_key"), options.pop("as_json")
    verify_only, yes = options.pop("verify_only"), options.pop("yes")
    state_file = options.pop("state_file") or default_state_file(dest)
    release = Release.of(options, noise=True)
    encoder, encoder_options = options.pop("encoder"), dict(options.pop("encoder_options"))
    if options["filter_fields"] and seal_key is None:
        raise click.UsageError("--filter-field needs --seal-key.")
    sealer = None if seal_key is None else Sealer(seal_key)
    if sealer is not None and options["keep_text"]:
        raise click.UsageError("--keep-text stores in clear the texts that --seal-key seals; give one of the two.")
    shared_arguments: dict[str, Any] = {
        "names": (public_name(source), public_name(dest)),
        "batch": batch,
        "sealer": sealer,
    }
    doing(f"Opening {short_name(source)}")
    if verify_only:
        with open_store(source) as opened, _destination(dest) as made:
            existing = _if_exists(opened)
            if existing is None:
                note("The source does not exist: the copy is not compared with clean vectors.")
            done = verify_migration(made, existing, state_file, **shared_arguments)
    elif protector_file is None:
        _destination(dest).close()  # DEST may be mistyped
        raise click.UsageError(
            "Missing option '-p' / '--protector'. A sealed index needs none: name it sealed:FOLDER as DEST."
        )
    else:
        protector = load(protector_file)
        if not yes:
            _ask(protector, protector_file.name)
        if encoder is not None:
            protector = replace(protector, encoder=protector.encoder_for(encoder, options=encoder_options))
        chosen = MigrationOptions(**options, seal=sealer is not None)
        with release.ledger() as ledger, open_store(source) as opened, _destination(dest) as made:
            policy = ReleasePolicy(protector, key=release.key(), ledger=ledger)
            plan = partial(_plan, state_file)
            done = migrate(opened, made, policy, state_file, options=chosen, on_checked=plan, **shared_arguments)
        if sealer is None:
            note(
                "Queries must pass the same protector from now on: as documents do (vecveil protect QUERIES -p "
                f"{protector_file.name}), or through its map alone where they stay on the trusted side (--no-noise; "
                "query_noise=0 in integrations and server). "
                f"They have {protector.released_dimension} dimensions then."
            )
        else:
            note("Search the copy with `vecveil search`. Keep the key file: without it no blob opens.")
    _report(done, short_name(dest), state_file, verify_only=verify_only)
    if as_json:
        data_json({"source": short_name(source), "dest": short_name(dest), **done.to_record()})
    if not done.verification.ok:
        raise StoreError(
            f"migrate: verification failed. {' '.join(done.verification.failures)} Rows that were added, deleted or "
            "reprotected since the migration are not in its record. If there are none, delete the destination and the "
            "state file, and migrate again."
        )


def _to_index(source: str, dest: str, options: dict[str, Any], table: dict[str, Any]) -> None:
    from vecveil.stores.filling import fill, fill_from_table

    taken = ("seal_key", "encoder", "encoder_options", "drop", "skip_bad", "add", "batch", "as_json")
    how = {name: options[name] for name in ("drop", "skip_bad", "add")}
    seal_key, batch = options["seal_key"], options["batch"]
    of_table = ":" not in source or os.path.exists(source)  # a location may contain a password
    if of_table:
        if os.path.isdir(source):
            raise click.UsageError(
                "SOURCE is a folder. Name a table inside it, or the database that it contains as "
                "KIND:FOLDER#COLLECTION, such as chroma:store#notes."
            )
        refuse_other_options(*taken, *table, "max_memory")
        id_column = table.pop("id_column")
        reader = read_table(source, **table)
    else:
        refuse_other_options(*taken)
    opened(dest, seal_key, new=True).close()  # checks the key, before an encoder is loaded
    encoder, own = options["encoder"], options["encoder_options"]
    if of_table:
        with opened(dest, seal_key, index_encoder(encoder, own), new=True) as index:
            encoded = reader.embedding_column is None
            if encoder is not None or not encoded:  # otherwise `fill_from_table` refuses it
                how_read = "their texts are encoded" if encoded else "with vectors"
                note(f"{counted(reader.rows, 'row')} of {reader.name}; {how_read}.")
            batch = batch or (ENCODED_BATCH if encoded else BATCH)
            done = fill_from_table(reader, index, id_column=id_column, batch=batch, **how)
    else:
        with open_store(source) as store, opened(dest, seal_key, index_encoder(encoder, own), new=True) as index:
            done = fill(store, index, batch=batch or BATCH, on_checked=_index_plan, **how)
    _copied(done, reader.name if of_table else short_name(source), dest, options["as_json"])


def _copied(done: Filling, source: str, dest: str, as_json: bool) -> None:
    if done.skipped:
        note(f"Left out: {counted(done.skipped, 'bad row')}.")
    if done.rows and not done.compared:
        # Such a key cannot see which rows are there, and has written them all.
        note(f"{counted(done.written, 'row')} written to {short_name(dest)}.")
        warn("not verified: this key adds rows and opens none.")
    else:
        there = done.rows - done.written
        note(f"{counted(done.written, 'row')} written to {short_name(dest)}; there already: {there:,}.")
        note(
            f"Verified: count and ids of {counted(done.rows, 'row')}; vectors, texts and metadata of "
            f"{counted(done.compared, 'row')}. Keep the key file: without it nothing opens."
        )
    if as_json:
        data_json({"source": source, "dest": short_name(dest), **done.to_record()})


def _index_plan(checked: SourceCheck) -> None:
    note(f"{counted(checked.rows, 'row')} of {checked.info.dimension} dimensions. Bad rows: {checked.bad}.")
    dropped = [name for name, why in checked.withheld.items() if why == "dropped" or why.endswith("in another table")]
    note(f"All fields are copied, encrypted. Left out: {', '.join(dropped) or 'none'}.")
    if checked.info.metric is not None and not checked.ranks_as_cosine:
        warn(f"the source ranks by {checked.info.metric}; a sealed index ranks by cosine.")


def _ask(protector: Protector, file: str) -> None:
    """Ask before using a protector that its fit called not ready."""
    from vecveil.cli.fit import not_ready  # with what a fit needs

    why = not_ready(protector.report)
    if why is None:
        return
    text = f"The fit of {file} reported that it is not ready: {why}."
    if not sys.stdin.isatty():
        raise click.UsageError(f"{text} Fit a stronger one, or pass --yes to copy anyway.")
    click.confirm(f"{text} Copy anyway?", abort=True, err=True)


def _destination(location: str) -> VectorStore:
    try:
        return open_store(location)
    except InvalidInputError as error:
        error.param = "dest"
        raise


def _if_exists(source: VectorStore) -> VectorStore | None:
    try:
        return source if source.exists() else None
    except StoreError:
        return None


def _plan(state_file: Path, checked: SourceCheck) -> None:
    left_out = ", ".join(f"{name} ({why})" for name, why in checked.withheld.items()) or "none"
    note(f"{counted(checked.rows, 'row')} of {checked.info.dimension} dimensions. Bad rows: {checked.bad}.")
    if checked.bad.total:
        note(f"Bad rows are left out. Their ids: {checked.bad.named}.")
    note(f"Fields copied unchanged: {', '.join(checked.carried) or 'none'}. Left out or sealed: {left_out}.")
    note(f"State: {state_file}")
    metric, other = checked.info.metric, checked.dest_metric
    if metric is None and other is None:
        warn(
            "the source does not report its metric; the copy gets the default of its database. Create "
            "DEST first to choose another."
        )
    elif other not in (None, metric) and not (other == "cosine" and checked.ranks_as_cosine):
        warn(f"the source ranks by {metric or 'an unknown metric'}, and DEST by {other}.")
    for name in checked.texts_kept:
        warn(f"field {name!r} is copied with its texts in clear: anyone with access to the store can read them.")
    for name in checked.personal:
        warn(f"field {name!r} looks like personal data and is copied; leave it out with --drop {name}.")


def _report(done: Migration, dest: str, state_file: Path, *, verify_only: bool) -> None:
    state, verification = done.state, done.verification
    if not verify_only:
        before = f", {done.resumed:,} of them before this run" if done.resumed else ""
        note(f"{counted(state.rows, 'row')} written to {dest}{before}; {state.skipped:,} left out.")
    if not verification.ok:
        return
    how = "count and checksum"
    if verification.directions:
        how += " (this store keeps directions: written and kept vectors were compared by direction, within 0.00001)"
    unknown = verification.clean is None
    compared = "rows were not compared with clean vectors" if unknown else "no row is its clean vector"
    if verification.recorded:
        checked = ["count"] if verification.missing is None else ["count", "ids"]
        checked += [] if verification.altered is None else ["sealed originals"]
        note(
            f"Verified: {', '.join(checked)}; {compared}. Earlier runs wrote {verification.recorded:,} of the rows: "
            f"their protected vectors match the checksum in {state_file.name}, and only that file says which vector "
            "belongs to which row."
        )
        return
    note(f"Verified: {how}; {compared}. The state file {state_file.name} contains the checksum for --verify-only.")
