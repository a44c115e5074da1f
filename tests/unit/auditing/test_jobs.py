"""Attacks of an audit run side by side, stop together, and are not run twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unit.auditing.attacks.planted import planted
from vecveil.auditing.attacks import AttackResult, LinearAttack
from vecveil.auditing.case import Options, Side
from vecveil.auditing.jobs import Job, WorkFolder, attack_job, run_jobs
from vecveil.errors import InvalidInputError
from vecveil.runtime import progress

TRAIN, TEST = planted(120, seed=0), planted(80, seed=1)
SIDE = Side("clean", TRAIN.X, TRAIN.X)


def linear(name: str) -> Job:
    return attack_job(LinearAttack(), SIDE, TRAIN, TEST, Options(), name=name)


def never(folder: Path | None) -> AttackResult:
    raise AssertionError("ran again")


def test_results_come_back_by_side_and_name() -> None:
    found = run_jobs([linear("one"), linear("two")], show_progress=False)
    assert {key: result.name for key, result in found.items()} == {("clean", "one"): "one", ("clean", "two"): "two"}
    assert found["clean", "one"].value == found["clean", "two"].value


def test_what_was_kept_is_not_run_again_and_is_the_same(tmp_path: Path) -> None:
    kept = WorkFolder(tmp_path / "work", "a" * 64)
    first = run_jobs([linear("one")], kept, show_progress=False)["clean", "one"]
    again = run_jobs([Job("one", "clean", never)], kept, show_progress=False)["clean", "one"]
    assert dict(again.estimates) == dict(first.estimates)
    assert again.terms is not None
    assert first.terms is not None
    assert again.terms.to_records() == first.terms.to_records()
    assert again.to_record() == first.to_record()
    assert (tmp_path / "work" / ("a" * 32)).stat().st_mode & 0o077 == 0
    other = WorkFolder(tmp_path / "work", "b" * 64)  # another audit
    with pytest.raises(AssertionError, match="ran again"):
        run_jobs([Job("one", "clean", never)], other, show_progress=False)
    kept.remove()
    assert not kept.folder.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "vecveil.audit-work/9"}', "null"])
def test_a_damaged_result_is_run_again(tmp_path: Path, content: str) -> None:
    kept = WorkFolder(tmp_path, "a" * 64)
    run_jobs([linear("one")], kept, show_progress=False)
    (kept.folder / "clean-one.json").write_text(content)
    assert run_jobs([linear("one")], kept, show_progress=False)["clean", "one"].value > 0.5


def test_an_error_is_raised_and_stops_the_others(tmp_path: Path) -> None:
    stopped = threading.Event()

    def endless(folder: Path | None) -> AttackResult:
        try:
            for _ in progress(iter(int, 1), "endless", show=False):
                time.sleep(0.01)
        finally:
            stopped.set()
        raise AssertionError

    def fails(folder: Path | None) -> AttackResult:
        raise InvalidInputError("planted")

    jobs = [Job("endless", "clean", endless, 2.0), Job("fails", "clean", fails, 1.0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecveil.auditing.jobs.thread_count", lambda: 2)
        with pytest.raises(InvalidInputError, match="planted"):
            run_jobs(jobs, show_progress=False)
    assert stopped.is_set()


def test_ctrl_c_keeps_what_has_finished_and_the_next_run_goes_on(tmp_path: Path) -> None:
    kept = WorkFolder(tmp_path, "c" * 64)

    def interrupts(folder: Path | None) -> AttackResult:
        while kept.load("clean-one") is None:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        for _ in progress(iter(int, 1), "endless", show=False):
            time.sleep(0.01)
        raise AssertionError

    jobs: list[Any] = [linear("one"), Job("two", "clean", interrupts, 2.0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecveil.auditing.jobs.thread_count", lambda: 2)
        with pytest.raises(KeyboardInterrupt):
            run_jobs(jobs, kept, show_progress=False)
    found = run_jobs([Job("one", "clean", never), linear("two")], kept, show_progress=False)
    assert len(found) == 2


def test_several_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from vecveil.auditing.attacks import MLPAttack

    def values(threads: int) -> list[float]:
        monkeypatch.setattr("vecveil.auditing.jobs.thread_count", lambda: threads)
        jobs = [
            attack_job(
                MLPAttack((16,), epochs=4, batch=16, device="cpu"), SIDE, TRAIN, TEST, Options(seed=i), name=f"{i}"
            )
            for i in range(4)
        ]
        found = run_jobs(jobs, show_progress=False)
        return [found["clean", f"{i}"].estimates["confidence"].value for i in range(4)]

    alone = values(1)
    assert len(set(alone)) == 4
    assert values(4) == alone
    assert np.isfinite(alone).all()
