"""Too little memory (`RLIMIT_AS`): one clear line, and nothing half-written; never a crash of a library.

Each limit is set in a real process before anything is imported, or in a warm one as what may be added to it.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import Outcome, spawn
from harness.errors import raises
from harness.faults import WarmProcess, left_over
from vecveil.cli.commands import _failure
from vecveil.errors import MemoryLimitError, MissingDependencyError
from vecveil.runtime import check_room

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to it")


def assert_memory_is_blamed(done: Outcome) -> None:
    assert done.code == 1, done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("vecveil: error: ")
    assert "memory" in done.err
    assert "ulimit -v" in done.err


def limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


@pytest.mark.parametrize("mebibytes", [64, 400, 800])
def test_from_the_start(mebibytes: int, lake: Path, protector: Path, tmp_path: Path) -> None:
    done = spawn("protect", lake, "-p", protector, "-o", "out", cwd=tmp_path, preexec_fn=limited(mebibytes << 20))
    assert_memory_is_blamed(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out", "out.parquet", "out.npy"])
@pytest.mark.parametrize("mebibytes", [0, 48, 300, 900])
def test_in_a_process_that_runs(
    name: str, mebibytes: int, warm: WarmProcess, lake: Path, clean: np.ndarray, protector: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "clean.npy", clean)
    given = lake if name == "out" else tmp_path / "clean.npy"
    arguments = ("protect", given, "-p", protector, "-o", tmp_path / name)
    done = warm.run(*arguments, cwd=tmp_path, limits={"MORE_MEMORY": mebibytes << 20})
    assert_memory_is_blamed(done)
    assert [path.name for path in tmp_path.iterdir()] == ["clean.npy"]
    if mebibytes == 300:  # stopped in the middle: what is left of it does not disturb the next run
        assert warm.run(*arguments, cwd=tmp_path).code == 0
        assert left_over(tmp_path) == []


def test_enough_is_enough(warm: WarmProcess, lake: Path, protector: Path, tmp_path: Path) -> None:
    """A limit as such is no reason to refuse."""
    done = warm.run("protect", lake, "-p", protector, "-o", "out", cwd=tmp_path, limits={"MORE_MEMORY": 2000 << 20})
    assert done.code == 0, done.err


def test_a_row_group_that_does_not_fit_is_not_called_damaged(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    from vecveil.texts.tables import read_table

    def fails(*given: object, **named: object) -> None:
        raise pa.lib.ArrowMemoryError("malloc of size 1 failed")

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", lambda *given, **named: iter(fails, None))
    with raises("E-DATA-FILE", "path"):
        list(read_table(lake / "00.parquet"))


def test_without_a_limit_nothing_is_checked() -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    check_room(1 << 60, owner="test")


def _from(cause: BaseException, error: BaseException) -> BaseException:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 5 GiB for an array"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
        _from(ImportError("libx.so: cannot allocate memory"), MissingDependencyError("It", "x", "y")),
        _from(MemoryError(), RuntimeError("a library's own")),
        MemoryLimitError("protect: `memory` must be more (ulimit -v)."),
    ],
)
def test_every_form_of_it_is_told_as_such(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert _failure(error, ["protect"]) == 1
    said = capsys.readouterr().err
    assert "memory" in said
    assert "ulimit -v" in said
    assert "bug" not in said


@pytest.mark.parametrize(
    "error", [MissingDependencyError("It", "x", "y"), ImportError("no module x"), RuntimeError("another")]
)
def test_control_other_errors_are_not_memory(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    _failure(error, ["protect"])
    assert "memory" not in capsys.readouterr().err
