"""Averaging: attacks on several releases of the same text, with fresh and with keyed noise."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks import (
    AttackResult,
    AveragingAttack,
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    MultilaterationAttack,
    RepeatedVectors,
)
from vecveil.auditing.case import Case, Rows, Side
from vecveil.auditing.jobs import Job, Plan, attack_job, skip
from vecveil.records.audit import Family, SkippedAttack
from vecveil.types import Embeddings, Release

FAMILY: Family = "averaging"
RELEASES = (1, 4, 16)  # noise of the mean falls by half from each to the next
FRESH = tuple(f"averaging-{k}" for k in RELEASES)
KEYED = tuple(f"{name}-keyed" for name in FRESH)
ROWS = 4096  # of the kernel attack on the means: the strongest behind erasure
NO_ORACLE = ("It needs several releases of the same texts, and the store holds one.", "no-oracle")
NO_NOISE = ("The method draws no noise that a key could fix.", "no-noise")
FEW, SPARE = 64, 8  # n + 1 spheres determine a point of R^n; n + 8 leave some for rounding errors
LOCATED = 100  # judged texts that are located: each takes k releases and an inversion
MAX_LOCATED = 2**25  # numbers in the releases of all of them: 128 MiB in float32
FEWEST = 20  # of fewer texts the figure has no useful interval
FIXED = 5e-3
"""Relative deviation of the noise's length up to which the sphere equations are solved."""
VARIES = ("The length of the noise varies, so that distances say nothing that the mean does not.", "noise-length")
REPEATS = ("Releases of one text are equal: several tell no more than one.", "equal-releases")
OTHER_SPACE = ("It measures from clean vectors to released ones, and these have another dimension.", "other-dimension")
NO_ROOM = (f"The releases of {FEWEST} texts would take more than 128 MiB.", "memory")


class _FittedOnce(AveragingAttack):
    """An averaging attack that several jobs share: the first job fits it for all."""

    def __init__(self, k: int, inner: KernelAttack) -> None:
        super().__init__(k, inner)
        self._lock = threading.Lock()
        self._states: list[Any] = []

    def _fit(self, *given: Any) -> Any:
        # Jobs run in parallel: the lock makes the others wait for the fit instead of repeating it.
        with self._lock:
            if not self._states:
                self._states.append(super()._fit(*given))
            return self._states[0]


def jobs(case: Case, side: Side, keyed: Release | None) -> Plan:
    """Return the attacks on means of releases, fresh ones and ``keyed`` ones, and on their distances."""
    train, test = case.labelled(side)
    reader = KernelAttack(rows=ROWS)
    if side.name == "clean":  # without noise the mean of many releases is the one vector
        once = attack_job(AveragingAttack(1, reader), side, train, test, case.options, name=FAMILY)
        return [once, *_clean_jobs(case, side, train)], []
    if side.release is None:
        return skip(FAMILY, (*FRESH, *KEYED, *_names(side)), NO_ORACLE)
    rng = np.random.default_rng([case.options.seed, 4])
    X = side.learn[case.test]

    def judged(mean: Embeddings) -> LabelledVectors:
        return LabelledVectors(mean, case.labels[case.test], case.groups[case.test])

    single = _FittedOnce(1, reader)
    runnable = []
    for name, (k, mean) in zip(FRESH, _means(side.release, X, rng).items(), strict=True):
        attack = single if k == 1 else AveragingAttack(k, reader)
        runnable.append(attack_job(attack, side, train, judged(mean), case.options, name=name, weight=5.0))
    located, skipped = _spheres(case, side, side.release, train)
    if keyed is None:
        skipped = [*(SkippedAttack(name, FAMILY, *NO_NOISE) for name in KEYED), *skipped]
        return runnable + located, skipped
    for name, (k, mean) in zip(KEYED, _means(keyed, X, rng).items(), strict=True):
        # All keyed releases of a text are one: an attacker without the key learns from single releases.
        job = attack_job(single, side, train, judged(mean), case.options, name=name)
        runnable.append(_of_keyed(job, k))
    return runnable + located, skipped


def _counts(side: Side) -> list[int]:
    """Return the numbers of releases whose distances are attacked: few, and enough to determine the vector."""
    # Below n + 1 releases the spheres do not determine x: 64 show the gain of an attacker with fewer.
    return sorted({FEW, side.learn.shape[1] + SPARE})


def _name(k: int) -> str:
    return f"averaging-{k}-spheres"


def _names(side: Side) -> list[str]:
    return [_name(k) for k in _counts(side)]


def _spheres(case: Case, side: Side, release: Release, train: LabelledVectors) -> Plan:
    """Return the attack on the distances of fresh releases, for each number of releases."""
    names = _names(side)
    if side.judged.shape[1] != side.learn.shape[1]:
        return skip(FAMILY, names, OTHER_SPACE)
    rng = np.random.default_rng([case.options.seed, 5])
    some = side.learn[case.test[:64]]
    # Two draws of one generator: equal releases mean no noise, or noise fixed by a key.
    first = release(some, rng)
    if np.array_equal(first, release(some, rng)):
        return skip(FAMILY, names, REPEATS)
    # ‖y − x‖ must be (almost) the same for every release: only then is x at a known distance from each.
    lengths = np.linalg.norm(first.astype(np.float64) - some, axis=1)
    if lengths.std() > FIXED * lengths.mean():
        return skip(FAMILY, names, VARIES)
    located, skipped = [], []
    for k, rows in _to_locate(case, side):
        if len(rows):
            located.append(_located(case, side, release, train, rows, k))
        else:
            skipped.append(SkippedAttack(_name(k), FAMILY, *NO_ROOM))
    return located, skipped


def _to_locate(case: Case, side: Side) -> Iterator[tuple[int, Rows]]:
    """Yield each number of releases with the rows to judge: no rows if the releases need too much memory."""
    order = np.random.default_rng([case.options.seed, 7]).permutation(case.test)
    for k in _counts(side):
        count = min(LOCATED, MAX_LOCATED // (k * side.learn.shape[1]))
        yield k, np.sort(order[: count if count >= FEWEST else 0])


def _clean_jobs(case: Case, side: Side, train: LabelledVectors) -> list[Job]:
    """Return the attacks on the clean vectors of the located texts."""
    return [
        attack_job(
            AveragingAttack(1, LinearAttack()),
            side,
            train,
            LabelledVectors(side.judged[rows], case.labels[rows], case.groups[rows]),
            case.options,
            name=_name(k),
        )
        for k, rows in _to_locate(case, side)
        if len(rows)
    ]


def _located(case: Case, side: Side, release: Release, train: LabelledVectors, rows: Rows, k: int) -> Job:
    """Return the attack on k releases of the given texts; the job draws them when it runs, to save memory."""

    def run(folder: Path | None) -> AttackResult:
        rng = np.random.default_rng([case.options.seed, 6, k])
        X, labels, groups = side.learn[rows], case.labels[rows], case.groups[rows]
        test = RepeatedVectors.of(X, labels, k, release, rng, groups)
        attack = MultilaterationAttack(k, LinearAttack())
        return attack_job(attack, side, train, test, case.options, name=_name(k)).run(folder)

    return Job(_name(k), side.name, run, 20.0)


def _means(release: Release, X: Embeddings, rng: np.random.Generator) -> Mapping[int, Embeddings]:
    """Return the mean of the first k releases of each row, for each number of releases."""
    # A running sum: holding all 16 releases of every test text at once would take 16 times the memory.
    means: dict[int, Embeddings] = {}
    total = np.zeros(1)
    for k in range(1, RELEASES[-1] + 1):
        Y = release(X, rng)
        total = total + Y
        if k in RELEASES:
            means[k] = (total / k).astype(Y.dtype)
    return means


def _of_keyed(job: Job, k: int) -> Job:
    """Return the job with the number of keyed releases in description and cost: `single` states 1 for all."""

    def run(folder: Path | None) -> AttackResult:
        result = job.run(folder)
        releases = "1 keyed release" if k == 1 else f"{k} keyed releases"
        read = result.description.partition(": ")[2]
        mean = "On" if k == 1 else "On the mean of"
        return replace(
            result,
            description=f"{mean} {releases} of each text: {read}",
            cost=f"{releases} of each text; {result.cost.partition('; ')[2]}",
        )

    return replace(job, run=run)
