"""Runs the attacks of an audit, several at once, and keeps what has finished.

A job is one attack on one side (clean or protected). Jobs are independent and each has its own seed, so
their order and number at a time change nothing. Finished results are kept as files: an audit that was
interrupted goes on where it was.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vecveil.attacks import Attack, AttackResult, Evidence
from vecveil.auditing.case import Options, Side
from vecveil.auditing.kept import KeptResults
from vecveil.errors import DataFileError
from vecveil.runtime import import_torch, one_thread, progress, stopping, thread_count

__all__ = ["Job", "attack_job", "run_jobs"]


@dataclass(frozen=True, eq=False)
class Job:
    """One attack on one side.

    Attributes:
        name: name of the attack in the record; unique with ``side``.
        side: ``"clean"`` or ``"protected"``.
        run: runs the attack; is handed a folder for checkpoints, or None.
        weight: about how long it takes against others; long ones start first.
    """

    name: str
    side: str
    run: Callable[[Path | None], AttackResult]
    weight: float = 1.0

    @property
    def key(self) -> str:
        """Return the name of its result."""
        return f"{self.side}-{self.name}"


def attack_job(
    attack: Attack[Any, Any],
    side: Side,
    train: Evidence,
    test: Evidence,
    options: Options,
    *,
    name: str | None = None,
    family: str | None = None,
    weight: float = 1.0,
    oracle: bool = True,
    long: bool = False,
) -> Job:
    """Return the job that runs ``attack`` on one side.

    Args:
        name, family: of the result, if they are not the attack's own.
        oracle: whether the attacker may use the side's oracle; an attack on a secret may not.
        long: whether the attack keeps checkpoints while it trains; short ones are run again.
    """
    named = attack.name if name is None else name
    knowledge = side.knowledge if oracle else {}

    def once(folder: Path | None) -> AttackResult:
        return attack.run(
            train, test, rng=options.seed, checkpoint=folder, show_progress=False, **knowledge
        )

    def run(checkpoint: Path | None) -> AttackResult:
        if checkpoint is None or not long:
            found = once(None)
        else:
            try:
                found = once(checkpoint)
            except DataFileError:  # what an earlier version has left there: begin anew
                shutil.rmtree(checkpoint, ignore_errors=True)
                found = once(checkpoint)
        return replace(found, name=named, family=found.family if family is None else family)

    return Job(named, side.name, run, weight)


def run_jobs(
    jobs: Sequence[Job], kept: KeptResults | None = None, *, show_progress: bool | None = None
) -> dict[tuple[str, str], AttackResult]:
    """Return the results by (side, name); the first error of a job stops the others and is raised."""
    import_torch()  # or say how to install it
    found: dict[tuple[str, str], AttackResult] = {}
    todo: list[Job] = []
    for job in jobs:
        result = None if kept is None else kept.load(job.key)
        if result is None:
            todo.append(job)
        else:
            found[job.side, job.name] = result
    todo.sort(key=lambda job: -job.weight)
    stop = threading.Event()

    def work(job: Job) -> tuple[Job, AttackResult]:
        with stopping(stop), one_thread():
            result = job.run(None if kept is None else kept.folder_of(job.key))
        if kept is not None:
            kept.save(job.key, result)
        return job, result

    pool = ThreadPoolExecutor(max(1, thread_count()), thread_name_prefix="vecveil-audit")
    with _one_blas_thread():
        futures = [pool.submit(work, job) for job in todo]
        try:
            for future in progress(
                _finished(futures), "Attacks", total=len(futures), show=show_progress, unit="attack"
            ):
                job, result = future.result()
                found[job.side, job.name] = result
        except BaseException:  # Ctrl-C and errors alike: what runs stops at its next step
            stop.set()
            for future in futures:
                future.cancel()
            wait(futures)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return found


def _finished(futures: list[Future[Any]]) -> Iterator[Future[Any]]:
    """Yield futures as they finish; in short waits, so that Ctrl-C is heard."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        yield from done


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Hold BLAS to one thread: the jobs are the parallel part."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits
