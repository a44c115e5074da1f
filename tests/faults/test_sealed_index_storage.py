"""A storage that fails: a sealed index says what is wrong, loses no acknowledged row, and goes on afterwards."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.randomness import NoiseKeys
from vecveil.search import SealedIndex

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


@pytest.mark.parametrize("attempts", ["once", "always"])
@pytest.mark.parametrize("moment", ["before", "after"])
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
            "cut": content[:-50], "emptied": b"", "altered": bytes(1000) + content[1000:], "of another index": foreign,
            "gone": None,
        }[damage]  # fmt: skip
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
