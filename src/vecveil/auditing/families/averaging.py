"""Averaging in an audit: what is left of the noise when a text is released again and again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.attacks import AttackResult, AveragingAttack, KernelAttack, LabelledVectors
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.families.token_inference import labelled
from vecveil.auditing.jobs import Job, attack_job
from vecveil.types import Embeddings, Release

__all__ = ["jobs"]

FAMILY = "averaging"
RELEASES = (1, 4, 16)
FRESH = tuple(f"averaging-{k}" for k in RELEASES)
KEYED = tuple(f"{name}-keyed" for name in FRESH)
ROWS = (
    4096  # of the kernel attack that reads the means: it is the one that reads most behind erasure
)
NO_ORACLE = "It needs several releases of the same texts, and the store holds one."
NO_NOISE = "The method draws no noise that a key could fix."


class _FittedOnce(AveragingAttack):
    """An attack that several jobs run on the same training texts: the first one to come learns for all."""

    def __init__(self, k: int, inner: KernelAttack) -> None:
        super().__init__(k, inner)
        self._lock = threading.Lock()
        self._states: list[Any] = []

    def _fit(self, *given: Any) -> Any:
        with self._lock:
            if not self._states:
                self._states.append(super()._fit(*given))
            return self._states[0]


def jobs(case: Case, side: Side, keyed: Release | None) -> tuple[list[Job], list[Skipped]]:
    """Return the attack on means of several releases, with fresh noise and with keyed noise.

    Args:
        keyed: releases the given clean rows with a secret key, so that every release of a row is the same.
    """
    train, test = labelled(case, side)
    reader = KernelAttack(rows=ROWS)
    if side.name == "clean":  # a clean vector has no noise: one is as good as many
        once = attack_job(AveragingAttack(1, reader), side, train, test, case.options, name=FAMILY)
        return [once], []
    if side.release is None:
        return [], [Skipped(name, FAMILY, NO_ORACLE) for name in (*FRESH, *KEYED)]
    rng = np.random.default_rng([case.options.seed, 4])
    X = side.learn[case.test]

    def judged(mean: Embeddings) -> LabelledVectors:
        return LabelledVectors(mean, case.labels[case.test], case.groups[case.test])

    single = _FittedOnce(1, reader)
    found = []
    for name, (k, mean) in zip(FRESH, _means(side.release, X, rng).items(), strict=True):
        attack = single if k == 1 else AveragingAttack(k, reader)
        found.append(
            attack_job(attack, side, train, judged(mean), case.options, name=name, weight=5.0)
        )
    if keyed is None:
        return found, [Skipped(name, FAMILY, NO_NOISE) for name in KEYED]
    for name, (k, mean) in zip(KEYED, _means(keyed, X, rng).items(), strict=True):
        # Somebody without the key learns from single releases: the mean of keyed ones is one of them.
        job = attack_job(single, side, train, judged(mean), case.options, name=name)
        found.append(_of_keyed(job, k))
    return found, []


def _means(release: Release, X: Embeddings, rng: np.random.Generator) -> Mapping[int, Embeddings]:
    """Return the mean of the first k releases of each row, for each number of releases."""
    found: dict[int, Embeddings] = {}
    total = np.zeros(1)
    for k in range(1, RELEASES[-1] + 1):
        Y = release(X, rng)
        total = total + Y
        if k in RELEASES:
            found[k] = (total / k).astype(Y.dtype)
    return found


def _of_keyed(job: Job, k: int) -> Job:
    """Return the job whose result says how many keyed releases it saw."""

    def run(folder: Path | None) -> AttackResult:
        found = job.run(folder)
        releases = "1 keyed release" if k == 1 else f"{k} keyed releases"
        read = found.description.partition(": ")[2]
        mean = "On" if k == 1 else "On the mean of"
        return replace(
            found,
            description=f"{mean} {releases} of each text: {read}",
            cost=f"{releases} of each text; {found.cost.partition('; ')[2]}",
        )

    return replace(job, run=run)
