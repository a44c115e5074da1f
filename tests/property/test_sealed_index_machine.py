"""A sealed index against a dict: processes that add, delete, merge, forget and renew keys, and crash anywhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from vecveil.randomness import NoiseKeys
from vecveil.sealing.keystore import MasterKeys
from vecveil.search import SealedIndex, log
from vecveil.search.storage import Storage

IDS = [f"id-{i}" for i in range(6)]
N = 4


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
    def creating(self, name: str) -> Iterator[Path]:
        self.before("create", name)
        with self._storage.creating(name) as path:
            yield path
            self.before("publish", name)
        self.after("create", name)

    def create(self, name: str, data: bytes) -> None:
        with self.creating(name) as path:
            path.write_bytes(data)

    def list(self, folder: str) -> set[str]:
        self.before("list", folder)
        return self._storage.list(folder)

    def fetch(self, name: str) -> Path:
        self.before("fetch", name)
        return self._storage.fetch(name)

    def delete(self, names: Any) -> None:
        for name in list(names):
            self.before("delete", name)
            self._storage.delete([name])
            self.after("delete", name)

    def empty(self, name: str) -> None:
        self.before("empty", name)
        self._storage.empty(name)


class Processes(RuleBasedStateMachine):
    """Three processes on one folder: ``rows`` must be there; in ``unknown`` the last write was interrupted."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.keys = self.folder / "search.keys"
        NoiseKeys.create(self.keys, "first")
        self.rows: dict[str, str] = {}
        self.unknown: dict[str, set[str | None]] = {}
        self.serial = 0
        self.open = [self.opened(process) for process in range(4)]

    def key(self, process: int) -> Any:
        return self.keys

    def opened(self, process: int) -> SealedIndex:
        index = SealedIndex(self.folder / "notes", self.key(process), max_staleness=0)
        index._log.storage = HookedStorage(index._log.storage)  # type: ignore[assignment]
        return index

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
            for name, text in changes.items():
                self.unknown.pop(name, None)
                self.rows.pop(name, None)
                if text is not None:
                    self.rows[name] = text
        finally:
            hooked.before = hooked.after = lambda operation, name: None

    def check(self, index: SealedIndex) -> None:
        got = index.get() if index._log.exists() else None
        found = {} if got is None else dict(zip(got.ids, got.texts, strict=True))
        assert got is None or len(found) == len(got.ids), "an id is there twice"
        for name, possible in list(self.unknown.items()):
            assert found.get(name) in possible, f"{name} is neither its old nor its new version"
        settled = {name: text for name, text in found.items() if name not in self.unknown}
        assert settled == {name: text for name, text in self.rows.items() if name not in self.unknown}

    process = st.integers(0, 2)
    crash = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 9, 12])
    some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True)

    @rule(process=process, names=some_ids, crash=crash)
    def add(self, process: int, names: list[str], crash: int) -> None:
        self.serial += 1
        texts = [f"{name} {self.serial}" for name in names]
        X = np.full((len(names), N), float(self.serial))
        changes: dict[str, str | None] = dict(zip(names, texts, strict=True))
        self.run(process, lambda index: index.add(texts, ids=names, vectors=X), changes, crash)

    @rule(process=process, names=some_ids, crash=crash)
    def delete(self, process: int, names: list[str], crash: int) -> None:
        self.run(process, lambda index: index.delete(names), dict.fromkeys(names), crash)

    @rule(process=process, names=some_ids, crash=crash)
    def forget(self, process: int, names: list[str], crash: int) -> None:
        if self.open[process]._log.exists():
            self.run(process, lambda index: index.forget(names), dict.fromkeys(names), crash)

    @rule(process=process, crash=crash)
    def compact(self, process: int, crash: int) -> None:
        if self.open[process]._log.exists():
            self.run(process, lambda index: index.compact(), {}, crash)

    @rule(process=process, crash=crash)
    def reseal(self, process: int, crash: int) -> None:
        if self.open[process]._log.exists():
            self.run(process, lambda index: index.reseal(), {}, crash)

    @rule(process=process, other=process, names=some_ids, what=st.sampled_from(["add", "delete", "compact", "forget"]))
    def commit_is_overtaken(self, process: int, other: int, names: list[str], what: str) -> None:
        """Between the writing of a merge and its commit another process changes the index."""
        if process == other or not self.open[process]._log.exists():
            return
        hooked: Any = self.open[process]._log.storage
        done = False

        def overtake(operation: str, name: str) -> None:
            nonlocal done
            if not done and operation == "create" and name.startswith("commits/"):
                done = True
                self.add(other, names, 0) if what == "add" else None
                self.delete(other, names, 0) if what == "delete" else None
                self.forget(other, names, 0) if what == "forget" else None
                self.compact(other, 0) if what == "compact" else None

        hooked.before = overtake
        try:
            self.open[process].compact()
        finally:
            hooked.before = lambda operation, name: None

    @rule(process=process, names=some_ids)
    def append_under_a_retiring_key(self, process: int, names: list[str]) -> None:
        """A key is renewed and deleted after a writer took it and before its append is there."""
        if not self.open[process]._log.exists() or not self.rows:
            return
        hooked: Any = self.open[process]._log.storage
        other = self.open[(process + 1) % 3]
        done = False

        def renew(operation: str, name: str) -> None:
            nonlocal done
            if not done and operation == "publish" and name.startswith("segments/"):
                done = True
                other.reseal()

        hooked.before = renew
        self.serial += 1
        texts = [f"{name} {self.serial}" for name in names]
        try:
            self.open[process].add(texts, ids=names, vectors=np.full((len(names), N), 1.0))
        finally:
            hooked.before = lambda operation, name: None
        for name, text in zip(names, texts, strict=True):
            self.unknown.pop(name, None)
            self.rows[name] = text

    @rule(process=process)
    def reopen(self, process: int) -> None:
        self.open[process].close()
        self.open[process] = self.opened(process)

    @rule(process=process)
    def look(self, process: int) -> None:
        """Check what one process sees; the others stay behind. An interrupted write has the outcome that it sees."""
        index = self.open[process]
        if index._log.exists():
            self.check(index)
            found = dict(zip((got := index.get()).ids, got.texts, strict=True))
            for name in list(self.unknown):
                del self.unknown[name]
                self.rows.pop(name, None)
                if name in found:
                    self.rows[name] = str(found[name])

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

    reseal = append_under_a_retiring_key = None  # type: ignore[assignment]

    @rule(names=Processes.some_ids, crash=Processes.crash)
    def add_without_reading(self, names: list[str], crash: int) -> None:
        self.add(3, names, crash)


@pytest.mark.parametrize("processes", [Processes, WithProvider])
def test_processes_agree_with_a_dict(monkeypatch: pytest.MonkeyPatch, processes: type[Processes]) -> None:
    monkeypatch.setattr(log, "_MOST_APPENDS", 5)
    monkeypatch.setattr(log, "_GRACE", 2)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    examples = int(os.environ.get("VECVEIL_FAULT_MOMENTS", "8"))
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        processes, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None)
    )
