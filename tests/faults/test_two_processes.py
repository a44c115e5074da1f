"""Two processes on one output: one is refused, or both end and the output is one of the two, whole."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.faults import MOMENTS, Child, WarmProcess, left_over
from vecveil import Ledger
from vecveil.bulk import verify

TIMES = max(2, MOMENTS // 2)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, warm: WarmProcess) -> Iterator[WarmProcess]:
    """A second warm process."""
    with WarmProcess(tmp_path_factory.mktemp("other"), warm.modules) as process:
        yield process


def test_into_one_file(
    warm: WarmProcess, other: WarmProcess, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:
    """The files differ by what they hold: the first 2000 rows, or the last 3000."""
    np.save(tmp_path / "a.npy", clean[:2000])
    np.save(tmp_path / "b.npy", clean[-3000:])
    out = tmp_path / "out" / "out.npy"
    for _ in range(TIMES):
        both = [
            each.start("protect", tmp_path / f"{name}.npy", "-p", protector, "-o", out, "--force", cwd=tmp_path)
            for each, name in ((warm, "a"), (other, "b"))
        ]  # fmt: skip
        assert [child.wait().code for child in both] == [0, 0]
        found = np.load(out)
        assert len(found) in (2000, 3000)
        given = clean[:2000] if len(found) == 2000 else clean[-3000:]
        assert np.median(np.sum(found * given, axis=1)) > 0.5 * np.median(np.sum(given**2, axis=1))
        assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_into_a_folder_the_second_is_refused(
    warm: WarmProcess, other: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:  # fmt: skip
    """The first is halted in the middle, so that it is there for sure."""
    out = tmp_path / "out"
    arguments = ("protect", lake, "-p", protector, "-o", out)
    first = halted(warm.start(*arguments, cwd=tmp_path), out / "_lock")
    try:
        second = other.run(*arguments, cwd=tmp_path)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.code == 1
    assert "no other run writes to" in second.errors[0]
    assert "Wait for it" in second.errors[0]
    done = first.wait()
    assert done.code == 0, done.err
    assert verify(out, show_progress=False).rows == len(clean)
    assert left_over(out) == []


def test_into_a_folder_at_the_same_moment(
    warm: WarmProcess, other: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:  # fmt: skip
    for turn in range(TIMES):
        out, ledger = tmp_path / f"{turn}", tmp_path / f"{turn}.ledger"
        arguments = (
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
        )
        both = [each.start(*arguments, cwd=tmp_path) for each in (warm, other)]
        done = [child.wait() for child in both]
        assert 0 in {one.code for one in done}, [one.err for one in done]
        for one in done:  # the second was refused, or came when all was done
            assert one.code == 0 or "no other run writes to" in one.errors[0], one.err
        assert verify(out, show_progress=False).rows == len(clean)
        ids = [
            one
            for path in sorted(out.glob("*.parquet"))
            for one in pq.read_table(path)["id"].to_pylist()
        ]
        assert len(ids) == len(set(ids)) == len(clean)
        with Ledger(ledger) as opened:
            opened.verify()
            assert set(opened.counts().values()) == {1}
        assert left_over(tmp_path) == []


def test_one_ledger_of_two_runs_never_exceeds_its_cap(
    warm: WarmProcess, other: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:  # fmt: skip
    """Both release the same items into folders of their own, and the cap lets each item out once."""
    for turn in range(TIMES):
        ledger = tmp_path / f"{turn}.ledger"
        outs = [tmp_path / f"{turn}{name}" for name in "ab"]
        both = [
            each.start("protect", lake, "-p", protector, "-o", out, "--ledger", ledger, "--cap", 1, "--id-column",
                       "id", cwd=tmp_path)
            for each, out in ((warm, outs[0]), (other, outs[1]))
        ]  # fmt: skip
        done = [child.wait() for child in both]
        assert 1 in {one.code for one in done}
        assert all(one.code == 0 or "cap" in one.errors[0] for one in done)
        ids = [
            one
            for out in outs
            for path in out.glob("*.parquet")
            for one in pq.read_table(path)["id"].to_pylist()
        ]
        assert len(ids) == len(set(ids)) <= len(clean)
        with Ledger(ledger) as opened:
            opened.verify()
            assert set(opened.counts().values()) == {1}
            assert opened.total >= len(ids)


def test_of_two_runs_of_an_experiment_the_second_is_refused(
    warm: WarmProcess, other: WarmProcess, tmp_path: Path
) -> None:
    from harness.experiment_data import lsa_folder, small_data

    data = small_data(tmp_path / "data", pairs=160)
    (tmp_path / "mine.yaml").write_text(
        f"experiment: tradeoff\nencoder: {lsa_folder(data, tmp_path / 'lsa')}\nattacks: [linear]\nmethods: [laplace]\n"
        "scales: [clean, effective 10]\n"
        "problems: {sts12: {data: sts12, concept: {terms_file: concepts/sts_terms.json}}}\n"
    )
    out = tmp_path / "out"
    arguments = ("experiment", "run", "mine.yaml", "--data", data, "--out", out, "--workers", 0)
    first = halted(warm.start(*arguments, cwd=tmp_path), out / "tradeoff" / "spec.yaml")
    try:
        second = other.run(*arguments, cwd=tmp_path)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.code == 1
    assert f"in which process {first.pid} runs" in second.errors[0]
    done = first.wait()
    assert done.code == 0, done.err
    lines = (out / "tradeoff" / "records.jsonl").read_text().splitlines()
    assert len({json.dumps(json.loads(line)["cell"]) for line in lines}) == len(lines) == 2
    assert left_over(out) == []


def halted(child: Child, sign: Path) -> Child:
    """Return a child once ``sign`` is there, halted (SIGSTOP) where it is."""
    deadline = time.monotonic() + 60
    while not sign.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGSTOP)
    assert sign.exists(), "it ended before it was halted"
    return child
