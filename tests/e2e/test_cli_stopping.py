"""A full disk, Ctrl-C or a request to terminate: one line, an exit code, and no file half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import assert_one_clear_error, command, environment, spawn, write_pairs


def limited_files(size: int) -> Callable[[], None]:
    """Return what makes every file of a child process hit a limit at ``size`` bytes."""

    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX")
@pytest.mark.parametrize("kind", ["npy", "parquet", "vecveil"])
def test_a_full_disk(kind: str, tmp_path: Path, vectors_protector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Bytecode written under the limit would be cut, and break every later import of that module.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    write_pairs(tmp_path)
    out = f"out.{kind}"
    arguments: tuple[object, ...] = ("protect", "positive.npy", "-p", vectors_protector, "-o", out)
    if kind == "vecveil":
        pair = ("--positive", "positive.npy", "--negative", "negative.npy")
        arguments = ("fit", *pair, "--method", "covariance", "--epsilon", 20, "-o", out)
    (tmp_path / out).write_bytes(b"precious")
    done = spawn(*arguments, "--force", cwd=tmp_path, preexec_fn=limited_files(4096))
    line = assert_one_clear_error(done, tmp_path, {tmp_path / out})
    assert out in line
    assert "disk is full" in line
    assert (tmp_path / out).read_bytes() == b"precious"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a process are POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "terminate"])
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_stopping_in_the_middle(
    number: signal.Signals, code: int, kind: str, tmp_path: Path, vectors_protector: Path
) -> None:
    large = np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=np.float32, shape=(2_000_000, 32))
    del large  # zeros, and on disk a hole
    out = tmp_path / f"out.{kind}"
    process = subprocess.Popen(
        command("protect", "large.npy", "-p", vectors_protector, "-o", out),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not any(path.stat().st_size > 0 for path in tmp_path.glob(".*.tmp")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, number)
        printed, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == code, said
    assert printed == ""
    assert said.count("\n") == 1, said
    assert said.startswith("vecveil: stopped")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.npy"]
