"""``vecveil reconcile`` and ``vecveil forget``: find ids without a source, and delete them with a receipt."""

from __future__ import annotations

import codecs
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from vecveil.cli import options as shared
from vecveil.cli.output import counted, data, data_json, note, warn, writing
from vecveil.cli.sealed import conditions, opened, refuse_other_options
from vecveil.errors import DataFileError
from vecveil.index import KeyStore, Sealer
from vecveil.index.blob import SqliteBlobs
from vecveil.io import write_bytes
from vecveil.privacy.accounting import Ledger
from vecveil.stores import open_store
from vecveil.stores.collection import sealed_name
from vecveil.stores.forgetting import Erasure, forget, reconcile
from vecveil.stores.locations import index_place, public_name, short_name
from vecveil.texts.encoders.cache import default_cache_folder
from vecveil.texts.tables.reading import read_corpus
from vecveil.texts.tables.writing import check_new_file

RECONCILE_EXAMPLE = """\b
Example:
  vecveil reconcile chroma:db#notes-sealed --ids current.txt -o gone.txt
  vecveil forget chroma:db#notes-sealed --ids gone.txt --receipt erasure.json --seal-key search.keys
"""
FORGET_EXAMPLE = """\b
Example:
  vecveil forget chroma:db#notes-sealed --ids gone.txt --receipt erasure.json --seal-key search.keys
  vecveil forget sealed:notes/ --where patient=17 --receipt erasure.json --seal-key search.keys
  vecveil forget pgvector:postgresql://writer@db/app#notes --ids gone.txt --receipt erasure.json \\
      --texts gone-texts.txt --ledger releases.ledger
"""


LISTED_IDS = shared.FilePath(exists=True, dir_okay=False)
IDS_HELP = "Text file with one id on each line."
blobs_option = click.option(
    "--blobs",
    "blobs_file",
    type=shared.FilePath(exists=True, dir_okay=False),
    help="SQLite file of the sealed blobs, if separate from DATABASE.",
)


@click.command("reconcile", epilog=RECONCILE_EXAMPLE)
@click.argument("database")
@click.option("--ids", "ids_file", type=LISTED_IDS, required=True, help=IDS_HELP)
@blobs_option
@click.option("--seal-key", type=shared.SEAL_KEY, help="Key file of a sealed index (sealed:), or env:NAME:FILE.")
@shared.file_option("-o", "--out", help="Write the ids without a source to this file, for forget.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@shared.json_option
def reconcile_command(
    database: str,
    ids_file: Path,
    blobs_file: Path | None,
    seal_key: str | None,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """List the vectors of DATABASE without a source, and the sources without a vector.

    --ids has the ids of all sources. Nothing is changed.
    """
    if out is not None:
        check_new_file(out, overwrite=force, inputs=(ids_file,))
    sources = _ids(ids_file)
    if not sources:  # after a failed export every row would seem to have no source, and forget would delete it
        raise DataFileError(f"{ids_file.name} contains no id.", param="ids")
    if index_place(database) is not None:
        refuse_other_options("ids_file", "seal_key", "out", "force", "as_json")
        with opened(database, seal_key) as index:
            from vecveil.stores.filling import reconcile as reconcile_index

            differences = reconcile_index(index, sources)
    elif seal_key is not None:
        raise click.UsageError("--seal-key is for a sealed index (sealed:); the ids of a database are readable.")
    else:
        blobs = None if blobs_file is None else SqliteBlobs(blobs_file)
        with open_store(database) as store:
            differences = reconcile(store, sources, blobs=blobs)
    if out is not None:
        # Read back, an id with a line break or a byte order mark would be another, whose row forget would delete.
        content = "".join(f"{name}\n" for name in differences.without_source).encode("utf-8", "surrogatepass")
        if _lines(content) != list(differences.without_source):
            raise DataFileError(
                "Some ids contain a line break or a byte order mark, which a list cannot. List them with "
                "--json, and delete them in Python.",
                param="out",
            )
        with writing(out):
            write_bytes(out, content)
    if as_json:
        data_json({"database": short_name(database), **vars(differences)})
    else:
        for kind in ("without_source", "without_vector"):
            for name in getattr(differences, kind):
                data(f"{kind.replace('_', ' ')}: {name}")
    note(
        f"{differences.rows:,} vectors; {len(differences.without_source):,} without a source, "
        f"{len(differences.without_vector):,} sources without a vector."
    )


@click.command("forget", epilog=FORGET_EXAMPLE)
@click.argument("database")
@click.option("--ids", "ids_file", type=LISTED_IDS, help=IDS_HELP)
@click.option(
    "--where",
    type=shared.Condition(),
    multiple=True,
    metavar="FIELD=VALUE",
    help="For sealed: instead of --ids, the rows that match, and their older versions; as in search.",
)
@shared.file_option("--receipt", "receipt_file", required=True, help="Receipt (JSON) to write.")
@blobs_option
@click.option(
    "--seal-key",
    type=shared.SEAL_KEY,
    help="Key file of the sealed rows, or env:NAME:FILE: their texts name the cached embeddings.",
)
@click.option("--seal-name", metavar="NAME", help="Name in the key file [default: the location of DATABASE].")
@shared.file_option("--texts", "texts_file", help="Texts of the ids, one a line, to delete from the cache.")
@shared.file_option("--cache-folder", help="Folder of the embedding cache [default: this user's].")
@shared.file_option("--ledger", "ledger_file", help="Ledger of releases, which is not changed.")
@click.option(
    "--compact/--no-compact",
    default=True,
    show_default=True,
    help="Let the database overwrite deleted bytes; may lock the whole collection.",
)
@shared.json_option
def forget_command(
    database: str,
    ids_file: Path | None,
    where: tuple[Any, ...],
    receipt_file: Path,
    seal_key: str | None,
    seal_name: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Delete rows from DATABASE, sealed blobs and embedding cache, and write a receipt.

    The receipt counts the deletions in each place, how reading again verified them, and what remains: backups,
    replicas, snapshots, and what the database keeps of deleted rows. After a kill the same command continues.
    """
    if (ids_file is None) is not bool(where):
        raise click.UsageError("Name the rows with --ids, or those of a sealed index with --where.")
    if ids_file is not None and ids_file.absolute() == receipt_file.absolute():
        raise click.UsageError("--receipt and --ids must be different files.")
    ids = None if ids_file is None else _ids(ids_file)
    if index_place(database) is not None:
        refuse_other_options("ids_file", "where", "receipt_file", "seal_key", "texts_file", "cache_folder", "as_json")
        with opened(database, seal_key) as index:
            from vecveil.stores.filling import forget as forget_rows

            name, matching = short_name(database), conditions(where) or None
            done = forget_rows(index, ids, receipt_file, name=name, where=matching, **_cached(options))
        return _report(done, receipt_file, as_json)
    if ids is None:
        raise click.UsageError("--where needs a sealed index (sealed:). List the ids with --ids.")
    blobs_file, ledger_file = options["blobs_file"], options["ledger_file"]
    blobs = None if blobs_file is None else SqliteBlobs(blobs_file)
    ledger: Any = nullcontext() if ledger_file is None else Ledger(ledger_file, create=False)
    sealer = None if seal_key is None else Sealer(seal_key)
    with open_store(database) as store, ledger as counted:
        name = seal_name or public_name(database)
        if seal_name is None and sealer is not None and isinstance(sealer.keys, KeyStore):
            name = sealed_name(store, name, sealer.keys, blobs)[0] or name
        done = forget(
            store,
            ids,
            receipt_file,
            name=short_name(database),
            blobs=blobs,
            ledger=counted,
            compact=options["compact"],
            sealer=sealer,
            collection=name,
            **_cached(options),
        )
    _report(done, receipt_file, as_json)


def _cached(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments about the embedding cache."""
    texts = read_corpus(options["texts_file"], param="texts")
    return {"cache": options["cache_folder"] or default_cache_folder(), "texts": texts}


def _report(done: Erasure, receipt_file: Path, as_json: bool) -> None:
    note(f"Deleted {counted(done.rows, 'row')}; {done.absent:,} of {done.ids:,} ids had none. Wrote {receipt_file}.")
    for sentence in (*done.verified, *([done.compacted] if done.compacted else [])):
        note(sentence)
    for sentence in done.unverified:
        warn(sentence)
    for sentence in done.remains:
        note(sentence)
    if as_json:
        data_json(done.to_record())


def _ids(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
        content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__
        raise DataFileError(f"{path.name} cannot be read as UTF-8 text ({reason}).", param="ids") from None
    return _lines(content)


def _lines(content: bytes) -> list[str]:
    # An id may contain what str.splitlines() takes for the end of a line.
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass")
    return [line.removesuffix("\r") for line in text.split("\n") if line.removesuffix("\r")]
