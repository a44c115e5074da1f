"""Files are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import vecveil
from vecveil.errors import VecveilError
from vecveil.io import PUBLIC, LockedError, atomic_path, exclusive, locked, write_bytes, write_text
from vecveil.keys import KeyFile
from vecveil.schema import load_json

TraceFunction = Callable[[FrameType, str, Any], Any]


def left_over(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_writes_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "er" / "a.txt"
    write_text(target, "eins ✓\n")
    assert target.read_bytes() == "eins ✓\n".encode()
    write_bytes(str(target), b"zwei")
    assert target.read_bytes() == b"zwei"
    assert left_over(target.parent) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a"
    write_text(target, "old")

    def half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            assert target.read_text() == "old"
            raise error

    with pytest.raises(error):
        half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_vanished_temporary_file_is_an_error_and_the_old_file_stays(tmp_path: Path) -> None:
    target = tmp_path / "a"
    write_text(target, "old")

    def remove() -> None:
        with atomic_path(target) as temporary:
            temporary.unlink()

    with pytest.raises(FileNotFoundError):
        remove()
    assert target.read_text() == "old"


def test_a_folder_in_the_way_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="a"):
        write_text(tmp_path / "a", "x")
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_of_new_and_of_replaced_files(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "x", mode=PUBLIC)
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
        write_text(tmp_path / "new", "y")  # content that is not for others
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
        write_text(tmp_path / "a" / "b" / "private", "x")
        parents = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "private"]
        assert [stat.S_IMODE(path.stat().st_mode) for path in parents] == [0o700, 0o700, 0o600]
        (tmp_path / "new").chmod(0o600)
        with atomic_path(tmp_path / "new") as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600  # not readable meanwhile
            temporary.write_text("y")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
        (tmp_path / "new").chmod(0o400)
        write_text(tmp_path / "new", "z")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o400
    finally:
        os.umask(umask)


def test_a_lock_is_closed_to_others_and_waits_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecveil.io.LOCK_SECONDS", 0.1)
    folder, held, leave = os.open(tmp_path, os.O_RDONLY), threading.Event(), threading.Event()
    fcntl.flock(folder, fcntl.LOCK_EX)  # as whoever may read the folder can

    def other() -> None:
        with locked(tmp_path / "search.keys"):
            held.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(60)
    (lock,) = tmp_path.iterdir()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    with pytest.raises(LockedError), locked(tmp_path / "search.keys"):
        pass
    leave.set()
    thread.join()
    with locked(tmp_path / "search.keys"):
        pass
    assert list(tmp_path.iterdir()) == []
    os.close(folder)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of a file that its destructor closes
def test_an_interrupt_at_any_moment_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt before each bytecode that taking and releasing the lock runs, as a signal does."""
    monkeypatch.setattr("vecveil.io.LOCK_SECONDS", 0.0)
    target = tmp_path / "search.keys"
    files = (vecveil.io.__file__, contextlib.__file__)

    def interrupted(moment: int) -> bool:
        left = moment

        def step(frame: FrameType, event: str, argument: object) -> TraceFunction | None:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
            return step

        sys.settrace(step)
        try:
            with locked(target):
                pass
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    moment = 0
    while interrupted(moment):
        with locked(target):  # another thread or process waits for a leaked lock as this call does
            pass
        moment += 1
    assert moment > 100
    assert list(tmp_path.iterdir()) == []


def forked(target: Path, parent: str, child: str) -> subprocess.Popen[bytes]:
    """Start a process that holds the lock of ``target`` and forks; each of the two says and reads one byte."""
    code = f"""
import os
from vecveil.io import locked
def waits(name):
    os.write(1, name)
    os.read(0, 1)
with locked({str(target)!r}):
    if os.fork():
        {parent}
        os._exit(0)
    {child}
waits(b"c")
os._exit(0)
"""
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    target = tmp_path / "search.keys"
    with forked(target, "os.kill(os.getpid(), 9)", "waits(b'c')") as parent:
        assert parent.stdout is not None
        assert (parent.stdout.read(1), parent.wait(20)) == (b"c", -9)
        with locked(target):
            pass
        parent.communicate(b"ab")


def test_a_forked_child_does_not_remove_its_parents_lock(tmp_path: Path) -> None:
    target = tmp_path / "search.keys"
    with forked(target, "waits(b'p')", "pass") as parent:
        assert parent.stdout is not None
        assert sorted(parent.stdout.read(2)) == sorted(b"cp")
        with pytest.raises(LockedError), exclusive(tmp_path / ".search.keys.lock", seconds=0):
            pass
        parent.communicate(b"ab")


def test_a_key_file_without_locks_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "search.keys"
    KeyFile.create(keys, "a")
    before = keys.read_bytes()

    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for change in (partial(KeyFile.create, keys, "b"), partial(vecveil.Sealer(keys).keys.create, "notes")):
        with pytest.raises(VecveilError, match="without locks") as caught:
            change()
        assert caught.value.code == "E-KEY-FILE-LOCKS"
    assert keys.read_bytes() == before
    assert list(tmp_path.iterdir()) == [keys]


def test_the_umask_of_the_process_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(mask: int) -> int:
        raise AssertionError("the umask belongs to every thread of the process")

    monkeypatch.setattr(os, "umask", touched)
    write_text(tmp_path / "a", "x")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "x"


def test_the_longest_allowed_name(tmp_path: Path) -> None:
    for name in ("n" * 250, "名" * 80):
        write_text(tmp_path / name, "x")
        assert (tmp_path / name).read_text() == "x"


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    texts = [str(i) * 20_000 for i in range(8)]
    threads = [threading.Thread(target=write_text, args=(target, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_text() in texts
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("kind", ["protector", "keys", "record"])
def test_a_key_that_occurs_twice_is_refused(tmp_path: Path, kind: str) -> None:
    """Of two equal keys another program may have read and approved the other one."""
    path = tmp_path / "file"
    X = np.random.default_rng(0).normal(size=(50, 4))
    if kind == "protector":
        vecveil.fit_pairs(X, X + 1, method="laplace", noise_to_signal=0.5, seed=0).save(path)
    else:
        KeyFile.create(path, "a")
    reads = {"protector": vecveil.load, "keys": KeyFile.from_file, "record": load_json}
    read = reads[kind]
    read(path)
    data = path.read_bytes()
    if kind == "protector":
        size = int.from_bytes(data[:8], "little")
        header = data[8 : 8 + size].replace(b'{\\"schema\\"', b'{\\"method\\": \\"shuffle\\", \\"schema\\"')
        assert len(header) > size
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
    else:
        path.write_bytes(data.replace(b"{", b'{"schema": "another", ', 1))
    with pytest.raises(VecveilError):
        read(path)
