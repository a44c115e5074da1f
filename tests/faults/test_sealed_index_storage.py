"""A storage that fails: a sealed index says what is wrong, loses no acknowledged row, and goes on afterwards."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from harness.faults import MOMENTS, seed
from vecveil import io
from vecveil.errors import KeyFileError, StoreError
from vecveil.randomness import NoiseKeys
from vecveil.search import SealedIndex, log

ROWS = {name: f"text {name}" for name in "abc"}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "search.keys"
    NoiseKeys.create(path, "first")
    return path


class Remote:
    """A file system of fsspec, of which ``before`` and ``after`` see each request and may fail it."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.before: Callable[[str, str], None] = lambda request, name: None
        self.after: Callable[[str, str], None] = lambda request, name: None

    def __getattr__(self, request: str) -> Any:
        function = getattr(self._files, request)
        if request not in ("put_file", "get_file", "cat_file", "pipe_file", "rm_file", "ls"):
            return function

        def asked(*args: Any, **options: Any) -> Any:
            name = args[1] if request == "put_file" else args[0]
            self.before(request, name)
            answer = function(*args, **options)
            self.after(request, name)
            return answer

        return asked


@pytest.fixture
def remote(tmp_path: Path, keys: Path) -> Iterator[Callable[..., SealedIndex]]:
    """Opens an index at a URL; each one is a process, and has a folder of copies unless one is named."""
    from fsspec.implementations.memory import MemoryFileSystem

    numbers = itertools.count()

    def opened(*, place: str = "notes", cache: str = "", **options: Any) -> SealedIndex:
        folder = tmp_path / (cache or f"cache {next(numbers)}")
        index = SealedIndex(f"memory://{tmp_path.name}/{place}", keys, cache=folder, max_staleness=0, **options)
        index._log.storage._fs = Remote(index._log.storage._fs)
        return index

    yield opened
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def add(index: SealedIndex, *names: str, text: str = "text") -> None:
    index.add([f"{text} {name}" for name in names], ids=names, vectors=np.ones((len(names), 4)))


def rows(index: SealedIndex) -> dict[Any, str | None]:
    got = index.get()
    assert len(set(got.ids)) == len(got.ids)
    return dict(zip(got.ids, got.texts, strict=True))


# Requests ----------------------------------------------------------------------------------------


def work(index: SealedIndex) -> None:
    """Make every kind of change; repeated, it ends with the same rows."""
    add(index, "a", "b", "gone")
    index.delete(["gone"])
    add(index, "c")
    index.compact()
    index.reseal()


class Failing:
    """Fails the n-th object that is written, at its first attempt or at all."""

    def __init__(self, number: int, attempts: str) -> None:
        self._number, self._once = number, attempts == "once"
        self.names: list[str] = []

    def __call__(self, request: str, name: str) -> None:
        if request != "put_file" or (self._once and name in self.names):
            return
        self.names += [name] * (name not in self.names)
        if len(self.names) == self._number and name == self.names[-1]:
            raise TimeoutError


@pytest.mark.parametrize(("moment", "attempts"), [("before", "once"), ("before", "always"), ("after", "always")])
def test_a_write_that_fails_or_seems_to(remote: Callable[..., SealedIndex], moment: str, attempts: str) -> None:
    """Each object in turn: its write times out before it was carried out, or after."""
    for number in itertools.count(1):
        index = remote(place=f"{number}")
        files, fail = index._log.storage._fs, Failing(number, attempts)
        setattr(files, moment, fail)
        if (moment, attempts) == ("before", "always") and number <= 8:
            with raises("E-INDEX-STORAGE"):
                work(index)
            setattr(files, moment, lambda request, name: None)
        work(index)
        setattr(files, moment, lambda request, name: None)
        assert rows(index) == rows(remote(place=f"{number}")) == ROWS
        if len(fail.names) < number:
            break
    assert number > 8


@pytest.mark.parametrize("stale", ["new objects", "deleted objects", "commits", "all"])
def test_a_storage_that_lists_late(remote: Callable[..., SealedIndex], stale: str) -> None:
    """Of each two listings one is old: what a process wrote it sees at once, and nothing is lost or doubled."""
    one, two = remote(), remote()
    add(one, *"abx")
    for index in (one, two):
        index.refresh()
        listed, real, calls = {}, index._log.storage.list, itertools.count()  # type: ignore[var-annotated]

        def late(folder: str, real: Any = real, listed: Any = listed, calls: Any = calls) -> set[str]:
            now = real(folder)
            before = listed.get(folder, now)
            if next(calls) % 4 >= 2:
                listed[folder] = now
                return now
            if folder == "commits":
                return before if stale in ("commits", "all") else now
            return {"new objects": before & now, "deleted objects": before | now, "all": before}.get(stale, now)

        index._log.storage.list = late  # type: ignore[method-assign]
    for turn in range(4):
        for index, other in ((one, two), (two, one)):
            add(index, "c", f"{turn}")
            assert {"c", f"{turn}"} <= rows(index).keys()
            index.delete([f"{turn}"])
            index.compact()
            assert f"{turn}" not in rows(index)
            index.forget(["x"]) if turn == 2 else None
            other.refresh()
    assert rows(one) == rows(two) == rows(remote()) == ROWS


def test_a_commit_that_was_made_keeps_its_segments(remote: Callable[..., SealedIndex]) -> None:
    """A process takes its own commit for that of another: what it names stays."""
    index = remote()
    add(index, "a", "b")
    add(index, "c")
    storage = index._log.storage
    real = storage.creating

    def taken(name: str) -> Any:
        if name.startswith("commits/"):
            storage.creating = real  # type: ignore[method-assign]
            return twice(name)
        return real(name)

    @contextlib.contextmanager
    def twice(name: str) -> Iterator[Path]:
        with real(name) as path:
            yield path
        raise FileExistsError(name)

    storage.creating = taken  # type: ignore[method-assign]
    index.compact()
    assert rows(index) == rows(remote()) == ROWS


# Local copies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "emptied", "altered", "of another index", "gone"])
@pytest.mark.parametrize("opened", ["before", "after"])
def test_damaged_copies_are_fetched_again(
    remote: Callable[..., SealedIndex], tmp_path: Path, damage: str, opened: str
) -> None:
    index, other = remote(cache="shared"), remote(place="other", cache="shared")
    add(index, "a", "b")
    index.refresh()
    add(index, "c")
    add(other, "a")
    other.refresh()
    copies = sorted((tmp_path / "shared").rglob("*.parquet"))
    assert len(copies) == 3
    contents = [path.read_bytes() for path in copies]
    for path, content, foreign in zip(copies, contents, [*contents[1:], contents[0]], strict=True):
        damaged = {
            "cut": content[:-50],
            "emptied": b"",
            "altered": bytes(1000) + content[1000:],
            "of another index": foreign,
            "gone": None,
        }[damage]
        if damaged is None:
            path.unlink()
        elif opened == "before":
            with open(path, "rb+") as file:
                file.truncate(len(damaged))
                file.write(damaged)
        else:
            path.write_bytes(damaged)
    if opened == "after":
        index = remote(cache="shared")
    assert rows(index) == ROWS
    index.compact()
    assert rows(index) == rows(remote()) == ROWS


def test_what_is_verified_is_what_the_storage_holds(remote: Callable[..., SealedIndex]) -> None:
    """A merge that arrives damaged is noticed before anything that it replaces is deleted."""
    index = remote()
    add(index, "a", "b")
    add(index, "c")
    files = index._log.storage._fs

    def damage(request: str, name: str) -> None:
        if request == "put_file" and "/segments/c" in name:
            content = files._files.cat_file(name)
            files._files.pipe_file(name, bytes(1000) + content[1000:])

    files.after = damage
    with raises("E-SEAL-OPEN"):
        index.compact()
    with raises("E-SEAL-OPEN"):
        index.reseal()
    files.after = lambda request, name: None
    add(index, "d")
    (name,) = [name for name in index._log.storage.list("segments") if index._log._writer in name][-1:]
    assert rows(index) == rows(remote()) == {**ROWS, "d": "text d"}
    files._files.pipe_file(f"{index._log.storage._root}/{name}", b"damaged in the storage")
    index.refresh()
    with raises("E-SEAL-OPEN") as caught:
        index.refresh(afresh=True)
    assert name in str(caught.value)


# Slow processes ----------------------------------------------------------------------------------


def paused(index: SealedIndex, where: str, meanwhile: Callable[[], Any]) -> None:
    """Let ``meanwhile`` happen once, right before ``index`` writes an object whose name starts with ``where``."""
    real = index._log._write

    def write(name: str, *rest: Any) -> str:
        if name.startswith(where):
            index._log._write = real  # type: ignore[method-assign]
            meanwhile()
        return real(name, *rest)

    index._log._write = write  # type: ignore[method-assign]


@pytest.mark.parametrize("only_adds", [False, True])
def test_a_writer_that_sleeps_longer_than_a_deletion_is_kept(
    remote: Callable[..., SealedIndex], only_adds: bool
) -> None:
    """A row that was seen deleted after its `add` had returned does not come back when the deletion is dropped."""
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    slow.count() if not only_adds else None

    def commits(number: int) -> None:
        for _ in range(number):
            add(one, "c")
            one.compact()

    def meanwhile() -> None:
        add(one, "x", text="newer")
        one.delete(["x"])
        commits(log._GRACE)

    paused(slow, "segments/0", meanwhile)
    add(slow, "x", text="slow")
    seen = rows(one)
    commits(log._GRACE + 2)
    assert rows(one) == rows(remote()) == seen == {**ROWS, "x": "slow x"}


def test_a_compaction_that_sleeps_loses_to_those_that_did_not(remote: Callable[..., SealedIndex]) -> None:
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    add(one, "c")

    def meanwhile() -> None:
        one.forget(["x"])
        for _ in range(log._GRACE + 2):
            add(one, "c")
            one.compact()
        one.reseal()

    paused(slow, "commits/", meanwhile)
    slow.compact()
    assert rows(slow) == rows(one) == rows(remote()) == ROWS


def test_a_reader_that_sleeps_sees_the_state_of_now(remote: Callable[..., SealedIndex]) -> None:
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    assert rows(slow).keys() == {"a", "b", "x"}
    one.delete(["x"])
    add(one, "c")
    one.compact()
    one.refresh()
    for _ in range(log._GRACE + 2):
        add(one, "c")
        one.compact()
    assert rows(slow) == ROWS
    add(slow, "d")
    assert rows(slow) == rows(one) == {**ROWS, "d": "text d"}


def test_a_renewal_that_sleeps_keeps_the_key_of_what_it_verified(remote: Callable[..., SealedIndex]) -> None:
    """Before it deletes the older keys, another process has begun a renewal, and was killed."""
    one, other = remote(), remote()
    add(one, *"abc")
    store = one._log.keys.store  # type: ignore[union-attr]
    retire = store.retire

    def late(collection: str, *, keep: bytes) -> int:
        other._log.made().store.rotate(collection)  # type: ignore[attr-defined]
        return int(retire(collection, keep=keep))

    store.retire = late
    one.reseal()
    store.retire = retire
    assert rows(one) == rows(remote()) == ROWS
    other.reseal()
    assert rows(one) == rows(remote()) == ROWS


@pytest.mark.parametrize("meanwhile", ["compact", "reseal"])
def test_a_delete_whose_first_look_is_overtaken_is_written(remote: Callable[..., SealedIndex], meanwhile: str) -> None:
    """Of a process that has loaded nothing: what it listed is replaced before it reads the dimension from it."""
    one, two = remote(), remote()
    add(one, *"abcx")
    add(one, "x")
    list_, calls = two._log.storage.list, itertools.count()

    def overtaken(folder: str) -> set[str]:
        names = list_(folder)
        if next(calls) == 1:
            getattr(one, meanwhile)()
            add(one, "a")
            one.compact()
        return names

    two._log.storage.list = overtaken  # type: ignore[method-assign]
    two.delete(["x"])
    assert rows(one) == rows(remote()) == ROWS


# Trusted state, disk, clock ----------------------------------------------------------------------


def test_processes_share_a_trusted_state(remote: Callable[..., SealedIndex], tmp_path: Path) -> None:
    """A process that was overtaken between listing and comparing raises no alarm, and forgets nothing of the newer."""
    one, two = (remote(trusted_state=tmp_path / "trusted") for _ in range(2))
    apart = remote(trusted_state=tmp_path / "elsewhere")
    add(one, "a", "b")
    assert apart.count() == two.count() == 2
    advanced = two._log._advanced

    def slow(*arguments: Any) -> Any:
        after = advanced(*arguments)
        add(one, "c")
        one.refresh()
        two._log._advanced = advanced  # type: ignore[method-assign]
        return after

    two._log._advanced = slow  # type: ignore[method-assign]
    two.refresh()
    newest = sorted(one._log.storage.list("segments"))[-1]
    held = one._log.storage._fs.cat_file(f"{one._log.storage._root}/{newest}")
    one._log.storage.delete([newest])
    with raises("E-INDEX-INCOMPLETE"):
        remote(trusted_state=tmp_path / "trusted").count()
    one._log.storage._fs.pipe_file(f"{one._log.storage._root}/{newest}", held)
    one.reseal()
    assert rows(apart) == rows(remote(trusted_state=tmp_path / "elsewhere")) == ROWS
    (tmp_path / "elsewhere").write_bytes(b"damaged")
    with raises("E-SEAL-OPEN", "trusted_state"):
        apart.refresh()


@pytest.mark.parametrize("point", ["write", "flush", "name"])
@pytest.mark.parametrize("place", ["folder", "memory"])
def test_a_full_disk(
    remote: Callable[..., SealedIndex],
    tmp_path: Path,
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    point: str,
) -> None:
    """The disk is full at writes of objects, copies, the key store and the trusted state."""
    trusted = tmp_path / "trusted"
    index = remote(trusted_state=trusted)
    if place == "folder":
        index = SealedIndex(tmp_path / "notes", keys, max_staleness=0, trusted_state=trusted)
    module, name = {"write": (io, "_create"), "flush": (os, "fsync"), "name": (os, "replace")}[point]
    real, calls, failing = getattr(module, name), itertools.count(1), 0

    def full(*arguments: Any, **options: Any) -> Any:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, full)
    work(index)
    moments = range(1, next(calls))
    for failing in random.Random(seed("full disk")).sample(moments, min(MOMENTS, len(moments))):
        calls = itertools.count(1)
        try:
            work(index)
        except (StoreError, KeyFileError) as error:
            assert os.strerror(errno.ENOSPC) in str(error)  # noqa: PT017
        calls = itertools.count(failing + 1)
        work(index)
        assert rows(index) == ROWS
    assert rows(SealedIndex(index.location, keys, cache=tmp_path / "fresh", trusted_state=trusted)) == ROWS


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_a_read_only_storage_is_read(
    remote: Callable[..., SealedIndex], tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    index = remote() if place == "memory" else SealedIndex(tmp_path / "notes", keys, max_staleness=0)
    add(index, "a", "b")
    add(index, "c")

    def refused(*arguments: Any, **options: Any) -> None:
        raise PermissionError("Access Denied") if place == "memory" else OSError(errno.EROFS, os.strerror(errno.EROFS))

    if place == "memory":
        index._log.storage._fs.put_file = refused
    else:
        monkeypatch.setattr(io, "_create", refused)
    for change in (lambda: add(index, "d"), lambda: index.delete(["a"]), index.compact, lambda: index.forget(["a"])):
        with raises("E-INDEX-STORAGE") as caught:
            change()
        assert "write segments/" in str(caught.value)
    index.refresh(afresh=True)
    assert rows(index) == ROWS
    assert index.search(np.ones(4)).ids


class Disk:
    """Notes what was flushed to disk, by file and folder: the rest is lost with the power."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        self._kept: list[int] = []  # descriptors, so that no number of a file comes again
        self._flush = os.fsync
        monkeypatch.setattr(os, "fsync", self._flushed)

    def _flushed(self, descriptor: int) -> None:
        number, path = os.fstat(descriptor).st_ino, Path(f"/proc/self/fd/{descriptor}").resolve()
        self._kept.append(os.dup(descriptor))
        if path.is_dir():
            self._folders[number] = {entry.name: entry.stat(follow_symlinks=False).st_ino for entry in path.iterdir()}
        else:
            self._files[number] = path.read_bytes()

    def after_loss_of_power(self, folder: Path, target: Path) -> None:
        """Write to ``target`` what is left of ``folder``."""
        self._restore(folder.stat().st_ino, target)

    def _restore(self, number: int, target: Path) -> None:
        target.mkdir(mode=0o700)
        for name, entry in self._folders.get(number, {}).items():
            if entry in self._files:
                (target / name).write_bytes(self._files[entry])
                (target / name).chmod(0o600)
            else:
                self._restore(entry, target / name)

    def close(self) -> None:
        for descriptor in self._kept:
            os.close(descriptor)


def test_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each change the power fails: all is there that was acknowledged, and no deleted row."""
    numbers = itertools.count()
    disk = Disk(monkeypatch)
    (tmp_path / "disk").mkdir()
    NoiseKeys.create(tmp_path / "disk" / "search.keys", "first")
    index = SealedIndex(tmp_path / "disk/new/folder/notes", tmp_path / "disk/search.keys", max_staleness=0)

    def left() -> dict[Any, str | None]:
        disk.after_loss_of_power(tmp_path / "disk", place := tmp_path / f"left {next(numbers)}")
        return rows(SealedIndex(place / "new/folder/notes", place / "search.keys"))

    add(index, "a", "x")
    assert left() == {"a": "text a", "x": "text x"}
    add(index, "b", "c")
    index.delete(["x"])
    assert left() == ROWS
    for change in (index.compact, index.reseal, lambda: index.forget(["c"]), lambda: add(index, "c"), index.reseal):
        change()
        assert left() == rows(index)
    disk.close()
