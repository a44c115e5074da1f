"""``vecveil protect`` into a folder: many files, in parts, on this machine or on others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vecveil.cli.releases import Release
from vecveil.errors import InvalidInputError

if TYPE_CHECKING:
    from vecveil.bulk.running import Engine
    from vecveil.protector import Protector

__all__ = ["is_folder", "protect_folder", "refuse_for_rewriter"]

_FILES = (".parquet", ".pq", ".npy")


def is_folder(inputs: tuple[str, ...], out: str) -> bool:
    """Return whether ``out`` names a folder.

    Raises:
        click.UsageError: it names a file, and the inputs are more than one file of this machine.
    """
    if os.path.isdir(out):
        return True
    if not out.lower().endswith(
        _FILES
    ):  # another suffix is a mistake, which the writer of files explains
        return "." not in os.path.basename(out) or "://" in out
    many = len(inputs) > 1 or any(
        "://" in one
        or os.path.isdir(one)
        or (not os.path.exists(one) and any(c in one for c in "*?["))
        for one in inputs
    )
    if many or "://" in out:
        raise click.UsageError(
            "Several files, folders, patterns and URLs are protected into a folder: give --out a name without a suffix."
        )
    return False


def protect_folder(
    inputs: tuple[str, ...],
    out: str,
    protector_file: Path,
    given: dict[str, Any],
    *,
    engine: str,
    part_size: int,
    embedding_column: str | None,
    carry: tuple[str, ...],
    keep_text: bool,
    encoder: str | None,
    precision: str | None,
    cache: bool,
    noise: bool,
    again: bool,
    as_json: bool,
) -> None:
    """Protect ``inputs`` into the folder ``out``."""
    from vecveil.bulk import BulkJob, protect_files
    from vecveil.bulk.manifest import MANIFEST, columns_of
    from vecveil.cli.inputs import TableFormat
    from vecveil.cli.printing import data_json, note, say_keyed, warn
    from vecveil.protector import load

    release = Release.of(given, noise=noise)
    form = TableFormat(**given)
    named = release.key_file if release.key_env is None else f"env:{release.key_env}"
    if release.ledger_file is not None and engine != "local":
        raise click.UsageError(
            "--ledger is a file of one machine: leave it out, or use --engine local."
        )
    if cache and engine != "local":
        raise click.UsageError(
            "--cache is a folder of one machine: leave it out, or use --engine local."
        )
    if release.named and release.id_column is None:
        raise click.UsageError(
            "Keys and ledgers need --id-column: the column that names the item of each row."
        )
    protector = load(protector_file)
    refuse_for_rewriter(protector, noise=noise, named=release.named)
    job = BulkJob.of(
        protector,
        embedding_column=embedding_column,
        carry=carry or None,
        keep_text=keep_text,
        id_column=release.id_column,
        key=None if named is None else os.fspath(named),
        key_id=release.key_id,
        noise=noise,
        check_lengths=not again,
        encoder=encoder,
        precision=precision,
        cache=cache,
        **form.all_options,
    )
    if not noise:
        warn("--no-noise writes vectors without noise: for trusted queries; it protects nothing.")
    with release.ledger() as ledger:
        try:
            manifest = protect_files(
                inputs,
                out,
                job,
                engine=_engine(engine),
                ledger=ledger,
                part_bytes=part_size * 2**20,
                again=again,
            )
        except KeyboardInterrupt:
            note("The parts that are done stay; the same command does the rest.")
            raise
    if release.key() is not None:
        say_keyed(protector.guarantee)
    made, before = len(manifest.parts) - manifest.resumed, manifest.resumed
    note(f"{manifest.rows:,} rows are protected, in {_parts(len(manifest.parts))}.")
    if before:
        note(
            f"{_parts(before)} of them {'was' if before == 1 else 'were'} there already; {_parts(made)} written now."
        )
    if (columns := columns_of(out, manifest)) is not None:
        note(f"Columns of the first part: {', '.join(columns)}.")
    note(f"Wrote {out}; compare it with its _manifest.json at any time: vecveil verify {out}")
    if as_json:
        data_json(
            {
                "output": out,
                "manifest": f"{out.rstrip('/')}/{MANIFEST}",
                "rows": manifest.rows,
                "parts": len(manifest.parts),
                "parts_already_there": before,
                "columns": None if columns is None else list(columns),
                **{
                    name: manifest.job[name]
                    for name in ("noise", "randomness", "key_id", "guarantee")
                },
            }
        )


def _parts(count: int) -> str:
    return f"{count:,} part{'' if count == 1 else 's'}"


def refuse_for_rewriter(protector: Protector, *, noise: bool, named: bool) -> None:
    """Refuse keys, ledgers and --no-noise for a method without noise."""
    if protector.rewriter is not None and (named or not noise):
        raise InvalidInputError.of("protect", "protector",
                                   "of a method with noise for keys, ledgers and --no-noise",
                                   repr(protector.method),
                                   "It rewrites texts, and the same text always gives the same vector.")  # fmt: skip


def _engine(name: str) -> Engine:
    if name == "ray":
        from vecveil.integrations.ray import run_on_ray

        return run_on_ray
    from vecveil.bulk.running import run_here

    return run_here
