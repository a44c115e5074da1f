"""A disk that fills up: one clear error, the old file stays, nothing half-written; with space it works again.

Mostly a limit on the size of files stands for the disk; where a small file system can be mounted, that is filled too.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import Outcome
from harness.faults import WarmProcess, clean_rows_in, left_over
from vecveil import Ledger
from vecveil.gateway.bulk import verify
from vecveil.stores import Batch, open_store


def assert_one_error(done: Outcome, *words: str) -> None:
    assert done.code == 1, done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("vecveil: error: ")
    assert all(word in done.err for word in words), done.err


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_one_file(suffix: str, warm: WarmProcess, clean: np.ndarray, protector: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "clean.npy", clean)
    place = tmp_path / "place"
    place.mkdir()
    out = place / f"out.{suffix}"
    out.write_bytes(b"precious")
    arguments = ("protect", tmp_path / "clean.npy", "-p", protector, "-o", out, "--force")
    done = warm.run(*arguments, cwd=place, limits={"FSIZE": 100_000})
    assert_one_error(done, "disk is full", out.name)
    assert out.read_bytes() == b"precious"
    assert [path.name for path in place.iterdir()] == [out.name]
    assert warm.run(*arguments, cwd=place).code == 0


def test_a_folder(warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path) -> None:
    """The first part that cannot be written ends the run; the input is not blamed."""
    out = tmp_path / "out"
    arguments = ("protect", lake, "-p", protector, "-o", out)
    done = warm.run(*arguments, cwd=tmp_path, limits={"FSIZE": 40_000})
    assert_one_error(done, "disk is full", "part-000000.parquet")
    assert "Repair the input" not in done.err
    assert [path.name for path in out.iterdir()] == ["_manifest.json"]
    assert warm.run(*arguments, cwd=tmp_path).code == 0
    assert verify(out, show_progress=False).rows == len(clean)
    assert left_over(out) == []


def test_a_folder_whose_manifest_does_not_fit(
    warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("protect", lake, "-p", protector, "-o", out)
    done = warm.run(*arguments, cwd=tmp_path, limits={"FSIZE": 1000})
    assert_one_error(done)
    assert not out.exists()
    assert warm.run(*arguments, cwd=tmp_path).code == 0
    assert verify(out, show_progress=False).rows == len(clean)


def test_a_ledger(warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path) -> None:
    """What cannot be counted is not released, and what was counted before stays."""
    ledger, out = tmp_path / "releases.ledger", tmp_path / "out"
    with Ledger(ledger) as opened:
        opened.record(["before"], protector="p", epsilon=1.0)
    arguments = ("protect", lake, "-p", protector, "-o", out, "--ledger", ledger, "--id-column", "id")
    done = warm.run(*arguments, cwd=tmp_path, limits={"FSIZE": ledger.stat().st_size + 8192})
    assert_one_error(done, "releases.ledger", "Nothing was recorded", "enough space")
    assert not list(out.glob("*.parquet"))
    with Ledger(ledger) as opened:
        opened.verify()
        assert opened.total == 1
    assert warm.run(*arguments, cwd=tmp_path).code == 0
    with Ledger(ledger) as opened:
        opened.verify()
        assert opened.total == 1 + len(clean)
    assert left_over(tmp_path) == []


def test_a_ledger_that_cannot_even_be_made(warm: WarmProcess, lake: Path, protector: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "releases.ledger"
    arguments = ("protect", lake, "-p", protector, "-o", tmp_path / "out", "--ledger", ledger, "--id-column", "id")
    done = warm.run(*arguments, cwd=tmp_path, limits={"FSIZE": 4096})
    assert_one_error(done, "releases.ledger")
    assert list(tmp_path.iterdir()) == []


def test_migrate(warm: WarmProcess, clean: np.ndarray, protector: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    rows = clean[:600]
    with open_store(f"sqlite-vec:{tmp_path}/clean.db#notes") as store:
        store.create(rows.shape[1], metric="cosine")
        store.write(Batch(tuple(f"r{row}" for row in range(len(rows))), rows, tuple({} for _ in rows)))
    place = tmp_path / "place"
    place.mkdir()
    dest = f"sqlite-vec:{place}/rows.db#copy"
    arguments = ("migrate", f"sqlite-vec:{tmp_path}/clean.db#notes", dest, "-p", protector, "--batch", 100)
    done = warm.run(*arguments, cwd=place, limits={"FSIZE": 200_000})
    assert done.code == 1, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("vecveil: error: ")]
    assert len(errors) == 1
    assert "Traceback" not in done.err
    assert "The same command continues from there" in errors[0]
    assert clean_rows_in(place, rows) == []
    again = warm.run(*arguments, cwd=place)
    assert again.code == 0, again.err
    with open_store(dest) as store:
        found = [one for batch in store.batches(100) for one in batch.ids]
    assert sorted(found) == sorted(f"r{row}" for row in range(len(rows)))
    assert left_over(place) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no small file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("name", ["out", "out.parquet", "out.npy"])
def test_a_small_file_system(
    name: str, warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, small_disk: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "clean.npy", clean)
    out = small_disk / name
    given = lake if name == "out" else tmp_path / "clean.npy"
    done = warm.run("protect", given, "-p", protector, "-o", out, cwd=tmp_path)
    assert_one_error(done, "disk is full")
    left = [path.name for path in small_disk.rglob("*")]
    if name == "out":  # the parts that fitted stay
        assert {"out", "_manifest.json", "part-000000.parquet"} <= {*left}
        assert left_over(small_disk) == []
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        assert warm.run("protect", given, "-p", protector, "-o", out, cwd=tmp_path).code == 0
        assert verify(out, show_progress=False).rows == len(clean)
    else:
        assert left == []
