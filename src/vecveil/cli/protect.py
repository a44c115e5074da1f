"""``vecveil protect``: write protected vectors of a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vecveil.cli import options as shared
from vecveil.cli.releases import Release, release_options
from vecveil.errors import DataFileError

if TYPE_CHECKING:
    from vecveil.protector import Protector
    from vecveil.types import Embeddings

__all__ = ["command"]

ROOM = 1 << 30
"""Bytes of address space for libraries and the work: looked for before the first of them is loaded."""
TEXT_ROWS = 2048
"""Texts that are encoded between two moves of the progress bar."""

EXAMPLE = """\b
Examples:
  vecveil protect notes.csv -p drug.vecveil -o protected.parquet
  vecveil protect vectors.npy -p drug.vecveil -o protected.npy
  vecveil protect 'lake/*.parquet' -p drug.vecveil -o protected/
  vecveil protect notes.csv -p drug.vecveil -o protected.parquet \\
      --key-file noise.key --id-column note_id --ledger releases.ledger --cap 1
"""


@click.command("protect", epilog=EXAMPLE, short_help="Write the protected vectors of tables.")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "-p", "--protector", "protector_file", type=shared.FILE, required=True, help="Protector file."
)
@click.option(
    "-o",
    "--out",
    required=True,
    help="*.parquet, *.npy for vectors alone, or a folder: a path or URL without such a suffix.",
)
@shared.table_options
@click.option(
    "--embedding-column",
    metavar="NAME",
    help="Parquet column of clean vectors [default: embedding, if there is one].",
)
@click.option(
    "--carry",
    multiple=True,
    metavar="NAME",
    help="Column to write as it is [default: all but the text; lists are refused].",
)
@click.option("--keep-text", is_flag=True, help="Also write the column of texts.")
@shared.encoder_options
@click.option(
    "--no-noise", is_flag=True, help="The map alone, for queries that stay on the trusted side."
)
@release_options
@click.option(
    "--again",
    is_flag=True,
    help="Accept an input that vecveil has protected already, and parts of a folder that are gone.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    help="Who works on the parts of a folder [default: local, this machine].",
)
@click.option(
    "--part-size",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    metavar="MIB",
    help="Of a part of a folder, before compression.",
)
@shared.json_option
def command(
    inputs: tuple[str, ...],
    protector_file: Path,
    out: str,
    embedding_column: str | None,
    carry: tuple[str, ...],
    keep_text: bool,
    encoder: str | None,
    precision: str | None,
    cache: bool,
    no_noise: bool,
    again: bool,
    force: bool,
    engine: str | None,
    part_size: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Write the protected vectors of INPUT, piece by piece, with its other columns.

    INPUT holds texts, which are encoded, or clean vectors (.npy, or a Parquet column). The noise
    comes from a cryptographic generator and differs from run to run: release each text once, or
    use keyed noise.

    Into a folder go any number of files: paths, folders, patterns with * and URLs (s3://, gs://, ...). They are cut
    into parts, each of which becomes a Parquet file that is there whole or not at all. The same command again does
    what is missing, and nothing twice.
    """
    from vecveil.cli.protect_folder import is_folder, protect_folder
    from vecveil.runtime import check_room

    check_room(ROOM, owner="protect")
    if is_folder(inputs, out) or engine is not None:
        if force:
            raise click.UsageError(
                "--force replaces a file; a folder is finished or left alone: give another one."
            )
        protect_folder(
            inputs, out, protector_file, given, engine=engine or "local", part_size=part_size,
            embedding_column=embedding_column, carry=carry, keep_text=keep_text, encoder=encoder,
            precision=precision, cache=cache and _asked_for("cache"), noise=not no_noise, again=again, as_json=as_json,
        )  # fmt: skip
        return
    _one_file(
        Path(inputs[0]), protector_file, Path(out), embedding_column, carry, keep_text, encoder, precision, cache,
        no_noise, again, force, as_json, given,
    )  # fmt: skip


def _asked_for(option: str) -> bool:
    """Return whether the user gave the option: what holds for one file by default would fill a disk with a lake."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _one_file(
    input: Path,
    protector_file: Path,
    out: Path,
    embedding_column: str | None,
    carry: tuple[str, ...],
    keep_text: bool,
    encoder: str | None,
    precision: str | None,
    cache: bool,
    no_noise: bool,
    again: bool,
    force: bool,
    as_json: bool,
    given: dict[str, Any],
) -> None:
    from vecveil.bulk.job import already_protected, metadata_of, row_protection
    from vecveil.cli.inputs import TableFormat, is_protected
    from vecveil.cli.printing import data_json, note, say_keyed, warn
    from vecveil.cli.protect_folder import refuse_for_rewriter
    from vecveil.data import protect_table
    from vecveil.data.writing import check_output
    from vecveil.protector import load

    release = Release.of(given, noise=not no_noise)
    form = TableFormat(**given)
    release.check_ids(form.format or input.suffix.lower().removeprefix("."))
    check_output(out, overwrite=force, source=input)
    protector = load(protector_file)
    for used, what in ((protector_file, "the protector"), *release.files()):
        if os.path.realpath(out) == os.path.realpath(used):
            raise DataFileError.of(
                out.name, "output", f"another file than {what}", f"{what} itself"
            )
    rewrites = protector.rewriter is not None
    refuse_for_rewriter(protector, noise=not no_noise, named=release.named)
    if is_protected(input, form) and not again:
        raise already_protected(input.name)
    if no_noise:
        warn("--no-noise writes vectors without noise: for trusted queries; it protects nothing.")
    key = release.key()
    vectors_inside = embedding_column is not None or _suffix(input, form.format) in (
        "npy",
        "parquet",
    )
    with release.ledger() as ledger:
        counts = protect_table(
            input,
            out,
            row_protection(
                protector, key=key, ledger=ledger, noise=not no_noise, lengths=not again
            ),
            encode=_encode(protector, encoder, precision, cache),
            dimension=protector.dimension,
            embedding_column=embedding_column,
            carry=list(carry) or None,
            keep_text=keep_text,
            with_items=True,
            id_column=release.id_column,
            metadata=metadata_of(protector, key, noise=not no_noise),
            chunk_rows=None if vectors_inside else TEXT_ROWS,
            overwrite=force,
            **form.all_options,
        )
    what = "encoded and protected" if counts.encoded else "protected"
    if key is not None:
        say_keyed(protector.guarantee)
    note(f"{counts.rows:,} rows {what}, from column {counts.source!r}.")
    note(
        f"Columns carried as they are: {_listed(counts.carried)}. "
        f"Left out: {_listed(counts.left_out)}."
    )
    note(f"Wrote {out}")
    if as_json:
        keyed = None if key is None else key.key_id
        data_json(
            {
                "output": str(out),
                "noise": not (no_noise or rewrites),
                "key_id": keyed,
                **counts.to_record(),
            }
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _suffix(path: Path, format: str | None) -> str:
    return format or {".npy": "npy", ".parquet": "parquet", ".pq": "parquet"}.get(
        path.suffix.lower(), "text"
    )


def _encode(
    protector: Protector, name: str | None, precision: str | None, cache: bool
) -> Callable[[list[str]], Embeddings]:
    """Return the encoding of texts; the encoder is loaded when the first text comes."""
    loaded: list[Any] = []
    if name is not None:  # asked for by name: refuse the wrong one even if vectors need none
        loaded.append(protector.name.precision.cache.encoder_for())

    def encode(texts: list[str]) -> Embeddings:
        if not loaded:
            loaded.append(protector.name.precision.cache.encoder_for())
        vectors: Embeddings = loaded[0].encode(texts, show_progress=False)
        return vectors

    def rewritten(texts: list[str]) -> Embeddings:
        return encode(protector.rewrite(texts))

    return encode if protector.rewriter is None else rewritten
