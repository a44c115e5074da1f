"""A whole run: plan, lock, the parts that are missing, manifest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from vecveil.bulk.job import BulkJob, PartWorker
from vecveil.bulk.manifest import (
    LOCK,
    MANIFEST,
    Manifest,
    PartResult,
    check_files,
    check_same,
    forget_gone,
    of_a_start,
)
from vecveil.bulk.places import PART_BYTES, Folder, Part, plan
from vecveil.data.pipeline import ROOM
from vecveil.data.writing import NotWrittenError
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.io import LockedError, exclusive, remove_left_over
from vecveil.runtime import check_room, progress

if TYPE_CHECKING:
    from vecveil.accounting import Ledger

__all__ = ["Engine", "PartFailure", "protect_files", "run_here"]

_SECONDS = 5.0
"""Between two writings of the manifest; parts that it does not know yet are found by their files."""


@dataclass(frozen=True)
class PartFailure:
    """A part whose input cannot be used; the others go on.

    Attributes:
        index: of the part.
        error: our own sentence.
    """

    index: int
    error: str


@dataclass(frozen=True)
class Run:
    """What an engine needs to work on parts.

    Attributes:
        job: what is done to each row.
        out: the folder.
        name: fingerprint of the run.
        inputs: fsspec's options for the inputs.
        ledger: of this machine, or None.
    """

    job: BulkJob
    out: Folder
    name: str
    inputs: Mapping[str, Any] = field(repr=False)
    ledger: Ledger | None = None


Engine: TypeAlias = Callable[[Run, Sequence[Part]], Iterable[PartResult | PartFailure]]
"""Works on parts, in any order and anywhere; what a part raises beyond a DataFileError ends the run."""


def run_here(run: Run, parts: Sequence[Part]) -> Iterator[PartResult | PartFailure]:
    """Work on parts one after another in this process, on all cores."""
    worker = PartWorker(run.job, run.out, run.name, run.inputs, run.ledger)
    for part in parts:
        yield attempt(worker, part)


def attempt(worker: PartWorker, part: Part) -> PartResult | PartFailure:
    """Return what ``worker`` makes of a part, or why its input cannot be used."""
    try:
        return worker(part)
    except NotWrittenError:  # no part can be written to a full disk
        raise
    except DataFileError as error:
        return PartFailure(part.index, str(error))


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

    Each part of the inputs becomes a Parquet file that is there whole or not at all. The same call again does what is
    missing, and nothing twice: a row is released once.

    Args:
        inputs: paths, URLs of any file system that fsspec speaks, folders, and patterns with ``*``.
        out: a folder, by path or URL; made if it is not there.
        job: what is done to each row.
        engine: who works on the parts.
        ledger: counts rows before they are released. A part that was cut off is counted again when it is done again.
        storage_options: fsspec's, for inputs and output.
        part_bytes: of a part, before compression.
        again: release parts that were finished and are gone once more, with fresh noise. Whoever has both releases of
            a row learns more of it than from one.
        show_progress: None shows a bar on a terminal.

    Raises:
        DataFileError: inputs that are missing, or cannot be used: all parts that can be done are done first; or a
            folder that another run has begun, or is at work in.
        MemoryLimitError: a limit on this process leaves too little memory to begin.
        VecveilError: what a part raises beyond that ends the run; the same call goes on.
    """
    check_room(ROOM, owner="protect")
    options = dict(storage_options or {})
    folder = Folder(os.fspath(out), options)
    if not inputs:
        raise InvalidInputError.of("protect", "input", "at least one path or URL", "none")
    if ledger is not None and job.id_column is None:
        raise InvalidInputError.of("protect", "id_column", "given with a ledger", "None",
                                   "Row 0 of every file would be one item.",
                                   "Name the column that names the item of each row.")  # fmt: skip
    job = job.pinned()
    with ExitStack() as held:
        held.enter_context(_alone(folder))
        here = folder.sizes()
        # Asked before the plan, which may take long: is this a folder of ours at all?
        known = Manifest.read(folder)
        if known is None and [name for name in here if not of_a_start(name)]:
            raise DataFileError.of("protect", "out", "an empty folder, a new one, or one of the same run",
                                   "one with other files", fix="Give another folder.")  # fmt: skip
        given = [os.fspath(one) for one in inputs]
        try:
            parts = plan(given, options, part_bytes=part_bytes, format=job.format, out=folder)
        except DataFileError as error:
            raise DataFileError(f"{error} This run has released nothing.") from None
        if not parts:
            raise DataFileError.of(
                "protect", "input", "files with rows, outside the output", "none"
            )
        manifest = Manifest.of(job.to_record(), parts)
        if known is not None:
            check_same(known, manifest)
            manifest = known
        else:
            manifest.write(folder)
        check_files(manifest, here)
        if folder.local is not None:
            # A part that has its name already is not written again, which would do this.
            remove_left_over(*(folder.local / part.output for part in parts))
        forget_gone(manifest, here, allowed=again or job.key is not None or not job.noise)
        manifest.resumed = sum(
            part.output in here or part.index in manifest.results for part in parts
        )
        missing = [part for part in parts if part.index not in manifest.results]
        failures = _work(
            engine(Run(job, folder, manifest.run, options, ledger), missing),
            manifest,
            folder,
            missing,
            show_progress,
        )
        if failures and not manifest.results:
            folder.remove(MANIFEST)  # the folder is free for another try
        else:
            manifest.write(folder)
    if failures:
        first = min(failures, key=lambda failure: failure.index).error
        if not manifest.results:
            raise DataFileError(f"{first} No part could be protected, and nothing was released.")
        raise DataFileError(
            f"{first} {len(failures)} of {len(parts)} parts could not be protected; the others are there. "
            "Repair what is wrong and protect it alone, into another folder: the others are released already."
        )
    return manifest


def _work(
    outcomes: Iterable[PartResult | PartFailure],
    manifest: Manifest,
    folder: Folder,
    missing: Sequence[Part],
    show: bool | None,
) -> list[PartFailure]:
    failures: list[PartFailure] = []
    due = monotonic() + _SECONDS
    bar = progress(
        outcomes, "Protecting", total=len(missing), show=show, unit="part",
        note=lambda: f"{manifest.rows:,} rows",
    )  # fmt: skip
    try:
        for outcome in bar:
            if isinstance(outcome, PartFailure):
                failures.append(outcome)
                continue
            if outcome.rows and not folder.has(Part.output_of(outcome.index)):
                raise DataFileError.of("protect", "out", "a folder that every worker reaches",
                                       "one without a finished part",
                                       fix="Name a folder that all machines share, or a URL.")  # fmt: skip
            manifest.results[outcome.index] = outcome
            if monotonic() >= due:
                began = monotonic()
                manifest.write(folder)
                # A manifest of very many parts takes long to write: it must not take the time of the work.
                due = monotonic() + max(_SECONDS, 20 * (monotonic() - began))
    except BaseException:
        # What is done stays known; the reason itself is more worth telling than a failure to write this.
        with contextlib.suppress(Exception):
            manifest.write(folder)
        raise
    return failures


@contextlib.contextmanager
def _alone(folder: Folder) -> Iterator[None]:
    """Hold a folder of this machine for one run; elsewhere nothing can be held."""
    local = folder.local
    if local is None:
        yield
        return
    if local.exists() and not local.is_dir():
        raise DataFileError.of("protect", "out", "a folder", "a file", fix="Give another name.")
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(local / LOCK))
        except LockedError:
            raise DataFileError.of("protect", "out", "a folder that no other run writes to",
                                   "one in which another process runs",
                                   fix="Wait for it, or give another folder.") from None  # fmt: skip
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise DataFileError.of(
                "protect", "out", "a folder that you may write to", f"the error {reason!r}"
            ) from None
        yield
