"""A storage that fails: a sealed index says what is wrong, loses no acknowledged row, and goes on afterwards."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import raises
from harness.faults import MOMENTS, seed
from vecveil.errors import KeyFileError, StoreError
from vecveil.index import SealedIndex, log
from vecveil.index.keystore import MasterKeys
from vecveil.index.state import LoadedSegment
from vecveil.keys import KeyFile

ROWS = {name: f"text {name}" for name in "abc"}
CHANGES: dict[str, Callable[[SealedIndex], Any]] = {
    "add": lambda index: add(index, "a"),
    "compact": lambda index: index.compact(retain=0),
    "forget": lambda index: index.forget(["x"]),
    "reseal": lambda index: index.reseal(),
}
CALLS = {**CHANGES, "search": lambda index: index.search(np.ones(4))}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "search.keys"
    KeyFile.create(path, "first")
    return path


class Remote:
    """A file system of fsspec, of which ``before`` and ``after`` see each request and may fail it.

    Attributes:
        conditional: whether it creates an object only if that is absent.
    """

    def __init__(self, files: Any) -> None:
        self._files, self.conditional = files, True
        self.before: Callable[[str, str], None] = lambda request, name: None
        self.after: Callable[[str, str], None] = lambda request, name: None

    def __getattr__(self, request: str) -> Any:
        function = getattr(self._files, request)
        if request not in ("put_file", "get_file", "cat_file", "info", "pipe_file", "rm_file", "ls"):
            return function

        def asked(*args: Any, **options: Any) -> Any:
            name = args[1] if request == "put_file" else args[0]
            if not self.conditional:
                options.pop("mode", None)
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
        if (moment, attempts) == ("before", "always") and number <= 11:
            with raises("E-INDEX-STORAGE"):
                work(index)
            setattr(files, moment, lambda request, name: None)
        work(index)
        setattr(files, moment, lambda request, name: None)
        assert rows(index) == rows(remote(place=f"{number}")) == ROWS
        if len(fail.names) < number:
            break
    assert number == 12, "index.json, and two objects for each of five changes"


@pytest.mark.parametrize("stale", ["new objects", "deleted objects", "commits", "some commits", "all"])
def test_a_storage_that_lists_late(remote: Callable[..., SealedIndex], stale: str) -> None:
    """Of each two listings one is old or has a hole: nothing is lost, doubled, or said to be missing."""
    one, two = remote(), remote()
    add(one, *"abx")

    def late(index: SealedIndex) -> SealedIndex:
        listed, real, calls = {}, index._log.storage.list, itertools.count()  # type: ignore[var-annotated]

        def listing(folder: str) -> dict[str, float | None]:
            now = real(folder)
            before = listed.get(folder, now)
            if next(calls) % 4 >= 2:
                listed[folder] = now
                return now
            if folder == "commits":
                if stale == "some commits":
                    return {name: at for name, at in now.items() if name != sorted(now)[-2]}
                return before if stale in ("commits", "all") else now
            shown = {"new objects": before.keys() & now.keys(), "deleted objects": before | now, "all": before}
            return {name: 0.0 for name in shown.get(stale, now)}

        index._log.storage.list = listing  # type: ignore[method-assign]
        return index

    late(one), late(two)
    for turn in range(4):
        for index, other in ((one, two), (two, one)):
            add(index, "c", f"{turn}")
            assert {"c", f"{turn}"} <= rows(index).keys()
            index.delete([f"{turn}"])
            index.compact(retain=0)
            assert f"{turn}" not in rows(index)
            index.forget(["x"]) if turn == 2 else None
            other.refresh()
            assert rows(late(remote())) == rows(index)
    assert rows(one) == rows(two) == rows(remote()) == ROWS


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_a_commit_that_was_made_keeps_its_segments(
    remote: Callable[..., SealedIndex], tmp_path: Path, keys: Path, place: str
) -> None:
    """A process is told that the name of its commit is taken: it is, by this commit."""
    index = remote() if place == "memory" else SealedIndex(tmp_path / "notes", keys, max_staleness=0)
    storage = index._log.storage
    real = storage.creating

    @contextlib.contextmanager
    def twice(name: str, **options: bool) -> Iterator[Any]:
        with real(name, **options) as file:
            yield file
        if name.startswith("commits/"):
            raise FileExistsError(name)

    storage.creating = twice  # type: ignore[method-assign]
    work(index)
    storage.creating = real  # type: ignore[method-assign]
    assert rows(index) == ROWS
    index.refresh(afresh=True)
    assert rows(index) == ROWS


def test_a_storage_that_ignores_the_condition_needs_exclusive(remote: Callable[..., SealedIndex]) -> None:
    add(remote(), *"abc")
    index, alone = remote(), remote(exclusive=True)
    for each in (index, alone):
        each._log.storage._fs.conditional = False
    before = index._log.advance().number
    for change in CHANGES.values():
        with raises("E-INDEX-COMMIT") as caught:
            change(index)
        assert "exclusive=True" in str(caught.value)
    assert (index._log.advance().number, rows(index)) == (before, ROWS)
    work(alone)
    assert rows(alone) == rows(index) == ROWS


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
    copies = sorted((tmp_path / "shared").rglob("segments/[!.]*"))
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
        if request == "put_file" and "/segments/" in name:
            content = files._files.cat_file(name)
            files._files.pipe_file(name, bytes(1000) + content[1000:])

    files.after = damage
    with raises("E-SEAL-OPEN"):
        index.compact()
    with raises("E-SEAL-OPEN"):
        index.reseal()
    files.after = lambda request, name: None
    before = index._log.advance().objects.keys()
    add(index, "d")
    (name,) = index._log.advance().objects.keys() - before
    assert rows(index) == rows(remote()) == {**ROWS, "d": "text d"}
    files._files.pipe_file(f"{index._log.storage._root}/{name}", b"damaged in the storage")
    index.refresh()
    with raises("E-SEAL-OPEN") as caught:
        index.refresh(afresh=True)
    assert name in str(caught.value)


# Slow processes ----------------------------------------------------------------------------------


def paused(index: SealedIndex, where: str, meanwhile: Callable[[], Any]) -> None:
    """Let ``meanwhile`` happen once, right before ``index`` writes an object whose name starts with ``where``."""
    storage = index._log.storage
    real = storage.creating

    def creating(name: str, **options: bool) -> Any:
        if name.startswith(where):
            storage.creating = real  # type: ignore[method-assign]
            meanwhile()
        return real(name, **options)

    storage.creating = creating  # type: ignore[method-assign]


@pytest.mark.parametrize("only_adds", [False, True])
@pytest.mark.parametrize("where", ["segments/", "commits/"])
def test_a_writer_that_sleeps_longer_than_a_deletion_is_kept(
    remote: Callable[..., SealedIndex], where: str, only_adds: bool
) -> None:
    """What it wrote last is what counts, though the deletion is dropped and its object was declared void."""
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    slow.count() if not only_adds else None

    def meanwhile() -> None:
        add(one, "x", text="newer")
        one.delete(["x"])
        add(one, "c")
        one.compact(retain=0)
        one.forget(["nobody"])

    paused(slow, where, meanwhile)
    add(slow, "x", text="slow")
    seen = rows(one)
    one.compact(retain=0)
    assert rows(one) == rows(remote()) == seen == {**ROWS, "x": "slow x"}


@pytest.mark.parametrize("loses", ["its sources", "its objects"])
def test_a_compaction_that_sleeps_loses_to_those_that_did_not(remote: Callable[..., SealedIndex], loses: str) -> None:
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    add(one, "c")

    def meanwhile() -> None:
        if loses == "its objects":  # declared void
            one.forget(["nobody"])
            return
        one.forget(["x"])
        add(one, "c")
        one.compact(retain=0)
        one.reseal()

    paused(slow, "commits/", meanwhile)
    slow.compact()
    one.forget(["x"])
    assert rows(slow) == rows(one) == rows(remote()) == ROWS


@pytest.mark.parametrize("began", ["before", "meanwhile"])
def test_a_killed_compaction_leaves_nothing_that_was_forgotten(remote: Callable[..., SealedIndex], began: str) -> None:
    """It was killed right before its commit, while another process forgets a row that it had merged."""
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    add(one, "c")

    def killed() -> None:
        raise KeyboardInterrupt

    def compact() -> None:
        paused(slow, "commits/", killed)
        with pytest.raises(KeyboardInterrupt):
            slow.compact()
        assert len(one._log.storage.list("segments")) > len(one._log.advance().objects)

    compact() if began == "before" else paused(one, "commits/", compact)
    one.forget(["x"])
    assert one._log.storage.list("segments").keys() == one._log.advance().objects.keys()
    assert rows(remote()) == rows(slow) == ROWS


def test_a_reader_that_sleeps_sees_the_state_of_now(remote: Callable[..., SealedIndex]) -> None:
    one, slow = remote(), remote()
    add(one, "a", "b", "x")
    assert rows(slow).keys() == {"a", "b", "x"}
    one.delete(["x"])
    for _ in range(40):  # past a checkpoint
        add(one, "c")
        one.compact(retain=0)
    assert rows(slow) == ROWS
    add(slow, "d")
    assert rows(slow) == rows(one) == {**ROWS, "d": "text d"}


@pytest.mark.parametrize("afresh", [False, True])
def test_commits_during_a_load_are_no_error(
    remote: Callable[..., SealedIndex], monkeypatch: pytest.MonkeyPatch, afresh: bool
) -> None:
    """However slow it is: each of the first loads finds that what it wanted was replaced and deleted meanwhile."""
    one, slow = remote(), remote()
    add(one, *"abc")
    compactions, clock = iter(range(5)), itertools.count(0, 60)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time, sleep=time.sleep))

    def overtaken(request: str, name: str) -> None:
        if request == "get_file" and next(compactions, None) is not None:
            one.forget(["a"])
            add(one, "a")

    slow._log.storage._fs.before = overtaken
    slow.refresh(afresh=afresh)
    assert next(compactions, None) is None
    assert rows(slow) == ROWS


@pytest.mark.parametrize("method", [(SealedIndex, "_opened"), (LoadedSegment, "locate"), (LoadedSegment, "holding")])
def test_commits_during_reads_by_parts_are_no_error(
    remote: Callable[..., SealedIndex], monkeypatch: pytest.MonkeyPatch, method: tuple[type, str]
) -> None:
    """Each of the first reads finds that the object was replaced and deleted meanwhile."""
    monkeypatch.setattr("vecveil.index.blocks._KEPT", 0)
    one, reader = remote(), remote(vectors="remote")
    add(one, *"abc")
    assert rows(reader) == ROWS
    add(one, *"abc")
    compactions, read = iter(range(3)), getattr(*method)

    def overtaken(own: Any, *arguments: Any) -> Any:
        if (own is reader or threading.current_thread() is asking) and next(compactions, None) is not None:
            compacting = threading.Thread(target=compacted)
            compacting.start()
            compacting.join()
        return read(own, *arguments)

    def compacted() -> None:
        one.compact(retain=0)
        add(one, "a")

    asking = threading.current_thread()
    monkeypatch.setattr(*method, overtaken)
    assert rows(reader) == ROWS
    assert reader.forget(["b"]) == 1
    assert rows(reader) == {name: text for name, text in ROWS.items() if name != "b"}
    assert next(compactions, None) is None


def test_a_part_of_an_index_whose_segment_was_replaced_answers_for_no_other(remote: Callable[..., SealedIndex]) -> None:
    one, worker = remote(), remote(vectors="remote")
    one.add(["x" * 100_000] * 2, ids=["a", "b"], vectors=np.ones((2, 4)))
    worker._log.hold(one._log.current_rows())
    add(one, "c")
    one.compact(retain=0)
    with raises("E-INDEX-BUSY"):
        worker.search(np.ones(4))


def test_readers_stop_answering_while_the_storage_fails(
    remote: Callable[..., SealedIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread waits for the storage; others answer from the earlier state for 10 s, and then wait for it too."""
    index = remote()
    index._log._staleness = 2.0
    add(index, *"abc")
    clock, asked, fail = [0.0], threading.Event(), threading.Event()
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: clock[-1], time=time.time))
    index.refresh()

    def hanging(request: str, name: str) -> None:
        asked.set()
        fail.wait()
        raise ConnectionError

    index._log.storage._fs.before = hanging
    with ThreadPoolExecutor(2) as pool:
        clock.append(2.1)
        first = pool.submit(index.count)
        asked.wait()
        assert index.count() == 3
        clock.append(11.9)
        assert index.count() == 3
        clock.append(12.1)
        second = pool.submit(index.count)
        fail.set()
        for thread in (first, second):
            with raises("E-INDEX-STORAGE"):
                thread.result()
    for _ in range(2):
        with raises("E-INDEX-STORAGE"):
            index.count()


def test_a_renewal_that_sleeps_keeps_the_key_of_what_it_verified(remote: Callable[..., SealedIndex]) -> None:
    """Before it deletes the older keys, another process has begun a renewal, and was killed."""
    one, other = remote(), remote()
    add(one, *"abc")
    store = one._log.keys.base.store  # type: ignore[union-attr]
    retire = store.retire

    def late(collection: str, *, keep: bytes) -> int:
        other._log.made().base.store.rotate(collection)  # type: ignore[attr-defined]
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
        if next(calls) == 0:
            getattr(one, meanwhile)()
            add(one, "a")
            one.compact()
        return names

    two._log.storage.list = overtaken  # type: ignore[method-assign]
    two.delete(["x"])
    assert next(calls) >= 1
    assert rows(one) == rows(remote()) == ROWS


# A hostile folder --------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, keys: Path) -> Path:
    """A folder with an index of five commits, a live object and replaced ones."""
    index = opened(tmp_path / "notes", keys)
    add(index, "a", "b", "x")
    add(index, "c")
    index.delete(["x"])
    index.compact()
    add(index, "c")
    return tmp_path / "notes"


def opened(place: Path, keys: Path, **options: Any) -> SealedIndex:
    return SealedIndex(place, keys, max_staleness=0, **options)


def fresh(keys: Path, folder: Path) -> Path:
    """Return a copy of a key file, beside which nothing is remembered."""
    folder.mkdir()
    return Path(shutil.copy(keys, folder))


def live(place: Path, keys: Path) -> str:
    """Return the name of the newest object."""
    return list(opened(place, keys)._log.advance().objects)[-1]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


COMMITS = [f"commits/{number:010d}" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("gone", "remembers", "code"),
    [
        ("index.json", True, "E-INDEX-ROLLED-BACK"),
        *((name, True, "E-INDEX-INCOMPLETE") for name in (COMMITS[0], COMMITS[2])),
        (COMMITS[4], True, "E-INDEX-ROLLED-BACK"),
        *((name, False, "E-INDEX-INCOMPLETE") for name in ("index.json", *COMMITS[:4], "segments")),
    ],
)
def test_a_withheld_object_is_named_and_nothing_is_deleted(
    tmp_path: Path, keys: Path, place: Path, gone: str, remembers: bool, code: str
) -> None:
    key = keys if remembers else fresh(keys, tmp_path / "elsewhere")
    gone = live(place, keys) if gone == "segments" else gone
    (place / gone).rename(tmp_path / "withheld")
    before = contents(place)
    for name, call in CALLS.items():
        if gone.startswith("segments/") and name == "add":  # which loads none
            continue
        for create in (True, False):
            with raises(code) as caught:
                call(opened(place, key, create=create))
            assert gone in str(caught.value) or "shows 4 commits, and 5 were there" in str(caught.value)
        assert contents(place) == before, name
    (tmp_path / "withheld").rename(place / gone)
    assert rows(opened(place, key)) == ROWS


def test_a_writer_that_cannot_read_notices_a_withheld_commit(tmp_path: Path, keys: Path) -> None:
    wraps = type("OnlyWraps", (), {"wrap": MasterKeys(KeyFile.from_file(keys)).wrap})()
    for name in "abc":
        add(SealedIndex(tmp_path / "notes", wraps), name)
    Path(tmp_path, "notes", COMMITS[1]).rename(tmp_path / "withheld")
    with raises("E-INDEX-INCOMPLETE"):
        add(SealedIndex(tmp_path / "notes", wraps), "d")
    (tmp_path / "withheld").rename(tmp_path / "notes" / COMMITS[1])
    assert rows(opened(tmp_path / "notes", MasterKeys(KeyFile.from_file(keys)))) == ROWS


@pytest.mark.parametrize("known", [True, False])
def test_junk_names_lock_nobody_out(tmp_path: Path, keys: Path, place: Path, known: bool) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"not of the index")
    numbers = ["\u0660" * 9 + "\u0669", "0000000000", "1", "9" * 10, "9" * 11, "9" * 200, "x", "0000000006.tmp"]
    junk = [*(f"commits/{name}" for name in numbers), "segments/x", f"segments/{'0' * 32}", "commits/.a.tmp", "x"]
    for name in junk:
        (place / name).write_bytes(b"junk")
        os.utime(place / name, (1, 1))
    shutil.copy(place / COMMITS[2], place / "commits/0000000077")
    for start in ("commits/000000005", f"segments/{'1' * 31}"):
        Path(place, f"{start}0").mkdir()
        os.mkfifo(place / f"{start}1")
        Path(place, f"{start}2").symlink_to("/dev/zero")
        Path(place, f"{start}3").symlink_to(outside)
    (place / "segments/.b.tmp").symlink_to(outside)
    key = keys if known else fresh(keys, tmp_path / "elsewhere")
    encoder = type("Ones", (), {"fingerprint": "ones", "encode": lambda self, texts: np.ones((len(texts), 4))})
    opened(place, key).reencode(encoder())
    for call in CALLS.values():
        call(opened(place, key))
        assert rows(opened(place, key)) == ROWS
    assert outside.read_bytes() == b"not of the index"
    assert (place / "x").exists()


def test_an_object_of_a_wrong_kind_is_named(tmp_path: Path, keys: Path, place: Path) -> None:
    name = live(place, keys)
    path, held = place / name, (place / name).read_bytes()
    pq.write_table(pa.table({"id": ["a"]}), table := tmp_path / "plain.parquet")
    plain = table.read_bytes()
    altered = {
        "plain": plain,
        "plain of its size": plain[:4] + bytes(len(held) - len(plain)) + plain[4:],
        "empty": b"",
        "cut": held[:-100],
        "longer": held + b"\0",
    }
    makes: dict[str, Callable[[], Any]] = {
        **{kind: (lambda content=content: path.write_bytes(content)) for kind, content in altered.items()},  # type: ignore[misc]
        "a FIFO": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
        "/dev/zero": lambda: path.symlink_to("/dev/zero"),
    }
    for kind, make in makes.items():
        path.unlink()
        make()
        for change, call in CALLS.items():
            if change != "add":
                with raises("E-SEAL-OPEN" if kind in altered else "E-INDEX-STORAGE") as caught:
                    call(opened(place, keys))
                assert name in str(caught.value), kind
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(held)
    assert rows(opened(place, keys)) == ROWS


def test_an_altered_commit_is_named(tmp_path: Path, keys: Path, place: Path) -> None:
    """The digest of each stands in the next; a copy of the index that went its own way has other commits."""
    shutil.copytree(place, tmp_path / "copy")
    for folder in (place, tmp_path / "copy"):
        for name in "cc":
            add(opened(folder, keys), name)
    number = len(COMMITS) + 1
    path = place / f"commits/{number:010d}"
    held = path.read_bytes()
    altered = {
        "of the copy": Path(tmp_path, "copy", "commits", path.name).read_bytes(),
        "of another number": (place / COMMITS[4]).read_bytes(),
        "flipped": bytes([*held[:-1], held[-1] ^ 1]),
        "cut": held[:-1],
        "empty": b"",
    }
    for kind, content in altered.items():
        path.write_bytes(content)
        before = contents(place)
        for key in (keys, fresh(keys, tmp_path / kind)):
            for call in CALLS.values():
                with raises("E-INDEX-CHAIN") as caught:
                    call(opened(place, key))
                assert f"Commit {number + (kind == 'of the copy')} of the index" in str(caught.value)
        assert contents(place) == before
    path.write_bytes(held)
    assert rows(opened(place, keys)) == ROWS
    shutil.rmtree(place)
    (tmp_path / "copy").rename(place)
    for call in CALLS.values():
        with raises("E-INDEX-ROLLED-BACK"):
            call(opened(place, keys))


@pytest.mark.parametrize("what", ["index.json", "commits", "segments", COMMITS[4], "live", "replaced", "temporary"])
def test_no_operation_follows_a_link(tmp_path: Path, keys: Path, place: Path, what: str) -> None:
    """The storage's operator replaces an object, or a folder of objects, by a link to what is the user's."""
    names = {"live": live(place, keys), "replaced": next(iter(opened(place, keys)._log.advance().replaced))}
    target = place / {**names, "temporary": "segments/.a.tmp"}.get(what, what)
    outside = tmp_path / "outside"
    key = fresh(keys, tmp_path / "elsewhere")
    if target.is_dir():
        shutil.move(target, outside)
        before = contents(outside)
    else:
        target.rename(tmp_path / "held") if target.exists() else None
        outside.write_bytes(b"precious")
    target.symlink_to(outside)
    harmless = what in ("replaced", "temporary")
    for name, call in CALLS.items():
        if name != "add" or what != "live":  # which loads no segment
            with contextlib.nullcontext() if harmless else raises("E-INDEX"):
                call(opened(place, key))
    assert not harmless or rows(opened(place, key)) == ROWS
    assert contents(outside) == before if outside.is_dir() else outside.read_bytes() == b"precious"


@pytest.mark.parametrize("call", CHANGES)
def test_hard_linked_copies_keep_their_content(tmp_path: Path, keys: Path, place: Path, call: str) -> None:
    shutil.copytree(place, tmp_path / "snapshot", copy_function=os.link)
    before = contents(tmp_path / "snapshot")
    for _ in range(2):
        CHANGES[call](opened(place, keys))
    assert contents(tmp_path / "snapshot") == before
    if call != "reseal":
        assert rows(opened(tmp_path / "snapshot", keys)) == ROWS


@pytest.mark.parametrize("trusted", [True, False])
def test_a_storage_that_is_rolled_back_is_refused_every_time(
    tmp_path: Path, keys: Path, place: Path, trusted: bool
) -> None:
    options = {"trusted_state": tmp_path / "trusted"} if trusted else {}
    running = opened(place, keys, **options)
    shutil.copytree(place, tmp_path / "earlier")
    add(running, "x")
    running.delete(["x"])
    running.compact(retain=0)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "earlier", place)
    before = contents(place)
    again = opened(place, keys, **options)
    for _ in range(2):
        for call in CALLS.values():
            for index in (again, opened(place, keys, **options)):
                with raises("E-INDEX-ROLLED-BACK"):
                    call(index)
    for call in (rows, lambda index: add(index, "d")):
        with raises("E-INDEX-ROLLED-BACK"):  # also in a process that has the newer state in memory
            call(running)
    assert not any(name.startswith("commits/") for name in contents(place).keys() - before.keys())


@pytest.mark.parametrize("commits", [1, 5, 8])
@pytest.mark.parametrize("remembers", [True, False])
def test_a_writer_whose_folder_was_made_anew_acknowledges_nothing(
    tmp_path: Path, keys: Path, place: Path, commits: int, remembers: bool
) -> None:
    loaded, waiting, reader = (opened(place, keys) for _ in range(3))
    assert rows(loaded) == rows(reader) == ROWS
    shutil.rmtree(place)
    with raises("E-INDEX-ROLLED-BACK"):
        opened(place, keys)
    key = keys if remembers else fresh(keys, tmp_path / "elsewhere")
    shutil.rmtree(f"{keys}.heads")
    for _ in range(commits):
        add(opened(place, key), "new")
    for change, running in itertools.product(CHANGES.values(), (loaded, waiting)):
        with raises("E-INDEX"):
            change(running)
    assert rows(opened(place, key)) == {"new": "text new"}
    with contextlib.suppress(StoreError):
        assert rows(reader) == ROWS
    add(opened(place, key), "new")


@pytest.mark.parametrize("trusted", [True, False])
def test_exchanged_folders_are_noticed(tmp_path: Path, keys: Path, place: Path, trusted: bool) -> None:
    key: Any = bytes(range(32)) if trusted else keys

    def of(name: str) -> SealedIndex:
        return opened(tmp_path / name, key, **({"trusted_state": tmp_path / f"{name} trusted"} if trusted else {}))

    running = {name: of(name) for name in ("one", "two")}
    for name, index in running.items():
        add(index, "a", text=name)
        index.refresh()
    (tmp_path / "one").rename(tmp_path / "held")
    (tmp_path / "two").rename(tmp_path / "one")
    (tmp_path / "held").rename(tmp_path / "two")
    for name, index in running.items():
        with raises("E-INDEX-ROLLED-BACK"):
            of(name)
        with raises("E-INDEX-ROLLED-BACK"):
            add(index, "b")
        assert rows(index) == {"a": f"{name} a"}


# Trusted state, disk, clock ----------------------------------------------------------------------


def test_processes_share_a_trusted_state(remote: Callable[..., SealedIndex], tmp_path: Path) -> None:
    """A process that was overtaken between looking and comparing raises no alarm, and forgets nothing of the newer."""
    one, two = (remote(trusted_state=tmp_path / "trusted") for _ in range(2))
    apart = remote(trusted_state=tmp_path / "elsewhere")
    add(one, "a", "b")
    assert apart.count() == two.count() == 2

    def overtaken(request: str, name: str) -> None:
        if name.endswith("commits/0000000003"):
            two._log.storage._fs.before = lambda request, name: None
            add(one, "x")
            raise FileNotFoundError

    add(one, "c")
    two._log.storage._fs.before = overtaken
    two.refresh()
    assert (two._log.chain.number, one._log.chain.number) == (2, 3)
    newest = f"{one._log.storage._root}/commits/0000000003"
    held = one._log.storage._fs.cat_file(newest)
    one._log.storage._fs.rm_file(newest)
    with raises("E-INDEX-ROLLED-BACK"):
        remote(trusted_state=tmp_path / "trusted").count()
    one._log.storage._fs.pipe_file(newest, held)
    one.delete(["x"])
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
    calls, failing = itertools.count(1), 0
    for name in {"write": ["open"], "flush": ["fsync"], "name": ["replace", "link"]}[point]:
        original = getattr(os, name)

        def full(*arguments: Any, real: Any = original, **options: Any) -> Any:
            if (point != "write" or arguments[1] & os.O_CREAT) and next(calls) == failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, full)
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
        create = os.open
        monkeypatch.setattr(os, "open", lambda *a, **k: refused() if a[1] & os.O_CREAT else create(*a, **k))
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
    KeyFile.create(tmp_path / "disk" / "search.keys", "first")
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
