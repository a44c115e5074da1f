"""``vecveil unseal``, ``reseal`` and ``reprotect``: open sealed files; renew the keys or vectors of a sealed store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from vecveil.bulk.job import Unsealing
from vecveil.bulk.places import Folder, list_files, open_input
from vecveil.cli import options as shared
from vecveil.cli.output import data_json, note, warn
from vecveil.cli.releases import Release
from vecveil.data.files import InputFile
from vecveil.data.writing import check_output
from vecveil.errors import DataFileError
from vecveil.io import make_folders
from vecveil.protector import load
from vecveil.protector.policy import ReleasePolicy
from vecveil.search.collection import ProtectedCollection
from vecveil.stores.locations import index_place, short_name

_SHOWN = 10

UNSEAL_EXAMPLE = """\b
Examples:
  vecveil unseal sealed.parquet --seal-key search.keys --seal-name notes -o notes.parquet
  vecveil unseal sealed/ --seal-key search.keys --seal-name notes -o notes/ --on-invalid skip
"""


@click.command("unseal", epilog=UNSEAL_EXAMPLE)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("-o", "--out", type=shared.FILE, required=True, help="*.parquet, *.npy for vectors alone, or a folder.")
@shared.file_seal_options
@click.option(
    "--on-invalid",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Fail at a blob that does not open, or skip its row.",
)
@shared.file_options
@click.option("--force", is_flag=True, help="Replace existing files.")
@shared.json_option
def unseal_command(
    inputs: tuple[str, ...], out: Path, seal_key: str, force: bool, as_json: bool, **options: Any
) -> None:
    """Write the exact vectors, texts and metadata of the sealed rows of INPUT: clean data.

    INPUT is what `vecveil seal` wrote, or any table with ids and the column vecveil_sealed, in base64 in text formats.
    The output has the columns id, text, metadata (JSON) and embedding. Several files, or a folder, become files of
    the same names in a folder; files that are there are kept, so that the same command continues.
    """
    unsealing = Unsealing(seal_key, *(options.pop(name) for name in ("seal_name", "id_column", "on_invalid")))
    if os.path.realpath(out) == os.path.realpath(shared.SEAL_KEY.file(seal_key)):
        raise DataFileError(f"{out.name} is the key file. Choose another output.", param="output")
    rows, kept = 0, 0
    skipped: list[str] = []
    for source, target in _targets(inputs, out, options["format"]):
        if target != out and target.exists() and not force:
            kept += 1
            continue
        check_output(target, overwrite=force, source=source if isinstance(source, str) else None)
        written, left_out = unsealing.file(source, target, overwrite=force, **options)
        rows, skipped = rows + written, skipped + left_out
    note(f"{rows:,} rows opened. Wrote {out}, which holds clean vectors and texts.")
    if kept:
        note(f"{kept:,} files were there already.")
    if skipped:
        more = " ..." if len(skipped) > _SHOWN else ""
        warn(f"{len(skipped):,} rows did not open and are left out: {', '.join(skipped[:_SHOWN])}{more}")
    if as_json:
        data_json({"output": str(out), "rows": rows, "skipped": skipped})


def _targets(inputs: tuple[str, ...], out: Path, format: str | None) -> list[tuple[str | InputFile, Path]]:
    """Return each input file with its output."""
    if out.suffix and not out.is_dir():
        if len(inputs) > 1 or os.path.isdir(inputs[0]):
            raise click.UsageError("Several files are opened into a folder: give --out a name without a suffix.")
        return [(inputs[0], out)]
    files = list_files(inputs, {}, format=format)
    if any(Folder(str(out)).holds(file.url) for file in files):
        raise click.UsageError("--out must be another folder than that of the inputs.")
    targets = [out / f"{file.name.split('.')[0]}.parquet" for file in files]
    if len(set(targets)) < len(targets):
        raise click.UsageError("Two inputs have one name: open them into different folders.")
    make_folders(out)
    return [(open_input(file, {}, format=format), target) for file, target in zip(files, targets, strict=True)]


RESEAL_EXAMPLE = """\b
Example:
  vecveil reseal chroma:db#notes-sealed --seal-key search.keys
  vecveil reseal sealed:notes/ --seal-key search.keys
"""


REPROTECT_EXAMPLE = """\b
Example:
  vecveil reprotect chroma:db#notes-sealed -p stronger.vecveil --seal-key search.keys
"""


@click.command("reseal", epilog=RESEAL_EXAMPLE)
@click.argument("database")
@shared.database_seal_options
@click.option("--batch", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows per write.")
@shared.json_option
def reseal_command(database: str, seal_key: str, seal_name: str | None, batch: int, as_json: bool) -> None:
    """Seal every row of DATABASE under a new data key, and delete the older keys.

    Searches go on meanwhile; stop programs that write. Protected vectors stay as they are. After an interruption the
    same command continues. Backups of DATABASE from before open only with a backup of the key file from before.
    """
    if index_place(database) is not None:
        from vecveil.cli import sealed

        sealed.refuse_other_options("seal_key", "as_json")
        return sealed.reseal_command(database, seal_key, as_json)
    _renew(database, seal_key, seal_name, lambda collection: collection.reseal(batch=batch), as_json)


@click.command("reprotect", epilog=REPROTECT_EXAMPLE)
@click.argument("database")
@click.option(
    "-p", "--protector", "protector_file", type=shared.PROTECTOR, required=True, help="The new protector file."
)
@shared.database_seal_options
@shared.named_options
@click.option("--batch", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows per write.")
@shared.json_option
def reprotect_command(
    database: str, protector_file: Path, seal_key: str, seal_name: str | None, batch: int, as_json: bool, **options: Any
) -> None:
    """Draw the protected vectors of DATABASE anew with another protector, from its sealed rows.

    For another concept or strength. The rows are sealed under a new key meanwhile, and searches fail until all are
    done; after an interruption the same command continues. Whoever keeps the former vectors has two draws of each row.
    """
    if index_place(database) is not None:
        raise click.UsageError("A sealed index has no protected vectors to draw anew; `vecveil reseal` renews its key.")
    release = Release.of(options, noise=True)
    protector = load(protector_file)
    with release.ledger() as ledger:
        policy = ReleasePolicy(protector, key=release.key(), ledger=ledger)
        _renew(database, seal_key, seal_name, lambda collection: collection.reprotect(policy, batch=batch), as_json)


def _renew(
    database: str, seal_key: str, seal_name: str | None, work: Callable[[ProtectedCollection], int], as_json: bool
) -> None:
    collection = ProtectedCollection(database, None, seal_key, name=seal_name)
    with collection.database:
        rows = work(collection)
    renewed = (
        f"{rows:,} rows of {short_name(database)} are renewed, under a new data key"
        if rows
        else f"Every row of {short_name(database)} was renewed already"
    )
    note(f"{renewed}; the older keys are deleted.")
    if as_json:
        data_json({"database": short_name(database), "collection": collection.name, "rows": rows})
