"""Run a job over many files: plan, lock the folder, protect the missing parts, keep the manifest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias

from vecveil.accounting import Ledger
from vecveil.bulk.job import BulkJob, PartWorker
from vecveil.bulk.manifest import (
    LOCK,
    MANIFEST,
    Manifest,
    PartResult,
    check_files,
    check_same,
    forget_gone,
    left_by_a_start,
)
from vecveil.bulk.places import PART_BYTES, Folder, Part, plan
from vecveil.data.pipeline import ROOM
from vecveil.data.writing import NotWrittenError
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.io import LockedError, exclusive, make_folders, remove_left_over
from vecveil.runtime import check_room, progress

_SECONDS = 5.0
"""Seconds between two writes of the manifest; after a crash, files identify later parts."""


@dataclass(frozen=True)
class PartFailure:
    """A part whose input is not usable; the others continue. ``error`` and ``code`` are of our own error."""

    index: int
    error: str
    code: str


@dataclass(frozen=True)
class Run:
    """The input of an engine.

    Attributes:
        name: fingerprint of the run.
        inputs: fsspec options for the inputs.
        ledger: of this machine, or None.
    """

    job: BulkJob
    out: Folder
    name: str
    inputs: Mapping[str, Any] = field(repr=False)
    ledger: Ledger | None = None


Engine: TypeAlias = Callable[[Run, Sequence[Part]], Iterable[PartResult | PartFailure]]
"""Works on parts, in any order and anywhere; an exception other than DataFileError ends the run."""


def run_here(run: Run, parts: Sequence[Part]) -> Iterator[PartResult | PartFailure]:
    """Work on parts one after another in this process, on all cores."""
    worker = PartWorker(run.job, run.out, run.name, run.inputs, run.ledger)
    for part in parts:
        yield attempt(worker, part)


def attempt(worker: PartWorker, part: Part) -> PartResult | PartFailure:
    """Return the result of a part, or the failure of a part with an unusable input."""
    try:
        return worker(part)
    except NotWrittenError:  # other parts would fail alike: end the run
        raise
    except DataFileError as error:
        return PartFailure(part.index, str(error), error.code)


def protect_files(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    job: BulkJob,
    *,
    engine: Engine = run_here,
    ledger: Ledger | None = None,
    storage_options: Mapping[str, Any] | None = None,
    part_bytes: int = PART_BYTES,
    again: bool = False,
    show_progress: bool | None = None,
) -> Manifest:
    """Write the protected rows of all ``inputs`` into the folder ``out``; return its manifest.

    Each part of the inputs becomes a Parquet file that appears whole or not at all. Repeating the call does the missing
    parts only: a row is released once.

    Args:
        inputs: paths, URLs of any fsspec file system, folders, and patterns with ``*``.
        out: a folder, by path or URL; created if necessary.
        job: the treatment of each row.
        engine: works on the parts.
        ledger: counts rows before they are released. An interrupted part is counted again when it is repeated.
        storage_options: fsspec options for inputs and output.
        part_bytes: size of a part, before compression.
        again: release finished parts without a file once more, with fresh noise. Both releases of a row together
            reveal more than one.
        show_progress: None shows a bar on a terminal.

    Raises:
        DataFileError: inputs that are missing or not usable, after all other parts; a folder of another run, or one
            in use by another process.
        MemoryLimitError: too little memory to begin, or decoded rows exceed the job's ``max_memory``.
        VecveilError: any other error of a part ends the run; the same call continues it.
    """
    check_room(ROOM, owner="protect")
    options = dict(storage_options or {})
    folder = Folder(os.fspath(out), options)
    if not inputs:
        raise InvalidInputError("Give at least one path or URL.", param="input")
    if ledger is not None and job.id_column is None:
        raise InvalidInputError(
            "A ledger needs `id_column`, the column that names the item of each row: row 0 of every file would "
            "be one item.",
            param="id_column",
        )
    job = job.pinned()
    with _locked(folder, job.mode):
        here = folder.sizes()
        # Before the plan, which may take long: reject a foreign folder at once.
        known = Manifest.read(folder)
        if known is None and not all(map(left_by_a_start, here)):
            raise DataFileError(
                "`out` has other files. Give a new folder, an empty one, or one of the same run.",
                code="E-DATA-FILE-FURTHER",
                param="out",
            )
        paths = [os.fspath(path) for path in inputs]
        try:
            parts = plan(paths, options, part_bytes=part_bytes, format=job.format, out=folder)
        except DataFileError as error:
            raise DataFileError(f"{error} This run has released nothing.", code=error.code, param=error.param) from None
        if not parts:
            raise DataFileError(
                "There are no files with rows outside the output.", code="E-DATA-FILE-NO-ROWS", param="input"
            )
        manifest = Manifest.of(job.to_record(), parts)
        if known is not None:
            check_same(known, manifest)
            manifest = known
        else:
            # Before the first part: a killed run leaves a folder that the same call recognises.
            manifest.write(folder)
        check_files(manifest, here)
        if folder.local is not None:
            # Left by a killed run: a part whose file exists is not written again, so nothing else removes them.
            remove_left_over(*(folder.local / part.output for part in parts))
        forget_gone(manifest, here, allowed=again or job.key is not None or not job.noise)
        manifest.resumed = sum(part.output in here or part.index in manifest.results for part in parts)
        missing = [part for part in parts if part.index not in manifest.results]
        outcomes = engine(Run(job, folder, manifest.run, options, ledger), missing)
        failures = _collect(outcomes, manifest, folder, len(missing), show_progress)
        if folder.local is not None:
            # A worker killed in this run may still have held its temporary file when the part's next writer looked.
            remove_left_over(*(folder.local / part.output for part in missing))
        if failures and not manifest.results:
            folder.remove(MANIFEST)  # the folder is free for another attempt
        else:
            manifest.write(folder)
    if failures:
        first = min(failures, key=lambda failure: failure.index)
        rest = "No part could be protected, and nothing was released."
        if manifest.results:
            rest = (
                f"{len(failures)} of {len(parts)} parts could not be protected; the others are finished. "
                "Repair the inputs of these parts and protect them alone, into another folder."
            )
        raise DataFileError(f"{first.error} {rest}", code=first.code)
    return manifest


def _collect(
    outcomes: Iterable[PartResult | PartFailure], manifest: Manifest, folder: Folder, total: int, show: bool | None
) -> list[PartFailure]:
    """Add results to the manifest as they come, write it periodically, and return the failures."""
    failures: list[PartFailure] = []
    due = monotonic() + _SECONDS
    bar = progress(outcomes, "Protecting", total=total, show=show, unit="part", note=lambda: f"{manifest.rows:,} rows")
    try:
        for outcome in bar:
            if isinstance(outcome, PartFailure):
                failures.append(outcome)
                continue
            if outcome.rows and not folder.has(Part.output_of(outcome.index)):
                raise DataFileError(
                    "A worker finished a part that is not in `out`. Name a folder that all machines share, or a URL.",
                    code="E-DATA-FILE-PART",
                    param="out",
                )
            manifest.results[outcome.index] = outcome
            if monotonic() >= due:
                began = monotonic()
                manifest.write(folder)
                # A manifest of very many parts is slow to write: spend at most a twentieth of the time on it.
                due = monotonic() + max(_SECONDS, 20 * (monotonic() - began))
    except BaseException:
        # Record the finished parts; a failure to do so must not hide the exception.
        with contextlib.suppress(Exception):
            manifest.write(folder)
        raise
    return failures


@contextlib.contextmanager
def _locked(folder: Folder, mode: int) -> Iterator[None]:
    """Lock a local folder, made for files of ``mode``, for one run; remote stores have no locks."""
    local = folder.local
    if local is None:
        yield
        return
    if local.exists() and not local.is_dir():
        raise DataFileError("`out` is a file. Name a folder.", param="out")
    with contextlib.ExitStack() as stack:
        try:
            make_folders(local, mode=mode)
            stack.enter_context(exclusive(local / LOCK))
        except LockedError:
            raise DataFileError(
                "Another process writes to `out`. Wait for it, or give another folder.",
                code="E-DATA-FILE-LOCKED",
                param="out",
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise DataFileError(f"You may not write to `out`: {reason}.", param="out") from None
        yield
