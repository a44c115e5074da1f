"""A sealed index against a dict: processes that add, delete, merge, forget and renew keys, that fork, and that crash
anywhere, on a storage that withholds, alters, exchanges, links, rolls back and invents objects."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from vecveil.errors import SealingError, StoreError
from vecveil.index import SealedIndex, chain, log
from vecveil.index.keystore import MasterKeys
from vecveil.index.storage import Storage
from vecveil.keys import KeyFile

IDS = [f"id-{i}" for i in range(6)]
N = 4
NAMED = {"E-INDEX-INCOMPLETE", "E-INDEX-CHAIN", "E-INDEX-ROLLED-BACK", "E-SEAL-OPEN", "E-INDEX-STORAGE"}


class CrashError(BaseException):
    """The process was killed."""


class HookedStorage:
    """A storage that calls ``before`` ahead of every operation, and ``after`` behind it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.before: Callable[[str, str], None] = lambda operation, name: None
        self.after: Callable[[str, str], None] = lambda operation, name: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    @contextlib.contextmanager
    def creating(self, name: str, **options: bool) -> Iterator[IO[bytes]]:
        self.before("create", name)
        with self._storage.creating(name, **options) as file:
            yield file
            self.before("publish", name)
        self.after("create", name)

    def create(self, name: str, data: bytes) -> None:
        with self.creating(name) as file:
            file.write(data)

    def list(self, folder: str) -> dict[str, float | None]:
        self.before("list", folder)
        return self._storage.list(folder)

    def open(self, stored: Any, **options: Any) -> Any:
        self.before("open", stored.name)
        return self._storage.open(stored, **options)

    def delete(self, names: Any) -> None:
        for name in list(names):
            self.before("delete", name)
            self._storage.delete([name])
            self.after("delete", name)


class Processes(RuleBasedStateMachine):
    """Three processes on one folder: ``rows`` must be there; in ``unknown`` the last write was interrupted."""

    VECTORS: ClassVar[tuple[Any, ...]] = ("auto", "disk", "memory", "disk")  # of each process

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.keys = self.folder / "search.keys"
        KeyFile.create(self.keys, "first")
        self.place = self.located()
        (self.folder / "outside").write_bytes(b"not of the index")
        self.rows: dict[str, str] = {}
        self.unknown: dict[str, set[str | None]] = {}
        self.serial = 0
        self.open = [self.opened(process) for process in range(4)]
        self.add(0, IDS[:3], 0)
        self.add(1, IDS[2:4], 0)

    def located(self) -> Any:
        return self.folder / "notes"

    def key(self, process: int) -> Any:
        return self.keys

    def opened(self, process: int) -> SealedIndex:
        vectors = self.VECTORS[process]
        index = SealedIndex(self.place, self.key(process), max_staleness=0, vectors=vectors, **self.options())
        index._log.storage = HookedStorage(index._log.storage)  # type: ignore[assignment]
        return index

    def options(self) -> dict[str, Any]:
        return {}

    def run(self, process: int, work: Callable[[SealedIndex], Any], changes: dict[str, str | None], crash: int) -> None:
        """Run ``work``; with ``crash`` kill the process before or after its n-th change of the storage."""
        index = self.open[process]
        steps = 0

        def step(operation: str, name: str) -> None:
            nonlocal steps
            if operation != "list":
                steps += 1
                if steps == crash:
                    raise CrashError

        hooked: Any = index._log.storage
        hooked.before = hooked.after = step if crash else (lambda operation, name: None)
        try:
            work(index)
        except CrashError:
            for name, text in changes.items():
                before = self.unknown.pop(name, {self.rows.get(name)})
                self.unknown[name] = before | {text}
            self.open[process] = self.opened(process)
        else:
            self.acknowledged(changes)
        finally:
            hooked.before = hooked.after = lambda operation, name: None

    def acknowledged(self, changes: dict[str, str | None]) -> None:
        for name, text in changes.items():
            self.unknown.pop(name, None)
            self.rows.pop(name, None)
            if text is not None:
                self.rows[name] = text

    def check(self, index: SealedIndex) -> None:
        got = index.get() if index.exists() else None
        found = {} if got is None else dict(zip(got.ids, got.texts, strict=True))
        assert got is None or len(found) == len(got.ids), "an id is there twice"
        for name, possible in list(self.unknown.items()):
            assert found.get(name) in possible, f"{name} is neither its old nor its new version"
        settled = {name: text for name, text in found.items() if name not in self.unknown}
        assert settled == {name: text for name, text in self.rows.items() if name not in self.unknown}

    def texts(self, names: list[str]) -> list[str]:
        self.serial += 1
        return [f"{name} {self.serial}" for name in names]

    def vectors(self, names: list[str]) -> Any:
        return np.full((len(names), N), float(self.serial))

    process = st.integers(0, 2)
    crash = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 9, 12])
    some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True)

    @rule(process=process, names=some_ids, crash=crash)
    def add(self, process: int, names: list[str], crash: int) -> None:
        texts = self.texts(names)
        X = self.vectors(names)
        changes: dict[str, str | None] = dict(zip(names, texts, strict=True))
        self.run(process, lambda index: index.add(texts, ids=names, vectors=X), changes, crash)

    @rule(process=process, names=some_ids, crash=crash)
    def delete(self, process: int, names: list[str], crash: int) -> None:
        self.run(process, lambda index: index.delete(names), dict.fromkeys(names), crash)

    @rule(process=process, names=some_ids, crash=crash)
    def forget(self, process: int, names: list[str], crash: int) -> None:
        if self.open[process].exists():
            self.run(process, lambda index: index.forget(names), dict.fromkeys(names), crash)

    @rule(process=process, crash=crash, retain=st.sampled_from([0.0, log.RETAIN]))
    def compact(self, process: int, crash: int, retain: float) -> None:
        if self.open[process].exists():
            self.run(process, lambda index: index.compact(retain=retain), {}, crash)

    @rule(process=process, crash=crash)
    def reseal(self, process: int, crash: int) -> None:
        if self.open[process].exists():
            self.run(process, lambda index: index.reseal(), {}, crash)

    @rule(
        process=process,
        other=process,
        names=some_ids,
        mine=st.sampled_from(["compact", "add", "delete", "forget", "reseal"]),
        theirs=st.sampled_from(["add", "delete", "compact", "forget", "reseal"]),
        at=st.sampled_from(["segments/", "commits/"]),
    )
    def overtaken(self, process: int, other: int, names: list[str], mine: str, theirs: str, at: str) -> None:
        """Another process changes the index right before an object or a commit of this one is there."""
        index = self.open[process]
        if process == other or not index.exists() or not (hasattr(self, mine) and hasattr(self, theirs)):
            return
        if self.reseal is None and "reseal" in (mine, theirs):
            return
        hooked: Any = index._log.storage
        done = False

        def overtake(operation: str, name: str) -> None:
            nonlocal done
            if not done and operation == "publish" and name.startswith(at):
                done = True
                calls = {
                    "add": lambda: self.add(other, names, 0),
                    "delete": lambda: self.delete(other, names, 0),
                    "forget": lambda: self.forget(other, names, 0),
                    "compact": lambda: self.compact(other, 0, 0.0),
                    "reseal": lambda: self.reseal(other, 0),
                }
                calls[theirs]()

        texts, X = self.texts(names), self.vectors(names)
        hooked.before = overtake
        try:
            if mine == "add":
                index.add(texts, ids=names, vectors=X)
                self.acknowledged(dict(zip(names, texts, strict=True)))
            elif mine in ("delete", "forget"):
                getattr(index, mine)(names)
                self.acknowledged(dict.fromkeys(names))
            else:
                getattr(index, mine)()
        finally:
            hooked.before = lambda operation, name: None

    @rule(process=process, names=some_ids, what=st.sampled_from(["add", "delete", "compact"]))
    def fork(self, process: int, names: list[str], what: str) -> None:
        """A fork of the process changes the index with what it has inherited, and searches."""
        texts, X = self.texts(names), self.vectors(names)
        index = self.open[process]
        if not index.exists():
            return
        child = os.fork()
        if not child:
            code = 1
            try:
                if what == "add":
                    index.add(texts, ids=names, vectors=X)
                elif what == "delete":
                    index.delete(names)
                else:
                    index.compact(retain=0)
                index.search(np.ones(N), top=3)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        if what == "add":
            self.acknowledged(dict(zip(names, texts, strict=True)))
        elif what == "delete":
            self.acknowledged(dict.fromkeys(names))

    @rule(process=process)
    def reopen(self, process: int) -> None:
        self.open[process].close()
        self.open[process] = self.opened(process)

    @rule(process=process)
    def look(self, process: int) -> None:
        """Check what one process sees; the others stay behind. An interrupted write has the outcome that it sees."""
        index = self.open[process]
        if index.exists():
            self.check(index)
            found = dict(zip((got := index.get()).ids, got.texts, strict=True))
            for name in list(self.unknown):
                del self.unknown[name]
                self.rows.pop(name, None)
                if name in found:
                    self.rows[name] = str(found[name])

    @rule(
        kind=st.sampled_from(["withhold", "cut", "flip", "exchange", "link", "fifo", "folder", "roll back"]),
        which=st.integers(0, 10**6),
        among=st.sampled_from(["commits", "segments", "index"]),
        what=st.sampled_from(["search", "add", "delete", "compact", "forget", "reseal"]),
        running=st.booleans(),
    )
    def hostile_storage(self, kind: str, which: int, among: str, what: str, running: bool) -> None:
        """Every object that the chain needs is noticed before an answer is given and before anything is deleted."""
        if what == "reseal" and self.reseal is None:
            return
        reader = self.opened(0)
        if not reader.exists():
            return
        state = reader._log.advance()
        running = running and self.open[1]._log.chain is not None
        needed = {"index.json", *state.objects}
        needed |= {f"commits/{number:010d}" for number in range(max(1, state.checkpoint), state.number + 1)}
        if running:  # what the process has read already
            known = self.open[1]._log.chain
            needed = {f"commits/{number:010d}" for number in range(known.number + 1, state.number + 1)}
        with self.honest_afterwards():
            changed = self.tampered(kind, which, among)
            if changed is None:
                return
            before = self.there()
            try:
                self.work(self.open[1] if running else self.opened(3), what)
            except (StoreError, SealingError) as error:
                assert error.code in NAMED, error  # noqa: PT017
                gone = before - self.there()
                assert not gone & {*state.objects, "index.json"}, f"{what} failed, and deleted {gone}"
                assert not any(name.startswith("commits") for name in gone)
            else:
                assert changed not in needed, f"{what} did not notice {kind} of {changed}"
            assert (self.folder / "outside").read_bytes() == b"not of the index"

    @contextlib.contextmanager
    def honest_afterwards(self) -> Iterator[None]:
        """Put everything back at the end of the block."""
        copy, key_file = self.folder / "honest", self.keys.read_bytes()
        subprocess.run(["cp", "-a", self.place, copy], check=True)  # links and FIFOs as they are
        try:
            yield
        finally:
            shutil.rmtree(self.place)
            copy.rename(self.place)
            self.keys.write_bytes(key_file)
            shutil.rmtree(self.folder / "search.keys.heads", ignore_errors=True)  # of what was restored
            self.open = [self.opened(process) for process in range(4)]

    def there(self) -> set[str]:
        """Return the names of all objects."""
        return {str(path.relative_to(self.place)) for path in self.place.rglob("*")}

    def work(self, index: SealedIndex, what: str) -> None:
        if what == "search":
            index.search(np.ones(N), top=2)
            index.get()
        elif what == "add":
            index.add(["text"], ids=["new"], vectors=np.ones((1, N)))
            index.get()
        elif what in ("delete", "forget"):
            getattr(index, what)([IDS[0]])
            index.get()
        else:
            getattr(index, what)()

    def tampered(self, kind: str, which: int, among: str) -> str | None:
        """Change one object; return its name, or None if there is none such."""
        names = sorted(
            str(path.relative_to(self.place))
            for path in self.place.rglob("*")
            if path.is_file() and str(path.relative_to(self.place)).startswith(among)
        )
        if not names:
            return None
        name = names[which % len(names)]
        path = self.place / name
        content = path.read_bytes()
        if kind == "exchange":
            other = self.place / names[(which + 1) % len(names)]
            if other == path:
                return None
            path.write_bytes(other.read_bytes())
        elif kind == "cut":
            path.write_bytes(content[: which % len(content)])
        elif kind == "flip":
            at = which % len(content)
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        elif kind == "roll back":
            head = sorted((self.place / "commits").glob("*"))[-1:]
            if not head:
                return None
            head[0].unlink()
            return str(head[0].relative_to(self.place))
        else:
            path.unlink()
            if kind == "link":
                path.symlink_to(self.folder / "outside")
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "folder":
                path.mkdir()
        return name

    @rule(junk=st.sampled_from(["digits", "far", "segment", "folder", "link", "fifo", "name"]))
    def invent(self, junk: str) -> None:
        """Objects that are not of the chain change nothing."""
        if not (self.place / "commits").exists():
            return
        segment = self.place / "segments" / f"{self.serial:032x}"
        if os.path.lexists(segment):
            return
        if junk == "digits":
            (self.place / "commits" / "\u0663\u0663\u0663\u0663\u0663\u0663\u0663\u0663\u0663\u0663").write_bytes(b"x")
            (self.place / "commits" / "99999999999").write_bytes(b"x")
        elif junk == "far":
            (self.place / "commits" / "9999999999").write_bytes(b"junk")
        elif junk == "segment":
            segment.write_bytes(b"PAR1 junk PAR1")
        elif junk == "folder":
            segment.mkdir()
        elif junk == "link":
            segment.symlink_to("/dev/zero")
        elif junk == "fifo":
            os.mkfifo(segment)
        else:
            (self.place / "segments" / "c0000.parquet").write_bytes(b"x")

    def teardown(self) -> None:
        for process, index in enumerate(getattr(self, "open", [])):
            if process < 3:
                self.look(process)
            index.close()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)


class OnlyWraps:
    """A provider of a process that may encrypt and not decrypt."""

    def __init__(self, keys: MasterKeys) -> None:
        self.wrap = keys.wrap


class WithProvider(Processes):
    """Keys of a provider, which nothing renews; a fourth process can wrap them and not unwrap: it only adds."""

    def key(self, process: int) -> Any:
        keys = MasterKeys(KeyFile.from_file(self.keys))
        return OnlyWraps(keys) if process == 3 else keys

    def options(self) -> dict[str, Any]:
        return {"trusted_state": self.folder / "trusted"}

    reseal = hostile_storage = None  # type: ignore[assignment]

    @rule(names=Processes.some_ids, crash=Processes.crash)
    def add_without_reading(self, names: list[str], crash: int) -> None:
        self.add(3, names, crash)

    @rule(names=Processes.some_ids, crash=Processes.crash)
    def delete_without_reading(self, names: list[str], crash: int) -> None:
        self.delete(3, names, crash)


class OnS3(Processes):
    """The same over S3's API; links, FIFOs and folders are no objects there."""

    VECTORS: ClassVar[tuple[Any, ...]] = ("auto", "remote", "disk", "remote")
    s3: ClassVar[dict[str, Any]]
    places = itertools.count()

    def located(self) -> Any:
        return f"s3://bucket/machine-{os.getpid()}-{next(self.places)}"

    def options(self) -> dict[str, Any]:
        return {"storage_options": self.s3, "cache": self.folder / "cache"}

    def objects(self) -> dict[str, bytes]:
        files, root = self.open[0]._log.storage._fs, self.open[0]._log.storage._root
        files.invalidate_cache()
        return {path.removeprefix(root + "/"): files.cat_file(path) for path in files.find(root)}

    def change(self, objects: dict[str, bytes]) -> None:
        """Make the storage have these objects alone."""
        files, root = self.open[0]._log.storage._fs, self.open[0]._log.storage._root
        there = self.objects()
        for name in there.keys() - objects:
            files.rm_file(f"{root}/{name}")
        for name, content in objects.items():
            if there.get(name) != content:
                files.pipe_file(f"{root}/{name}", content)

    @contextlib.contextmanager
    def honest_afterwards(self) -> Iterator[None]:
        copy, key_file = self.objects(), self.keys.read_bytes()
        try:
            yield
        finally:
            self.change(copy)
            self.keys.write_bytes(key_file)
            shutil.rmtree(self.folder / "search.keys.heads", ignore_errors=True)
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
            self.open = [self.opened(process) for process in range(4)]

    def there(self) -> set[str]:
        return set(self.objects())

    def tampered(self, kind: str, which: int, among: str) -> str | None:
        shutil.rmtree(self.folder / "cache", ignore_errors=True)  # of the machine, which the storage cannot change
        objects = self.objects()
        names = sorted(name for name in objects if name.startswith("commits" if kind == "roll back" else among))
        if not names or (kind == "exchange" and len(names) < 2):
            return None
        name = names[-1] if kind == "roll back" else names[which % len(names)]
        content = objects.pop(name)
        if kind == "exchange":
            objects[name] = objects[names[(which + 1) % len(names)] if names[which % len(names)] == name else names[0]]
        elif kind == "cut":
            objects[name] = content[: which % len(content)]
        elif kind == "flip":
            at = which % len(content)
            objects[name] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        self.change(objects)
        return name

    @rule(junk=st.sampled_from(["commits/9999999999", "commits/99999999999", "segments/" + 32 * "0", "segments/x"]))
    def invent(self, junk: str) -> None:  # type: ignore[override]
        if "index.json" in self.objects():
            self.open[0]._log.storage._fs.pipe_file(f"{self.open[0]._log.storage._root}/{junk}", b"junk")


@pytest.mark.parametrize("processes", [Processes, WithProvider, OnS3])
def test_processes_agree_with_a_dict(
    monkeypatch: pytest.MonkeyPatch, processes: type[Processes], request: pytest.FixtureRequest
) -> None:
    examples = int(os.environ.get("VECVEIL_FAULT_MOMENTS", "8"))
    if processes is OnS3:  # each of its steps costs twenty times as much as on a folder
        OnS3.s3 = request.getfixturevalue("s3_options")
        examples = -(-examples // 2)
    monkeypatch.setattr(log, "_MOST_APPENDS", 5)
    monkeypatch.setattr(chain, "_BETWEEN", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        processes, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None)
    )
