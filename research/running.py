"""Run an experiment: measure the cells without a record, and record each when it is finished.

A stopped run resumes; a killed run loses the cells in progress. Cells run in a pool of single-threaded processes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import multiprocessing
import os
import pickle
import platform
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack

from research.bench import Bench
from research.experiment import Cell, Experiment
from research.records import SCHEMA, RecordFolder
from research.specification import Spec, digest, import_modules
from vecveil.errors import VecveilError, optional_import
from vecveil.io import write_text
from vecveil.runtime import inherited_variables, progress
from vecveil.version import __version__


def machine() -> dict[str, Any]:
    """Return the properties of this machine that determine its speed, without its name."""
    import numpy
    import scipy

    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }


def commit(source: Path = Path(__file__)) -> str | None:
    """Return the commit of the source, with ``+`` if files differ; None outside a repository.

    An installed package may be inside another project's repository, where git does not track the file.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=source.parent, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", source.name)
        return git("describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_PACKAGES = {"presidio": "presidio_analyzer", "spacy": "spacy", "huggingface": "transformers"}
_BARREN = 4  # consecutive pools that die without a result: the cause is not a cell
_bench: Bench | None = None  # of a worker process


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        asked, kept, measured: cells in all, with an earlier record, and measured now.
        failed: name of each failed cell -> why.
    """

    experiment: str
    asked: int
    kept: int
    measured: int
    failed: Mapping[str, str] = field(default_factory=dict)


class RunOptions(TypedDict, total=False):
    """How a run measures its cells.

    Attributes:
        workers: processes, 2 by default; 0 measures in this one.
        resume: False measures everything again.
        report: called with a line for each finished cell.
    """

    workers: int
    resume: bool
    show_progress: bool | None
    report: Callable[[str], None] | None


def run_cells(
    experiment: Experiment[Any], spec: Spec, spec_text: str, data: Path, folder: Path, **options: Unpack[RunOptions]
) -> Outcome:
    """Measure the cells of a specification that have no record yet.

    Args:
        spec_text: the specification as given, kept beside the records.
        folder: of this experiment; see `RecordFolder`.

    Raises:
        DataFileError: a data set is missing, or another run writes to the folder.
        KeyboardInterrupt: after Ctrl-C; finished cells are on disk.
    """
    workers, report = options.get("workers", 2), options.get("report") or (lambda line: None)
    show_progress = options.get("show_progress")
    kept = RecordFolder(folder)
    cells = experiment.distinct_cells(spec)
    with kept.locked():
        bench = Bench(spec, data, folder / "work", show_progress=show_progress)
        settings = {cell: digest(experiment.settings(spec, cell)) for cell in cells}
        digests = {cell: experiment.data_digest(spec, bench, cell) for cell in cells}
        records = kept.read() if options.get("resume", True) else {}
        done = {
            cell: record
            for cell in cells
            if (record := records.get((cell.name, settings[cell])))
            and record["data"] == digests[cell]
            and "skipped" not in record["found"]  # missing files may have been added
        }
        todo = [cell for cell in cells if cell not in done]
        had = len(done)
        failed: dict[str, str] = {}
        write_text(kept.spec_path, spec_text)
        try:
            if todo:
                for detector in sorted(experiment.detectors(spec, todo)):  # before texts are encoded for minutes
                    with optional_import(f"Experiment {experiment.name}", _PACKAGES[detector], detector):
                        import_module(_PACKAGES[detector])
                report(f"{experiment.name}: encoding the texts of {len(todo)} cells")
                experiment.prepare(spec, bench, todo)
            common = {
                "experiment": experiment.name,
                "quick": spec.is_quick,
                "spec": spec.digest,
                "vecveil": __version__,
                "commit": commit(),
                "machine": machine(),
            }
            at_once = min(workers, 1) if experiment.alone else workers
            jobs = _results(experiment, bench, todo, at_once)
            bar = progress(jobs, experiment.name, total=len(todo), show=show_progress, unit="cell")
            for cell, found, seconds in bar:
                if isinstance(found, str):
                    failed[cell.name] = found
                    line = f"{cell.name}: FAILED: {found}"
                else:
                    record = {
                        **common,
                        "cell": cell.to_record(),
                        "seed": cell.get("seed"),
                        "settings": settings[cell],
                        "data": digests[cell],
                        "seconds": round(seconds, 2),
                        "finished": _now(),
                        "found": found,
                    }
                    kept.put(cell, settings[cell], record)
                    done[cell] = {"schema": SCHEMA, **record}
                    line = f"{cell.name}: {seconds:.1f} s"
                report(line)
        finally:
            kept.put_failures(failed)
            if done:
                kept.gather([done[cell] for cell in cells if cell in done])
    return Outcome(experiment.name, len(cells), had, len(done) - had, failed)


Result = tuple[Cell, dict[str, Any] | str, float]


def _results(experiment: Experiment[Any], bench: Bench, cells: Sequence[Cell], workers: int) -> Iterator[Result]:
    """Yield the result, or the reason of failure, of each cell as it finishes."""
    if workers == 0 or len(cells) == 0:
        for cell in cells:
            yield _guarded(experiment, bench, cell)
        return
    left = list(cells)
    tries: Counter[Cell] = Counter()
    barren = 0
    while left:
        # A process that dies takes the pool with it. Cells that may have been running are tried once more.
        barren += 1
        for result in _pooled(experiment, bench, tuple(left), workers):
            barren = 0
            left.remove(result[0])
            yield result
        tries.update(left[:workers])
        for cell in [c for c in left if tries[c] > 1 or barren >= _BARREN]:
            left.remove(cell)
            yield cell, "the process that measured it died: of memory, or killed", 0.0


def _pooled(experiment: Experiment[Any], bench: Bench, cells: Sequence[Cell], workers: int) -> Iterator[Result]:
    """Yield results from one pool of processes until all are done or one of them dies."""
    # Spawned, not forked: torch and its threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with inherited_variables(_ONE_THREAD):
        pool = ProcessPoolExecutor(
            min(workers, len(cells)),
            mp_context=context,
            initializer=_begin,
            initargs=(bench.spec.modules, pickle.dumps(bench.spec), bench.data, bench.work, os.getpid()),
        )
        try:
            with _ctrl_c_ignored():  # workers start with the first cell, and inherit it
                futures = {pool.submit(_in_worker, experiment.name, c): c for c in cells}
            for future in as_completed(futures):
                try:
                    result = future.result()
                except BrokenExecutor:
                    break
                except Exception as error:  # the result cannot be pickled
                    result = futures[future], type(error).__name__, 0.0
                yield result
        except BaseException:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            raise
        pool.shutdown()


def _begin(modules: Sequence[str], spec: bytes, data: Path, work: Path, parent: int) -> None:
    """Prepare a worker: ignore Ctrl-C, and exit with the parent."""
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    import_modules(modules)  # the specification names their methods and attacks
    _bench = Bench(pickle.loads(spec), data, work, show_progress=False)


def _in_worker(name: str, cell: Cell) -> Result:
    from research.catalogue import experiment_named

    assert _bench is not None
    return _guarded(experiment_named(name), _bench, cell)


def _guarded(experiment: Experiment[Any], bench: Bench, cell: Cell) -> Result:
    """Return a cell's result, or the place of its error."""
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # output of the user's own methods is not a result
            found: dict[str, Any] | str = experiment.measure(bench.spec, cell, bench)
        json.dumps(found)  # a result that cannot be recorded must not stop the others
    except VecveilError as error:
        found = str(error)[:300]
    except (Exception, SystemExit) as error:
        # The message may contain text; the place does not.
        last = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    return cell, found, time.perf_counter() - started


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Ignore Ctrl-C while workers start, which inherit it: the parent stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
