"""Run the attacks of an audit, several at once, and save finished results.

A job is one attack on one side (clean or protected). Each job has its own seed, so results do not depend on the order
or number of concurrent jobs. An interrupted audit resumes from the results in its work folder.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.auditing.attacks import Attack, AttackResult, Evidence, KernelAttack, LabelledVectors
from vecveil.auditing.attacks.token_inference import EnsembleAttack
from vecveil.auditing.case import Case, Options, Side
from vecveil.auditing.metrics.leakage import TermTable
from vecveil.auditing.records.audit_record import Family, SkippedAttack
from vecveil.errors import DataFileError
from vecveil.io import make_folders, write_bytes
from vecveil.privacy.utility.estimates import Estimate
from vecveil.runtime import import_torch, one_blas_thread, one_thread, progress, resolve_device, stopping, thread_count
from vecveil.types import Embeddings
from vecveil.version import __version__

SCHEMA = "vecveil.audit-work/1"
KEPT_DAYS = 14  # abandoned audits are removed after that


@dataclass(frozen=True, eq=False)
class Job:
    """One attack on one side.

    Attributes:
        name: in the record; unique with ``side``.
        side: ``"clean"`` or ``"protected"``.
        run: takes a folder for checkpoints, or None.
        weight: expected time relative to other jobs; long ones start first.
        of_part: returns the number of texts in a share of the training texts, and the job that learns from them.
    """

    name: str
    side: str
    run: Callable[[Path | None], AttackResult]
    weight: float = 1.0
    of_part: Callable[[float], tuple[int, Job]] | None = None

    @property
    def key(self) -> str:
        return f"{self.side}-{self.name}"


Plan = tuple[list[Job], list[SkippedAttack]]
"""The jobs of a family on one side, and its skipped attacks."""


def skip(family: Family, names: Iterable[str], reason: tuple[str, str]) -> Plan:
    """Return the plan that runs none of the named attacks; ``reason`` is a sentence and its code."""
    return [], [SkippedAttack(name, family, *reason) for name in names]


def attack_job(
    attack: Attack[Any, Any],
    side: Side,
    train: Evidence,
    test: Evidence,
    options: Options,
    *,
    name: str | None = None,
    weight: float = 1.0,
) -> Job:
    """Return the job that runs ``attack`` on one side; ``name`` names the result, None takes the attack's."""
    result_name = attack.name if name is None else name

    def once(folder: Path | None) -> AttackResult:
        return attack.run(train, test, rng=options.seed, checkpoint=folder, show_progress=False, **side.knowledge)

    def run(folder: Path | None) -> AttackResult:
        checkpoint = folder if attack.trains_long else None
        try:
            result = once(checkpoint)
        except DataFileError:
            if checkpoint is None:
                raise
            # A checkpoint cut short or of a different version must not end the audit: train from the start.
            shutil.rmtree(checkpoint, ignore_errors=True)
            result = once(checkpoint)
        return replace(result, name=result_name)

    def of_part(share: float) -> tuple[int, Job]:
        assert isinstance(train, LabelledVectors)
        part, smaller = train.part(share, seed=options.seed), attack
        if isinstance(attack, KernelAttack | EnsembleAttack):
            # As many rows for each text as the whole has: all of its rows would cost as much and recover no more.
            fewer = copy.copy(attack)
            fewer.rows = max(2, round(share * attack.rows))
            smaller = fewer
        name = f"{result_name}-of-{share:g}"
        return part.texts_known, attack_job(smaller, side, part, test, options, name=name, weight=weight)

    return Job(result_name, side.name, run, weight, of_part if isinstance(train, LabelledVectors) else None)


def run_jobs(
    jobs: Sequence[Job], work: WorkFolder | None = None, *, show_progress: bool | None = None
) -> dict[tuple[str, str], AttackResult]:
    """Return the results by (side, name); the first error of a job stops the others and is raised."""
    import_torch()  # a missing PyTorch is reported before the first attack, with the extra to install
    results: dict[tuple[str, str], AttackResult] = {}
    todo: list[Job] = []
    for job in jobs:
        saved = None if work is None else work.load(job.key)
        if saved is None:
            todo.append(job)
        else:
            results[job.side, job.name] = saved
    # Longest first (greedy scheduling): a long job started last would run alone at the end.
    todo.sort(key=lambda job: -job.weight)
    stop = threading.Event()

    def run(job: Job) -> tuple[Job, AttackResult]:
        # One thread for each job: the jobs are the parallel part, and thread counts can change sums.
        with stopping(stop), one_thread():
            result = job.run(None if work is None else work.folder_of(job.key))
        # In the worker, as soon as the job ends: Ctrl-C in the main thread loses no finished result.
        if work is not None:
            work.save(job.key, result)
        return job, result

    pool = ThreadPoolExecutor(max(1, thread_count()), thread_name_prefix="vecveil-audit")
    with one_blas_thread():
        futures = [pool.submit(run, job) for job in todo]
        finished = progress(_finished(futures), "Running", total=len(futures), show=show_progress, unit="attack")
        try:
            for future in finished:
                job, result = future.result()
                results[job.side, job.name] = result
        except BaseException:
            # Ctrl-C and errors alike. Running jobs cannot be cancelled: the event stops each at its next step.
            stop.set()
            for future in futures:
                future.cancel()
            wait(futures)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return results


def _finished(futures: list[Future[Any]]) -> Iterator[Future[Any]]:
    pending = set(futures)
    while pending:
        # Short waits: on some platforms a wait without a timeout delays Ctrl-C until it returns.
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        yield from done


class WorkFolder:
    """Results of finished attacks on disk, so that an interrupted audit resumes.

    The folder is created at the first write, readable by its owner only. Results contain figures and, ``with_texts``,
    texts; checkpoints of reconstruction attacks contain what they learnt from the texts.
    """

    def __init__(self, folder: Path, fingerprint: str, *, with_texts: bool = False) -> None:
        self.folder = folder / fingerprint[:32]
        self.with_texts = with_texts

    def folder_of(self, key: str) -> Path:
        self._make()
        return self.folder / f"{key}.checkpoint"

    def load(self, key: str) -> AttackResult | None:
        """Return the result saved under ``key``, or None if it is absent or unreadable."""
        try:
            record = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            if record.pop("schema") != SCHEMA:
                return None
            estimates = {name: Estimate(**each) for name, each in record.pop("estimates").items()}
            examples = tuple((a, b) for a, b in record.pop("examples"))
            terms = record.pop("terms")
            if terms is not None:
                counts, hits, chance = (terms[name] for name in ("counts", "hits", "chance"))
                terms = TermTable(
                    np.array(counts, dtype=np.int64), np.array(hits), None if chance is None else np.array(chance)
                )
            return AttackResult(estimates=estimates, terms=terms, examples=examples, **record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # A file of a different version or cut short costs one attack, not the audit: the job runs again.
            return None

    def save(self, key: str, result: AttackResult) -> None:
        """Save ``result`` under ``key`` and remove its checkpoints."""
        self._make()
        record = {
            "schema": SCHEMA,
            "name": result.name,
            "estimates": {name: asdict(each) for name, each in result.estimates.items()},
            "terms": None if result.terms is None else asdict(result.terms),
            "adaptive": result.adaptive,
            "seconds": result.seconds,
            "description": result.description,
            "family": result.family,
            "cost": result.cost,
            "details": dict(result.details),
            "examples": [list(pair) for pair in result.examples] if self.with_texts else [],
        }
        # `write_bytes` replaces the file whole, so that an interrupt leaves no half of a result.
        data = json.dumps(record, default=_plain) + "\n"
        write_bytes(self.folder / f"{key}.json", data.encode())
        # Only now: a repeat resumes from the checkpoint until the result is on disk.
        shutil.rmtree(self.folder_of(key), ignore_errors=True)

    def _make(self) -> None:
        if self.folder.exists():
            return
        make_folders(self.folder)
        for other in self.folder.parent.iterdir():
            # The user chose the parent folder: only names that this class makes may be removed from it.
            is_old = time.time() - other.stat().st_mtime > 86400 * KEPT_DAYS
            if is_old and re.fullmatch("[0-9a-f]{32}", other.name):
                shutil.rmtree(other, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def fingerprint(case: Case, vectors: Embeddings, protector: str, encoder: str | None) -> str:
    """Return a SHA-256 of everything that determines the results of the attacks; ``protector`` is empty for a store."""
    o = case.options
    device = resolve_device(o.device, owner="audit")
    # `show_terms`, `lint` and `command` are absent: they change the record, not the attacks.
    settings = (
        o.by_subject,
        o.tier,
        o.seed,
        sorted(o.skip),
        sorted(o.attacks),
        o.language_model,
        device,
        o.show_reconstructions,
        o.attacker_texts,
    )
    concept = (case.vocabulary.tokens, case.matches.spans, case.matches.labels, case.texts)
    digest = hashlib.sha256()
    for part in (__version__, protector, encoder, *settings, *concept):
        # `surrogatepass`: texts from files with lone surrogates have no strict UTF-8 form.
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    clean = [] if case.embeddings is None else [case.embeddings]
    for array in (vectors, *clean, case.labels, case.groups, case.train, case.test):
        # Shape and dtype first: the same bytes may be arrays of another shape.
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
