"""Run a job over many files: plan, lock the folder, protect the missing parts, keep the manifest.

The manifest of a folder lists its parts and the conditions for continuing the run. One folder is one release: one job
protected its rows, and no released row is released again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from vecveil.errors import DataFileError, InvalidInputError, VecveilError
from vecveil.gateway.bulk.job import BulkJob, PartWorker, Run
from vecveil.gateway.bulk.places import PART_BYTES, Folder, Part, PartResult, plan
from vecveil.io import (
    PUBLIC,
    LockedError,
    exclusive,
    is_temporary_of,
    make_folders,
    parse_json,
    remove_left_over,
    write_bytes,
)
from vecveil.privacy.accounting import Ledger
from vecveil.runtime import check_room, progress
from vecveil.texts.tables.pipeline import ROOM
from vecveil.texts.tables.writing import NotWrittenError

MANIFEST = "_manifest.json"
"""Readers of folders of Parquet files skip names that begin with an underscore."""
LOCK = "_lock"
SCHEMA = "vecveil.manifest/1"
_LARGEST = 2**28
_RESULT = 200  # bytes of the result of a part
_OF_A_PROTECTOR = {"method", "concept", "encoder", "guarantee", "conditional_on", "not_promised"}
"""Fields of a job that its protector and key determine."""
_PROSE = {"guarantee", "conditional_on", "not_promised"}
"""Fields in sentences, which a different version may word differently."""
_SECONDS = 5.0
"""Seconds between two writes of the manifest; after a crash, files identify later parts."""


@dataclass
class Manifest:
    """The job of a run, its parts, and the finished ones.

    Attributes:
        job: the treatment of each row; see `BulkJob.to_record`.
        parts: the records of all parts, in order.
        results: of the finished parts, by index.
        resumed: number of parts that existed when this run began; not in the record.
    """

    job: dict[str, Any]
    parts: list[dict[str, Any]]
    results: dict[int, PartResult] = field(default_factory=dict)
    resumed: int = field(default=0, compare=False)

    @classmethod
    def of(cls, job: Mapping[str, Any], parts: Sequence[Part]) -> Manifest:
        return cls(dict(job), [part.to_record() for part in parts])

    @property
    def run(self) -> str:
        """The fingerprint of job and parts, which each output file also stores."""
        whole = json.dumps([SCHEMA, self.job, self.parts], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:32]

    @property
    def complete(self) -> bool:
        return len(self.results) == len(self.parts)

    @property
    def rows(self) -> int:
        return sum(result.rows for result in self.results.values())

    def to_record(self) -> dict[str, Any]:
        finished = {
            index: {"rows": result.rows, "bytes": result.bytes, "sha256": result.sha256}
            for index, result in self.results.items()
        }
        return {
            "schema": SCHEMA,
            "run": self.run,
            "complete": self.complete,
            "rows": self.rows,
            "job": self.job,
            "parts": [{**part, **finished.get(part["index"], {})} for part in self.parts],
        }

    def write(self, folder: Folder) -> None:
        text = json.dumps(self.to_record(), indent=1)
        # Each part that is still to do adds its result.
        if len(text) + _RESULT * (len(self.parts) - len(self.results)) > _LARGEST:
            raise DataFileError(
                f"A manifest has at most {_LARGEST >> 20} MiB, too little for {len(self.parts):,} parts. Use a "
                "larger --part-size, or several folders.",
                param="inputs",
            )
        with folder.writing(MANIFEST) as path:
            write_bytes(path, text.encode(), mode=PUBLIC)

    @classmethod
    def read(cls, folder: Folder) -> Manifest | None:
        """Return the manifest of ``folder``, or None; raise DataFileError for a damaged one or a different schema."""
        if not folder.has(MANIFEST):
            return None
        # One byte more than allowed shows that the file is too long.
        raw = folder.read(MANIFEST, _LARGEST + 1)
        try:
            if len(raw) > _LARGEST:
                raise ValueError
            record = parse_json(raw)
            if record["schema"] != SCHEMA:
                raise ValueError
            parts, results = [], {}
            for part in record["parts"]:
                result = {key: part.pop(key, None) for key in ("rows", "bytes", "sha256")}
                if result["sha256"] is not None:
                    rows, size = int(result["rows"]), int(result["bytes"])
                    results[int(part["index"])] = PartResult(int(part["index"]), rows, size, str(result["sha256"]))
                # Other names need no check: a path out of the folder never occurs in its listing.
                if type(part["index"]) is not int or not isinstance(part["output"], str):
                    raise TypeError
                parts.append(part)
            return cls(dict(record["job"]), parts, results)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError, OverflowError):
            raise DataFileError(
                f"The {MANIFEST} in `out` is damaged or of a different schema than {SCHEMA}. Give another folder.",
                code="E-DATA-FILE-MANIFEST",
                param="out",
            ) from None


# Going on ----------------------------------------------------------------------------------------


def left_by_a_start(name: str) -> bool:
    """Return whether a run killed before its manifest existed may have left this file."""
    return name == LOCK or is_temporary_of(MANIFEST, name)


def check_same(known: Manifest, now: Manifest) -> None:
    """Raise DataFileError for other inputs, a different protector or other options."""
    names = sorted(key for key in {*known.job, *now.job} - _PROSE if known.job.get(key) != now.job.get(key))
    if not names and known.parts == now.parts:
        return
    # A different protector changes these too: name the cause alone, unless they differ alone.
    causes = [name for name in names if name not in _OF_A_PROTECTOR] or names
    got = f"another {', '.join(causes)}" if names else "other inputs, or inputs that changed"
    fix = "Give another folder."
    if not known.results:
        fix = f"Nothing is in it yet: remove its {MANIFEST}, or give another folder."
    elif not names:
        fix = "Protect only the new or repaired files, into another folder: the rows in this one are already released."
    raise DataFileError(
        f"The {MANIFEST} in `out` is of a run with {got}: the folder would mix the rows of two runs. {fix}",
        code="E-DATA-FILE-OTHER-RUN",
        param="out",
    )


def _further_files(names: Iterable[str], manifest: Manifest) -> list[str]:
    """Return the data files among ``names`` that the manifest does not list."""
    unknown = set(names) - {part["output"] for part in manifest.parts}
    return sorted(name for name in unknown if not name.startswith(("_", ".")))


def check_files(manifest: Manifest, here: Mapping[str, int]) -> None:
    """Raise DataFileError for files that are not of the run, and parts of a different size than in ``here``."""
    if further := _further_files(here, manifest):
        raise DataFileError(
            f"`out` has files that are not of this run, such as {further[0]!r}: readers of the folder would take "
            "their rows for protected ones. Move them elsewhere.",
            code="E-DATA-FILE-FURTHER",
            param="out",
        )
    for index, result in manifest.results.items():
        name = Part.output_of(index)
        if here.get(name, result.bytes) != result.bytes:
            raise DataFileError(
                f"{name} was damaged or replaced. Put the right one back; or remove it, and release its rows a "
                "second time with --again.",
                code="E-DATA-FILE-PART",
                param="out",
            )


def forget_gone(manifest: Manifest, here: Mapping[str, int], *, allowed: bool) -> None:
    """Count finished parts without a file as missing; raise DataFileError where that means a second release.

    ``allowed`` says that the new release equals the old one, or that the caller accepts a second one.
    """
    gone = [i for i, result in manifest.results.items() if result.rows and Part.output_of(i) not in here]
    # Somebody may hold the lost file: two fresh noises of one row average out.
    if gone and not allowed:
        names = Part.output_of(gone[0]) + (", ..." if len(gone) > 1 else "")
        raise DataFileError(
            f"{len(gone)} finished parts are missing ({names}). With fresh noise they would be released a second "
            "time, and both together tell more. Put them back; or accept that with --again (in Python "
            "again=True).",
            code="E-DATA-FILE-PART",
            param="out",
        )
    for index in gone:
        del manifest.results[index]


# Runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartFailure:
    """A part whose input is not usable; the others continue. ``error`` and ``code`` are of our own error."""

    index: int
    error: str
    code: str


Engine: TypeAlias = Callable[[Run, Sequence[Part]], Iterable[PartResult | PartFailure]]
"""Works on parts, in any order and anywhere; an exception other than DataFileError ends the run."""


def run_here(run: Run, parts: Sequence[Part]) -> Iterator[PartResult | PartFailure]:
    """Work on parts one after another in this process, on all cores."""
    worker = PartWorker(run)
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
        if not local.exists():
            stack.callback(_remove_empty, local)  # once the lock is gone: a refused run leaves no folder
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


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


# Verification ------------------------------------------------------------------------------------


def verify(
    out: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None, show_progress: bool | None = None
) -> Manifest:
    """Return the manifest of a folder after comparing every file with it.

    Raises:
        DataFileError: no manifest, missing parts, unlisted files, or a file of a different size or checksum.
    """
    folder = Folder(os.fspath(out), dict(storage_options or {}))
    manifest = Manifest.read(folder)
    if manifest is None:
        code = "E-DATA-FILE-MANIFEST"
        raise DataFileError(f"The folder has no {MANIFEST}.", code=code, param="out")

    def wrong(got: str, fix: str, code: str = "E-DATA-FILE-PART") -> DataFileError:
        return DataFileError(f"The folder differs from its {MANIFEST}: {got}. {fix}", code=code, param="out")

    names = set(folder.sizes())
    if further := _further_files(names, manifest):
        fix = "Readers of the folder would take their rows for protected ones: move them elsewhere."
        raise wrong(f"{len(further)} further files, such as {further[0]}", fix, "E-DATA-FILE-FURTHER")
    parts = manifest.parts
    for part in progress(parts, "Verifying", total=len(parts), show=show_progress, unit="part"):
        result, name = manifest.results.get(part["index"]), part["output"]
        if result is None:
            raise wrong(f"no {name} yet", "Run protect again with the same folder: it writes the missing parts.")
        if name not in names:
            if not result.rows:
                continue
            fix = "Put it back. Made again with fresh noise (--again) it is a second release of its rows."
            raise wrong(f"no {name}, which was finished", fix)
        with folder.open(name) as file:
            if PartResult.of(result.index, result.rows, file) != result:
                fix = "Protect the inputs again, into another folder: a repair would release rows a second time."
                raise wrong(f"another {name}", fix)
    return manifest


def columns_of(out: str | os.PathLike[str], manifest: Manifest) -> tuple[str, ...] | None:
    """Return the columns of the first part with rows, or None if it cannot be read."""
    import pyarrow.parquet as pq

    first = next((i for i, result in sorted(manifest.results.items()) if result.rows), None)
    if first is None:
        return None
    try:
        with Folder(os.fspath(out)).open(Part.output_of(first)) as file:
            return tuple(pq.read_schema(file).names)
    except (VecveilError, OSError, ValueError):  # only for display: the run is done
        return None
