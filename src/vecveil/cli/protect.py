"""``vecveil protect``, ``seal`` and ``verify``: write protected vectors of tables; check a protected folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from vecveil.cli import options as shared
from vecveil.cli.output import counted, data_json, note, say_keyed, warn
from vecveil.cli.releases import Release
from vecveil.cli.tables import format_name, table_format
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.gateway.bulk import MANIFEST, BulkJob, protect_files, verify
from vecveil.gateway.bulk.job import OpenJob
from vecveil.gateway.bulk.running import Engine, columns_of, run_here
from vecveil.privacy.protector import Protector, load
from vecveil.texts.tables import protect_table
from vecveil.texts.tables.binary_formats import memory_limit
from vecveil.texts.tables.reading import TableFormat
from vecveil.texts.tables.writing import check_output

OUTPUT_SUFFIXES = (".parquet", ".pq", ".npy")

EXAMPLE = """\b
Examples:
  vecveil protect notes.csv -p drug.vecveil -o protected.parquet
  vecveil protect vectors.npy -p drug.vecveil -o protected.npy
  vecveil protect 'lake/*.parquet' -p drug.vecveil -o protected/
  vecveil protect notes.csv -p drug.vecveil -o protected.parquet \\
      --key-file noise.key --id-column note_id --ledger releases.ledger --cap 1
"""


SEAL_EXAMPLE = """\b
Examples:
  vecveil key new search.keys
  vecveil seal notes.csv -p drug.vecveil --seal-key search.keys --seal-name notes -o sealed.parquet
  vecveil seal 'lake/*.parquet' -p drug.vecveil --seal-key search.keys --seal-name notes -o sealed/
  vecveil unseal sealed.parquet --seal-key search.keys --seal-name notes -o notes.parquet
"""


inputs_options = shared.stacked(
    click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
    click.option("-p", "--protector", "protector_file", type=shared.PROTECTOR, required=True, help="Protector file."),
    click.option("-o", "--out", required=True, help="*.parquet, *.npy for vectors alone, or a folder (path or URL)."),
    shared.table_options,
    click.option(
        "--embedding-column",
        metavar="NAME",
        help="Parquet column of clean vectors [default: embedding, if there is one].",
    ),
)
run_options = shared.stacked(
    click.option(
        "--again", is_flag=True, help="Accept an input that is protected already, and missing parts of a folder."
    ),
    click.option("--force", is_flag=True, help="Replace an existing file."),
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        help="Engine that protects the parts of a folder [default: local, this machine].",
    ),
    shared.count_option(
        "--part-size",
        default=256,
        show_default=True,
        metavar="MIB",
        help="Size of a part of a folder, before compression.",
    ),
    shared.json_option,
)
SECTIONS = {
    "Input": "--protector --text-column --embedding-column --encoder",
    "Output": "--out --carry --force --again --json",
    "Noise": "--key-file --id-column --ledger --no-noise",
}


@shared.command("protect", EXAMPLE, SECTIONS)
@inputs_options
@click.option(
    "--carry",
    multiple=True,
    metavar="NAME",
    help="Column to copy unchanged; the ids are copied always; may be repeated.",
)
@click.option("--keep-text", is_flag=True, help="Also write the column of texts.")
@shared.encoder_options
@click.option("--no-noise", is_flag=True, help="Apply the map without noise: for queries on the trusted side.")
@shared.release_options
@run_options
def command(
    inputs: tuple[str, ...], protector_file: Path, out: str, no_noise: bool, force: bool, as_json: bool, **options: Any
) -> None:
    """Write the protected vectors of INPUT, piece by piece, with the column of ids.

    INPUT contains texts, which are encoded, or clean vectors (.npy, or a Parquet column). The noise comes from a
    cryptographic generator and differs between runs: release each text once, or use keyed noise.

    A folder takes any number of files: paths, folders, patterns with * and URLs (s3://, gs://, ...), in parts. The same
    command again writes the missing parts, and no part twice.
    """
    _run(inputs, protector_file, out, Release.of(options, noise=not no_noise), force, as_json, options)


SEAL_SECTIONS = {
    "Input": "--protector --text-column --embedding-column --encoder",
    "Sealing": "--seal-key --seal-name --id-column --filter-field",
    "Output": "--out --carry --force --again --json",
}


@shared.command("seal", SEAL_EXAMPLE, SEAL_SECTIONS)
@inputs_options
@click.option("--carry", multiple=True, metavar="NAME", help="Column to copy in clear as well as sealed.")
@shared.encoder_options
@shared.file_seal_options
@shared.filter_field_option
@shared.named_options
@run_options
def seal_command(
    inputs: tuple[str, ...], protector_file: Path, out: str, id_column: str, force: bool, as_json: bool, **options: Any
) -> None:
    """Write the protected vectors of INPUT, and its clean vectors, texts and other columns sealed.

    The output has the ids, the column vecveil_sealed, a column vecveil_filter_FIELD for each --filter-field, and the
    column embedding. Load it into any database, and rank search results with `vecveil.Sealer`. Files and folders are
    treated as by `vecveil protect`. The name of the collection is new, or that of earlier rows with the same protector.

    With --filter-field anyone with the table sees which rows have equal values in that column, not the values.
    """
    release = replace(Release.of(options, noise=True), id_column=id_column)
    options["keep_text"] = False
    _run(inputs, protector_file, out, release, force, as_json, options)


def _run(
    inputs: tuple[str, ...],
    protector_file: Path,
    out: str,
    release: Release,
    force: bool,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    into_folder = _is_folder(inputs, out) or options["engine"] is not None
    if into_folder and force:
        raise click.UsageError("--force replaces a file; an unfinished folder is continued. Give a different folder.")
    form = replace(table_format(options), max_memory=memory_limit.get())
    if into_folder:
        record, protector = _protect_folder(inputs, out, protector_file, form, release, options)
    else:
        record, protector = _protect_file(Path(inputs[0]), Path(out), protector_file, form, release, force, options)
    if record["key_id"] is not None:
        say_keyed(protector.guarantee)
    if as_json:
        data_json(record)


def _load(protector_file: Path, release: Release) -> Protector:
    """Return the protector; reject keys, ledgers and --no-noise for a method without noise."""
    protector = load(protector_file)
    if protector.text_only and (release.named or not release.noise):
        raise InvalidInputError(
            f"{protector.method!r} rewrites texts, and the same text always gives the same vector: keys, ledgers "
            "and --no-noise need a method with noise.",
            param="protector",
        )
    if not release.noise:
        warn("--no-noise writes vectors without noise: for trusted queries; it protects nothing.")
    return protector


# Into a file -------------------------------------------------------------------------------------


def _protect_file(
    input: Path,
    out: Path,
    protector_file: Path,
    form: TableFormat,
    release: Release,
    force: bool,
    options: dict[str, Any],
) -> tuple[dict[str, Any], Protector]:
    release.check_ids(format_name(input, form))
    check_output(out, overwrite=force, source=input)
    protector = _load(protector_file, release)
    used_files = [(protector_file, "the protector"), *release.files()]
    if options.get("seal_key") is not None:
        used_files.append((shared.SEAL_KEY.file(options["seal_key"]), "the key file"))
    for used, name in used_files:
        if os.path.realpath(out) == os.path.realpath(used):
            raise DataFileError(f"{out.name} is {name}. Choose another output.", param="output")
    key, job = release.key(), _job(protector, form, release, options, cache=options["cache"])
    with release.ledger() as ledger:
        opened = OpenJob(job, key=key, ledger=ledger)
        if options["encoder"] is not None or options["encoder_options"]:
            _ = opened.encoder  # a wrong encoder that is named is refused even if vectors need none
        counts = protect_table(input, out, opened.protection, metadata=opened.metadata, overwrite=force, **vars(form))
    verb = "encoded and protected" if counts.encoded else "protected"
    note(f"{counted(counts.rows, 'row')} {verb}, from column {counts.source!r}.")
    others = "Left out" if job.seal_key is None else "Sealed, with the exact vectors"
    note(f"Columns copied unchanged: {_listed(counts.carried)}. {others}: {_listed(counts.left_out)}.")
    if job.seal_key is None and not options["carry"]:
        for name in [name for name in counts.left_out if name != counts.source][:1]:
            fix = f"{'write .parquet and ' * (out.suffix.lower() == '.npy')}pass `--carry {name}`"
            note(f"Column `{name}` may contain clean text. It is left out; {fix} to keep it.")
    note(f"Wrote {out}")
    return {
        "output": str(out),
        "noise": release.noise and not protector.text_only,
        "key_id": None if key is None else key.key_id,
        **counts.to_record(),
    }, protector


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _job(protector: Protector, form: TableFormat, release: Release, options: dict[str, Any], **given: Any) -> BulkJob:
    return BulkJob.of(
        protector,
        carry=options["carry"],
        keep_text=options["keep_text"],
        id_column=release.id_column,
        noise=release.noise,
        check_lengths=not options["again"],
        encoder=options["encoder"],
        precision=options["precision"],
        encoder_options=options["encoder_options"],
        seal_key=options.get("seal_key"),
        seal_name=options.get("seal_name"),
        filter_fields=options.get("filter_fields", ()),
        **vars(form),
        **given,
    )


# Into a folder -----------------------------------------------------------------------------------


def _is_folder(inputs: Sequence[str], out: str) -> bool:
    """Return whether ``out`` names a folder; raise `click.UsageError` for a file and more than one local input."""
    if os.path.isdir(out):
        return True
    if not out.lower().endswith(OUTPUT_SUFFIXES):
        # Another suffix is a mistake, which the writer of files explains.
        return "." not in os.path.basename(out) or "://" in out

    def is_many(input: str) -> bool:
        pattern = not os.path.exists(input) and any(sign in input for sign in "*?[")
        return "://" in input or os.path.isdir(input) or pattern

    if len(inputs) > 1 or "://" in out or any(map(is_many, inputs)):
        raise click.UsageError(
            "Several files, folders, patterns and URLs are protected into a folder: give --out a name without a suffix."
        )
    return False


def _protect_folder(
    inputs: Sequence[str], out: str, protector_file: Path, form: TableFormat, release: Release, options: dict[str, Any]
) -> tuple[dict[str, Any], Protector]:
    engine = options["engine"] or "local"
    # For one file the cache is the default; with many it would fill a disk, so it must be asked for.
    source = click.get_current_context().get_parameter_source("cache")
    cache = options["cache"] and source is ParameterSource.COMMANDLINE
    for option, applies, kind in (("--ledger", release.ledger_file, "file"), ("--cache", cache or None, "folder")):
        if applies is not None and engine != "local":
            raise click.UsageError(f"{option} is a {kind} of one machine: leave it out, or use --engine local.")
    release.check_ids()
    protector = _load(protector_file, release)
    job = _job(protector, form, release, options, key=release.source, key_id=release.key_id, cache=cache)
    with release.ledger() as ledger:
        try:
            manifest = protect_files(
                inputs,
                out,
                job,
                engine=_engine(engine),
                ledger=ledger,
                part_bytes=options["part_size"] * 2**20,
                again=options["again"],
            )
        except KeyboardInterrupt:
            note("Finished parts stay; run the same command again to write the others.")
            raise
    made, before = len(manifest.parts) - manifest.resumed, manifest.resumed
    note(f"{counted(manifest.rows, 'row')} protected, in {counted(len(manifest.parts), 'part')}.")
    if before:
        were = "was" if before == 1 else "were"
        note(f"{counted(before, 'part')} of them {were} there already; {counted(made, 'part')} written now.")
    if (columns := columns_of(out, manifest)) is not None:
        note(f"Columns of the first part: {', '.join(columns)}.")
    note(f"Wrote {out}; compare it with its _manifest.json at any time: vecveil verify {out}")
    return {
        "output": out,
        "manifest": f"{out.rstrip('/')}/{MANIFEST}",
        "rows": manifest.rows,
        "parts": len(manifest.parts),
        "parts_already_there": before,
        "columns": None if columns is None else list(columns),
        **{name: manifest.job[name] for name in ("noise", "randomness", "key_id", "guarantee")},
    }, protector


def _engine(name: str) -> Engine:
    if name == "ray":
        from vecveil.gateway.ray import run_on_ray

        return run_on_ray

    return run_here


@click.command("verify", epilog="\b\nExample:\n  vecveil verify protected\n")
@click.argument("folder", metavar="FOLDER")
@shared.json_option
def verify_command(folder: str, as_json: bool) -> None:
    """Read every file of FOLDER, a path or URL, and compare size and SHA-256 with its manifest.

    A missing, damaged or foreign part is an error. The command does not check whether the rows are protected: `vecveil
    audit` measures what an attacker recovers.
    """
    manifest = verify(folder)
    note(f"{folder}: {counted(len(manifest.parts), 'part')}, {counted(manifest.rows, 'row')}, as the manifest says.")
    if as_json:
        data_json({"folder": folder, "parts": len(manifest.parts), "rows": manifest.rows, "ok": True})
