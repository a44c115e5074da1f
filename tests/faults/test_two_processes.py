"""Two processes on one output: one is refused, or both end and the output is one of the two, whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from harness.faults import MOMENTS, WarmProcess, halted, left_over
from vecveil import Ledger
from vecveil.gateway.bulk import MANIFEST, verify

TIMES = max(2, MOMENTS // 2)


def test_into_one_file(warm: WarmProcess, clean: np.ndarray, protector: Path, tmp_path: Path) -> None:
    """The files differ by what they hold: the first 2000 rows, or the last 3000."""
    np.save(tmp_path / "a.npy", clean[:2000])
    np.save(tmp_path / "b.npy", clean[-3000:])
    out = tmp_path / "out" / "out.npy"
    for _ in range(TIMES):
        both = [
            warm.start("protect", tmp_path / f"{name}.npy", "-p", protector, "-o", out, "--force", cwd=tmp_path)
            for name in "ab"
        ]
        assert [child.wait().code for child in both] == [0, 0]
        found = np.load(out)
        assert len(found) in (2000, 3000)
        given = clean[:2000] if len(found) == 2000 else clean[-3000:]
        assert np.median(np.sum(found * given, axis=1)) > 0.5 * np.median(np.sum(given**2, axis=1))
        assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_into_a_folder_the_second_is_refused(
    warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:
    """The first is halted in the middle, so that it is there for sure.

    Its manifest is the sign: it is written under the lock, whose file is there a moment before the lock is.
    """
    out = tmp_path / "out"
    arguments = ("protect", lake, "-p", protector, "-o", out)
    first = halted(warm.start(*arguments, cwd=tmp_path), out / MANIFEST)
    assert (out / "_lock").exists(), "it ended before it was halted"
    try:
        second = warm.run(*arguments, cwd=tmp_path)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.code == 1
    assert "Another process writes to" in second.errors[0]
    assert "Wait for it" in second.errors[0]
    done = first.wait()
    assert done.code == 0, done.err
    assert verify(out, show_progress=False).rows == len(clean)
    assert left_over(out) == []


def test_into_a_folder_at_the_same_moment(
    warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:
    for turn in range(TIMES):
        out, ledger = tmp_path / f"{turn}", tmp_path / f"{turn}.ledger"
        arguments = ("protect", lake, "-p", protector, "-o", out, "--ledger", ledger, "--cap", 1, "--id-column", "id")
        both = [warm.start(*arguments, cwd=tmp_path) for _ in range(2)]
        done = [child.wait() for child in both]
        assert 0 in {one.code for one in done}, [one.err for one in done]
        for one in done:  # the second was refused, or came when all was done
            assert one.code == 0 or "Another process writes to" in one.errors[0], one.err
        assert verify(out, show_progress=False).rows == len(clean)
        ids = [one for path in sorted(out.glob("*.parquet")) for one in pq.read_table(path)["id"].to_pylist()]
        assert len(ids) == len(set(ids)) == len(clean)
        with Ledger(ledger) as opened:
            opened.verify()
            assert set(opened.summary().histogram) == {1}
        assert left_over(tmp_path) == []


def test_one_ledger_of_two_runs_never_exceeds_its_cap(
    warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:
    """Both release the same items into folders of their own, and the cap lets each item out once."""
    for turn in range(TIMES):
        ledger = tmp_path / f"{turn}.ledger"
        outs = [tmp_path / f"{turn}{name}" for name in "ab"]
        both = [
            warm.start(
                "protect",
                lake,
                "-p",
                protector,
                "-o",
                out,
                "--ledger",
                ledger,
                "--cap",
                1,
                "--id-column",
                "id",
                cwd=tmp_path,
            )
            for out in outs
        ]
        done = [child.wait() for child in both]
        assert 1 in {one.code for one in done}
        assert all(one.code == 0 or "cap" in one.errors[0] for one in done)
        ids = [one for out in outs for path in out.glob("*.parquet") for one in pq.read_table(path)["id"].to_pylist()]
        assert len(ids) == len(set(ids)) <= len(clean)
        with Ledger(ledger) as opened:
            opened.verify()
            assert set(opened.summary().histogram) == {1}
            assert opened.total >= len(ids)
