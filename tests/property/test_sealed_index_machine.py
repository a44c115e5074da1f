"""A sealed index against a dict: processes that add, delete, merge, forget and renew keys, that fork, and that crash
anywhere, on a storage that withholds, alters, exchanges, links, rolls back and invents objects."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from vecveil.errors import SealingError, StoreError
from vecveil.randomness import NoiseKeys
from vecveil.sealing.keystore import MasterKeys
from vecveil.search import SealedIndex, chain, log
from vecveil.search.storage import Storage

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
    def creating(self, name: str) -> Iterator[IO[bytes]]:
        self.before("create", name)
        with self._storage.creating(name) as file:
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

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.keys = self.folder / "search.keys"
        NoiseKeys.create(self.keys, "first")
        self.place = self.folder / "notes"
        (self.folder / "outside").write_bytes(b"not of the index")
        self.rows: dict[str, str] = {}
        self.unknown: dict[str, set[str | None]] = {}
        self.serial = 0
        self.earlier: Path | None = None
        self.open = [self.opened(process) for process in range(4)]

    def key(self, process: int) -> Any:
        return self.keys

    def opened(self, process: int) -> SealedIndex:
        index = SealedIndex(self.place, self.key(process), max_staleness=0, **self.options())
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
        if not self.place.exists() or (what == "reseal" and self.reseal is None):
            return
        reader = self.opened(0)
        if not reader.exists():
            return
        state = reader._log.advance()
        first = 1 if not running else self.open[1]._log.chain.number + 1 if self.open[1]._log.chain else 1
        needed = {f"commits/{k:010d}" for k in range(max(first, state.checkpoint), state.number + 1)}
        needed |= set(state.objects) if not running else set()
        needed |= {"index.json"} if not running else set()
        copy = self.folder / "honest"
        subprocess.run(["cp", "-a", self.place, copy], check=True)  # links and FIFOs as they are
        key_file = self.keys.read_bytes()
        try:
            changed = self.tampered(kind, which, among)
            if changed is None:
                return
            before = {path for path in self.place.rglob("*") if path.is_file()}
            index = None
            try:
                index = self.open[1] if running else self.opened(3)
                self.work(index, what)
            except (StoreError, SealingError) as error:
                assert error.code in NAMED, error
                assert not isinstance(error, SealingError) or "segments/" in str(error)
                gone = {path for path in before if not os.path.lexists(path)}
                known = {self.place / name for name in (*state.objects, "index.json")}
                assert not gone & known, f"{what} deleted {gone & known} although it failed"
                assert not any("commits" in str(path) for path in gone)
            else:
                assert changed not in needed, f"{what} did not notice {kind} of {changed}"
        finally:
            assert (self.folder / "outside").read_bytes() == b"not of the index"
            shutil.rmtree(self.place)
            copy.rename(self.place)
            self.keys.write_bytes(key_file)
            shutil.rmtree(self.folder / "search.keys.heads", ignore_errors=True)  # of what was restored
            self.open = [self.opened(process) for process in range(4)]

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
        keys = MasterKeys(NoiseKeys.from_file(self.keys))
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


@pytest.mark.parametrize("processes", [Processes, WithProvider])
def test_processes_agree_with_a_dict(monkeypatch: pytest.MonkeyPatch, processes: type[Processes]) -> None:
    monkeypatch.setattr(log, "_MOST_APPENDS", 5)
    monkeypatch.setattr(chain, "_BETWEEN", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    examples = int(os.environ.get("VECVEIL_FAULT_MOMENTS", "8"))
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        processes, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None)
    )
